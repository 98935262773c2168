//! The BYEs that tell a peer of the end of a rank.

use crate::connection::Policy;
use crate::time::Instant;
use core::time::Duration;

/// Number of BYEs that tell a peer of the end of a rank: no packet acknowledges them.
pub const BYES: u32 = 4;
/// The longest time between two of them.
pub const BYE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The rank's BYE, and how often it was sent.
#[derive(Default)]
pub(super) struct Farewell {
    /// The kept packet.
    pub bye: Option<u32>,
    /// Number of BYEs sent, and time of the next.
    byes: u32,
    at: Instant,
}

impl Farewell {
    /// Returns true if a BYE was sent at least once.
    pub fn is_said(&self) -> bool {
        self.byes > 0
    }

    /// Returns the BYE, if its time has come.
    pub fn due(&self, now: Instant) -> Option<u32> {
        self.bye.filter(|_| self.at <= now)
    }

    /// Returns the time of the next. One not sent yet waits for other events.
    pub fn next_at(&self) -> Option<Instant> {
        self.bye.filter(|_| self.is_said()).map(|_| self.at)
    }

    /// Notes that a BYE is sent now, over a path of this timeout. True if it was the last.
    pub fn note_sent(&mut self, now: Instant, rto: Duration) -> bool {
        self.byes += 1;
        self.at = now + rto.clamp(Policy::AGENT.rto_min, BYE_PAUSE_MAX);
        self.byes >= BYES
    }
}

//! One connection: what the engine of a rank and the relay of an agent both keep of a peer, and the
//! rules that hold for both.
//!
//! Each part owns its data and has the methods on them: [`Session`] the numbers, [`Windows`] the
//! packets on their way with round-trip time and congestion, [`Credit`] the grants of both sides,
//! [`Lengths`] the peer's questions for the length that gets through, [`Life`] the time when the
//! peer was heard. Where a rule differs between the two users, a [`Policy`] has the difference. The
//! state machine of a session, queues and the choice of links are their own.

mod credit;
mod lengths;
mod life;
mod policy;
mod session;
mod timers;
mod windows;

pub(crate) use credit::Credit;
pub(crate) use lengths::Lengths;
pub(crate) use life::{Life, Overdue};
pub(crate) use policy::Policy;
pub(crate) use session::{Count, Session};
pub(crate) use timers::Timers;
pub(crate) use windows::{delay_target, window_mode, Acknowledged, Windowed, Windows};

use crate::id::{EndpointId, PeerId};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::Common;
use core::time::Duration;

/// A connection to a peer. `W` are its windows: the relay's always exist, the engine's only on
/// links that lose or reorder packets.
pub(crate) struct Connection<W> {
    pub id: PeerId,
    pub endpoint: EndpointId,
    pub session: Session,
    pub windows: W,
    pub credit: Credit,
    pub lengths: Lengths,
    pub life: Life,
    /// Time at which the timer table fires for this peer.
    pub armed: Instant,
}

impl<W: Windowed> Connection<W> {
    pub fn new(
        (id, endpoint): (PeerId, EndpointId),
        session_in: u32,
        windows: W,
        credit: Credit,
    ) -> Connection<W> {
        Connection {
            id,
            endpoint,
            session: Session::new(session_in),
            windows,
            credit,
            lengths: Lengths::default(),
            life: Life::default(),
            armed: Instant::FAR,
        }
    }

    /// Returns the common header of a packet to this peer, which may not arrive: what it
    /// acknowledges and grants does not count as told.
    #[inline]
    pub fn header(&self, flags: u16, seq: Seq, imm: u32) -> Common {
        let ack = self.windows.get().map_or(Seq(0), |w| w.recv.next_expected());
        let credit = self.credit.outward.grant();
        Common { flags, session: self.session.number_out, seq, ack, credit, imm }
    }

    /// Returns the common header of a packet to this peer that is sent now: what it acknowledges
    /// and grants counts as told.
    #[inline]
    pub fn common(&mut self, flags: u16, mut seq: Seq, imm: u32) -> Common {
        if let Some(count) = &mut self.session.trusted {
            seq = count.sent;
            count.sent = seq.next();
        }
        if let Some(w) = self.windows.get_mut() {
            w.recv.ack_piggybacked();
        }
        self.credit.outward.announced();
        self.header(flags, seq, imm)
    }

    /// Returns the time for which the peer has been silent though packets wait for its
    /// acknowledgement.
    pub fn silence(&self, now: Instant) -> Duration {
        let stuck = self.windows.get().and_then(|w| w.send.stuck_since());
        now.since(self.life.heard_at.max(stuck.unwrap_or(now)))
    }

    /// Returns the time at which packets to the peer will have been unacknowledged for too long.
    /// For a peer that has become silent, `limit` counts from the silence.
    pub fn stuck_at(&self, limit: Duration) -> Option<Instant> {
        let since = self.windows.get()?.send.stuck_since()?;
        Some(self.life.stuck_at(since, limit))
    }

    /// Judges packets that have been unacknowledged for too long. `None` if the oldest has to be
    /// sent again before.
    pub fn judge_stuck(&mut self, now: Instant, limit: Duration) -> Option<Overdue> {
        let w = self.windows.get()?;
        let ((_, tries), since) = (w.send.oldest_item()?, w.send.stuck_since()?);
        self.life.judge_stuck(now, (since, limit), tries < w.policy.tries)
    }
}

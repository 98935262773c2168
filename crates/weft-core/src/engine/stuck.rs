//! A peer that is heard, but without progress: it answers, and still packets to it stay
//! unacknowledged. `connection/life.rs` judges that.

use super::types::Event;
use super::Engine;
use crate::connection::Overdue;
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::peer::{LastWord, State};
use crate::time::Instant;
use crate::wire::reason;
use core::time::Duration;

impl Engine {
    /// Notes that a packet arrived for the second time: the peer misses acknowledgements. A side
    /// that only acknowledges has no packet of its own that stays unacknowledged, and would
    /// otherwise never find that its path is lost.
    #[cold]
    pub(super) fn note_repeat(&mut self, now: Instant, peer: PeerId) {
        let Some(w) = &mut self.peers[peer.0 as usize].conn.windows else { return };
        let (times, counts) = w.note_repeat(now);
        if counts && times > 1 {
            self.events.push_back(Event::PeerStalled(peer, times));
        }
    }

    /// Returns the time at which packets to the peer will have been unacknowledged for too long. A
    /// link that sees the peer's process loses nothing.
    pub(super) fn stuck_at(&self, peer: PeerId) -> Option<Instant> {
        let p = &self.peers[peer.0 as usize];
        if p.path.caps.sees_end || !matches!(p.state, State::Ready) {
            return None;
        }
        p.conn.stuck_at(Duration::from_millis(u64::from(self.cfg.peer_timeout_ms)))
    }

    /// Handles packets that have been unacknowledged for too long.
    pub(super) fn check_stuck(&mut self, now: Instant, peer: PeerId) {
        let limit = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms));
        let p = &mut self.peers[peer.0 as usize];
        if p.rests(now) {
            return;
        }
        let Some(overdue) = p.conn.judge_stuck(now, limit) else { return };
        let after_ms = |time: Duration| time.as_millis() as u32;
        match overdue {
            Overdue::Silent(silent) => {
                let after_ms = after_ms(silent);
                let still = p.stands_still(after_ms);
                self.fail_peer(peer, still.unwrap_or(PeerFailure::Silent { after_ms }));
            }
            Overdue::Stuck(time) => {
                let oldest = p.conn.windows.as_ref().and_then(|w| w.send.oldest_item());
                let Some((desc, _)) = oldest else { return };
                let failure = PeerFailure::Stuck {
                    after_ms: after_ms(time),
                    kind: desc.packet.packet_type(),
                    len: desc.len(),
                };
                self.end_peer(peer, failure, Some(LastWord::Bye(reason::STUCK)));
            }
        }
    }
}

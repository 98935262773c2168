//! A peer that is heard, but without progress: it answers, and still packets to it stay
//! unacknowledged.
//!
//! Something on the route drops packets by their length or by their type. Silence cannot detect
//! that, so the time counts since the oldest unacknowledged packet became the oldest. A peer that
//! computes, or posts no receive, acknowledges all the same, so that no wait for a program counts;
//! and an agent whose rank accepts nothing reports that the packet has arrived.

use super::types::Event;
use super::Engine;
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::peer::{LastWord, State};
use crate::time::Instant;
use crate::wire::reason;
use core::time::Duration;

/// Least number of retransmissions of the oldest packet before the peer is given up: this process
/// may have been inactive for the time that counts.
const TRIES: u8 = 3;
/// If there were fewer, the part of the timeout that is left for them once that is noticed.
const REPEAT_EVERY: u32 = 8;

impl Engine {
    /// Notes that a packet arrived for the second time: the peer misses acknowledgements. A side
    /// that only acknowledges has no packet of its own that stays unacknowledged, and would
    /// otherwise never find that its path is lost.
    #[cold]
    pub(super) fn note_repeat(&mut self, now: Instant, peer: PeerId) {
        let Some(w) = &mut self.peers[peer.0 as usize].windows else { return };
        if let Some(times) = w.repeats.note(now, w.recv.next_expected()) {
            self.events.push_back(Event::PeerStalled(peer, times));
        }
    }

    /// Returns the time at which packets to the peer will have been unacknowledged for too long.
    /// For a peer that has become silent the timeout counts from the silence. A link that sees the
    /// peer's process loses nothing.
    pub(super) fn stuck_at(&self, peer: PeerId) -> Option<Instant> {
        let p = &self.peers[peer.0 as usize];
        let since = p.windows.as_ref()?.send.stuck_since()?;
        if p.state != State::Ready || p.path.caps.sees_end {
            return None;
        }
        let limit = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms));
        let at = match p.life.heard_at + limit / 2 >= since + limit {
            true => since + limit,
            false => p.life.heard_at.max(since) + limit,
        };
        Some(if p.life.overdue_at > since {
            at.max(p.life.overdue_at + limit / REPEAT_EVERY)
        } else {
            at
        })
    }

    /// Handles packets that have been unacknowledged for too long.
    pub(super) fn check_stuck(&mut self, now: Instant, peer: PeerId) {
        let limit = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms));
        let p = &mut self.peers[peer.0 as usize];
        let Some(w) = &p.windows else { return };
        let (Some((desc, tries)), Some(since)) = (w.send.oldest_item(), w.send.stuck_since())
        else {
            return;
        };
        if tries < TRIES && p.life.overdue_at <= since {
            p.life.overdue_at = now;
            return;
        }
        let silent = now.since(p.life.heard_at.max(since));
        if silent >= limit {
            let after_ms = silent.as_millis() as u32;
            let still = p.stands_still(after_ms);
            return self.fail_peer(peer, still.unwrap_or(PeerFailure::Silent { after_ms }));
        }
        let failure = PeerFailure::Stuck {
            after_ms: now.since(since).as_millis() as u32,
            kind: desc.packet.packet_type(),
            len: desc.len(),
        };
        self.end_peer(peer, failure, Some(LastWord::Bye(reason::STUCK)));
    }
}

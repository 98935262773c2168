//! Room for unexpected messages beyond what every peer may have: its credit, and `rendezvous_max`
//! announcements. A peer that comes near that limit gets more in advance and in steps, if there is
//! room (`unexpected_max`): it may announce more (NOP with a number), or its credit grows. So an
//! awaited message is not blocked by others before it. A message that leaves the store gives its
//! room back.

use super::op::Kind;
use super::types::Event;
use super::views::{MatchingView, PeerMut};
use super::{Engine, Op, TAGGED};
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::peer::{Desc, Item, LastWord};
use crate::reliability::UNIT;
use crate::slab::STORED_BITS;
use crate::time::Instant;
use crate::wire::{flags, reason, Nop, Packet};
use core::time::Duration;

/// Bytes that an announced message takes in tables, including the spare capacity of vectors.
const ANNOUNCED: u64 = 256;
/// Bytes that a message that waits to be sent takes in tables.
const QUEUED: u64 = 512;
/// Bytes for a unit of credit: an eager message takes about the same again in tables.
const EXTENDED: u64 = 2 * UNIT as u64;
/// Most announcements granted at a time.
const STEP_MAX: u32 = 1024;
/// Up to this length a message takes no more than its announcement would.
const SMALL: u64 = 256;
/// Time between searches for tables that have become too large.
const SHRINK_EVERY: Duration = Duration::from_millis(100);
/// Messages that may wait for one peer, however little room there is.
pub(super) const QUEUE_MIN: usize = 1 << 16;

/// Most room that is used: half of the numbers of stored messages are for those that every peer may
/// have.
pub(super) const MAX: u64 = (1 << (STORED_BITS - 1)) * ANNOUNCED;

/// Returns the announcements granted at a time, if every peer may have `base`.
fn step(base: u32) -> u32 {
    (base / 4).clamp(1, STEP_MAX)
}

impl Engine {
    /// Returns the number of messages that a peer may still announce.
    pub(super) fn announcements_left(&self, peer: PeerId) -> u32 {
        let p = &self.peers[peer.0 as usize];
        (self.cfg.rendezvous_max.saturating_add(p.incoming.share.granted))
            .saturating_sub(p.incoming.rendezvous)
    }

    /// Handles an announced message that no receive has asked for.
    pub(super) fn on_unmatched(&mut self, now: Instant, peer: PeerId) {
        if !self.grant_more(peer) && self.announcements_left(peer) == 0 {
            self.note_full(now, peer);
        }
    }

    /// Lets a peer announce more if it has come near its limit. False if there is no room.
    fn grant_more(&mut self, peer: PeerId) -> bool {
        let step = step(self.cfg.rendezvous_max);
        if self.announcements_left(peer) > step / 2 {
            return true;
        }
        let p = &mut self.peers[peer.0 as usize];
        if !self.matching.budget.take(peer, &mut p.incoming.share, u64::from(step) * ANNOUNCED) {
            return false;
        }
        p.incoming.share.granted += step;
        p.incoming.share.full_since = Instant::FAR;
        p.queue.ctrl.push_back(Desc::bare(Packet::Nop(Nop), step));
        self.make_ready(peer);
        true
    }

    /// Notes that a message announced here has ended; returns the flags of its FIN. Once the peer
    /// may announce enough again, it loses one of the granted announcements.
    pub(super) fn announcement_ended(&mut self, peer: PeerId) -> u16 {
        let p = &mut self.peers[peer.0 as usize];
        p.incoming.rendezvous = p.incoming.rendezvous.saturating_sub(1);
        p.incoming.share.taken = true;
        let granted = p.incoming.share.granted > 0;
        if !granted || self.announcements_left(peer) <= step(self.cfg.rendezvous_max) {
            return 0;
        }
        self.peers[peer.0 as usize].incoming.share.granted -= 1;
        self.give_room(peer, ANNOUNCED);
        flags::NACK
    }

    /// Notes that the peer lets this side announce `more` messages.
    pub(super) fn may_announce(&mut self, peer: PeerId, more: u32) {
        let share = &mut self.peers[peer.0 as usize].incoming.share;
        share.allowed = share.allowed.saturating_add(more);
        self.wake_queued(peer);
    }

    /// Notes that an eager message of `len` bytes waits in the store.
    #[inline]
    pub(super) fn on_stored(&mut self, peer: PeerId, len: u64) {
        if len <= SMALL {
            self.extend_credit(peer);
        }
    }

    /// Lets the credit of a peer grow if it has little left. False if there is no room.
    fn extend_credit(&mut self, peer: PeerId) -> bool {
        let p = &mut self.peers[peer.0 as usize];
        let Some(units) = p.conn.credit.outward.lacks().filter(|_| p.failure().is_none()) else {
            return true;
        };
        p.incoming.share.wants_credit =
            !self.matching.budget.take(peer, &mut p.incoming.share, u64::from(units) * EXTENDED);
        if p.incoming.share.wants_credit {
            return false;
        }
        p.conn.credit.outward.extend(units);
        p.incoming.share.full_since = Instant::FAR;
        p.conn.credit.ack_asked = true;
        self.make_ready(peer);
        true
    }

    /// Notes that a kept message has left.
    pub(super) fn taken(&mut self, peer: PeerId, len: u64) {
        self.peers[peer.0 as usize].incoming.share.taken = true;
        self.consumed(peer, len);
    }

    /// Returns true if a message that has left pays back extended credit of its peer. Any message
    /// does, kept or not: the extended credit is outstanding in all messages of the peer together,
    /// and active ones spend of the same grant.
    #[cold]
    pub(super) fn repaid(&mut self, peer: PeerId, len: u64) -> bool {
        let units = self.peers[peer.0 as usize].conn.credit.outward.repay(len as usize);
        if let Some(units) = units {
            self.give_room(peer, u64::from(units) * EXTENDED);
        }
        units.is_some()
    }

    /// Takes room back from a peer; one that waits for room may have it.
    fn give_room(&mut self, peer: PeerId, bytes: u64) {
        self.matching.budget.give(&mut self.peers[peer.0 as usize].incoming.share, bytes);
        let Some(next) = self.matching.budget.next_short() else { return };
        let p = &mut self.peers[next.0 as usize];
        p.incoming.share.called();
        if p.failure().is_some() {
            return;
        }
        if p.incoming.share.wants_credit {
            self.extend_credit(next);
        }
        self.grant_more(next);
    }

    /// Forgets the grants of a failed peer, which announces nothing more. Its messages in the store
    /// keep their room.
    pub(super) fn forget_grants(&mut self, peer: PeerId) {
        let granted = core::mem::take(&mut self.peers[peer.0 as usize].incoming.share.granted);
        self.give_room(peer, u64::from(granted) * ANNOUNCED);
    }

    /// Notes that there is no room for more messages of a peer: reports it, once, and watches if
    /// any is taken.
    #[cold]
    fn note_full(&mut self, now: Instant, peer: PeerId) {
        let at = now + self.peer_timeout();
        let p = &mut self.peers[peer.0 as usize];
        if p.incoming.share.full_since != Instant::FAR {
            return;
        }
        (p.incoming.share.full_since, p.incoming.share.taken) = (now, false);
        self.timers.arm(&mut p.conn, at);
        if !core::mem::replace(&mut p.incoming.share.reported, true) {
            let (messages, bytes) = self.left_by(peer);
            self.events.push_back(Event::PeerFull(peer, messages, bytes));
        }
    }

    /// Returns the end of the time for a peer whose messages fill the room.
    pub(super) fn full_until(&self, peer: PeerId) -> Option<Instant> {
        let since = self.peers[peer.0 as usize].incoming.share.full_since;
        (since != Instant::FAR).then(|| since + self.peer_timeout())
    }

    /// Handles a peer whose messages fill the room, if none of them was taken for the peer timeout.
    /// A receive that waits for a message of the peer would wait for ever: the session ends.
    /// Without such a receive the program may just be busy.
    pub(super) fn check_full(&mut self, now: Instant, peer: PeerId) {
        let share = &mut self.peers[peer.0 as usize].incoming.share;
        let idle = !core::mem::take(&mut share.taken);
        share.full_since = now;
        if idle && self.is_awaited(peer) {
            let (messages, bytes) = self.left_by(peer);
            self.end_flood(peer, messages, bytes);
        }
    }

    fn end_flood(&mut self, peer: PeerId, messages: u64, bytes: u64) {
        let word = LastWord::Bye(reason::FLOODED);
        self.end_peer(peer, PeerFailure::Flooded { messages, bytes }, Some(word));
    }

    /// Returns true if a message of a peer is awaited: by a receive, by a caller without one, or by
    /// a caller that polls for packets or probes.
    fn is_awaited(&self, peer: PeerId) -> bool {
        let ops = self.ops.keys().filter_map(|key| self.ops.get(key));
        let of_peer = ops.filter(|op| op.peer == Some(peer)).count();
        self.peers[peer.0 as usize].watch.waiting as usize > of_peer
            || self.matching().awaits()
            || self.matching.posted[TAGGED].any_for(peer)
    }

    /// Returns the number of a peer's messages that wait for a receive here, and their bytes: in
    /// the store, announced, and at clients of the driver.
    fn left_by(&self, peer: PeerId) -> (u64, u64) {
        let stored = self.matching.stored.keys().filter_map(|id| self.matching.stored.get(id));
        let lens = stored.filter(|s| s.peer == peer).map(|s| s.len);
        let kept = self.peers[peer.0 as usize].incoming.share.kept;
        lens.fold(kept, |(n, bytes), len| (n + 1, bytes + len))
    }

    /// Returns the failure of a peer without room: the number of messages announced to it, and
    /// their bytes.
    pub(super) fn flooded(&self, peer: PeerId) -> PeerFailure {
        let mut left = (0, 0);
        for Op { kind, .. } in
            self.ops.keys().filter_map(|key| self.ops.get(key)).filter(|op| op.peer == Some(peer))
        {
            if let Kind::Send(send) = kind {
                left = (left.0 + 1, left.1 + send.len);
            }
        }
        PeerFailure::Flooded { messages: left.0, bytes: left.1 }
    }

    /// Returns true if too much is queued for a peer for one message more. If the first in the
    /// queue has not moved for the peer timeout, the session ends: a caller that only tries again
    /// would do so for ever.
    #[cold]
    pub(super) fn is_overfull(&mut self, now: Instant, peer: PeerId) -> bool {
        let most = (self.cfg.unexpected_max / QUEUED) as usize;
        let limit = self.peer_timeout();
        let p = &mut self.peers[peer.0 as usize];
        if p.queue.msgs.len() < most.saturating_sub(self.ops.len()).max(QUEUE_MIN) {
            p.incoming.share.stuck = None;
            return false;
        }
        let first = match p.queue.msgs.front() {
            Some(Item::Eager(op) | Item::Rts(op) | Item::Put(op)) => op.0,
            _ => 0,
        };
        let since =
            p.incoming.share.stuck.filter(|(op, _)| *op == first).map_or(now, |(_, since)| since);
        p.incoming.share.stuck = Some((first, since));
        if now.since(since) >= limit {
            let PeerFailure::Flooded { messages, bytes } = self.flooded(peer) else { return true };
            self.end_flood(peer, messages, bytes);
        }
        true
    }

    /// Gives back memory of tables that a burst needed, at intervals.
    pub(super) fn shrink_tables(&mut self, now: Instant) {
        if now < self.matching.shrink_at {
            return;
        }
        self.matching.shrink_at = now + SHRINK_EVERY;
        let (ops, stored) = (self.ops.shrink(), self.matching.stored.shrink());
        if ops.is_some() || stored.is_some() {
            self.events.push_back(Event::Shrunk { ops, stored });
        }
    }

    fn peer_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.cfg.peer_timeout_ms))
    }
}

impl PeerMut<'_> {
    /// Gives back the credit of an active message that was kept.
    pub fn release_kept(self, len: u64) {
        let peer = self.peer;
        let (messages, bytes) = &mut self.engine.peers[peer.0 as usize].incoming.share.kept;
        (*messages, *bytes) = (messages.saturating_sub(1), bytes.saturating_sub(len));
        self.engine.peer_mut(peer).release(len);
    }

    /// Notes that an active message of `len` bytes of a peer is kept until the program asks for it.
    /// A peer with little credit left gets more, since an awaited message may come behind.
    pub fn handle_active_kept(self, now: Instant, len: u64) {
        let peer = self.peer;
        let (messages, bytes) = &mut self.engine.peers[peer.0 as usize].incoming.share.kept;
        (*messages, *bytes) = (*messages + 1, *bytes + len);
        if !self.engine.extend_credit(peer) {
            self.engine.note_full(now, peer);
        }
    }
}

impl MatchingView<'_> {
    /// Returns the bytes of the room for unexpected messages that peers have got.
    pub fn room_used(self) -> u64 {
        self.engine.matching.budget.used()
    }
}

//! The invariants of the engine, as a method that asserts them.

use super::op::{Kind, RecvState};
use super::{Engine, StoredState, TAGGED, UNTAGGED};
use crate::peer::{Peer, State};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;

impl Engine {
    /// Asserts the invariants that the fields of the engine promise each other. It looks at every
    /// peer and operation: the simulator calls it after each step, and debug builds when the
    /// endpoint closes.
    ///
    /// # Panics
    /// An invariant does not hold; the message names it.
    pub fn check(&self) {
        let listed = self.times_listed();
        for ((p, counts), listed) in self.peers.iter().zip(self.ops_by_peer()).zip(listed) {
            check_queues(p, listed);
            self.check_timer(p);
            check_counts(p, counts);
        }
        self.check_lists();
        self.check_matching();
        let taken: u64 = self.peers.iter().map(|p| p.incoming.share.taken_bytes()).sum();
        assert_eq!(self.matching.budget.used(), taken, "the room's bytes are those of all peers");
    }

    /// For each peer, how often it stands in the list of the ready and of the blocked ones.
    fn times_listed(&self) -> Vec<[usize; 2]> {
        let mut times = vec![[0; 2]; self.peers.len()];
        self.turns.ready.iter().for_each(|peer| times[peer.0 as usize][0] += 1);
        self.turns.blocked.iter().for_each(|peer| times[peer.0 as usize][1] += 1);
        times
    }

    /// The timer of a peer is in the set at the peer's time, and no cause is earlier.
    fn check_timer(&self, p: &Peer) {
        let armed = p.conn.armed != Instant::FAR;
        assert_eq!(self.timers.has(&p.conn), armed, "{}: armed", p.conn.id);
        if let Some((cause, due)) = self.first_cause(p.conn.id) {
            let served = armed || p.queue.ready || p.queue.blocked || p.queue.held;
            assert!(served, "{}: {cause:?} is due at {due:?}, and no timer is armed", p.conn.id);
        }
    }

    /// For each peer, the number of its operations, and of those that it has to answer.
    fn ops_by_peer(&self) -> Vec<(u32, u32)> {
        let mut counts = vec![(0, 0); self.peers.len()];
        for op in self.ops.keys().filter_map(|key| self.ops.get(key)) {
            if let Some(peer) = op.peer {
                let (all, requests) = &mut counts[peer.0 as usize];
                *all += 1;
                *requests += u32::from(op.request);
            }
        }
        counts
    }

    fn check_lists(&self) {
        let held = self.peers.iter().filter(|p| p.queue.held).count();
        assert_eq!(self.turns.held, held, "peers that their links hold");
        for (endpoint, peer) in &self.names.by_endpoint {
            assert_eq!(self.peers[peer.0 as usize].conn.endpoint, *endpoint, "the table of peers");
        }
        assert_eq!(self.names.by_endpoint.len(), self.peers.len(), "peers by their endpoints");
        assert!(!self.turns.urgent || !self.turns.ready.is_empty(), "urgent, and nobody is ready");
    }

    /// Posted receives have an operation that waits to be matched; stored messages are in exactly
    /// one place.
    fn check_matching(&self) {
        for (spec, id) in [TAGGED, UNTAGGED].iter().flat_map(|&q| self.matching.posted[q].iter()) {
            let op = self.ops.get(id.0).map(|op| &op.kind);
            let posted =
                matches!(op, Some(Kind::Recv(recv)) if matches!(recv.state, RecvState::Posted));
            assert!(posted, "a posted receive of {:?} has no operation that waits", spec.source);
        }
        let unexpected: usize = self.matching.unexpected.iter().map(|queue| queue.len()).sum();
        let stored = self.matching.stored.keys().filter_map(|id| self.matching.stored.get(id));
        let (mut kept, mut announced) = (0, 0);
        for s in stored {
            assert!((s.peer.0 as usize) < self.peers.len(), "a stored message of nobody");
            kept += 1;
            announced += usize::from(matches!(s.state, StoredState::Announced { .. }));
        }
        assert!(unexpected <= kept, "{unexpected} unexpected messages, {kept} stored");
        assert!(announced <= kept);
    }
}

/// Flags of a peer agree with the lists that it is in.
fn check_queues(p: &Peer, listed: [usize; 2]) {
    let (id, q) = (p.conn.id, &p.queue);
    assert_eq!(listed, [q.ready, q.blocked].map(usize::from), "{id}: ready, blocked");
    if let State::Failed(_) = p.state {
        assert!(!q.has_work() && q.stalled.is_empty(), "{id} has failed and packets wait");
        assert!(p.incoming.partial.is_none(), "{id} has failed and a message arrives");
        assert!(!q.held, "{id} has failed and is held");
    }
}

/// Numbers kept of a peer are those of its operations.
fn check_counts(p: &Peer, (waits, requests): (u32, u32)) {
    let id = p.conn.id;
    // Callers that wait without an operation count as well.
    assert!(p.watch.waiting >= waits, "{id}: {waits} operations of {}", p.watch.waiting);
    let failed = matches!(p.state, State::Failed(_));
    assert!(failed || p.outgoing.requests == requests, "{id}: {requests} requests are counted");
    if let Some(w) = &p.conn.windows {
        assert!(w.send.in_flight() <= w.send.limit(), "{id}: more in flight than the window");
    }
}

//! The parts of the engine's interface. A command or a question belongs to the part that it
//! concerns; the part borrows the engine for one call.

use super::op::Kind;
use super::region::Regions;
use super::types::TakenBack;
use super::Engine;
use crate::caps::LinkCaps;
use crate::error::{OpError, PeerFailure};
use crate::id::{EndpointId, OpId, PeerId};
use crate::peer::{Peer, State};
use crate::time::Instant;
use crate::wire::Eager;

/// All peers: see [`Engine::peers`].
#[derive(Clone, Copy)]
pub struct PeersView<'a> {
    pub(super) engine: &'a Engine,
}

/// The state of one peer: see [`Engine::peer`].
#[derive(Clone, Copy)]
pub struct PeerView<'a> {
    pub(super) engine: &'a Engine,
    pub(super) peer: PeerId,
}

/// Commands for one peer, and news of it: see [`Engine::peer_mut`].
pub struct PeerMut<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) peer: PeerId,
}

/// Messages that have arrived, and those that are awaited: see [`Engine::matching`].
#[derive(Clone, Copy)]
pub struct MatchingView<'a> {
    pub(super) engine: &'a Engine,
}

/// Receives, and what takes messages without one: see [`Engine::matching_mut`].
pub struct MatchingMut<'a> {
    pub(super) engine: &'a mut Engine,
}

/// Operations that have begun and not ended: see [`Engine::ops`].
#[derive(Clone, Copy)]
pub struct OpsView<'a> {
    pub(super) engine: &'a Engine,
}

/// Commands for operations that have begun: see [`Engine::ops_mut`].
pub struct OpsMut<'a> {
    pub(super) engine: &'a mut Engine,
}

/// Memory of peers and of this endpoint: see [`Engine::memory`].
pub struct MemoryMut<'a> {
    pub(super) engine: &'a mut Engine,
}

/// Answers of the links to packets that were offered: see [`Engine::links`].
pub struct LinksMut<'a> {
    pub(super) engine: &'a mut Engine,
}

/// Work of the engine for the driver: see [`Engine::output`].
#[derive(Clone, Copy)]
pub struct Output<'a> {
    pub(super) engine: &'a Engine,
}

impl Engine {
    /// Returns the table of all peers.
    pub fn peers(&self) -> PeersView<'_> {
        PeersView { engine: self }
    }

    /// Returns the state of a peer. One that does not exist has nothing queued and no failure.
    #[inline]
    pub fn peer(&self, peer: PeerId) -> PeerView<'_> {
        PeerView { engine: self, peer }
    }

    /// Returns the commands for a peer. They have no effect on one that does not exist.
    #[inline]
    pub fn peer_mut(&mut self, peer: PeerId) -> PeerMut<'_> {
        PeerMut { engine: self, peer }
    }

    /// Returns the messages that have arrived, and those that are awaited.
    #[inline]
    pub fn matching(&self) -> MatchingView<'_> {
        MatchingView { engine: self }
    }

    /// Returns the commands that receive messages.
    #[inline]
    pub fn matching_mut(&mut self) -> MatchingMut<'_> {
        MatchingMut { engine: self }
    }

    /// Returns the operations that have begun and not ended.
    #[inline]
    pub fn ops(&self) -> OpsView<'_> {
        OpsView { engine: self }
    }

    /// Returns the commands for operations that have begun.
    #[inline]
    pub fn ops_mut(&mut self) -> OpsMut<'_> {
        OpsMut { engine: self }
    }

    /// Returns the regions of this endpoint.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the regions of this endpoint, to register and unregister them.
    pub fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// Returns the commands on memory of peers, and the results of copies that the driver made.
    #[inline]
    pub fn memory(&mut self) -> MemoryMut<'_> {
        MemoryMut { engine: self }
    }

    /// Returns the place for answers of links to packets that were offered.
    #[inline]
    pub fn links(&mut self) -> LinksMut<'_> {
        LinksMut { engine: self }
    }

    /// Returns the work that the engine has for the driver.
    #[inline]
    pub fn output(&self) -> Output<'_> {
        Output { engine: self }
    }
}

impl<'a> PeerView<'a> {
    #[inline]
    pub(super) fn kept(self) -> Option<&'a Peer> {
        self.engine.peers.get(self.peer.0 as usize)
    }
}

impl PeersView<'_> {
    /// Returns the peer with an identity.
    pub fn find(self, endpoint: EndpointId) -> Option<PeerId> {
        self.engine.names.by_endpoint.get(&endpoint).copied()
    }

    /// Returns the number of known peers.
    pub fn count(self) -> usize {
        self.engine.peers.len()
    }
}

impl PeerView<'_> {
    /// Returns identity, session number (in the peer's packets) and path of a peer.
    pub fn info(self) -> Option<(EndpointId, u32, LinkCaps)> {
        self.kept().map(|p| (p.conn.endpoint, p.conn.session.number_in, p.path.caps))
    }

    /// Returns true if the peer has answered and has not failed.
    pub fn is_ready(self) -> bool {
        self.kept().is_some_and(|p| p.state == State::Ready)
    }

    /// Returns the reason why the peer failed, if it did.
    pub fn failure(self) -> Option<PeerFailure> {
        self.kept()?.failure()
    }

    /// Returns the number of messages queued for a peer that have not been sent.
    #[inline]
    pub fn queued(self) -> usize {
        self.kept().map_or(0, |p| p.queue.msgs.len())
    }

    /// Returns the longest message to a peer that is one packet on any link, in bytes.
    #[inline]
    pub fn single_max(self) -> usize {
        let mtu = self.kept().map_or(0, |p| p.path.mtu() as usize);
        mtu.saturating_sub(Eager::LEN)
    }

    /// Returns true if an eager message of `len` bytes to a peer is one packet.
    #[inline]
    pub fn is_single(self, len: usize) -> bool {
        let mtu = self.kept().map_or(0, |p| p.mtu_for(len as u64) as usize);
        len <= mtu.saturating_sub(Eager::LEN)
    }
}

impl PeerMut<'_> {
    /// Adopts the capabilities of the path to a peer, once the link knows them.
    pub fn set_path(self, caps: LinkCaps) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.set_caps(&self.engine.cfg, caps);
        }
    }

    /// Limits packets on the path to `mtu` bytes from now on.
    pub fn set_mtu(self, mtu: u32) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.path.carried.mtu = mtu;
            p.path.caps.mtu = p.path.chosen_mtu(mtu);
        }
    }

    /// Sets the capabilities of the bulk link: longest packet, trains, stripes, and the length from
    /// which messages take it.
    pub fn set_bulk(self, caps: LinkCaps) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.path.set_bulk(caps);
        }
    }

    /// Notes that the caller waits for messages of `peer` without an operation, by probes: until
    /// `unwatch` its silence is noticed all the same. Opens the session. False if the peer does not
    /// exist or has failed; then no `unwatch` must follow.
    pub fn watch(self, now: Instant) -> bool {
        let peer = self.peer;
        let alive = self.engine.alive(peer).is_ok();
        if alive {
            self.engine.wait_for(now, peer);
            self.engine.peer_mut(peer).open(now);
        }
        alive
    }

    /// Ends one `watch` that was true.
    pub fn unwatch(self) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.watch.waiting = p.watch.waiting.saturating_sub(1);
        }
    }
}

impl OpsView<'_> {
    /// Returns the number of operations in progress.
    pub fn count(self) -> usize {
        self.engine.ops.len()
    }

    /// Returns true if there is room for one more operation, so that no receive is refused as busy.
    pub fn has_room(self) -> bool {
        !self.engine.ops.is_full()
    }
}

impl OpsMut<'_> {
    /// Cancels a receive that has not matched. False if it is too late: its completion will come.
    pub fn cancel(self, id: OpId) -> bool {
        let cancelled = self.engine.matching.posted.iter_mut().any(|p| p.cancel(id));
        if cancelled {
            self.engine.fail_op(id, OpError::Cancelled);
        }
        cancelled
    }

    /// Takes back the memory of an operation, which ends before the operation: as `discard`, and
    /// its address is given to no peer from now on. `None` if no operation needs the memory any
    /// more.
    pub fn take_back(self, id: OpId) -> Option<TakenBack> {
        let op = self.engine.ops.get_mut(id.0)?;
        let (peer, mut known) = (op.peer, false);
        let is_read = matches!(op.kind, Kind::Send(_) | Kind::Put(_));
        match &mut op.kind {
            Kind::Send(send) => {
                known = send.announced && send.addr != 0;
                send.addr = 0;
            }
            Kind::Recv(recv) => {
                recv.addr = 0;
                known = op.pull().is_some_and(|pull| pull.back_parts() > 0);
            }
            Kind::Put(_) | Kind::Get(_) | Kind::Atomic => {}
        }
        let known_to = peer.filter(|_| known);
        if let Some(peer) = known_to {
            self.engine.peers[peer.0 as usize].path.caps.direct = false;
        }
        self.engine.ops_mut().discard(id);
        Some(TakenBack { is_read, known_to })
    }

    /// Discards an operation whose result is not wanted: a posted receive is cancelled, any other
    /// continues to its end without a completion; `Event::Release` (or a cancelled completion)
    /// follows.
    pub fn discard(self, id: OpId) {
        if self.engine.ops_mut().cancel(id) {
            return;
        }
        if let Some(op) = self.engine.ops.get_mut(id.0) {
            op.discard = true;
        }
    }
}

impl Output<'_> {
    /// Returns true if `poll_event` or `poll_transmit` may return something.
    #[inline]
    pub fn any(self) -> bool {
        !self.engine.turns.ready.is_empty()
            || !self.engine.events.is_empty()
            || !self.engine.turns.blocked.is_empty()
    }

    /// Returns true if `poll_event` or `poll_transmit` may return something that a program waits
    /// for, here or at a peer.
    #[inline]
    pub fn urgent(self) -> bool {
        self.engine.turns.urgent
            || !self.engine.events.is_empty()
            || !self.engine.turns.blocked.is_empty()
    }
}

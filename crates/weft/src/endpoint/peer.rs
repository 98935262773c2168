//! The part of an endpoint that concerns one peer.

use super::{Endpoint, PeerWatch};
use crate::choices::{Server, Transfer};
use crate::reactor::Handle;
use weft_core::{EndpointId, PeerFailure, PeerId};

/// A peer, as [`Endpoint::peer`] gives it.
#[derive(Clone, Copy)]
pub struct Peer<'a> {
    pub(super) reactor: &'a Handle,
    pub(super) id: PeerId,
}

impl Endpoint {
    /// Returns the part that concerns one peer.
    #[inline]
    pub fn peer(&self, id: PeerId) -> Peer<'_> {
        Peer { reactor: &self.reactor, id }
    }
}

impl<'a> Peer<'a> {
    /// Returns the peer's identity.
    pub fn identity(self) -> Option<EndpointId> {
        self.reactor.engine().peer(self.id).info().map(|(id, _, _)| id)
    }

    /// Returns its name or address, its link, interface and addresses, for messages
    /// to people. For a failed peer, those that it had.
    pub fn describe(self) -> String {
        self.reactor.borrow().describe(self.id)
    }

    /// Sets the peer's name in messages to people, as `rank 3 (process 17 on host a)`.
    pub fn set_name(self, name: &str) {
        self.reactor.borrow_mut().known.names.insert(self.id, name.to_owned());
    }

    /// True if the peer has answered and has not failed.
    pub fn is_ready(self) -> bool {
        self.reactor.engine().peer(self.id).is_ready()
    }

    /// Returns the reason why it failed, if it did.
    pub fn failure(self) -> Option<PeerFailure> {
        self.reactor.engine().peer(self.id).failure()
    }

    /// True if a signal has stopped its process, as far as its link or its agent
    /// can see. Links check the process while an answer of the peer is due and the peer is silent.
    pub fn is_stopped(self) -> bool {
        self.reactor.engine().peer(self.id).is_stopped()
    }

    /// Opens the session before the first message, so that a dead peer is noticed.
    pub fn open(self) {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        reactor.receiver.engine.peer_mut(self.id).open(now);
        reactor.flush();
    }

    /// Returns the number of messages, requests and active messages for it that have not left.
    pub fn queued(self) -> usize {
        self.reactor.engine().peer(self.id).queued()
    }

    /// Notices the peer's silence, as [`expect`](Self::expect), until the returned value is
    /// dropped. `None` if the peer has failed.
    pub fn watch(self) -> Option<PeerWatch<'a>> {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let watched = reactor.receiver.engine.peer_mut(self.id).watch(now);
        reactor.flush();
        watched.then(|| PeerWatch { peer: self })
    }

    /// Records that an answer of the peer is awaited without an operation: until `unexpect` its
    /// silence is noticed. False if the peer has failed; then no `unexpect` follows.
    pub fn expect(self) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.time.clock.now();
        reactor.receiver.engine.peer_mut(self.id).watch(now)
    }

    /// Ends one `expect` that was true.
    pub fn unexpect(self) {
        self.reactor.engine_mut().peer_mut(self.id).unwatch();
    }

    /// True if it is reached through the agent of this host.
    pub fn is_served(self) -> bool {
        self.reactor.borrow().is_served(self.id)
    }

    /// True if it is reached without any agent, through memory.
    pub fn is_past_agent(self) -> bool {
        self.reactor.borrow().is_past_agent(self.id)
    }

    /// True if its memory can be copied directly.
    pub fn is_direct(self) -> bool {
        self.reactor.engine().peer(self.id).info().is_some_and(|(_, _, caps)| caps.direct)
    }

    /// Returns the transfer of payload to it and from it.
    pub fn transfer(self) -> Transfer {
        self.reactor.engine().peer(self.id).transfer()
    }

    /// Returns the server of fetch-and-add on its words.
    pub fn fetch_add(self) -> Server {
        self.reactor.engine().peer(self.id).fetch_add()
    }
}

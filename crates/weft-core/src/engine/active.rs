//! Active messages: their latency path, and credit that returns when the program releases one.

use super::types::SendArgs;
use super::views::PeerMut;
use crate::id::PeerId;
use crate::peer::{Desc, State};
use crate::time::Instant;
use crate::wire::{flags, Nop, Packet};

impl SendArgs {
    /// Returns the arguments of an active message of `len` bytes, which the driver keeps until it
    /// is sent.
    pub fn active(peer: PeerId, tag: u64, len: usize) -> SendArgs {
        SendArgs { inject: true, active: true, ..SendArgs::new(peer, tag, len as u64) }
    }
}

impl PeerMut<'_> {
    /// Makes a peer acknowledge packets in flight at once, if the last one did not ask for that.
    pub fn request_ack(self, now: Instant) {
        let peer = self.peer;
        if self.engine.peers.get(peer.0 as usize).is_none() {
            return;
        }
        self.engine.acknowledge_late(peer);
        let p = &mut self.engine.peers[peer.0 as usize];
        let unasked = p.conn.windows.as_ref().is_some_and(|w| w.unasked > 0 && !w.send.is_empty());
        if p.state == State::Ready && unasked && !p.queue.has_work() {
            p.queue.ctrl.push_back(Desc::bare(Packet::Nop(Nop), 0).with_flags(flags::ACKNOW));
            self.engine.wake(now, peer);
        }
    }

    /// Returns true if packets to a peer wait to be sent or, where they are numbered, for their
    /// acknowledgement.
    pub fn has_unacked(self) -> bool {
        let peer = self.peer;
        if self.engine.peers.get(peer.0 as usize).is_none() {
            return false;
        }
        self.engine.acknowledge_late(peer);
        let p = &self.engine.peers[peer.0 as usize];
        p.queue.has_work() || p.conn.windows.as_ref().is_some_and(|w| !w.send.is_empty())
    }

    /// Gives back the credit of an active message of `len` bytes that came as
    /// [`Placement::Active`](super::types::Placement::Active).
    #[inline]
    pub fn release(self, len: u64) {
        let peer = self.peer;
        self.engine.taken(peer, len);
    }
}

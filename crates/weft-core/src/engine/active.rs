//! Active messages: their latency path, and credit that returns when the program releases one.

use super::types::SendArgs;
use super::Engine;
use crate::id::PeerId;
use crate::peer::{Desc, State};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, Eager, HeaderBuf, Nop, Packet};

impl SendArgs {
    /// Returns the arguments of an active message of `len` bytes, which the driver keeps until it
    /// is sent.
    pub fn active(peer: PeerId, tag: u64, len: usize) -> SendArgs {
        SendArgs { inject: true, active: true, ..SendArgs::new(peer, tag, len as u64) }
    }
}

impl Engine {
    /// Does the same as [`send_now`](Engine::send_now) for an active message.
    #[inline]
    pub fn active_now(&mut self, peer: PeerId, tag: u64, len: u32, header: &mut HeaderBuf) -> bool {
        let Some(p) = self.peers.get_mut(peer.0 as usize) else { return false };
        let clear = p.state == State::Ready
            && p.windows.is_none()
            && len.saturating_add(Eager::LEN as u32) <= p.mtu()
            && p.msgs.is_empty()
            && p.stalled.is_empty();
        if !clear || !p.credit_in.try_take_active(len as usize) {
            return false;
        }
        let common = p.common(flags::ACTIVE, Seq(0), 0);
        self.stats.packets_sent += 1;
        self.stats.messages_sent += 1;
        self.stats.bytes_sent += u64::from(len);
        wire::emit_into(&common, &Packet::Eager(Eager { tag }), header);
        true
    }

    /// Gives back the credit of an active message of `len` bytes that came as
    /// [`Placement::Active`](super::types::Placement::Active).
    #[inline]
    pub fn release(&mut self, peer: PeerId, len: u64) {
        self.taken(peer, len);
    }

    /// Returns true if packets to a peer wait to be sent or, where they are numbered, for their
    /// acknowledgement.
    pub fn is_underway(&mut self, peer: PeerId) -> bool {
        if self.peers.get(peer.0 as usize).is_none() {
            return false;
        }
        self.acknowledge_late(peer);
        let p = &self.peers[peer.0 as usize];
        p.has_work() || p.windows.as_ref().is_some_and(|w| !w.send.is_empty())
    }

    /// Makes a peer acknowledge packets in flight at once, if the last one did not ask for that.
    pub fn hurry(&mut self, now: Instant, peer: PeerId) {
        if self.peers.get(peer.0 as usize).is_none() {
            return;
        }
        self.acknowledge_late(peer);
        let p = &mut self.peers[peer.0 as usize];
        let unasked = p.windows.as_ref().is_some_and(|w| w.unasked > 0 && !w.send.is_empty());
        if p.state == State::Ready && unasked && !p.has_work() {
            p.ctrl.push_back(Desc::bare(Packet::Nop(Nop), 0).with_flags(flags::ACKNOW));
            self.wake(now, peer);
        }
    }
}

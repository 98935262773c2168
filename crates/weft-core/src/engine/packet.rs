//! What the packet interface has of its own: the latency path of packets, credit that comes back
//! when the program is done with a packet, and what is chosen for one peer.

use super::types::{SendArgs, PACKET};
use super::Engine;
use crate::choices::{Server, Transfer};
use crate::id::PeerId;
use crate::peer::{Desc, State};
use crate::reliability::Reliability;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, Eager, HeaderBuf, Nop, Packet};

impl Engine {
    /// As [`send_now`](Engine::send_now), for a packet of the packet interface.
    #[inline]
    pub fn packet_now(&mut self, peer: PeerId, tag: u64, len: u32, header: &mut HeaderBuf) -> bool {
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
        wire::emit_into(&common, &Packet::Eager(Eager { tag: tag | PACKET }), header);
        true
    }

    /// The program is done with a packet of `len` bytes that came as `Placement::Packet`.
    #[inline]
    pub fn packet_released(&mut self, peer: PeerId, len: u64) {
        self.taken(peer, len);
    }

    /// Whether packets to a peer wait to be sent or, where they are numbered, for their
    /// acknowledgement.
    pub fn is_underway(&mut self, peer: PeerId) -> bool {
        if self.peers.get(peer.0 as usize).is_none() {
            return false;
        }
        self.acknowledge_late(peer);
        let p = &self.peers[peer.0 as usize];
        p.has_work() || p.windows.as_ref().is_some_and(|w| !w.send.is_empty())
    }

    /// Has a peer acknowledge at once what is on its way to it, if the last of that did not ask.
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

    /// Chooses for one peer who retransmits and how long packets are at most (0: what the link
    /// carries). Both hold from the start of the session: false, and nothing changed, when it has
    /// begun.
    pub fn choose(&mut self, peer: PeerId, reliability: Reliability, mtu: u32) -> bool {
        let Some(p) = self.peers.get_mut(peer.0 as usize) else { return false };
        if p.state != State::Idle {
            return p.reliability == reliability && p.mtu_max == mtu;
        }
        (p.reliability, p.mtu_max) = (reliability, mtu);
        p.windows = None;
        let caps = p.carried;
        p.set_caps(&self.cfg, caps);
        true
    }

    /// What is chosen for a peer: who retransmits, and how long packets are at most.
    pub fn chosen(&self, peer: PeerId) -> Option<(Reliability, u32)> {
        self.peers.get(peer.0 as usize).map(|p| (p.reliability, p.mtu_max))
    }

    /// Chooses how payload gets to a peer and from it, for messages that begin from now on. What a
    /// peer is sent goes as its sender chose; memory is copied directly where both sides let it be.
    pub fn choose_transfer(&mut self, peer: PeerId, transfer: Transfer) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.set_transfer(&self.cfg, transfer);
        }
    }

    /// How payload gets to a peer and from it.
    #[inline]
    pub fn transfer_of(&self, peer: PeerId) -> Transfer {
        self.peers.get(peer.0 as usize).map_or(self.cfg.transfer, |p| p.transfer)
    }

    /// Longest message to a peer whose buffer can be used again when its send returns, bytes.
    #[inline]
    pub fn inject_max(&self, peer: PeerId) -> usize {
        let limits = self.peers.get(peer.0 as usize).map(|p| p.limits.inject_max);
        limits.unwrap_or(self.cfg.inject_max) as usize
    }

    /// Chooses who does atomic operations on the counters of a peer: its agent where they are
    /// there, for fetch-and-add its kernel, or the peer itself past its agent.
    pub fn choose_fetch_add(&mut self, peer: PeerId, server: Server) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.fetch_add = Some(server);
        }
    }

    /// Who does atomic operations on the counters of a peer.
    pub fn fetch_add_of(&self, peer: PeerId) -> Server {
        let chosen = self.peers.get(peer.0 as usize).and_then(|p| p.fetch_add);
        chosen.unwrap_or(self.cfg.fetch_add)
    }

    /// Who retransmits to a peer: the choice, or nobody where the path is reliable by itself.
    pub fn reliability_of(&self, peer: PeerId) -> Option<Reliability> {
        let p = self.peers.get(peer.0 as usize)?;
        Some(p.windows.as_ref().map_or(Reliability::None, |w| w.send.mode()))
    }
}

/// The arguments of a packet that is sent the ordinary way.
pub fn packet_args(peer: PeerId, tag: u64, len: usize, inject: bool) -> SendArgs {
    SendArgs { inject, active: true, ..SendArgs::new(peer, tag | PACKET, len as u64) }
}

//! Choices for one peer: who retransmits, how long packets are, how payload travels, who does
//! atomic operations.

use super::Engine;
use crate::choices::{Server, Transfer};
use crate::id::PeerId;
use crate::peer::State;
use crate::reliability::Reliability;

impl Engine {
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

//! Choices for one peer: reliability, longest packet, transfer of payload, server of atomic
//! operations.

use super::Engine;
use crate::choices::{Server, Transfer};
use crate::id::PeerId;
use crate::peer::State;
use crate::reliability::Reliability;

impl Engine {
    /// Chooses for one peer the side that retransmits, and the longest packet (0: the link's). Both
    /// hold from the start of the session: false, and nothing changed, if it has begun.
    pub fn choose(&mut self, peer: PeerId, reliability: Reliability, mtu: u32) -> bool {
        let Some(p) = self.peers.get_mut(peer.0 as usize) else { return false };
        if p.state != State::Idle {
            return p.path.reliability == reliability && p.path.mtu_max == mtu;
        }
        (p.path.reliability, p.path.mtu_max) = (reliability, mtu);
        p.conn.windows = None;
        let caps = p.path.carried;
        p.set_caps(&self.cfg, caps);
        true
    }

    /// Returns the choice for a peer: the side that retransmits, and the longest packet.
    pub fn chosen(&self, peer: PeerId) -> Option<(Reliability, u32)> {
        self.peers.get(peer.0 as usize).map(|p| (p.path.reliability, p.path.mtu_max))
    }

    /// Chooses the transfer of payload to and from a peer, for messages that begin from now on. The
    /// sender's choice holds for its messages; memory is copied directly if both sides allow it.
    pub fn choose_transfer(&mut self, peer: PeerId, transfer: Transfer) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.path.set_transfer(&self.cfg, transfer);
        }
    }

    /// Returns the transfer of payload to and from a peer.
    #[inline]
    pub fn transfer_of(&self, peer: PeerId) -> Transfer {
        self.peers.get(peer.0 as usize).map_or(self.cfg.transfer, |p| p.path.transfer)
    }

    /// Returns the longest message to a peer whose buffer can be used again when its send returns,
    /// bytes.
    #[inline]
    pub fn inject_max(&self, peer: PeerId) -> usize {
        let limits = self.peers.get(peer.0 as usize).map(|p| p.path.limits.inject_max);
        limits.unwrap_or(self.cfg.inject_max) as usize
    }

    /// Chooses the server of atomic operations on the counters of a peer: its agent if they are
    /// there, for fetch-and-add its kernel, or the peer itself past its agent.
    pub fn choose_fetch_add(&mut self, peer: PeerId, server: Server) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.path.fetch_add = Some(server);
        }
    }

    /// Returns the server of atomic operations on the counters of a peer.
    pub fn fetch_add_of(&self, peer: PeerId) -> Server {
        let chosen = self.peers.get(peer.0 as usize).and_then(|p| p.path.fetch_add);
        chosen.unwrap_or(self.cfg.fetch_add)
    }

    /// Returns the reliability of a peer: the choice, or `None` where the path is reliable by
    /// itself.
    pub fn reliability_of(&self, peer: PeerId) -> Option<Reliability> {
        let p = self.peers.get(peer.0 as usize)?;
        Some(p.conn.windows.as_ref().map_or(Reliability::None, |w| w.send.mode()))
    }
}

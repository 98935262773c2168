//! Choices for one peer: reliability, longest packet, transfer of payload, server of atomic
//! operations.

use super::views::{PeerMut, PeerView};
use crate::choices::{Server, Transfer};
use crate::peer::State;
use crate::reliability::Reliability;

impl PeerView<'_> {
    /// Returns the longest message to a peer whose buffer can be used again when its send returns,
    /// bytes.
    #[inline]
    pub fn inject_max(self) -> usize {
        let limits = self.kept().map(|p| p.path.limits.inject_max);
        limits.unwrap_or(self.engine.cfg.inject_max) as usize
    }

    /// Returns the choice for a peer: the side that retransmits, and the longest packet.
    pub fn chosen(self) -> Option<(Reliability, u32)> {
        self.kept().map(|p| (p.path.reliability, p.path.mtu_max))
    }

    /// Returns the transfer of payload to and from a peer.
    #[inline]
    pub fn transfer(self) -> Transfer {
        self.kept().map_or(self.engine.cfg.transfer, |p| p.path.transfer)
    }

    /// Returns the server of atomic operations on the counters of a peer.
    pub fn fetch_add(self) -> Server {
        let chosen = self.kept().and_then(|p| p.path.fetch_add);
        chosen.unwrap_or(self.engine.cfg.fetch_add)
    }

    /// Returns the reliability of a peer: the choice, or `None` where the path is reliable by
    /// itself.
    pub fn reliability(self) -> Option<Reliability> {
        let p = self.kept()?;
        Some(p.conn.windows.as_ref().map_or(Reliability::None, |w| w.send.mode()))
    }
}

impl PeerMut<'_> {
    /// Chooses for one peer the side that retransmits, and the longest packet (0: the link's). Both
    /// hold from the start of the session: false, and nothing changed, if it has begun.
    pub fn choose(self, reliability: Reliability, mtu: u32) -> bool {
        let peer = self.peer;
        let Some(p) = self.engine.peers.get_mut(peer.0 as usize) else { return false };
        if p.state != State::Idle {
            return p.path.reliability == reliability && p.path.mtu_max == mtu;
        }
        (p.path.reliability, p.path.mtu_max) = (reliability, mtu);
        p.conn.windows = None;
        let caps = p.path.carried;
        p.set_caps(&self.engine.cfg, caps);
        true
    }

    /// Chooses the transfer of payload to and from a peer, for messages that begin from now on. The
    /// sender's choice holds for its messages; memory is copied directly if both sides allow it.
    pub fn choose_transfer(self, transfer: Transfer) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.path.set_transfer(&self.engine.cfg, transfer);
        }
    }

    /// Chooses the server of atomic operations on the counters of a peer: its agent if they are
    /// there, for fetch-and-add its kernel, or the peer itself past its agent.
    pub fn choose_fetch_add(self, server: Server) {
        let peer = self.peer;
        if let Some(p) = self.engine.peers.get_mut(peer.0 as usize) {
            p.path.fetch_add = Some(server);
        }
    }
}

//! Chooses the path to a peer. A question is sent over every path that may work; the path of the
//! answer is used. When it breaks, another path is used.

use super::{Peer, XdpLink};
use crate::ether::Mac;
use crate::kind::Kind;
use crate::LinkEvent;
use weft_core::PeerId;

impl Peer {
    /// True if packets are expected over this interface from this station.
    #[inline]
    pub(super) fn is_usual(&self, rail: usize, from: Mac) -> bool {
        let path = self.path();
        self.proof.is_decided() && path.ours == rail && path.to.mac == from
    }
}

impl XdpLink {
    /// Notes an authentic packet of a peer. If it came over a path of the peer's address, that path
    /// may be used. Answering any other source would let a replayed packet redirect the traffic.
    #[cold]
    pub(super) fn came_from(&mut self, peer: PeerId, rail: usize, from: Mac, kind: Kind) {
        let Some(known) = self.peers.get_mut(peer) else {
            return;
        };
        let found = known.paths.iter().position(|p| p.ours == rail && p.to.mac == from);
        let Some(at) = found else { return };
        let same = known.at == at;
        if known.proof.on_frame(at, same, false, kind) {
            self.take_path(peer, at);
        }
    }

    /// Uses one of a peer's paths from now on.
    fn take_path(&mut self, peer: PeerId, at: usize) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if std::mem::replace(&mut known.at, at) == at {
            return;
        }
        let path = *known.path();
        self.count.path_changes += 1;
        let mtu = self.path_len(&path);
        self.events.push(LinkEvent::Mtu(peer, mtu));
    }

    /// Moves every peer that is reached over this interface to another path, if it has one that may
    /// work.
    pub(super) fn leave(&mut self, rail: usize) {
        for peer in self.peers.ids() {
            let Some(known) = self.peers.get(peer).filter(|p| p.path().ours == rail) else {
                continue;
            };
            let alive = |path: &crate::ether::Path| !self.rails[path.ours].down;
            let Some(at) = known.paths.iter().position(alive) else { continue };
            self.take_path(peer, at);
            if let Some(known) = self.peers.get_mut(peer) {
                known.proof.doubt();
            }
        }
    }
}

//! Striping over packet sockets: the paths to a peer that share bulk data.

use super::{source, PacketLink, Peer};
use crate::link::send_apart;
use crate::stripes::StripePath;
use crate::{DataRun, Frame, LinkEvent};
use weft_core::PeerId;

impl PacketLink {
    /// Keeps a question that is sent to the peer: it may be sent over further paths.
    pub(super) fn keep_question(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.paths.iter().any(|path| path.ours != known.paths[0].ours) {
            known.stripes.keep(header, payload);
        }
    }

    /// Forgets the proofs of all paths to the peer.
    pub(super) fn forget_stripes(&mut self, peer: PeerId) {
        if self.peers.get_mut(peer).is_some_and(|known| known.stripes.forget()) {
            self.events.push(LinkEvent::Stripes(peer, 1));
        }
    }

    /// Notes that a path works in both directions. Sends the question over paths that may share.
    pub(super) fn prove(&mut self, peer: PeerId, at: usize) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.stripes.prove(at) {
            self.share(peer);
            self.ask_rest(peer);
        }
    }

    /// Chooses the paths that share bulk data.
    pub(super) fn share(&mut self, peer: PeerId) {
        let Some(known) = self.peer(peer) else { return };
        let (paths, used) = (self.paths(known), known.at);
        let Some(known) = self.peers.get_mut(peer) else { return };
        if let Some(now) = known.stripes.share(&paths, used) {
            self.events.push(LinkEvent::Stripes(peer, now));
        }
    }

    /// True if the paths of some interface gave no answer yet.
    pub(super) fn has_rest(&self, peer: PeerId) -> bool {
        let open = |known: &Peer| known.stripes.unanswered(&self.paths(known));
        self.peer(peer).is_some_and(|known| !open(known).is_empty())
    }

    /// Sends the question over the paths of interfaces without a proven path.
    pub(super) fn ask_rest(&mut self, peer: PeerId) {
        let Some(known) = self.peer(peer) else { return };
        let open = known.stripes.unanswered(&self.paths(known));
        let Some((header, payload)) = known.stripes.question() else { return };
        let (header, payload) = (header.to_vec(), payload.to_vec());
        let frame = Frame { peer, header: &header, payload: &payload };
        open.into_iter().for_each(|at| self.hello_over(at, &frame));
        self.detour(peer, None);
    }

    /// Handles an interface that went down, came up or changed its MTU: its paths share no longer,
    /// and the question is sent over them again.
    pub(super) fn port_changed(&mut self, port: usize) {
        for peer in self.peers.ids() {
            let Some(known) = self.peers.get_mut(peer) else { continue };
            for at in (0..known.paths.len()).filter(|&at| known.paths[at].ours == port) {
                known.stripes.disprove(at);
            }
            self.share(peer);
            self.ask_rest(peer);
        }
    }

    /// Sends a run of DATA packets over one of the paths that share.
    pub(super) fn send_over(&mut self, run: &DataRun<'_>) -> usize {
        let DataRun { peer, stripe, .. } = *run;
        let path = self.peer(peer).and_then(|known| known.stripes.path(stripe));
        let taken = path.and_then(|at| self.detour(peer, Some(at)));
        let sent = send_apart(self, run);
        if taken.is_some() {
            self.detour(peer, None);
            self.count.sent_striped += sent as u64;
        }
        sent
    }

    /// Lists the properties of the paths that decide if they share.
    fn paths(&self, known: &Peer) -> Vec<StripePath> {
        let path = |path: &crate::ether::Path| {
            let port = &self.ports[path.ours];
            StripePath {
                near: port.up.then_some(port.interface.index),
                far: source(0, &path.to.mac.0),
                speed: port.speed,
                len: path.mtu.min(port.interface.mtu),
            }
        };
        known.paths.iter().map(path).collect()
    }
}

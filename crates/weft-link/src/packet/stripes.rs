//! Striping over packet sockets: the paths to a peer that share bulk data.

use super::{source, PacketLink};
use crate::ether::Path;
use crate::link::send_apart;
use crate::proof::Proof;
use crate::stripes::{Paths, StripePath, Stripes};
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
}

impl Paths for PacketLink {
    fn known(&mut self, peer: PeerId) -> Option<(&mut Proof, &mut Stripes, usize)> {
        let known = self.peers.get_mut(peer)?;
        Some((&mut known.proof, &mut known.stripes, known.paths.len()))
    }

    fn listed(&self, peer: PeerId) -> Option<(Vec<StripePath>, Option<usize>)> {
        let path = |path: &Path| {
            let port = &self.ports[path.ours];
            StripePath {
                near: port.up.then_some(port.interface.index),
                far: source(0, &path.to.mac.0),
                speed: port.speed,
                len: path.mtu.min(port.interface.mtu),
            }
        };
        let known = self.peer(peer)?;
        Some((known.paths.iter().map(path).collect(), Some(known.at)))
    }

    fn ask(&mut self, peer: PeerId, paths: Vec<usize>) {
        let Some(known) = self.peer(peer) else { return };
        let Some((header, payload)) = known.stripes.question() else { return };
        let (header, payload) = (header.to_vec(), payload.to_vec());
        let frame = Frame { peer, header: &header, payload: &payload };
        paths.into_iter().for_each(|at| self.hello_over(at, &frame));
        self.detour(peer, None);
    }

    fn change(&mut self, peer: PeerId, at: usize) {
        let before = self.peer(peer).map(|p| self.frame_len(p.outlet.mtu));
        let Some(mtu) = self.use_path(peer, at) else { return };
        self.count.path_changes += 1;
        if before != Some(self.frame_len(mtu)) {
            let packet = self.packet_len(mtu);
            self.events.push(LinkEvent::Mtu(peer, packet));
        }
        self.share(peer);
    }

    fn report(&mut self, event: LinkEvent) {
        self.events.push(event);
    }
}

//! Striping over UDP: the addresses of a peer that share bulk data.

use super::sys::SockAddr;
use super::{pmtu, same_host_port, Peer, UdpLink};
use crate::stripes::StripePath;
use crate::{DataRun, LinkEvent};
use weft_core::PeerId;

impl UdpLink {
    /// Keeps a question that is sent to the peer: it may be sent to further addresses.
    pub(super) fn keep_question(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.candidates.iter().any(|c| c.device != known.candidates[0].device) {
            known.stripes.keep(header, payload);
        }
    }

    /// Forgets the proofs of all paths to the peer.
    pub(super) fn forget_stripes(&mut self, peer: PeerId) {
        if self.peers.get_mut(peer).is_some_and(|known| known.stripes.forget()) {
            self.events.push(LinkEvent::Stripes(peer, 1));
        }
    }

    /// Notes that the path to a candidate works in both directions. Sends the question to
    /// candidates that may share.
    pub(super) fn prove(&mut self, peer: PeerId, at: usize) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.stripes.prove(at) {
            self.share(peer);
            self.ask_rest(peer);
        }
    }

    /// Chooses the candidates that share bulk data.
    pub(super) fn share(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let paths = paths(known);
        let in_use = known.candidates.iter().position(|c| same_host_port(c.addr, known.addr));
        let Some(used) = in_use else { return };
        if let Some(now) = known.stripes.share(&paths, used) {
            self.events.push(LinkEvent::Stripes(peer, now));
        }
    }

    /// True if candidates on some interface gave no answer yet.
    pub(super) fn has_rest(&self, peer: PeerId) -> bool {
        self.peer(peer).is_some_and(|known| !known.stripes.unanswered(&paths(known)).is_empty())
    }

    /// Sends the question to the candidates on interfaces that gave no answer yet.
    pub(super) fn ask_rest(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get(peer) else { return };
        for at in known.stripes.unanswered(&paths(known)) {
            let Some(known) = self.peers.get(peer) else { return };
            let Some((header, payload)) = known.stripes.question() else { return };
            let addr = known.candidates[at].addr;
            let sealed = self.secure.seal_into(peer, header, payload, &mut self.tx);
            let (Some(len), Some(socket)) = (sealed, self.socket_for(addr.is_ipv6())) else {
                continue;
            };
            match self.sockets[socket].send_to(&self.tx[..len], &SockAddr::new(addr)) {
                Ok(()) => self.count.sent += 1,
                Err(_) => self.count.send_errors += 1,
            }
        }
    }

    /// Sends a run of DATA packets over one of the interfaces that share.
    pub(super) fn send_over(&mut self, run: &DataRun<'_>) -> usize {
        let DataRun { peer, stripe, .. } = *run;
        let chosen = self.peer(peer).and_then(|known| {
            let addr = known.candidates.get(known.stripes.path(stripe)?)?.addr;
            Some((self.socket_for(addr.is_ipv6())?, SockAddr::new(addr), addr))
        });
        let (Some(chosen), Some(known)) = (chosen, self.peers.get_mut(peer)) else {
            return self.send_data(run);
        };
        let usual = (known.socket, known.to, known.addr);
        (known.socket, known.to, known.addr) = chosen;
        let sent = self.send_data(run);
        if let Some(known) = self.peers.get_mut(peer) {
            (known.socket, known.to, known.addr) = usual;
        }
        self.count.sent_striped += sent as u64;
        sent
    }
}

/// Lists the properties of the candidates that decide if they share.
fn paths(known: &Peer) -> Vec<StripePath> {
    let path = |(at, c): (usize, &super::Candidate)| StripePath {
        near: (c.device != 0).then_some(c.device),
        far: at as u64,
        speed: c.speed,
        len: pmtu::datagram_len(c.addr.ip(), c.ip_mtu),
    };
    known.candidates.iter().enumerate().map(path).collect()
}

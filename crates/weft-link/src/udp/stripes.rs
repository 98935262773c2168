//! Striping over UDP: the addresses of a peer that share bulk data.

use super::sys::SockAddr;
use super::{pmtu, same_host_port, Candidate, UdpLink};
use crate::proof::Proof;
use crate::stripes::{Paths, StripePath, Stripes};
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

impl Paths for UdpLink {
    fn known(&mut self, peer: PeerId) -> Option<(&mut Proof, &mut Stripes, usize)> {
        let known = self.peers.get_mut(peer)?;
        Some((&mut known.proof, &mut known.stripes, known.candidates.len()))
    }

    fn listed(&self, peer: PeerId) -> Option<(Vec<StripePath>, Option<usize>)> {
        let known = self.peer(peer)?;
        let used = known.candidates.iter().position(|c| same_host_port(c.addr, known.addr));
        let path = |(at, c): (usize, &Candidate)| StripePath {
            near: (c.device != 0).then_some(c.device),
            far: at as u64,
            speed: c.speed,
            len: pmtu::datagram_len(c.addr.ip(), c.ip_mtu),
        };
        Some((known.candidates.iter().enumerate().map(path).collect(), used))
    }

    fn ask(&mut self, peer: PeerId, paths: Vec<usize>) {
        for at in paths {
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

    fn change(&mut self, peer: PeerId, at: usize) {
        if let Some(mtu) = self.use_candidate(peer, at) {
            self.count.path_changes += 1;
            self.events.push(LinkEvent::Mtu(peer, mtu));
            self.share(peer);
        }
    }

    fn report(&mut self, event: LinkEvent) {
        self.events.push(event);
    }
}

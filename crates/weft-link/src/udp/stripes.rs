//! Striping: bulk data to a peer is spread over several interfaces, by trains.
//!
//! Interfaces share where both hosts have addresses on them, each proven: a question sent over it
//! was answered, or the peer, who has proven it, sends data over it. They must be of one speed
//! and packet size, since each gets an equal part. The first is the address in use.

use super::interfaces::ADDRESSES_MAX;
use super::sys::SockAddr;
use super::{pmtu, same_host_port, Peer, UdpLink};
use crate::LinkEvent;
use weft_core::PeerId;

/// Interfaces that share at most.
const MOST: usize = 3;
/// Rounds of questions over addresses that gave no answer.
const ASKS: u8 = 6;

/// What is known of a peer's addresses beside the one in use.
#[derive(Default)]
pub(super) struct Stripes {
    /// By candidate: the way works in both directions.
    proven: [bool; ADDRESSES_MAX],
    /// Candidates that share bulk data; empty while there is only one.
    shared: Vec<usize>,
    /// The last question to the peer, header and payload, and the header's length.
    question: (Vec<u8>, usize),
    asks: u8,
}

impl Stripes {
    /// Whether the peer sends bulk data from this candidate, too.
    pub fn has(&self, at: usize) -> bool {
        self.shared.contains(&at)
    }

    /// How many share.
    pub fn count(&self) -> u8 {
        self.shared.len().max(1) as u8
    }
}

impl UdpLink {
    /// A question is sent to the peer: it may be asked over further addresses.
    pub(super) fn keep_question(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.candidates.iter().any(|c| c.device != known.candidates[0].device) {
            known.stripes.question = ([header, payload].concat(), header.len());
        }
    }

    /// Nothing is known of the ways to the peer any more.
    pub(super) fn forget_stripes(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let question = std::mem::take(&mut known.stripes.question);
        let shared = known.stripes.count() > 1;
        known.stripes = Stripes { question, ..Stripes::default() };
        if shared {
            self.news.push(LinkEvent::Stripes(peer, 1));
        }
    }

    /// The way to and from a candidate works. Asks over those that may share with it.
    pub(super) fn prove(&mut self, peer: PeerId, at: usize) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let Some(proven) = known.stripes.proven.get_mut(at).filter(|proven| !**proven) else {
            return;
        };
        *proven = true;
        self.share(peer);
        self.ask_rest(peer);
    }

    /// Finds the candidates that share bulk data.
    pub(super) fn share(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let before = known.stripes.count();
        known.stripes.shared = sharing(known);
        let now = known.stripes.count();
        if now != before {
            self.news.push(LinkEvent::Stripes(peer, now));
        }
    }

    fn ask_rest(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let s = &mut known.stripes;
        if s.asks >= ASKS || s.question.0.is_empty() {
            return;
        }
        s.asks += 1;
        let devices: Vec<u32> = (0..known.candidates.len())
            .filter(|&i| s.proven.get(i) == Some(&true))
            .map(|i| known.candidates[i].device)
            .collect();
        let rest: Vec<_> =
            known.candidates.iter().filter(|c| !devices.contains(&c.device)).collect();
        let addrs: Vec<_> = rest.iter().filter(|c| c.device != 0).map(|c| c.addr).collect();
        let (bytes, header_len) = s.question.clone();
        let (header, payload) = bytes.split_at(header_len);
        for addr in addrs {
            let Some(socket) = self.socket_for(addr.is_ipv6()) else { continue };
            let Some(len) = self.secure.seal_into(peer, header, payload, &mut self.tx) else {
                return;
            };
            match self.sockets[socket].send_to(&self.tx[..len], &SockAddr::new(addr)) {
                Ok(()) => self.count.sent += 1,
                Err(_) => self.count.send_errors += 1,
            }
        }
    }

    /// Sends a run of DATA packets over one of the interfaces that share.
    pub(super) fn send_over(
        &mut self,
        peer: PeerId,
        stripe: u8,
        header: &[u8],
        payload: &[u8],
        packets: usize,
    ) -> usize {
        let chosen = self.peer(peer).and_then(|known| {
            let addr = known.candidates.get(*known.stripes.shared.get(usize::from(stripe))?)?.addr;
            Some((self.socket_for(addr.is_ipv6())?, SockAddr::new(addr), addr))
        });
        let (Some(chosen), Some(known)) = (chosen, self.peers.get_mut(peer)) else {
            return self.send_data(peer, header, payload, packets);
        };
        let usual = (known.socket, known.to, known.addr);
        (known.socket, known.to, known.addr) = chosen;
        let sent = self.send_data(peer, header, payload, packets);
        if let Some(known) = self.peers.get_mut(peer) {
            (known.socket, known.to, known.addr) = usual;
        }
        self.count.sent_striped += sent as u64;
        sent
    }
}

/// The candidate in use, and the proven ones of other interfaces that are like it.
fn sharing(known: &Peer) -> Vec<usize> {
    let Some(first) = known.candidates.iter().position(|c| same_host_port(c.addr, known.addr))
    else {
        return Vec::new();
    };
    let like = known.candidates[first];
    let len = |i: usize| {
        let c = &known.candidates[i];
        pmtu::datagram_len(c.addr.ip(), c.ip_mtu)
    };
    let mut shared = vec![first];
    for (i, c) in known.candidates.iter().enumerate() {
        let proven = known.stripes.proven.get(i) == Some(&true);
        let alike = c.speed == like.speed && len(i) == len(first) && c.device != 0;
        let other = shared.iter().all(|&s| known.candidates[s].device != c.device);
        if proven && alike && other && like.device != 0 && shared.len() < MOST {
            shared.push(i);
        }
    }
    if shared.len() < 2 {
        shared.clear();
    }
    shared
}

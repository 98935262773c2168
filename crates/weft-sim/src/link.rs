//! The links of one simulated host.

use crate::clock::SimClock;
use crate::config::{LinkKind, SimConfig};
use crate::network::{Packet, SharedNetwork, CHECK_LEN};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weft_core::wire::{field, session_index, session_of, PacketType};
use weft_core::{EndpointId, LinkCaps, PeerId, Pulse};
use weft_link::kind::Kind;
use weft_link::rng::splitmix;
use weft_link::run::{is_part, Run};
use weft_link::WaitFd;
use weft_link::{Address, Bytes, DataRun, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink};

/// Names of links by the first of their networks.
const NAMES: [&str; 1 + SimConfig::MORE] = ["sim", "sim2", "sim3"];

/// Carries frames of one incarnation of one host over the simulated network.
pub struct SimLink {
    net: SharedNetwork,
    host: u32,
    generation: u32,
    clock: SimClock,
    kind: LinkKind,
    /// The networks that it uses.
    networks: Range<usize>,
    /// The network whose frames are taken now.
    at: usize,
    /// While data is spread: the network for the next frame.
    stripe: usize,
    /// The state of the networks to each host, where data is spread.
    ways: BTreeMap<u32, Paths>,
    /// By peer number.
    hosts: Vec<Option<At>>,
    /// Peer that was connected last, by host.
    peers: BTreeMap<u32, PeerId>,
    events: VecDeque<LinkEvent>,
    spare: Packet,
}

/// The host and identity of a peer.
#[derive(Clone, Copy)]
struct At {
    host: u32,
    endpoint: EndpointId,
    /// The session number in packets from the peer to this endpoint.
    session: u32,
}

/// Consecutive packets over another network, from a peer that asked over it, after which the peer
/// no longer uses the previous one.
const STRAYS: u8 = 4;

/// The networks to a host, for a link that spreads data: those over which a question was answered.
/// Packets that are not spread take the network in use; after doubts about it, that of the first
/// answer.
#[derive(Default)]
struct Paths {
    used: usize,
    /// Proven networks, the one in use first.
    proven: Vec<usize>,
    /// The last question to the host: header, payload, and checksum.
    question: [Vec<u8>; 3],
    /// The network over which the last question from the host came.
    caller: Option<usize>,
    strays: u8,
}

impl Paths {
    /// Notes a packet over this network. True if it proves a network, or changes the one in use.
    fn note(&mut self, network: usize, header: &[u8]) -> bool {
        let kind = Kind::of(header);
        if kind == Kind::Answer {
            let new = !self.proven.contains(&network);
            if self.proven.is_empty() {
                self.used = network;
            }
            self.proven.extend(Some(network).filter(|_| new));
            return new;
        }
        if kind == Kind::Question {
            self.caller = Some(network);
        }
        let strays = kind == Kind::Other && self.used != network && self.caller == Some(network);
        self.strays = if strays { self.strays + 1 } else { 0 };
        let moved = self.strays >= STRAYS;
        if moved {
            (self.strays, self.used) = (0, network);
            self.proven.retain(|&n| n != network);
            self.proven.insert(0, network);
        }
        moved
    }
}

/// Computes a 64-bit checksum over the parts as one run of bytes: finds flipped bits, resists no
/// attacker.
pub(crate) fn check(header: &[u8], payload: &[u8]) -> [u8; 8] {
    let mut sum = 0x9e37_79b9_7f4a_7c15 ^ ((header.len() + payload.len()) as u64);
    for part in [header, payload] {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // A product alone keeps a flip of the highest bit as one bit, which a flip in the next
            // word would undo.
            sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
            sum = (sum ^ (sum >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            sum ^= sum >> 29;
        }
    }
    sum.to_le_bytes()
}

/// Returns the identity of an incarnation of a host.
pub(crate) fn endpoint_id(seed: u64, host: u32, incarnation: u32) -> EndpointId {
    let mut state = seed ^ (u64::from(host) << 32 | u64::from(incarnation));
    EndpointId(splitmix(&mut state))
}

/// Computes the checksum of a packet, which only endpoint `to` accepts, as a real link's tag needs
/// the key of both. A HELLO names the endpoint itself.
fn trailer(header: &[u8], payload: &[u8], to: EndpointId) -> [u8; CHECK_LEN] {
    let hello = header.get(field::TYPE) == Some(&(PacketType::Hello as u8));
    let to = if hello { 0 } else { to.0 };
    (u64::from_le_bytes(check(header, payload)) ^ to).to_le_bytes()
}

impl SimLink {
    /// Returns the end of the standstill of this host's agent or rank, if it stands still.
    pub(crate) fn still_until(&self, agent: bool) -> Option<u64> {
        self.net.borrow().still_until(self.host, agent, self.clock.now().0)
    }

    /// Creates the link of the present incarnation of `host` on the first network, or, where data
    /// is spread, on all of them; `clock` is that host's.
    pub fn new(net: &SharedNetwork, host: u32, clock: &SimClock) -> SimLink {
        let config = net.borrow().config().clone();
        let end = if config.striped { config.networks() } else { 1 };
        SimLink::on(net, host, clock, 0..end)
    }

    /// Creates all links of the present incarnation of `host`.
    pub fn all(net: &SharedNetwork, host: u32, clock: &SimClock) -> Vec<SimLink> {
        let config = net.borrow().config().clone();
        let more = if config.striped { 1..1 } else { 1..config.networks() };
        let first = SimLink::new(net, host, clock);
        let further = more.map(|n| SimLink::on(net, host, clock, n..n + 1));
        std::iter::once(first).chain(further).collect()
    }

    fn on(net: &SharedNetwork, host: u32, clock: &SimClock, networks: Range<usize>) -> SimLink {
        let (generation, kind) = {
            let net = net.borrow();
            (net.generation(host), net.config().kind)
        };
        SimLink {
            net: SharedNetwork::clone(net),
            host,
            generation,
            clock: clock.clone(),
            kind,
            at: networks.start,
            stripe: 0,
            networks,
            ways: BTreeMap::new(),
            hosts: Vec::new(),
            peers: BTreeMap::new(),
            events: VecDeque::new(),
            spare: Packet::default(),
        }
    }

    fn at(&self, peer: u32) -> Option<At> {
        self.hosts.get(peer as usize).copied().flatten()
    }

    /// Returns the identity of this incarnation of a host.
    fn endpoint_of(&self, host: u32, generation: u32) -> EndpointId {
        endpoint_id(self.net.borrow().config().seed, host, generation)
    }

    fn host_of(&self, peer: PeerId) -> Option<u32> {
        self.at(peer.0).map(|at| at.host)
    }

    /// Returns the peers that are this incarnation of a host.
    fn peers_of(&self, host: u32, generation: u32) -> impl Iterator<Item = PeerId> + '_ {
        let me = self.endpoint_of(host, generation);
        let is_it =
            move |at: &Option<At>| at.is_some_and(|at| (at.host, at.endpoint) == (host, me));
        let peers = (0u32..).zip(&self.hosts);
        peers.filter(move |(_, at)| is_it(at)).map(|(peer, _)| PeerId(peer))
    }

    /// Returns true if a packet comes from the peer that was given its session number.
    fn is_from_its_peer(&self, packet: &Packet) -> bool {
        let hello = packet.bytes.get(field::TYPE) == Some(&(PacketType::Hello as u8));
        let session = session_of(&packet.bytes).filter(|_| !hello);
        let peer = session.and_then(|s| self.at(session_index(s)).filter(|at| at.session == s));
        peer.is_none_or(|at| at.endpoint == self.endpoint_of(packet.src, packet.generation))
    }

    /// Takes the next packet into `spare`: from the network of the last one, as long as it has any.
    fn take(&mut self) -> bool {
        let mut net = self.net.borrow_mut();
        for _ in self.networks.clone() {
            if net.take(self.host, self.at, &mut self.spare) {
                return true;
            }
            self.at =
                if self.at + 1 < self.networks.end { self.at + 1 } else { self.networks.start };
        }
        false
    }

    /// Takes the next packet with a valid checksum into `spare`.
    fn next_packet(&mut self) -> bool {
        let cost = self.net.borrow().config().host.recv_ns;
        while self.take() {
            self.clock.spend(cost);
            let packet = &self.spare;
            let end = packet.bytes.len() - CHECK_LEN;
            let (header, payload) = packet.bytes[..end].split_at(usize::from(packet.header_len));
            let me = self.endpoint_of(self.host, self.generation);
            let whole = trailer(header, payload, me)[..] == packet.bytes[end..];
            if whole && self.is_from_its_peer(packet) {
                self.note_path();
                return true;
            }
            self.net.borrow_mut().note_refused(packet);
        }
        false
    }

    fn is_spread(&self) -> bool {
        self.networks.len() > 1
    }

    /// Notes the network that carried the packet in `spare`.
    fn note_path(&mut self) {
        if !self.is_spread() {
            return;
        }
        let ways = self.ways.entry(self.spare.src).or_default();
        if ways.note(self.at, &self.spare.bytes) {
            let stripes = ways.proven.len() as u8;
            let peer = self.peers.get(&self.spare.src);
            self.events.extend(peer.map(|&peer| LinkEvent::Stripes(peer, stripes)));
            self.ask_over_others(self.spare.src);
        }
    }

    /// Returns the networks over which a host gave no answer, if this side has asked it.
    fn unanswered(&self, host: u32) -> Vec<usize> {
        let asked = self.ways.get(&host).filter(|ways| !ways.question[0].is_empty());
        let open = |ways: &Paths| {
            self.networks.clone().filter(|network| !ways.proven.contains(network)).collect()
        };
        asked.map(open).unwrap_or_default()
    }

    /// Sends the last question over the networks over which a host gave no answer.
    fn ask_over_others(&self, host: u32) {
        let Some(ways) = self.ways.get(&host) else { return };
        let question = ways.question.each_ref().map(Vec::as_slice);
        for network in self.unanswered(host) {
            let mut net = self.net.borrow_mut();
            net.send((self.host, host), network, self.clock.now().0, question);
        }
    }

    /// Returns the networks for a frame to a host: for a question all, until one is proven; for the
    /// answer that of the question; for spread data the next one.
    fn paths_of(&mut self, host: u32, parts: [&[u8]; 3]) -> Range<usize> {
        let (all, only) = (self.networks.clone(), |network: usize| network..network + 1);
        if !self.is_spread() {
            return all;
        }
        let ways = self.ways.entry(host).or_default();
        let kind = Kind::of(parts[0]);
        if kind == Kind::Question {
            ways.question = parts.map(<[u8]>::to_vec);
        }
        match (kind, ways.caller) {
            (Kind::Answer, Some(caller)) => only(caller),
            (Kind::Question, _) if ways.proven.is_empty() => all,
            _ => only(ways.proven.get(self.stripe).copied().unwrap_or(ways.used)),
        }
    }

    /// Delivers the packet in `spare`.
    fn deliver(&self, sink: &mut dyn Sink) {
        let packet = &self.spare;
        let from = match self.kind {
            LinkKind::Network => None,
            LinkKind::Memory => self.peers_of(packet.src, packet.generation).next(),
        };
        let end = packet.bytes.len() - CHECK_LEN;
        let (header, payload) = packet.bytes[..end].split_at(usize::from(packet.header_len));
        sink.frame(from, header, Bytes::from_slice(payload));
    }

    /// Delivers the DATA packet in `spare` and up to `more` that follow it, as one run if they are
    /// consecutive, as links do that receive whole trains. Returns how many followed.
    fn deliver_run(&mut self, more: usize, sink: &mut dyn Sink) -> usize {
        let mut kept: Vec<Packet> = Vec::new();
        let prediction = sink.predict();
        let start = prediction.and_then(|p| Some((Run::start(&p, &self.spare.bytes)?, p)));
        let Some((mut run, prediction)) = start else {
            self.deliver(sink);
            return 0;
        };
        let mut left = false;
        loop {
            let payload = &self.spare.bytes[..self.spare.bytes.len() - CHECK_LEN];
            let payload = &payload[usize::from(self.spare.header_len)..];
            let place = run.place(prediction.memory, &self.spare.bytes, payload.len());
            let Some(place) = place.filter(|_| is_part(&self.spare.bytes)) else {
                left = true;
                break;
            };
            place.copy_from_slice(payload);
            run.push(payload.len());
            kept.push(std::mem::take(&mut self.spare));
            if kept.len() > more || !self.next_packet() {
                break;
            }
        }
        let last = std::mem::take(&mut self.spare);
        let followed = (kept.len() + usize::from(left)).saturating_sub(1);
        if !run.deliver(sink) {
            for packet in kept {
                self.spare = packet;
                self.deliver(sink);
            }
        }
        if left {
            self.spare = last;
            self.deliver(sink);
        }
        followed
    }

    fn alive(&self) -> bool {
        self.net.borrow().alive(self.host, self.generation)
    }
}

impl Link for SimLink {
    fn caps(&self) -> LinkCaps {
        let net = self.net.borrow();
        let config = net.config();
        let (mut caps, hops) = match self.kind {
            LinkKind::Network => (LinkCaps::network(NAMES[self.networks.start], config.mtu), 2),
            LinkKind::Memory => (LinkCaps::memory("sim", config.mtu), 1),
        };
        let wire = config.wire_of(self.networks.start);
        let ns = hops * wire.latency_ns + config.host.send_ns + config.host.recv_ns;
        caps.latency_ns = u32::try_from(ns).unwrap_or(u32::MAX);
        caps.bytes_per_us = u32::try_from(wire.bytes_per_us).unwrap_or(u32::MAX);
        caps.small_bytes_per_us = caps.bytes_per_us;
        caps.train = config.train.max(1);
        if config.long > config.mtu && self.kind == LinkKind::Network {
            match (self.networks.len() == config.networks(), self.networks.start) {
                (true, _) => (caps.bulk_mtu, caps.bulk_min) = (config.long, config.mtu),
                (false, 1) => (caps.mtu, caps.polled) = (config.long, true),
                (false, _) => caps.cuts = true,
            }
        }
        if wire.stream && self.kind == LinkKind::Network {
            // A stream carries every length, and has to be made before it is used.
            caps.cuts = true;
            caps.connects = config.networks() > 1 && self.networks.len() == 1;
        }
        caps
    }

    fn advertise(&self, address: &mut Address) {
        address.sim = Some(self.host);
    }

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        let Some(host) = peer.address.sim else {
            return Err(LinkError::Unreachable("it has no simulated address".into()));
        };
        let hosts = self.net.borrow().config().hosts;
        if host >= hosts {
            let why = format!("host {host} is not among the {hosts} simulated hosts");
            return Err(LinkError::Unreachable(why));
        }
        let index = peer.peer.0 as usize;
        if self.hosts.len() <= index {
            self.hosts.resize(index + 1, None);
        }
        let PeerInfo { endpoint, session, .. } = *peer;
        self.hosts[index] = Some(At { host, endpoint, session });
        self.peers.insert(host, peer.peer);
        Ok(self.caps())
    }

    fn path_text(&self, peer: PeerId) -> String {
        self.host_of(peer).map_or_else(String::new, |host| format!("host {host}"))
    }

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(At { host, .. }) = self.hosts.get_mut(peer.0 as usize).and_then(Option::take) {
            if self.peers.get(&host) == Some(&peer) {
                self.peers.remove(&host);
            }
        }
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        if !self.alive() {
            return frames.len();
        }
        let net = SharedNetwork::clone(&self.net);
        let mut net = net.borrow_mut();
        let cost = net.config().host.send_ns;
        for (i, frame) in frames.iter().enumerate() {
            let Some(At { host, endpoint, .. }) = self.at(frame.peer.0) else { continue };
            self.clock.spend(cost);
            let trailer = trailer(frame.header, frame.payload, endpoint);
            let parts = [frame.header, frame.payload, &trailer];
            for network in self.paths_of(host, parts) {
                if !net.send((self.host, host), network, self.clock.now().0, parts) {
                    return i;
                }
            }
        }
        frames.len()
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if !self.alive() {
            return 0;
        }
        let mut done = 0;
        while done < budget && self.next_packet() {
            done += 1;
            if is_part(&self.spare.bytes) {
                done += self.deliver_run(budget - done, sink);
            } else {
                self.deliver(sink);
            }
        }
        done
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        // One link reports it for all links.
        if self.networks.start == 0 && self.alive() {
            let mut gone = Vec::new();
            while let Some((host, generation)) = {
                let next = self.net.borrow_mut().take_gone(self.host);
                next
            } {
                gone.extend(self.peers_of(host, generation).map(LinkEvent::PeerGone));
            }
            self.events.extend(gone);
        }
        self.events.pop_front()
    }

    fn wait_fds(&self, _out: &mut Vec<WaitFd>) {}

    fn prepare_wait(&mut self) -> bool {
        !self.net.borrow().waiting(self.host)
    }

    fn processes(&mut self) -> Option<&mut dyn weft_link::Processes> {
        Some(self)
    }

    fn network(&mut self) -> Option<&mut dyn weft_link::Network> {
        Some(self)
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let counters = self.net.borrow().counters();
        counters.list().into_iter().for_each(|(name, value)| each(name, value));
    }
}

impl weft_link::Network for SimLink {
    fn send_run(&mut self, run: &DataRun<'_>) -> Option<usize> {
        self.stripe = usize::from(run.stripe).min(self.networks.len() - 1);
        let sent = weft_link::link::send_apart(self, run);
        self.stripe = 0;
        Some(sent)
    }

    fn doubt(&mut self, peer: PeerId) {
        let Some(ways) = self.host_of(peer).and_then(|host| self.ways.get_mut(&host)) else {
            return;
        };
        ways.proven.clear();
        self.events.push_back(LinkEvent::Stripes(peer, 1));
    }

    fn has_unanswered(&mut self, peer: PeerId) -> bool {
        self.host_of(peer).is_some_and(|host| !self.unanswered(host).is_empty())
    }

    fn ask_unanswered(&mut self, peer: PeerId) {
        self.host_of(peer).into_iter().for_each(|host| self.ask_over_others(host));
    }
}

impl weft_link::Processes for SimLink {
    fn pulse(&self, peer: PeerId) -> Pulse {
        let Some(Some(at)) = self.hosts.get(peer.0 as usize) else { return Pulse::Runs };
        let net = self.net.borrow();
        let now = net.generation(at.host);
        // A host that restarted is another peer.
        let runs =
            net.alive(at.host, now) && endpoint_id(net.config().seed, at.host, now) == at.endpoint;
        if runs {
            Pulse::Runs
        } else {
            Pulse::Ended
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn check__finds_every_single_flip() {
        let bytes: Vec<u8> = (0..100).collect();
        let (header, payload) = bytes.split_at(30);
        let good = check(header, payload);
        for bit in 0..800 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (header, payload) = bad.split_at(30);
            assert_ne!(check(header, payload), good, "bit {bit}");
        }
    }

    #[test]
    fn check__finds_every_two_flips() {
        let mut bytes: Vec<u8> = (0..64).collect();
        let good = check(&[], &bytes);
        let flip = |bytes: &mut [u8], bit: usize| bytes[bit / 8] ^= 1 << (bit % 8);
        for first in 0..512 {
            flip(&mut bytes, first);
            for second in first + 1..512 {
                flip(&mut bytes, second);
                assert_ne!(check(&[], &bytes), good, "bits {first} and {second}");
                flip(&mut bytes, second);
            }
            flip(&mut bytes, first);
        }
    }
}

//! The UDP link: weft packets in UDP datagrams. Needs no rights, only an IP network.
//!
//! - `send.rs`: seals packets and passes runs of equal size to the kernel as one train (UDP GSO).
//! - `recv.rs`: takes trains (UDP GRO) apart, checks each packet, and receives bulk data directly
//!   into its destination.
//! - `stripes.rs`: several addresses that share bulk data.
//! - `connected.rs`: a socket of its own for the peer with the most traffic.
//! - `pmtu.rs`: packet sizes.
//! - `sys/`: the system calls.

mod connected;
mod pmtu;
mod recv;
mod send;
mod stripes;
mod sys;
#[cfg(test)]
mod tests;

use crate::ip;
use crate::ip::interfaces::{self, Candidate, Nearness};
use crate::kind::Kind;
use crate::link::own_frames;
use crate::ports::{self, Ports};
use crate::proof::Proof;
use crate::secure::{Lane, Secure, Security, RUNS_MAX};
use crate::stripes::{Paths, Stripes};
use crate::table::{Events, PeerTable};
use crate::wrap::{Corruptor, FaultSpec};
use crate::{Address, DataRun, Link, LinkError, PeerInfo, WaitFd};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use sys::{SockAddr, Socket};
use weft_core::{LinkCaps, PeerId};

/// Settings of a UDP link.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Local IPv4 address to bind to; unspecified for all, `None` for no IPv4.
    pub v4: Option<Ipv4Addr>,
    /// Local IPv6 address to bind to; unspecified for all, `None` for no IPv6.
    pub v6: Option<Ipv6Addr>,
    /// Ports to bind to.
    pub ports: Ports,
    /// Let the kernel or the card cut trains into datagrams (UDP GSO), if it can.
    pub gso: bool,
    /// Let the kernel deliver trains (UDP GRO), if it can.
    pub gro: bool,
    /// Size of the socket buffers to request, bytes in each direction.
    pub buffer: usize,
    /// Largest packet (header and payload) to send, bytes; the path may allow less.
    pub packet_max: u32,
    /// Faults to inject; the link itself injects only corruption, below the authentication.
    pub faults: Option<FaultSpec>,
    /// This host's hash as in [`Address::host`](crate::Address), 0 if unknown: tells if a loopback
    /// address in a peer's list can belong to the peer.
    pub host: u64,
    /// Highest number of connections under one key; more are refused, as packet numbers are
    /// limited. Fewer in tests.
    pub connections: u64,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            v4: Some(Ipv4Addr::UNSPECIFIED),
            v6: Some(Ipv6Addr::UNSPECIFIED),
            ports: Ports::ANY,
            gso: true,
            gro: true,
            buffer: 8 << 20,
            packet_max: u32::MAX,
            faults: None,
            host: 0,
            connections: RUNS_MAX,
        }
    }
}

/// With a smaller buffer, bulk data is lost under load, so the link warns.
const BUFFER_MIN: usize = 1 << 20;

struct Peer {
    /// Addresses of the peer that may work, best first.
    candidates: Vec<Candidate>,
    proof: Proof,
    stripes: Stripes,
    socket: usize,
    to: SockAddr,
    addr: SocketAddr,
    /// Largest datagram of the path.
    datagram_len: usize,
    /// 0, or since the path shrank: 1 + number of sends since the kernel was last asked.
    small: u32,
}

counters! {
    /// Counts of events.
    "";
    sent, sent_trains, sent_striped, sent_connected, send_full, send_errors, send_dropped,
    send_fragmented, received, received_calls, received_placed, recv_errors, path_changes
}

/// The UDP link of an endpoint.
pub struct UdpLink {
    sockets: Vec<Socket>,
    connected: connected::Connected,
    secure: Secure,
    gso: bool,
    config: UdpConfig,
    peers: PeerTable<Peer>,
    events: Events,
    count: Counters,
    tx: Box<[u8]>,
    rx: recv::UdpReceiver,
    /// A packet was sent to this peer, and the link has not polled since.
    asked: Option<PeerId>,
    /// Flips bits of sent packets when faults are injected.
    corruptor: Option<Corruptor>,
}

impl UdpLink {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`LinkError::System`] if no socket could be opened. A family that the machine lacks is
    /// skipped.
    pub fn new(config: UdpConfig, security: Security) -> Result<UdpLink, LinkError> {
        let sockets = open_sockets(&config)?;
        let mut link = UdpLink {
            gso: config.gso && sockets.iter().all(Socket::has_gso),
            connected: connected::Connected::default(),
            secure: Secure::with_runs(&security, Lane::Udp, config.connections),
            peers: PeerTable::default(),
            events: Events::default(),
            count: Counters::default(),
            tx: vec![0; pmtu::DATAGRAM_MAX].into(),
            rx: recv::UdpReceiver::new(),
            asked: None,
            corruptor: config.faults.as_ref().map(Corruptor::new),
            sockets,
            config,
        };
        link.tune();
        Ok(link)
    }

    fn tune(&mut self) {
        let config = &self.config;
        let mut smallest = usize::MAX;
        for socket in &self.sockets {
            if config.gro {
                // An old kernel delivers single datagrams instead: slower, nothing else changes.
                let _ = socket.enable_gro();
            }
            if let Ok((rcv, snd)) = socket.set_buffers(config.buffer) {
                smallest = smallest.min(rcv).min(snd);
            }
        }
        let (wanted, gso) = (config.buffer, config.gso);
        if smallest < BUFFER_MIN.min(wanted) {
            self.warn(format!(
                "UDP socket buffers hold only {} KiB: raise net.core.rmem_max and \
                 net.core.wmem_max to {wanted}",
                smallest >> 10,
            ));
        }
        if gso && !self.gso {
            self.warn(
                "this kernel has no UDP segmentation offload: bulk transfer is slower".into(),
            );
        }
    }

    /// Returns the security state: mode, cipher implementation.
    pub fn secure(&self) -> &Secure {
        &self.secure
    }

    /// Lists the addresses to which the sockets are bound.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(Socket::local).collect()
    }

    /// Returns the address in use for a peer.
    pub fn peer_addr(&self, peer: PeerId) -> Option<SocketAddr> {
        self.peer(peer).map(|p| p.addr)
    }

    fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer)
    }

    fn socket_for(&self, v6: bool) -> Option<usize> {
        self.sockets.iter().position(|s| s.is_v6() == v6)
    }

    fn warn(&mut self, text: String) {
        self.events.warn(text);
    }

    /// Returns the largest packet for a datagram of this size.
    fn packet_len(&self, datagram_len: usize) -> u32 {
        ((datagram_len - self.secure.trailer_len()) as u32).min(self.config.packet_max)
    }

    /// Uses one of a peer's candidates from now on; returns the packet size that it carries.
    fn use_candidate(&mut self, peer: PeerId, at: usize) -> Option<u32> {
        let known = self.peer(peer)?;
        let candidate = *known.candidates.get(at)?;
        let socket = self.socket_for(candidate.addr.is_ipv6())?;
        self.connected.forget(peer);
        let known = self.peers.get_mut(peer)?;
        known.socket = socket;
        known.addr = candidate.addr;
        known.to = SockAddr::new(candidate.addr);
        known.datagram_len = pmtu::datagram_len(candidate.addr.ip(), candidate.ip_mtu) as usize;
        let datagram_len = known.datagram_len;
        Some(self.packet_len(datagram_len))
    }

    /// Notes an authentic packet from an address that is not known to be the one in use. If the
    /// peer named this address, it may be used from now on. Answering any other source would let a
    /// replayed packet redirect the traffic.
    fn confirm(&mut self, peer: PeerId, from: SocketAddr, kind: Kind) {
        let Some(known) = self.peer(peer) else { return };
        let Some(at) = known.candidates.iter().position(|c| same_host_port(c.addr, from)) else {
            return;
        };
        let in_use = same_host_port(known.addr, from);
        self.came_over(peer, at, in_use, kind);
    }
}

/// True if address and port are equal. Flow label and scope, which the kernel fills in, may differ.
fn same_host_port(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip(), a.port()) == (b.ip(), b.port())
}

fn open_sockets(config: &UdpConfig) -> Result<Vec<Socket>, LinkError> {
    let mut sockets: Vec<Socket> = Vec::new();
    let mut failed = None;
    let ips = [config.v4.map(IpAddr::V4), config.v6.map(IpAddr::V6)];
    for ip in ips.into_iter().flatten() {
        let taken = sockets.first().map(|s| s.local().port());
        match config.ports.bind(taken, |port| Socket::bind(SocketAddr::new(ip, port))) {
            Ok(socket) => sockets.push(socket),
            Err(e) => failed = Some((ip, e)),
        }
    }
    match failed {
        Some((ip, source)) if sockets.is_empty() => Err(LinkError::System {
            what: match config.ports {
                Ports::ANY => format!("open a UDP socket on {ip}"),
                ports => format!("open a UDP socket on {ip}, ports {ports} ({})", ports::VARIABLE),
            },
            fix: match source.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "name a wider range of ports: each rank of a host, and each that its agent \
                     serves, takes one"
                }
                _ => "choose another address or port",
            },
            source,
        }),
        None if sockets.is_empty() => Err(LinkError::Unsupported),
        _ => Ok(sockets),
    }
}

impl Link for UdpLink {
    fn caps(&self) -> LinkCaps {
        let mut caps = LinkCaps::network("udp", self.packet_len(pmtu::DATAGRAM_MAX));
        caps.cuts = true;
        caps
    }

    fn advertise(&self, address: &mut Address) {
        address.security = Some(self.secure.mode());
        address.host = self.config.host;
        for ip in ip::advertised() {
            for socket in self.sockets.iter().filter(|s| s.is_v6() == ip.is_ipv6()) {
                let bound = socket.local();
                let fits = bound.ip().is_unspecified() || bound.ip() == ip;
                if fits && address.udp.len() < interfaces::ADDRESSES_MAX {
                    address.udp.push(SocketAddr::new(ip, bound.port()));
                }
            }
        }
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        self.secure.agree(&info.address)?;
        let ours = sys::interfaces().unwrap_or_default();
        let near = Nearness::of(self.config.host, info.address.host);
        let has_family = |v6| self.socket_for(v6).is_some();
        let candidates =
            interfaces::candidates(&info.address.udp, &ours, near, has_family, sys::route_to)
                .map_err(LinkError::Unreachable)?;
        let first = candidates[0].addr;
        let known = Peer {
            proof: Proof::new(candidates.len() == 1),
            stripes: Stripes::default(),
            candidates,
            socket: 0,
            to: SockAddr::new(first),
            addr: first,
            datagram_len: 0,
            small: 0,
        };
        self.secure.add_peer(info.peer, info.session, info.endpoint)?;
        self.peers.insert(info.peer, known);
        let mtu = self.use_candidate(info.peer, 0).ok_or(LinkError::Unsupported)?;
        let train =
            if self.gso { send::train_len(mtu as usize + self.secure.trailer_len()) } else { 1 };
        let mut caps = LinkCaps::network("udp", mtu);
        (caps.train, caps.cuts) = (train, true);
        Ok(caps)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.connected.forget(peer);
        self.peers.remove(peer);
        self.secure.remove_peer(peer);
    }

    own_frames!();

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        let sockets = self.sockets.iter().chain(self.connected.socket());
        out.extend(sockets.map(|s| WaitFd { fd: s.raw() as RawFd }));
    }

    fn prepare_wait(&mut self) -> bool {
        !self.rx.has_rest()
    }

    fn finish_wait(&mut self, ready: bool) {
        if ready {
            self.rx.wake();
        }
    }

    fn path_text(&self, peer: PeerId) -> String {
        let Some(known) = self.peer(peer) else { return String::new() };
        ip::path_text(&known.candidates, known.addr)
    }

    fn network(&mut self) -> Option<&mut dyn crate::Network> {
        Some(self)
    }

    fn movable(&mut self) -> Option<&mut dyn crate::Movable> {
        Some(self)
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.count.each(each);
        self.secure.counters(each);
    }
}

impl crate::Movable for UdpLink {
    fn close(&mut self) {
        self.sockets.clear();
        self.connected = connected::Connected::default();
        self.peers = PeerTable::default();
        self.events = Events::default();
        self.rx = recv::UdpReceiver::new();
        self.asked = None;
        self.secure.withdraw();
    }

    fn open(&mut self, runs: std::ops::Range<u64>) -> Result<(), LinkError> {
        let sockets = open_sockets(&self.config)?;
        self.secure.grant(runs)?;
        if self.config.host != 0 {
            self.config.host = crate::shm::host().unwrap_or(0);
        }
        self.gso = self.config.gso && sockets.iter().all(Socket::has_gso);
        self.sockets = sockets;
        self.tune();
        Ok(())
    }
}

impl crate::Network for UdpLink {
    fn send_run(&mut self, run: &DataRun<'_>) -> Option<usize> {
        Some(match run.stripe {
            0 => self.send_data(run),
            _ => self.send_over(run),
        })
    }

    fn has_unanswered(&mut self, peer: PeerId) -> bool {
        !self.unanswered(peer).is_empty()
    }

    fn ask_unanswered(&mut self, peer: PeerId) {
        self.ask_rest(peer);
    }

    fn doubt(&mut self, peer: PeerId) {
        self.connected.forget(peer);
        self.doubt_path(peer);
    }
}

//! The TCP link: weft packets in TCP streams, for networks that block or slow down UDP, and for
//! long messages of ranks without rights where the kernel carries a stream at less cost.
//!
//! A stream carries frames, each behind its length ([`frame`]). Frames are authenticated as on
//! every network. A stream is made when there is something to send and closed when it is quiet for
//! long. It is reliable only while it lives, so the engine acknowledges and resends as over UDP
//! (`docs/adr/0027-streams.md`).
//!
//! - `open.rs`: connections from and to peers, which of two is used, and their end.
//! - `care.rs`: what time ends: idle streams, strangers that say nothing.
//! - `send.rs`, `recv.rs`: frames into streams and out of them.
//! - `streams.rs`: the state of a stream, and the table of streams.
//! - `sys/`: the system calls.

mod care;
pub mod frame;
mod open;
mod poll;
mod recv;
mod send;
mod streams;
mod sys;
#[cfg(test)]
mod tests;

use crate::copied::Origin;
use crate::ip;
use crate::ip::interfaces::{self, Candidate, Nearness};
use crate::link::own_frames;
use crate::ports::{self, Ports};
use crate::secure::{Lane, Secure, Security, RUNS_MAX};
use crate::table::{Events, PeerTable};
use crate::wrap::{Corruptor, FaultSpec};
use crate::{Address, Link, LinkError, PeerInfo, WaitFd};
use frame::FRAME_MAX;
use poll::Poll;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use streams::{Id, Stage, Streams, OTHER};
use sys::{listen, Listener, Options};
use weft_core::{EndpointId, LinkCaps, PeerId};

/// Settings of a TCP link.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Local IPv4 address to bind to; unspecified for all, `None` for no IPv4.
    pub v4: Option<Ipv4Addr>,
    /// Local IPv6 address to bind to; unspecified for all, `None` for no IPv6.
    pub v6: Option<Ipv6Addr>,
    /// Ports of the sockets that take connections.
    pub ports: Ports,
    /// Highest number of streams; 0 for half of the descriptors that the process may have, at most
    /// 1024. Beyond it, the stream that was used the longest ago is closed.
    pub streams: usize,
    /// Highest number of connections from others that have not proven yet who they are.
    pub strangers: usize,
    /// Time for a connection from another process to send its first authentic frame.
    pub proof: Duration,
    /// Time to connect to one address of a peer.
    pub connect: Duration,
    /// Time without traffic after which a stream is closed.
    pub idle: Duration,
    /// Time after which a stream ends whose bytes the other side does not acknowledge
    /// (`TCP_USER_TIMEOUT`).
    pub silence: Duration,
    /// Time without traffic after which the kernel asks if the other side is there
    /// (`SO_KEEPALIVE`).
    pub keepalive: Duration,
    /// Time without an answer, while packets wait for one, after which another stream is made.
    pub doubt: Duration,
    /// Largest packet (header and payload) to send, bytes.
    pub packet_max: u32,
    /// Faults to inject; the link itself injects only corruption, below the authentication.
    pub faults: Option<FaultSpec>,
    /// This host's hash as in [`Address::host`](crate::Address), 0 if unknown: tells if a loopback
    /// address in a peer's list can belong to the peer.
    pub host: u64,
    /// Highest number of peers under one key, as packet numbers are limited. Fewer in tests.
    pub connections: u64,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            v4: Some(Ipv4Addr::UNSPECIFIED),
            v6: Some(Ipv6Addr::UNSPECIFIED),
            ports: Ports::ANY,
            streams: 0,
            strangers: 64,
            proof: Duration::from_secs(5),
            connect: Duration::from_secs(3),
            idle: Duration::from_secs(60),
            silence: Duration::from_secs(10),
            keepalive: Duration::from_secs(5),
            doubt: Duration::from_secs(2),
            packet_max: u32::MAX,
            faults: None,
            host: 0,
            connections: RUNS_MAX,
        }
    }
}

/// Most streams, where the configuration leaves the number open.
const STREAMS_MAX: u64 = 1024;
/// Bytes that wait in the kernel unsent, from which on a socket takes no more: small messages wait
/// behind them.
const UNSENT: u32 = 256 << 10;
/// Packets of bulk data that are asked for together: as many as one call sends.
const TRAIN: u32 = 4;

/// The state of a peer.
struct Peer {
    endpoint: EndpointId,
    /// Addresses of the peer that may work, best first.
    candidates: Vec<Candidate>,
    /// Index of the address to connect to.
    at: usize,
    /// Connections in a row that were not made.
    failures: u32,
    /// No connection is tried before this time.
    retry: Option<Instant>,
    /// The stream that frames to the peer are sent over.
    outlet: Option<Id>,
    /// Streams that ended before their time, and the cause of the last end.
    breaks: u64,
    cause: String,
}

impl Peer {
    /// Returns the address that connections are made to.
    fn addr(&self) -> SocketAddr {
        self.candidates[self.at % self.candidates.len()].addr
    }
}

counters! {
    /// Counts of events. More than 15 fields: each is one counter.
    "";
    sent, sent_calls, send_full, send_dropped, received, received_calls, received_placed,
    places_lost, connects, connects_failed, accepts, streams_broken, streams_idle, streams_over,
    strangers_silent, strangers_refused, strangers_over, garbage
}

/// The TCP link of an endpoint.
pub struct TcpLink {
    origin: Origin,
    listeners: Vec<Listener>,
    secure: Secure,
    streams: Streams,
    peers: PeerTable<Peer>,
    poll: Poll,
    /// Streams with bytes that wait for room in the kernel.
    wanting: Vec<Id>,
    care: care::Care,
    config: TcpConfig,
    options: Options,
    events: Events,
    count: Counters,
    tx: send::TcpOutbox,
    rx: recv::TcpReceiver,
    /// Flips bits of sent packets when faults are injected.
    corruptor: Option<Corruptor>,
}

impl TcpLink {
    /// Opens the sockets that take connections.
    ///
    /// # Errors
    /// [`LinkError::System`] if no socket could be opened. A family that the machine lacks is
    /// skipped.
    pub fn new(config: TcpConfig, security: Security) -> Result<TcpLink, LinkError> {
        let listeners = open_listeners(&config)?;
        let poll = Poll::new().map_err(|source| system("open an epoll instance", source))?;
        for (listener, at) in listeners.iter().zip(0..) {
            let added = poll.add(listener.raw(), OTHER | at, false);
            added.map_err(|source| system("watch a TCP socket", source))?;
        }
        let half = (sys::descriptors() / 2).clamp(8, STREAMS_MAX) as usize;
        let options =
            Options { silence: config.silence, keepalive: config.keepalive, unsent: UNSENT };
        Ok(TcpLink {
            origin: Origin::here(),
            secure: Secure::with_runs(&security, Lane::Tcp, config.connections),
            streams: Streams::new(if config.streams == 0 { half } else { config.streams.max(2) }),
            peers: PeerTable::default(),
            poll,
            wanting: Vec::new(),
            care: care::Care::new(),
            options,
            events: Events::default(),
            count: Counters::default(),
            tx: send::TcpOutbox::new(),
            rx: recv::TcpReceiver::new(),
            corruptor: config.faults.as_ref().map(Corruptor::new),
            listeners,
            config,
        })
    }

    /// Lists the addresses at which connections are taken.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(Listener::local).collect()
    }

    /// Returns the number of streams that are open now.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the largest packet.
    fn packet_len(&self) -> u32 {
        ((FRAME_MAX - self.secure.trailer_len()) as u32).min(self.config.packet_max)
    }

    fn path_caps(&self) -> LinkCaps {
        let mut caps = LinkCaps::network("tcp", self.packet_len());
        // Guesses at which another carrier is better, so that this one is used where it was
        // measured to be the faster, or where others do not pass.
        (caps.latency_ns, caps.bytes_per_us) = (8_000, 2_500);
        caps.small_bytes_per_us = caps.bytes_per_us;
        // A stream carries every length.
        (caps.train, caps.cuts, caps.connects) = (TRAIN, true, true);
        caps
    }
}

/// Returns the route to an address. The kernel is asked with a UDP socket, which a rule may forbid:
/// then the address may be reached all the same.
fn route_to(to: SocketAddr) -> io::Result<ip::Route> {
    let unreachable = [io::ErrorKind::NetworkUnreachable, io::ErrorKind::HostUnreachable];
    let source = if to.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    match ip::sys::route_to(to) {
        Err(e) if !unreachable.contains(&e.kind()) => Ok(ip::Route { source, mtu: 1500 }),
        other => other,
    }
}

fn system(what: &str, source: io::Error) -> LinkError {
    LinkError::System { what: what.into(), source, fix: "see `weft doctor`, or use the udp link" }
}

/// Opens a socket of each family, all with one port.
fn open_listeners(config: &TcpConfig) -> Result<Vec<Listener>, LinkError> {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut failed = None;
    let ips = [config.v4.map(IpAddr::V4), config.v6.map(IpAddr::V6)];
    for ip in ips.into_iter().flatten() {
        let at = |port| listen(SocketAddr::new(ip, port));
        let opened = match listeners.first().map(|l| l.local().port()) {
            Some(port) => at(port),
            None => config.ports.bind(None, at),
        };
        match opened {
            Ok(listener) => listeners.push(listener),
            Err(e) => failed = Some((ip, e)),
        }
    }
    match failed {
        Some((ip, source)) if listeners.is_empty() => Err(LinkError::System {
            what: match config.ports {
                Ports::ANY => format!("open a TCP socket on {ip}"),
                ports => format!("open a TCP socket on {ip}, ports {ports} ({})", ports::TCP),
            },
            fix: match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "name a wider range of ports: each rank of a host takes one"
                }
                _ => "choose another address or port",
            },
            source,
        }),
        None if listeners.is_empty() => Err(LinkError::Unsupported),
        _ => Ok(listeners),
    }
}

impl Link for TcpLink {
    fn caps(&self) -> LinkCaps {
        self.path_caps()
    }

    fn advertise(&self, address: &mut Address) {
        address.security = Some(self.secure.mode());
        address.host = self.config.host;
        for ip in ip::advertised() {
            for listener in self.listeners.iter().filter(|l| l.local().is_ipv6() == ip.is_ipv6()) {
                let bound = listener.local();
                let fits = bound.ip().is_unspecified() || bound.ip() == ip;
                if fits && address.tcp.len() < interfaces::ADDRESSES_MAX {
                    address.tcp.push(SocketAddr::new(ip, bound.port()));
                }
            }
        }
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        self.secure.agree(&info.address)?;
        let ours = ip::sys::interfaces().unwrap_or_default();
        let near = Nearness::of(self.config.host, info.address.host);
        let has_family = |v6| self.listeners.iter().any(|l| l.local().is_ipv6() == v6);
        let candidates =
            interfaces::candidates(&info.address.tcp, &ours, near, has_family, route_to)
                .map_err(LinkError::Unreachable)?;
        self.secure.add_peer(info.peer, info.session, info.endpoint)?;
        self.close_idle(info.peer, false);
        let known = Peer {
            endpoint: info.endpoint,
            candidates,
            at: 0,
            failures: 0,
            retry: None,
            outlet: None,
            breaks: 0,
            cause: String::new(),
        };
        self.peers.insert(info.peer, known);
        for id in self.streams.find(|s| s.peer.is_none() && s.endpoint == Some(info.endpoint)) {
            self.bind(id, info.peer);
        }
        Ok(self.path_caps())
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.close_idle(peer, true);
        self.peers.remove(peer);
        self.secure.remove_peer(peer);
    }

    own_frames!();

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.poll.raw() });
    }

    fn prepare_wait(&mut self) -> bool {
        self.watch_room();
        !self.rx.has_rest()
    }

    fn finish_wait(&mut self, ready: bool) {
        if ready {
            self.rx.wake();
        }
    }

    fn path_text(&self, peer: PeerId) -> String {
        let Some(known) = self.peers.get(peer) else { return String::new() };
        let stream = known.outlet.and_then(|id| self.streams.get(id));
        let path = match stream {
            Some(s) if !s.ours => format!("by the connection of {}", s.with),
            _ => ip::path_text(&known.candidates, known.addr()),
        };
        match (stream.map(|s| s.stage), known.breaks + u64::from(known.failures)) {
            (Some(Stage::Open), 0) | (None, 0) => path,
            (Some(Stage::Connecting(_)), 0) => format!("{path}, connecting"),
            (_, 0) => path,
            (_, n) => format!("{path}, {n} connections ended, the last: {}", known.cause),
        }
    }

    fn network(&mut self) -> Option<&mut dyn crate::Network> {
        Some(self)
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.count.each(each);
        self.secure.counters(each);
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        // The streams of a copied process belong to the original.
        if self.origin.is_here() {
            self.end_all();
        }
    }
}

impl crate::Network for TcpLink {
    fn doubt(&mut self, peer: PeerId) {
        self.doubt_stream(peer);
    }
}

//! The packet link: weft frames of their own EtherType on packet sockets (packet(7)). It has the
//! lowest latency that Linux offers without a kernel module or a program in the driver, and needs
//! the capability `CAP_NET_RAW`.
//!
//! The sockets of this link, set up for trains, are the gso link: frames longer than the MTU, which
//! arrive in one piece between the containers of a host. A HELLO over the gso link is as long as
//! the longest frame, so that its answer proves that such frames arrive.
//!
//! - `fanout.rs`: the fanout group by which the endpoints of a host share an interface.
//! - `send.rs`: seals frames and passes them to the driver, several in one call.
//! - `trains.rs`: the same for trains.
//! - `recv.rs`: takes frames out of the memory-mapped ring.
//! - `paths.rs`: the interface over which a peer is reached, and its replacement when it fails.
//! - `stripes.rs`: several paths that share bulk data.
//! - `fallback.rs`: a socket for an endpoint of the XDP link that has no queue.
//! - `bare.rs`: socket and ring alone, for comparison.
//! - `sys/`: the system calls.

mod bare;
mod fallback;
mod fanout;
mod paths;
mod recv;
mod send;
mod stripes;
mod sys;
#[cfg(test)]
mod tests;
mod trains;
mod unix;

pub use bare::BarePacket;
pub(crate) use fallback::{FallbackSocket, Sent};
pub use sys::{Held, Keep, Value};

use crate::ether::{
    speed, EtherHead, EtherType, Interface, Interfaces, Mac, Monitor, Path, TrainHead, PATHS_MAX,
};
use crate::link::own_frames;
use crate::no_buffers::NoBuffers;
use crate::proof::Proof;
use crate::secure::{Lane, Secure, Security};
use crate::stripes::{Paths, Stripes};
use crate::table::{Events, PeerTable};
use crate::train::Arrived;
use crate::wrap::{Corruptor, FaultSpec};
use crate::{Address, Link, LinkError, PeerInfo, Sink, WaitFd};
use fanout::{FanoutMember, GroupName};
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use sys::{Carries, Geometry};
use weft_core::{LinkCaps, PeerId};

/// Settings of a packet link.
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// EtherType of the frames.
    pub kind: EtherType,
    /// Use trains of packets, which are frames of another EtherType: the gso link.
    pub trains: bool,
    /// Names of the interfaces to choose from; `None` for all.
    pub interfaces: Option<Vec<String>>,
    /// Receive ring of each interface, bytes; 0 for a size that fits the cache and holds one
    /// window.
    pub ring: usize,
    /// Largest packet (header and payload) to send, bytes; the interfaces may allow less.
    pub packet_max: u32,
    /// Faults to inject; the link itself injects only corruption, below the authentication.
    pub faults: Option<FaultSpec>,
}

impl Default for PacketConfig {
    fn default() -> PacketConfig {
        PacketConfig {
            kind: EtherType::default(),
            trains: false,
            interfaces: None,
            ring: 0,
            packet_max: u32::MAX,
            faults: None,
        }
    }
}

/// Bytes of sent frames that the kernel may hold for one interface.
const SEND_BUFFER: usize = 2 << 20;

/// Consecutive packets over one of several interfaces, before the next interface is used.
const RUN: u32 = 16;

/// An interface in use.
struct Port {
    interface: Interface,
    membership: FanoutMember,
    /// The interface is up.
    up: bool,
    /// The interface no longer exists.
    gone: bool,
    /// Mbit/s; 0 if not known.
    speed: u32,
    /// The rest of the train at the ring's head.
    arrived: Arrived,
    /// Frames lost because the ring was full. The kernel resets its count at each query.
    drops: Cell<u64>,
}

struct Peer {
    /// Paths to the peer, best first.
    paths: Vec<Path>,
    /// Index of the path in use.
    at: usize,
    proof: Proof,
    stripes: Stripes,
    /// Source of frames that come over the path in use.
    source: Source,
    /// The outlet of the path in use, except while a single frame is sent over another path.
    outlet: Outlet,
}

/// The data needed to send frames over a path.
#[derive(Clone, Copy)]
struct Outlet {
    port: usize,
    /// Header and shim, without the length.
    head: [u8; EtherHead::LEN],
    /// The headers of a train.
    train: TrainHead,
    /// Largest Ethernet payload, bytes.
    mtu: u32,
}

/// The index of the receiving port and the MAC address of the sender, in one number.
type Source = u64;

fn source(port: usize, mac: &[u8]) -> Source {
    mac.iter().fold(port as u64, |all, &byte| all << 8 | u64::from(byte))
}

counters! {
    /// Counts of events.
    "";
    sent, sent_calls, sent_trains, sent_striped, send_full, send_errors, send_dropped,
    send_too_long, received, received_placed, other_station, other_slot, cut_off, path_changes
}

/// The packet link of an endpoint.
pub struct PacketLink {
    carries: Carries,
    ports: Vec<Port>,
    secure: Secure,
    packet_max: u32,
    peers: PeerTable<Peer>,
    /// Sources of the latest HELLOs from endpoints that are not peers.
    callers: VecDeque<(weft_core::EndpointId, Source)>,
    events: Events,
    count: Counters,
    tx: send::FrameOutbox,
    monitor: Monitor,
    /// Polls of the rings that found nothing.
    idle: u32,
    /// Index of the port whose ring is polled next.
    turn: usize,
    /// A packet was sent to this peer, and the link has not polled since.
    asked: Option<PeerId>,
    no_buffers: NoBuffers,
    /// Flips bits of sent frames when faults are injected.
    corruptor: Option<Corruptor>,
}

fn system(what: &str, source: std::io::Error) -> LinkError {
    LinkError::System { what: what.into(), source, fix: "see `weft doctor`, or use the udp link" }
}

fn lane(carries: Carries) -> Lane {
    match carries {
        Carries::Packets(_) => Lane::Packet,
        Carries::Trains => Lane::Gso,
    }
}

impl PacketLink {
    /// Opens a socket on every interface that can be used.
    ///
    /// # Errors
    /// [`LinkError::System`] without the right to raw sockets; [`LinkError::Unreachable`] if no
    /// interface can be used, with the reasons.
    pub fn new(config: PacketConfig, security: Security) -> Result<PacketLink, LinkError> {
        let all = Interfaces::list().map_err(|e| system("list the network interfaces", e))?;
        let monitor = Monitor::open().map_err(|e| system("watch the network interfaces", e))?;
        let chosen = all.usable(config.interfaces.as_deref()).map_err(LinkError::Unreachable)?;
        let job = security.job_key.public_id();
        let carries = if config.trains { Carries::Trains } else { Carries::Packets(config.kind) };
        let mut ports = Vec::new();
        let mut failed = Vec::new();
        for interface in chosen {
            let group = GroupName { job, carries, interface: interface.index, xdp: false };
            let sizes = match carries {
                Carries::Packets(_) => Geometry::new(interface.mtu, config.ring),
                Carries::Trains => trains::ring(config.ring),
            };
            match FanoutMember::take(&group, sizes, SEND_BUFFER) {
                Ok(membership) => {
                    let (arrived, drops) = (Arrived::nothing(), Cell::new(0));
                    let (up, gone, speed) = (true, false, speed(interface.name.as_bytes()));
                    ports.push(Port { interface, membership, up, gone, speed, arrived, drops });
                }
                Err(e) => failed.push((interface.name, e)),
            }
        }
        if ports.is_empty() {
            return Err(LinkError::of_all(failed));
        }
        let widest = ports.iter().map(|p| p.interface.mtu).max().unwrap_or(0);
        let tx = match carries {
            Carries::Packets(_) => send::FrameOutbox::new(widest),
            Carries::Trains => send::FrameOutbox::new(trains::FRAME),
        };
        let mut link = PacketLink {
            carries,
            secure: Secure::new(&security, lane(carries)),
            packet_max: config.packet_max,
            peers: PeerTable::default(),
            callers: VecDeque::new(),
            events: Events::default(),
            count: Counters::default(),
            tx,
            monitor,
            idle: 0,
            turn: 0,
            asked: None,
            no_buffers: NoBuffers::default(),
            corruptor: config.faults.as_ref().map(Corruptor::new),
            ports,
        };
        for (interface, error) in failed {
            link.warn(format!("{} link without interface {interface}: {error}", link.name()));
        }
        Ok(link)
    }

    /// Gives the link to another endpoint: forgets all peers and protects frames by `security`.
    /// Sockets and slots stay.
    pub fn set_security(&mut self, security: &Security) {
        for peer in self.peers.ids() {
            self.peers.remove(peer);
        }
        self.callers.clear();
        self.secure = Secure::new(security, lane(self.carries));
    }

    /// Stops the threads that let others join the groups of sockets, so that the link has no thread
    /// left: for a process that is about to give up its rights.
    pub fn stop_helper(&mut self) {
        self.ports.iter_mut().for_each(|port| port.membership.stop_helper());
    }

    /// Returns the security state: mode, cipher implementation.
    pub fn secure(&self) -> &Secure {
        &self.secure
    }

    /// Lists the interfaces in use by name, with this endpoint's slot on each.
    pub fn ports(&self) -> Vec<(String, u16)> {
        self.ports.iter().map(|p| (p.interface.name.clone(), p.membership.slot)).collect()
    }

    /// Returns the interface and the MAC address in use for a peer.
    pub fn peer_path(&self, peer: PeerId) -> Option<(&str, Mac)> {
        let known = self.peer(peer)?;
        let path = known.paths[known.at];
        Some((&self.ports[path.ours].interface.name, path.to.mac))
    }

    fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer)
    }

    fn warn(&mut self, text: String) {
        self.events.warn(text);
    }

    fn name(&self) -> &'static str {
        match self.carries {
            Carries::Packets(_) => "packet",
            Carries::Trains => "gso",
        }
    }

    /// Returns the largest frame (packet and trailer) for an Ethernet payload of this size.
    fn frame_len(&self, mtu: u32) -> usize {
        let around = match self.carries {
            Carries::Packets(_) => EtherHead::SHIM,
            Carries::Trains => return trains::TRAIN,
        };
        mtu.min(u32::from(u16::MAX)) as usize - around
    }

    /// Returns the largest packet for an Ethernet payload of this size.
    fn packet_len(&self, mtu: u32) -> u32 {
        ((self.frame_len(mtu) - self.secure.trailer_len()) as u32).min(self.packet_max)
    }

    fn path_caps(&self, mtu: u32) -> LinkCaps {
        let mut caps = LinkCaps::network(self.name(), self.packet_len(mtu));
        (caps.latency_ns, caps.bytes_per_us, caps.polled) = (2_500, 600, true);
        if self.carries == Carries::Trains {
            (caps.latency_ns, caps.bytes_per_us) = (2_900, 4_000);
            // Every frame takes 64 KiB of its ring, even a short one.
            caps.fits_credit = false;
        }
        caps.small_bytes_per_us = caps.bytes_per_us;
        if self.carries != Carries::Trains && self.ports.len() > 1 {
            caps.train = RUN;
        }
        caps
    }
}

impl Link for PacketLink {
    fn caps(&self) -> LinkCaps {
        let widest = self.ports.iter().map(|p| p.interface.mtu).max().unwrap_or(1500);
        self.path_caps(widest)
    }

    fn advertise(&self, address: &mut Address) {
        address.security = Some(self.secure.mode());
        for port in self.ports.iter().take(PATHS_MAX) {
            let own = port.interface.address(port.membership.slot);
            match self.carries {
                Carries::Packets(_) => address.ether.push(own),
                Carries::Trains => trains::advertise(own, address),
            }
        }
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        self.secure.agree(&info.address)?;
        let mtu = self.add_peer(info).map_err(LinkError::Unreachable)?;
        let numbered = self.secure.add_peer(info.peer, info.session, info.endpoint);
        numbered.inspect_err(|_| self.peers.remove(info.peer))?;
        Ok(self.path_caps(mtu))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(peer);
        self.secure.remove_peer(peer);
    }

    own_frames!();

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        // A socket whose interface is down or gone would wake only to report that.
        let live = self.ports.iter().filter(|p| p.up && !p.gone);
        out.extend(live.map(|p| WaitFd { fd: p.membership.socket.fd.as_raw_fd() }));
        out.push(WaitFd { fd: self.monitor.fd() });
    }

    fn prepare_wait(&mut self) -> bool {
        !self.has_frames()
    }

    fn finish_wait(&mut self, ready: bool) {
        if ready && !self.has_frames() {
            self.check_interfaces();
        }
    }

    fn path_text(&self, peer: PeerId) -> String {
        self.peer_path(peer).map_or_else(String::new, |(name, to)| format!("on {name} to {to}"))
    }

    #[inline]
    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        match self.spin(rounds) {
            true => self.recv(budget, sink),
            false => 0,
        }
    }

    fn network(&mut self) -> Option<&mut dyn crate::Network> {
        Some(self)
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let drops = |p: &Port| {
            p.drops.set(p.drops.get() + p.membership.socket.drops());
            p.drops.get()
        };
        self.count.each(each);
        each("ring_drops", self.ports.iter().map(drops).sum());
        self.secure.counters(each);
    }
}

impl PacketLink {
    /// Polls up to `rounds` times. True as soon as there is a packet.
    #[inline]
    fn spin(&mut self, rounds: u32) -> bool {
        if let Some(peer) = self.asked.take() {
            self.secure.prefetch_keys(peer);
        }
        // No pause between polls: a pause would take as long as several polls.
        (0..rounds).any(|_| self.has_frames())
    }
}

impl crate::Network for PacketLink {
    fn send_run(&mut self, run: &crate::DataRun<'_>) -> Option<usize> {
        (run.stripe > 0).then(|| self.send_over(run))
    }

    fn has_unanswered(&mut self, peer: PeerId) -> bool {
        !self.unanswered(peer).is_empty()
    }

    fn ask_unanswered(&mut self, peer: PeerId) {
        self.ask_rest(peer);
    }

    fn doubt(&mut self, peer: PeerId) {
        self.doubt_path(peer);
    }
}

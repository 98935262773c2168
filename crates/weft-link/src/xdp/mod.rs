//! The XDP link: weft frames on raw Ethernet through AF_XDP sockets (Linux 5.11 or later).
//!
//! Frames of weft's EtherType for a slot of this endpoint are taken out of the receive path before
//! the network stack sees them, into memory shared with the kernel. All other frames pass.
//!
//! - `program.rs`: the XDP program; `assembler.rs`: builds programs; `attach.rs`: shares one
//!   program on an interface among ranks.
//! - `mode.rs`, `open.rs`: the modes tried on an interface, and the reasons of failures.
//! - `connection.rs`: a queue, or a packet socket if another process has the queue; `share.rs`: one
//!   queue for several endpoints of a process.
//! - `paths.rs`: the interface over which a peer is reached.
//! - `send.rs`, `recv.rs`: packets to frames and back.
//! - `counters/`, `chain/`: fetch-and-add and multicast by programs of their own; `sip.rs`: the
//!   authentication of their frames.
//! - `bare.rs`: program and sockets alone, for comparison.
//! - `sys/`: bpf(2), the sockets and their rings.
//!
//! `docs/adr/0007-xdp-program.md` has the reasons.

pub mod assembler;
pub mod attach;
mod bare;
mod connection;
mod mode;
mod open;
mod paths;
mod program;
mod recv;
mod send;
mod share;
mod sys;
#[cfg(test)]
mod tests;

pub use bare::BareXdp;
pub use mode::{UnknownMode, XdpMode};
pub use sys::{bpf, Mapping};

use crate::ether::{EtherHead, EtherType, Interface, Interfaces, Monitor, Path, PATHS_MAX};
use crate::link::own_frames;
use crate::packet::FallbackSocket;
use crate::proof::Proof;
use crate::secure::{Lane, Secure, Security};
use crate::table::{Events, PeerTable};
use crate::wrap::{Corruptor, FaultSpec};
use crate::{Address, Link, LinkError, LinkEvent, PeerInfo, Sink, WaitFd};
use connection::Connection;
use open::Rail;
use std::os::fd::AsRawFd;
use weft_core::{LinkCaps, PeerId};

/// Settings of an XDP link.
#[derive(Clone, Debug, Default)]
pub struct XdpConfig {
    /// Names of the interfaces to use; all Ethernet interfaces that are up when `None`.
    pub interfaces: Option<Vec<String>>,
    /// The modes to try, in order; weft chooses when there is none.
    pub modes: Vec<XdpMode>,
    /// The only queue to use of each interface; all queues when `None`.
    pub queue: Option<u32>,
    /// Microseconds for which a poll of an empty receive ring may drive the card instead of its
    /// interrupts (busy polling); 0 for never.
    pub busy_poll_us: u32,
    /// EtherType of the frames.
    pub ether_type: EtherType,
    /// Faults to inject; the link itself injects only corruption, below the authentication.
    pub faults: Option<FaultSpec>,
}

/// Polls for packets between two checks for changed interfaces: each check costs a system call.
const MONITOR_ROUNDS: u32 = 1 << 14;

struct Peer {
    /// Paths to the peer, best first.
    paths: Vec<Path>,
    /// Index of the path in use.
    at: usize,
    proof: Proof,
}

impl Peer {
    fn path(&self) -> &Path {
        &self.paths[self.at]
    }
}

#[derive(Default)]
struct Counters {
    sent: u64,
    send_full: u64,
    send_errors: u64,
    send_dropped: u64,
    received: u64,
    received_foreign: u64,
    path_changes: u64,
}

/// The XDP link of an endpoint.
pub struct XdpLink {
    rails: Vec<Rail>,
    secure: Secure,
    kind: EtherType,
    peers: PeerTable<Peer>,
    events: Events,
    count: Counters,
    monitor: Option<Monitor>,
    /// Polls until the monitor is checked again.
    monitor_in: u32,
    busy_poll: bool,
    /// Flips bits of sent frames when faults are injected.
    corruptor: Option<Corruptor>,
}

/// Interfaces that are not used, and the reasons.
type Failures = Vec<(String, LinkError)>;

impl XdpLink {
    /// Attaches the program to the interfaces and opens the sockets.
    ///
    /// # Errors
    /// [`LinkError::Unreachable`] if no interface can be used, [`LinkError::System`] with the
    /// reason if none could be opened; an interface that fails beside one that works is a warning.
    pub fn new(config: XdpConfig, security: Security) -> Result<XdpLink, LinkError> {
        let job = security.job_key.public_id();
        let open = |interface: &Interface| open::open_or_stand_in(&config, interface, job);
        let (rails, failed) = XdpLink::rails(&config, open)?;
        let mut link = XdpLink::over(rails, &config, &security);
        for (name, error) in failed {
            link.warn(format!("interface {name} is not used: {error}"));
        }
        link.log_stand_in();
        link.start(&config);
        Ok(link)
    }

    /// Makes links for several endpoints of this process that share the queues of each interface.
    /// Each endpoint has a slot of its own; no other process gets those queues.
    ///
    /// # Errors
    /// Returns the errors of [`XdpLink::new`]; or another process has a queue.
    pub fn several(
        config: &XdpConfig,
        count: usize,
        security: &Security,
    ) -> Result<Vec<XdpLink>, LinkError> {
        let (rails, failed) = XdpLink::rails(config, |interface| open::open(config, interface))?;
        for (name, error) in failed {
            crate::warn!("interface {name} is not used: {error}");
        }
        let mut first = XdpLink::over(rails, config, security);
        first.start(config);
        let mut links: Vec<XdpLink> =
            (0..count).map(|_| XdpLink::over(Vec::new(), config, security)).collect();
        for rail in first.rails {
            for (link, part) in links.iter_mut().zip(open::share(config, rail, count)?) {
                link.rails.push(part);
            }
        }
        links.iter_mut().for_each(|link| link.busy_poll = first.busy_poll);
        Ok(links)
    }

    /// Opens the interfaces; returns them and the reasons why others failed.
    fn rails(
        config: &XdpConfig,
        open: impl Fn(&Interface) -> Result<Rail, LinkError>,
    ) -> Result<(Vec<Rail>, Failures), LinkError> {
        let (mut rails, mut failed) = (Vec::new(), Vec::new());
        for interface in usable(config)?.iter().take(PATHS_MAX) {
            match open(interface) {
                Ok(rail) => rails.push(rail),
                Err(error) => failed.push((interface.name.clone(), error)),
            }
        }
        match rails.is_empty() {
            true => Err(LinkError::of_all(failed)),
            false => Ok((rails, failed)),
        }
    }

    fn over(rails: Vec<Rail>, config: &XdpConfig, security: &Security) -> XdpLink {
        XdpLink {
            rails,
            secure: Secure::new(security, Lane::Xdp),
            kind: config.ether_type,
            peers: PeerTable::default(),
            events: Events::default(),
            count: Counters::default(),
            monitor: Monitor::open().ok(),
            monitor_in: MONITOR_ROUNDS,
            busy_poll: false,
            corruptor: config.faults.as_ref().map(Corruptor::new),
        }
    }

    /// Gives the link to another endpoint: forgets all peers and protects frames by `security`.
    /// Queues and slots stay.
    pub fn set_security(&mut self, security: &Security) {
        for peer in self.peers.ids() {
            self.peers.remove(peer);
        }
        self.rails.iter_mut().flat_map(|rail| &mut rail.connections).for_each(Connection::clear);
        self.secure = Secure::new(security, Lane::Xdp);
    }

    fn start(&mut self, config: &XdpConfig) {
        for line in self.describe() {
            log::info!("xdp: {line}");
        }
        let mut sockets =
            self.connections().filter_map(Connection::port).map(|p| p.socket()).peekable();
        if config.busy_poll_us == 0 || sockets.peek().is_none() {
            return;
        }
        const BUDGET: i32 = 64;
        let us = i32::try_from(config.busy_poll_us).unwrap_or(i32::MAX);
        let refused = sockets.map(|s| s.prefer_busy_poll(us, BUDGET)).find_map(Result::err);
        match refused {
            None => self.busy_poll = true,
            Some(e) => self.warn(format!("busy polling is off: the kernel refused it ({e})")),
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> + '_ {
        self.rails.iter().flat_map(|rail| &rail.connections)
    }

    /// Warns that queues serve other processes: once for all endpoints of the job on an interface.
    fn log_stand_in(&mut self) {
        let first =
            |connection: &Connection| connection.fallback().is_some_and(FallbackSocket::is_first);
        let those = self.rails.iter().filter(|rail| rail.connections.iter().any(first));
        let names: Vec<_> = those.map(|rail| rail.interface.name.clone()).collect();
        for name in names {
            self.warn(format!(
                "{name}: another rank has its queue for AF_XDP; ranks without one use packet \
                 sockets for the same frames"
            ));
        }
    }

    /// Describes the offer of this machine for the link, one line for each interface. Opens the
    /// needed sockets but attaches nothing and disturbs no other process.
    ///
    /// # Errors
    /// Returns the errors of [`XdpLink::new`].
    pub fn probe(config: &XdpConfig) -> Result<Vec<String>, LinkError> {
        open::probe(config, &usable(config)?)
    }

    /// Returns the security state: mode, cipher implementation.
    pub fn secure(&self) -> &Secure {
        &self.secure
    }

    /// Describes each interface in one line: its name, the mode and why not a better one.
    pub fn describe(&self) -> Vec<String> {
        let line = |rail: &Rail| {
            let (name, slot) = (&rail.interface.name, rail.slot);
            let Some(mode) = rail.mode else {
                return format!(
                    "{name}: a packet socket, since another process has its queue, slot {slot:#06x}"
                );
            };
            let zero_copy = rail.connections.iter().all(Connection::is_zero_copy);
            let copy = if zero_copy { "without copies" } else { "with a copy" };
            let queues = rail.connections.len();
            let share = if rail.joined { ", program shared with another rank" } else { "" };
            let tried: String = rail.tried.iter().map(|why| format!("; not {why}")).collect();
            format!("{name}: {mode}, {copy}, {queues} queue(s), slot {slot:#06x}{share}{tried}")
        };
        self.rails.iter().map(line).collect()
    }

    /// Lists the mode of each interface in use on which the endpoint has a queue.
    pub fn modes(&self) -> impl Iterator<Item = XdpMode> + '_ {
        self.rails.iter().filter_map(|rail| rail.mode)
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        self.rails.iter_mut().all(|rail| rail.connections.iter_mut().all(Connection::is_empty))
    }

    fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer)
    }

    fn warn(&mut self, text: String) {
        self.events.warn(text);
    }

    /// Returns the largest packet in an Ethernet payload of this size on one of our interfaces.
    fn packet_len(&self, rail: usize, payload: u32) -> u32 {
        let payload = payload.min(self.rails[rail].payload_max);
        payload.saturating_sub((EtherHead::SHIM + self.secure.trailer_len()) as u32)
    }

    fn path_len(&self, path: &Path) -> u32 {
        self.packet_len(path.ours, path.mtu)
    }

    fn path_caps(mtu: u32) -> LinkCaps {
        let mut caps = LinkCaps::network("xdp", mtu);
        (caps.latency_ns, caps.bytes_per_us) = (LATENCY_NS, BYTES_PER_US);
        caps.small_bytes_per_us = BYTES_PER_US;
        caps.polled = true;
        caps
    }

    fn interfaces(&self) -> Vec<Interface> {
        self.rails.iter().map(|rail| rail.interface.clone()).collect()
    }

    /// Updates the state of the interfaces after a change.
    #[cold]
    fn refresh(&mut self) {
        let Ok(now) = Interfaces::list() else { return };
        for at in 0..self.rails.len() {
            let known = &self.rails[at].interface;
            let found = now.0.iter().find(|i| i.index == known.index);
            let (mtu, old) = (found.map_or(known.mtu, |i| i.mtu), known.mtu);
            let up = found.is_some_and(|i| i.usable().is_ok());
            self.mark(at, !up);
            self.rails[at].connections.iter().for_each(Connection::changed);
            self.rails[at].interface.mtu = mtu;
            if mtu != old {
                self.resize(at);
            }
        }
    }

    /// Updates the paths over an interface whose MTU changed.
    fn resize(&mut self, rail: usize) {
        let mtu = self.rails[rail].interface.mtu;
        for peer in self.peers.ids() {
            let Some(known) = self.peers.get_mut(peer) else { continue };
            for path in known.paths.iter_mut().filter(|p| p.ours == rail) {
                path.mtu = mtu.min(u32::from(path.to.mtu));
            }
            let path = *known.path();
            if path.ours == rail {
                let len = self.path_len(&path);
                self.events.push(LinkEvent::Mtu(peer, len));
            }
        }
    }

    /// Notes, and reports once, that an interface went down or came back.
    fn mark(&mut self, rail: usize, down: bool) {
        if std::mem::replace(&mut self.rails[rail].down, down) == down {
            return;
        }
        let name = &self.rails[rail].interface.name;
        let text = match down {
            true => format!("interface {name} is down or gone: packets wait or are lost"),
            false => format!("interface {name} is back"),
        };
        self.warn(text);
        if down {
            self.leave(rail);
        }
    }
}

/// Lists the interfaces to use.
fn usable(config: &XdpConfig) -> Result<Vec<Interface>, LinkError> {
    let all = Interfaces::list()
        .map_err(|source| open::system("list the interfaces (rtnetlink)", source))?;
    all.usable(config.interfaces.as_deref()).map_err(LinkError::Unreachable)
}

/// Cost of a small packet on veth in generic mode, measured (`docs/results/records.md`, record 7).
const LATENCY_NS: u32 = 2_500;
/// Throughput of packets of 1500 bytes, measured in the same way.
const BYTES_PER_US: u32 = 900;

impl Link for XdpLink {
    fn caps(&self) -> LinkCaps {
        let each = |(at, rail): (usize, &Rail)| self.packet_len(at, rail.interface.mtu);
        XdpLink::path_caps(self.rails.iter().enumerate().map(each).max().unwrap_or(0))
    }

    fn advertise(&self, address: &mut Address) {
        address.security = Some(self.secure.mode());
        let room = Address::MAX_ETHER.saturating_sub(address.ether.len());
        address.ether.extend(self.rails.iter().take(room).map(|rail| {
            let payload = rail.payload_max.min(u32::from(u16::MAX)) as u16;
            let mut own = rail.interface.address(rail.slot);
            own.mtu = own.mtu.min(payload);
            own
        }));
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        self.secure.agree(&info.address)?;
        let theirs: Vec<_> = info.address.ether.iter().filter(|a| a.is_xdp()).copied().collect();
        let paths = Path::find(&self.interfaces(), &theirs).map_err(LinkError::Unreachable)?;
        let mtu = self.path_len(&paths[0]);
        let proof = Proof::new(paths.len() == 1);
        let at = paths.iter().position(|path| !self.rails[path.ours].down).unwrap_or(0);
        let mtu = paths.get(at).map_or(mtu, |path| self.path_len(path));
        let peer = Peer { paths, at, proof };
        self.secure.add_peer(info.peer, info.session, info.endpoint)?;
        self.peers.insert(info.peer, peer);
        Ok(XdpLink::path_caps(mtu))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(peer);
        self.secure.remove_peer(peer);
    }

    own_frames!();

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.extend(self.connections().map(|connection| WaitFd { fd: connection.fd().as_raw_fd() }));
        out.extend(self.monitor.as_ref().map(|m| WaitFd { fd: m.fd() }));
    }

    fn prepare_wait(&mut self) -> bool {
        self.is_empty()
    }

    fn finish_wait(&mut self, ready: bool) {
        // The monitor may have caused the wake-up.
        if ready {
            self.monitor_in = 0;
        }
    }

    fn path_text(&self, peer: PeerId) -> String {
        let Some(path) = self.peers.get(peer).map(Peer::path) else { return String::new() };
        format!("on {} to {}", self.rails[path.ours].interface.name, path.to.mac)
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
        let c = &self.count;
        let mut lost = sys::Statistics::default();
        let (mut unusable, mut refused) = (0, 0);
        for connection in self.connections() {
            let more = connection.statistics();
            lost.dropped += more.dropped;
            lost.ring_full += more.ring_full;
            lost.no_buffer += more.no_buffer;
            if let Some(socket) = connection.fallback() {
                unusable += socket.unusable;
                refused += socket.errors;
            }
        }
        let in_mode = |mode| self.modes().filter(|m| *m == mode).count() as u64;
        let all = [
            ("sent", c.sent),
            ("send_full", c.send_full),
            ("send_errors", c.send_errors + refused),
            ("send_dropped", c.send_dropped),
            ("received", c.received),
            ("received_foreign", c.received_foreign + unusable),
            ("path_changes", c.path_changes),
            ("rx_dropped", lost.dropped),
            ("rx_ring_full", lost.ring_full),
            ("rx_no_buffer", lost.no_buffer),
            ("interfaces_zerocopy", in_mode(XdpMode::ZeroCopy)),
            ("interfaces_native", in_mode(XdpMode::Native)),
            ("interfaces_generic", in_mode(XdpMode::Generic)),
            ("interfaces_packet", (self.rails.len() - self.modes().count()) as u64),
        ];
        all.into_iter().for_each(|(name, value)| each(name, value));
        self.secure.counters(each);
    }
}

impl XdpLink {
    /// Polls up to `rounds` times. True as soon as there is a packet.
    #[inline]
    fn spin(&mut self, rounds: u32) -> bool {
        if self.busy_poll {
            // Only a system call drives the card.
            return false;
        }
        (0..rounds).any(|_| !self.is_empty())
    }
}

impl crate::Network for XdpLink {
    fn doubt(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.paths.len() > 1 {
            known.proof.doubt();
        }
    }
}

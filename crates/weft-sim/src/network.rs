//! The simulated network: NICs, wires, switches, faults, and the events that move frames.

use crate::config::{LinkKind, SimConfig, Topology};
use crate::events::{EventQueue, What};
use crate::fault::{Fault, Span};
use crate::trace::{Fate, Trace, TraceEvent};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_core::wire::field;
use weft_link::rng::Rng;

/// Bytes of the checksum after each frame. Not counted as wire bytes: the security trailer is part
/// of [`crate::Wire::overhead_bytes`].
pub(crate) const CHECK_LEN: usize = 8;

/// A network shared by links and the runner.
pub type SharedNetwork = Rc<RefCell<Network>>;

/// Totals of a simulation, in frames unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted by NICs.
    pub sent: u64,
    /// Their bytes, weft packets only.
    pub sent_bytes: u64,
    /// Reached a NIC.
    pub arrived: u64,
    /// Lost by fault.
    pub lost: u64,
    /// Lost at a partition.
    pub partitioned: u64,
    /// Dropped by a full switch queue.
    pub queue_full: u64,
    /// Dropped by a full receiving NIC.
    pub ring_full: u64,
    /// Addressed to a dead host.
    pub host_dead: u64,
    /// Bits flipped.
    pub corrupted: u64,
    /// Refused because of the receiver's checksum.
    pub refused: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Delayed.
    pub held_back: u64,
    /// Not accepted by a full NIC (backpressure), counted per attempt.
    pub backpressure: u64,
    /// Events processed.
    pub events: u64,
}

impl Counters {
    /// Returns every counter with its name.
    pub fn list(&self) -> [(&'static str, u64); 14] {
        [
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("arrived", self.arrived),
            ("lost", self.lost),
            ("partitioned", self.partitioned),
            ("queue_full", self.queue_full),
            ("ring_full", self.ring_full),
            ("host_dead", self.host_dead),
            ("corrupted", self.corrupted),
            ("refused", self.refused),
            ("duplicated", self.duplicated),
            ("held_back", self.held_back),
            ("backpressure", self.backpressure),
            ("events", self.events),
        ]
    }

    fn count(&mut self, fate: Fate) {
        let counter = match fate {
            Fate::Sent => &mut self.sent,
            Fate::Arrived => &mut self.arrived,
            Fate::Lost => &mut self.lost,
            Fate::Partitioned => &mut self.partitioned,
            Fate::QueueFull => &mut self.queue_full,
            Fate::RingFull => &mut self.ring_full,
            Fate::HostDead => &mut self.host_dead,
            Fate::Refused => &mut self.refused,
            Fate::Corrupted => &mut self.corrupted,
            Fate::Duplicated => &mut self.duplicated,
            Fate::HeldBack => &mut self.held_back,
        };
        *counter += 1;
    }
}

/// A frame in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub src: u32,
    /// The incarnation of that host.
    pub generation: u32,
    pub dst: u32,
    /// The network that carries it.
    pub network: usize,
    /// Streams between the two hosts that had broken when it was sent.
    pub stream: u64,
    pub sent_at: u64,
    pub header_len: u16,
    /// Header, payload, checksum.
    pub bytes: Vec<u8>,
}

/// The runner's action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No event is left.
    Idle,
    /// Nothing.
    Quiet,
    /// Run this host.
    Run(u32),
    /// Stop this host for ever.
    Died(u32),
    /// Run this host's program no more, for ever.
    Stopped(u32),
    /// Start this host's program anew.
    Restarted(u32),
}

/// Most networks.
const NETWORKS: usize = 1 + SimConfig::MORE;

/// The transmitters and receivers of a host.
#[derive(Debug, Default)]
struct Nic {
    generation: u32,
    dead: bool,
    paused_until: u64,
    /// Time at which the processor is free again.
    busy_until: u64,
    /// Time at which the transmitter of each network is free again.
    tx_until: [u64; NETWORKS],
    /// The earliest scheduled wake-up.
    wake_at: Option<u64>,
    inbox: [VecDeque<u32>; NETWORKS],
    /// Memory links: frames accepted by senders and not yet taken.
    claimed: u32,
    /// Memory links: senders refused because this ring was full.
    refused: Vec<u32>,
    /// Hosts whose death is not yet reported to this host's link, and the incarnation that died.
    gone: VecDeque<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    bytes_per_us: u64,
    free_at: u64,
    last_arrival: u64,
}

/// Hosts' NICs, switches and everything in flight.
pub struct Network {
    config: SimConfig,
    rng: Rng,
    now: u64,
    queue: EventQueue,
    packets: Vec<Packet>,
    unused: Vec<u32>,
    nics: Vec<Nic>,
    ports: Vec<Port>,
    counters: Counters,
    /// Frames that reached a host over each network.
    arrived: [u64; NETWORKS],
    trace: Trace,
    restarts_left: usize,
    peak_queue: u64,
    /// Streams between two hosts over a network that have broken so far.
    broken: BTreeMap<(usize, u32, u32), u64>,
}

/// Returns the nanoseconds that `bytes` take at `bytes_per_us`.
fn serialise(bytes: u64, bytes_per_us: u64) -> u64 {
    (bytes * 1000).div_ceil(bytes_per_us.max(1))
}

/// Names the stream between two hosts, which serves both directions.
fn between(network: usize, a: u32, b: u32) -> (usize, u32, u32) {
    (network, a.min(b), a.max(b))
}

/// Returns the ports of one network's switches.
fn ports(config: &SimConfig, network: usize) -> Vec<Port> {
    let (hosts, wire) = (config.hosts, config.wire_of(network));
    let port = |bytes_per_us| Port { bytes_per_us, ..Port::default() };
    let mut ports = vec![port(wire.bytes_per_us); hosts as usize];
    if let Topology::Tree { radix, uplink } = config.topology {
        let leaves = hosts.div_ceil(radix.max(1)) as usize;
        ports.resize(
            hosts as usize + 2 * leaves,
            port(wire.bytes_per_us * u64::from(uplink.max(1))),
        );
    }
    ports
}

impl Network {
    /// Creates the network of `config`, with its faults scheduled.
    pub fn new(config: SimConfig) -> Network {
        let hosts = config.hosts;
        let ports = (0..config.networks()).flat_map(|n| ports(&config, n)).collect();
        let mut queue = EventQueue::default();
        let mut restarts_left = 0;
        for (index, fault) in (0u32..).zip(&config.faults) {
            match fault {
                Fault::Pause { span, .. } | Fault::StillRank { span, .. } => {
                    queue.push(span.from, What::Fault { index });
                }
                Fault::Death { at, .. } => queue.push(*at, What::Fault { index }),
                Fault::Restart { at, .. } => {
                    restarts_left += 1;
                    queue.push(*at, What::Fault { index });
                }
                _ => {}
            }
        }
        Network {
            rng: Rng::stream(config.seed, 1),
            now: 0,
            queue,
            packets: Vec::new(),
            unused: Vec::new(),
            nics: (0..hosts).map(|_| Nic::default()).collect(),
            ports,
            counters: Counters::default(),
            arrived: [0; NETWORKS],
            trace: Trace::new(config.trace),
            restarts_left,
            peak_queue: 0,
            broken: BTreeMap::new(),
            config,
        }
    }

    /// Creates a network to be shared.
    pub fn shared(config: SimConfig) -> SharedNetwork {
        Rc::new(RefCell::new(Network::new(config)))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Returns the virtual time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the totals so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of frames that reached a host over one of the networks.
    pub fn arrived_on(&self, network: usize) -> u64 {
        self.arrived.get(network).copied().unwrap_or(0)
    }

    /// Returns the record of events.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the most bytes that a switch port had queued at a time.
    pub fn peak_queue(&self) -> u64 {
        self.peak_queue
    }

    /// Returns the number of restarts still to come.
    pub fn restarts_left(&self) -> usize {
        self.restarts_left
    }

    /// Returns the incarnation of a host: 0, and one more at each restart.
    pub fn generation(&self, host: u32) -> u32 {
        self.nics[host as usize].generation
    }

    /// Returns true if this incarnation of the host is alive.
    pub(crate) fn alive(&self, host: u32, generation: u32) -> bool {
        let nic = &self.nics[host as usize];
        !nic.dead && nic.generation == generation
    }

    /// Returns the end of the standstill of a host's agent or rank, if it stands still at `now`.
    pub(crate) fn still_until(&self, host: u32, agent: bool, now: u64) -> Option<u64> {
        let until = |fault: &Fault| match fault {
            Fault::StillAgent { host: of, span } if agent => (*of, *span),
            Fault::StillRank { host: of, span } if !agent => (*of, *span),
            _ => (host, Span::ms(0, 0)),
        };
        let spans = self.config.faults.iter().map(until);
        spans.filter(|(of, span)| *of == host && span.covers(now)).map(|(_, s)| s.until).max()
    }

    /// Makes the host run at `at`, or as soon as it neither computes nor is paused.
    pub fn wake(&mut self, host: u32, at: u64) {
        let nic = &mut self.nics[host as usize];
        let at = at.max(self.now).max(nic.busy_until).max(nic.paused_until);
        if nic.dead || nic.wake_at.is_some_and(|t| t <= at) {
            return;
        }
        nic.wake_at = Some(at);
        self.queue.push(at, What::Wake { host });
    }

    /// Marks the host's processor busy until `ns`.
    pub fn busy(&mut self, host: u32, ns: u64) {
        self.nics[host as usize].busy_until = ns;
    }

    /// Processes the next event.
    pub fn step(&mut self) -> Step {
        let Some(event) = self.queue.pop() else { return Step::Idle };
        self.counters.events += 1;
        self.now = event.at;
        match event.what {
            What::Switch { packet } => self.at_switch(packet),
            What::Port { packet, port } => self.at_port(packet, port),
            What::Arrive { packet } => self.at_host(packet),
            What::Wake { host } => return self.at_wake(host),
            What::Fault { index } => return self.at_fault(index),
        }
        Step::Quiet
    }

    fn at_wake(&mut self, host: u32) -> Step {
        let nic = &mut self.nics[host as usize];
        if nic.dead || nic.wake_at != Some(self.now) {
            return Step::Quiet;
        }
        nic.wake_at = None;
        if nic.paused_until > self.now {
            self.wake(host, self.now);
            return Step::Quiet;
        }
        Step::Run(host)
    }

    fn at_fault(&mut self, index: u32) -> Step {
        match self.config.faults[index as usize] {
            Fault::Pause { host, span } => {
                let nic = &mut self.nics[host as usize];
                nic.paused_until = nic.paused_until.max(span.until);
                Step::Quiet
            }
            Fault::StillRank { host, span } if span.until == u64::MAX => Step::Stopped(host),
            Fault::Death { host, visible, .. } if !self.nics[host as usize].dead => {
                self.stop(host, visible);
                Step::Died(host)
            }
            Fault::Restart { host, .. } => {
                self.restarts_left -= 1;
                self.stop(host, false);
                let nic = &mut self.nics[host as usize];
                nic.dead = false;
                nic.generation += 1;
                nic.busy_until = self.now;
                nic.paused_until = 0;
                self.wake(host, self.now);
                Step::Restarted(host)
            }
            _ => Step::Quiet,
        }
    }

    fn stop(&mut self, host: u32, visible: bool) {
        let nic = &mut self.nics[host as usize];
        nic.dead = true;
        nic.wake_at = None;
        nic.claimed = 0;
        nic.gone.clear();
        self.unused.extend(std::mem::take(&mut nic.inbox).into_iter().flatten());
        for sender in std::mem::take(&mut self.nics[host as usize].refused) {
            self.wake(sender, self.now);
        }
        if !visible {
            return;
        }
        let died = (host, self.generation(host));
        for other in (0..self.config.hosts).filter(|&h| h != host) {
            self.nics[other as usize].gone.push_back(died);
            self.wake(other, self.now + self.config.wire.latency_ns);
        }
    }

    /// Returns a host whose death this host's link should report, and its incarnation.
    pub(crate) fn take_gone(&mut self, host: u32) -> Option<(u32, u32)> {
        self.nics[host as usize].gone.pop_front()
    }

    /// Takes a frame from `src` at its local time `at`. False: no room, and `src` will be woken.
    pub(crate) fn send(
        &mut self,
        (src, dst): (u32, u32),
        network: usize,
        at: u64,
        parts: [&[u8]; 3],
    ) -> bool {
        let len: usize = parts[0].len() + parts[1].len();
        let wire = self.config.wire_of(network);
        let wire_len = len as u64 + u64::from(wire.overhead_bytes);
        let rate = wire.bytes_per_us;
        let limit = serialise(self.config.host.tx_bytes, rate);
        let free_at = self.nics[src as usize].tx_until[network];
        if free_at.saturating_sub(at) > limit {
            self.counters.backpressure += 1;
            // The sender is woken when half its queue is free, not for each frame.
            self.wake(src, free_at - limit / 2);
            return false;
        }
        if self.config.kind == LinkKind::Memory && !self.claim(src, dst) {
            return false;
        }
        let packet = self.new_packet();
        let generation = self.generation(src);
        let p = &mut self.packets[packet as usize];
        p.generation = generation;
        p.bytes.clear();
        parts.iter().for_each(|part| p.bytes.extend_from_slice(part));
        (p.src, p.dst, p.sent_at, p.header_len) = (src, dst, at, parts[0].len() as u16);
        p.network = network;
        p.stream = self.broken.get(&between(network, src, dst)).copied().unwrap_or(0);
        self.counters.sent_bytes += len as u64;
        self.note(packet, Fate::Sent);
        let done = free_at.max(at) + serialise(wire_len, rate);
        self.nics[src as usize].tx_until[network] = done;
        let next = match self.config.kind {
            LinkKind::Network => What::Switch { packet },
            LinkKind::Memory => What::Arrive { packet },
        };
        self.queue.push(done + wire.latency_ns, next);
        true
    }

    /// Memory link: reserves a slot in the ring of `dst`, or notes the sender to be woken.
    fn claim(&mut self, src: u32, dst: u32) -> bool {
        let nic = &mut self.nics[dst as usize];
        if nic.dead || nic.claimed < self.config.host.rx_frames {
            nic.claimed += 1;
            return true;
        }
        self.counters.backpressure += 1;
        if !nic.refused.contains(&src) {
            nic.refused.push(src);
        }
        false
    }

    fn new_packet(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.packets.push(Packet::default());
            (self.packets.len() - 1) as u32
        })
    }

    /// Counts and records the fate of a packet.
    fn note(&mut self, packet: u32, fate: Fate) {
        self.counters.count(fate);
        if !self.trace.enabled() {
            return;
        }
        let p = &self.packets[packet as usize];
        let mut header = [0; 24];
        let known = p.bytes.len().min(24);
        header[..known].copy_from_slice(&p.bytes[..known]);
        let at = if fate == Fate::Sent { p.sent_at } else { self.now };
        let len = p.bytes.len().saturating_sub(CHECK_LEN) as u32;
        let (src, dst, sent_at) = (p.src, p.dst, p.sent_at);
        self.trace.push(TraceEvent { at, sent_at, fate, src, dst, len, header });
    }

    fn drop_packet(&mut self, packet: u32, fate: Fate) {
        self.note(packet, fate);
        self.unused.push(packet);
    }

    /// Handles a packet at the first switch, where the wire's faults occur.
    fn at_switch(&mut self, packet: u32) {
        let Packet { src, dst, network, .. } = self.packets[packet as usize];
        if self.config.wire_of(network).stream {
            return self.at_stream(packet);
        }
        let mut delay = 0;
        for i in 0..self.config.faults.len() {
            let Some(fault) = self.config.faults[i].at(network) else { continue };
            match *fault {
                Fault::Loss { ppm, span } if span.covers(self.now) && self.rng.chance(ppm) => {
                    return self.drop_packet(packet, Fate::Lost);
                }
                Fault::Corrupt { ppm, span } if span.covers(self.now) && self.rng.chance(ppm) => {
                    self.corrupt(packet);
                }
                Fault::Duplicate { ppm, by_ns, span }
                    if span.covers(self.now) && self.rng.chance(ppm) =>
                {
                    self.duplicate(packet, by_ns);
                }
                Fault::Reorder { ppm, by_ns, span }
                    if span.covers(self.now) && self.rng.chance(ppm) =>
                {
                    delay = self.rng.between(1, by_ns.max(1));
                    self.note(packet, Fate::HeldBack);
                }
                _ => {
                    if let Some(fate) = self.stopped_by(fault, packet) {
                        return self.drop_packet(packet, fate);
                    }
                }
            }
        }
        let port = self.first_port(src, dst);
        if delay == 0 {
            self.at_port(packet, port);
        } else {
            self.queue.push(self.now + delay, What::Port { packet, port });
        }
    }

    /// Handles a frame of a stream at the first switch: what would lose it breaks the stream.
    /// Frames are many where segments of a stream are few, so losses break it more rarely.
    fn at_stream(&mut self, packet: u32) {
        const RARER: u32 = 8;
        let Packet { src, dst, network, .. } = self.packets[packet as usize];
        for i in 0..self.config.faults.len() {
            let Some(fault) = self.config.faults[i].at(network) else { continue };
            let fate = match *fault {
                Fault::Loss { ppm: 1_000_000.., span } => {
                    span.covers(self.now).then_some(Fate::Lost)
                }
                Fault::Loss { ppm, span } => {
                    let lost = span.covers(self.now) && self.rng.chance(ppm / RARER);
                    lost.then_some(Fate::Lost)
                }
                Fault::Partition { .. } | Fault::Cut { .. } => {
                    fault.separates(src, dst, self.now).then_some(Fate::Partitioned)
                }
                _ => None,
            };
            if let Some(fate) = fate {
                *self.broken.entry(between(network, src, dst)).or_default() += 1;
                return self.drop_packet(packet, fate);
            }
        }
        self.at_port(packet, self.first_port(src, dst));
    }

    /// True if a frame belongs to a stream that has broken.
    fn is_cut_off(&self, packet: u32) -> bool {
        let Packet { src, dst, network, stream, .. } = self.packets[packet as usize];
        self.broken.get(&between(network, src, dst)).is_some_and(|&now| now != stream)
    }

    /// Returns the fate of a packet that this fault stops for certain now, if it does.
    fn stopped_by(&self, fault: &Fault, packet: u32) -> Option<Fate> {
        let Packet { src, dst, .. } = self.packets[packet as usize];
        let (stopped, fate) = match *fault {
            Fault::Loss { ppm: 1_000_000.., span } => (span.covers(self.now), Fate::Lost),
            Fault::Longer { bytes, span } => {
                (span.covers(self.now) && self.len_of(packet) > bytes as usize, Fate::Lost)
            }
            Fault::Kind { kind, to, span } => {
                let is_it = to == dst && self.kind_of(packet) == kind as u8;
                (span.covers(self.now) && is_it, Fate::Lost)
            }
            Fault::Partition { .. } | Fault::Cut { .. } => {
                (fault.separates(src, dst, self.now), Fate::Partitioned)
            }
            _ => return None,
        };
        stopped.then_some(fate)
    }

    /// Returns the bytes of a packet, without its checksum.
    fn len_of(&self, packet: u32) -> usize {
        self.packets[packet as usize].bytes.len().saturating_sub(CHECK_LEN)
    }

    fn kind_of(&self, packet: u32) -> u8 {
        self.packets[packet as usize].bytes.get(field::TYPE).copied().unwrap_or_default()
    }

    fn corrupt(&mut self, packet: u32) {
        self.note(packet, Fate::Corrupted);
        let bits = self.packets[packet as usize].bytes.len() as u64 * 8;
        for _ in 0..self.rng.between(1, 3) {
            let bit = self.rng.below(bits);
            self.packets[packet as usize].bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    fn duplicate(&mut self, packet: u32, by_ns: u64) {
        let copy = self.new_packet();
        let original = self.packets[packet as usize].clone();
        let port = self.first_port(original.src, original.dst);
        self.packets[copy as usize] = original;
        self.note(copy, Fate::Duplicated);
        let at = self.now + self.rng.between(1, by_ns.max(1));
        let network = self.packets[copy as usize].network;
        let mut faults = self.config.faults.iter().filter_map(|fault| fault.at(network));
        // A fault that stops the packet for certain stops its copy too.
        match faults.find_map(|fault| self.stopped_by(fault, copy)) {
            Some(fate) => self.drop_packet(copy, fate),
            None => self.queue.push(at, What::Port { packet: copy, port }),
        }
    }

    fn first_port(&self, src: u32, dst: u32) -> u32 {
        match self.config.topology {
            Topology::Tree { radix, .. } if src / radix.max(1) != dst / radix.max(1) => {
                self.config.hosts + src / radix.max(1)
            }
            _ => dst,
        }
    }

    /// Returns the port after `port` on the route to `dst`; none when it leads to the host.
    fn next_port(&self, port: u32, dst: u32) -> Option<u32> {
        let Topology::Tree { radix, .. } = self.config.topology else { return None };
        let hosts = self.config.hosts;
        let leaves = hosts.div_ceil(radix.max(1));
        if port < hosts {
            None
        } else if port < hosts + leaves {
            Some(hosts + leaves + dst / radix.max(1))
        } else {
            Some(dst)
        }
    }

    /// Handles a frame at an output port: it queues, or is dropped when the queue is full.
    fn at_port(&mut self, packet: u32, port: u32) {
        let p = &self.packets[packet as usize];
        let (dst, network) = (p.dst, p.network);
        let wire = self.config.wire_of(network);
        // Ports are numbered within their network.
        let at = network * (self.ports.len() / self.config.networks()) + port as usize;
        let len = (p.bytes.len() - CHECK_LEN) as u64 + u64::from(wire.overhead_bytes);
        let Port { bytes_per_us, free_at, last_arrival } = self.ports[at];
        let backlog = free_at.saturating_sub(self.now);
        if !wire.stream && backlog > serialise(wire.queue_bytes, bytes_per_us) {
            return self.drop_packet(packet, Fate::QueueFull);
        }
        let queued = backlog * bytes_per_us / 1000 + len;
        self.peak_queue = self.peak_queue.max(queued);
        let done = free_at.max(self.now) + serialise(len, bytes_per_us);
        let jitter = if wire.jitter_ns == 0 { 0 } else { self.rng.below(wire.jitter_ns + 1) };
        let arrival = (done + wire.latency_ns + jitter).max(last_arrival);
        let state = &mut self.ports[at];
        (state.free_at, state.last_arrival) = (done, arrival);
        let what = match self.next_port(port, dst) {
            Some(port) => What::Port { packet, port },
            None => What::Arrive { packet },
        };
        self.queue.push(arrival, what);
    }

    fn at_host(&mut self, packet: u32) {
        let Packet { dst, network, .. } = self.packets[packet as usize];
        if self.is_cut_off(packet) {
            return self.drop_packet(packet, Fate::Lost);
        }
        let stream = self.config.wire_of(network).stream;
        let nic = &mut self.nics[dst as usize];
        if nic.dead {
            return self.drop_packet(packet, Fate::HostDead);
        }
        if !stream && nic.inbox[network].len() >= self.config.host.rx_frames as usize {
            return self.drop_packet(packet, Fate::RingFull);
        }
        nic.inbox[network].push_back(packet);
        self.arrived[network] += 1;
        self.note(packet, Fate::Arrived);
        self.wake(dst, self.now);
    }

    /// Returns true if a frame waits for the host, on any network.
    pub(crate) fn waiting(&self, host: u32) -> bool {
        let nic = &self.nics[host as usize];
        nic.inbox.iter().any(|inbox| !inbox.is_empty()) || !nic.gone.is_empty()
    }

    /// Takes the next frame for the host from a network; its buffer is swapped for `spare`.
    pub(crate) fn take(&mut self, host: u32, network: usize, spare: &mut Packet) -> bool {
        let nic = &mut self.nics[host as usize];
        let Some(packet) = nic.inbox[network].pop_front() else { return false };
        nic.claimed = nic.claimed.saturating_sub(1);
        std::mem::swap(&mut self.packets[packet as usize], spare);
        self.unused.push(packet);
        if nic.claimed <= self.config.host.rx_frames / 2 && !nic.refused.is_empty() {
            for sender in std::mem::take(&mut self.nics[host as usize].refused) {
                self.wake(sender, self.now);
            }
        }
        true
    }

    /// Notes that the receiver found a frame corrupt.
    pub(crate) fn note_refused(&mut self, packet: &Packet) {
        self.counters.count(Fate::Refused);
        if self.trace.enabled() {
            let mut header = [0; 24];
            let known = packet.bytes.len().min(24);
            header[..known].copy_from_slice(&packet.bytes[..known]);
            let len = packet.bytes.len().saturating_sub(CHECK_LEN) as u32;
            let &Packet { src, dst, sent_at, .. } = packet;
            let (at, fate) = (self.now, Fate::Refused);
            self.trace.push(TraceEvent { at, sent_at, fate, src, dst, len, header });
        }
    }
}

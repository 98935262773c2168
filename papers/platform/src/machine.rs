//! Nodes, buses, engines and links in virtual time: each use of a resource and its duration.
//!
//! The work of processors is in `firmware` (network interface) and `host`; here are the parts that
//! only move bytes: the I/O bus, the host DMA engine, the send engine, the receiving port.

use super::choice::{Choice, Repair};
use super::costs::{Costs, HostCosts, NiCosts, SHARED_WINDOW};
use super::firmware::Task;
use super::hardware::{Hardware, Ps};
use super::host::Op;
use super::queue::Queue;
use std::collections::VecDeque;
use std::time::Duration;
use weft_core::reliability::{AckPolicy, RecvWindow, Reliability, SendWindow};
use weft_core::seq::Seq;
use weft_core::time::Instant;
use weft_link::rng::Rng;

/// Bytes that the send engine moves before it checks again for other users of the memory.
const CHUNK: u64 = 512;
/// Bytes that a program copies or writes in one step.
pub(super) const PIECE: u64 = 256;
/// Retransmission timeout and latest acknowledgement of the implementations that retransmit.
pub(super) const RTO: Duration = Duration::from_millis(5);
const ACK_DELAY: Duration = Duration::from_millis(1);
/// The credit scheme has no acknowledgement timer.
const NEVER: Duration = Duration::from_secs(4);

pub(super) type PacketId = usize;
pub(super) type BufferId = usize;

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For the program.
    Data,
    /// Acknowledgement from network interface to network interface.
    Ack,
    /// Acknowledgement from host to host.
    HostAck,
    /// Fetch-and-add request.
    Ask,
    /// Fetch-and-add reply.
    Reply,
}

#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub kind: Kind,
    pub from: usize,
    pub to: usize,
    /// Bytes of data.
    pub bytes: u64,
    /// The program's number for it.
    pub tag: u64,
    /// Root of the multicast it belongs to.
    pub root: Option<usize>,
    pub seq: Option<Seq>,
    pub ack: Seq,
    pub nack: bool,
    pub buffer: BufferId,
}

/// A packet buffer in NI memory.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Sender whose packet it holds; None for a send buffer.
    pub from: Option<usize>,
    pub refs: u32,
    /// True if the data has been fetched.
    pub ready: bool,
    /// Packets that wait for the data.
    pub waiting: Vec<PacketId>,
}

/// A transfer of the host DMA engine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dma {
    Fetch(PacketId),
    Deliver(PacketId),
    /// Reports this many free send buffers to the host.
    Complete(u32),
}

/// A user of the I/O bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The host writes and waits until it is written.
    Host,
    /// The host has written the words that give the network interface a packet.
    Posted {
        bytes: u64,
        packet: PacketId,
    },
    Dma,
}

/// Protocol state of the network interface or of the host for one other node.
pub(super) struct Peer {
    pub send: SendWindow<PacketId>,
    pub recv: RecvWindow,
    /// Packets that wait for the window.
    pub blocked: VecDeque<PacketId>,
    pub unblocking: bool,
    pub timer: bool,
}

/// The processor of a host.
#[derive(Default)]
pub(super) struct Host {
    pub ops: VecDeque<Op>,
    pub busy: bool,
    /// Packets for the program.
    pub rx: VecDeque<PacketId>,
    /// Send buffers that programs may take. Packets that the host forwards never wait for one: they
    /// may take more than there are, and programs wait until those are back.
    pub free: i64,
    pub began: Ps,
    /// The time at which the host is woken.
    pub alarm: Option<Ps>,
    pub computing: Computing,
}

/// The computation of a host into which interrupts may break.
#[derive(Default)]
pub(super) struct Computing {
    /// Its end, while it lasts.
    pub end: Option<Ps>,
    /// Its number, and that of the one for which the network interface has a timer.
    pub turn: u32,
    pub watched: u32,
}

/// The processor of a network interface.
#[derive(Default)]
pub(super) struct Processor {
    /// Ends of transfers, which are handled first, and other work.
    pub engine_tasks: VecDeque<Task>,
    pub tasks: VecDeque<Task>,
    pub task: Option<Task>,
    /// Free send buffers that the host has not been told of.
    pub unreported: u32,
}

/// An I/O bus.
#[derive(Default)]
struct Bus {
    user: Option<User>,
    waiting: VecDeque<User>,
    /// The DMA engine keeps the bus for its next burst.
    streaming: bool,
}

/// An engine that moves one thing at a time: that, with the bytes that are left, and others.
struct Engine<T> {
    now: Option<(T, u64)>,
    waiting: VecDeque<T>,
}

impl<T> Default for Engine<T> {
    fn default() -> Engine<T> {
        Engine { now: None, waiting: VecDeque::new() }
    }
}

/// The receiving port of a network interface.
#[derive(Default)]
struct Inlet {
    /// True while a packet comes in.
    busy: bool,
    /// Nodes whose packets wait.
    waiting: VecDeque<usize>,
    receiving: bool,
}

pub(super) struct Node {
    pub host: Host,
    pub ni: Processor,
    /// The counter for fetch-and-add.
    pub counter: u64,
    pub peers: Vec<Option<Box<Peer>>>,
    bus: Bus,
    dma: Engine<Dma>,
    sending: Engine<PacketId>,
    inlet: Inlet,
}

impl Node {
    fn new(nodes: usize, free: i64) -> Node {
        Node {
            host: Host { free, ..Host::default() },
            ni: Processor::default(),
            counter: 0,
            peers: (0..nodes).map(|_| None).collect(),
            bus: Bus::default(),
            dma: Engine::default(),
            sending: Engine::default(),
            inlet: Inlet::default(),
        }
    }
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The host has finished a step that uses no other part.
    Host(usize),
    /// The host has something to do, if it waits.
    Alarm(usize),
    /// A computation of the host ends, unless an interrupt came before.
    Computed(usize, u32),
    /// The host is interrupted, if it still does that computation.
    Interrupt(usize, u32),
    /// The network interface's processor has finished its task.
    Task(usize),
    /// The host DMA engine asks for the bus.
    DmaReady(usize),
    /// A bus transaction ends.
    Bus(usize),
    /// A piece of a packet has left the send engine.
    Sent(usize),
    /// A packet has arrived whole.
    Arrived(PacketId),
    /// A timer of the first node for the second.
    Timer(usize, usize),
}

/// Copies of packets by hosts, as the time for a cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// From user memory to the send queue (l-sdma).
    pub send_line: Ps,
    /// From the receive queue to user memory; None: the program reads the data in the queue.
    pub receive_line: Option<Ps>,
}

/// Counters of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that the simulator handled.
    pub events: u64,
    /// Transactions on all I/O buses.
    pub bus: u64,
    /// Explicit acknowledgement packets.
    pub acks: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Packets lost by the fault.
    pub lost: u64,
    /// Interrupts of hosts that compute.
    pub interrupts: u64,
}

/// A cluster that runs one implementation.
pub(super) struct Machine {
    pub hw: Hardware,
    pub choice: Choice,
    pub ni: NiCosts,
    pub host: HostCosts,
    pub copies: Copies,
    pub now: Ps,
    pub nodes: Vec<Node>,
    pub packets: Vec<Packet>,
    pub buffers: Vec<Buffer>,
    pub counts: Counts,
    pub rng: Rng,
    pub loss_ppm: u32,
    /// Place of each rank in the fabric.
    places: Vec<usize>,
    queue: Queue<Event>,
}

impl Machine {
    pub fn new(
        hw: &Hardware,
        choice: &Choice,
        costs: &Costs,
        copies: Copies,
        seed: u64,
    ) -> Machine {
        let mut rng = Rng::new(seed);
        let mut places: Vec<usize> = (0..hw.nodes).collect();
        for i in (1..places.len()).rev() {
            places.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let free = (hw.send_memory / choice.mtu) as i64;
        Machine {
            ni: costs.ni.of(choice),
            host: costs.host.of(choice),
            copies,
            now: 0,
            nodes: (0..hw.nodes).map(|_| Node::new(hw.nodes, free)).collect(),
            packets: Vec::new(),
            buffers: Vec::new(),
            counts: Counts::default(),
            rng,
            loss_ppm: 0,
            places,
            queue: Queue::new(),
            hw: hw.clone(),
            choice: *choice,
        }
    }

    pub fn instant(&self) -> Instant {
        Instant(self.now / 1000)
    }

    pub fn after(&mut self, delay: Ps, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    /// Returns the next event; None if there is none.
    pub fn next_event(&mut self) -> Option<Event> {
        let (at, event) = self.queue.pop()?;
        self.now = at;
        self.counts.events += 1;
        Some(event)
    }

    /// Returns the number of packets a sender may have unacknowledged. With credits each of the
    /// other nodes has its part of the receive buffers (section 4.1).
    fn window(&self) -> u32 {
        match self.choice.repair {
            Repair::None => (self.hw.receive_memory / self.choice.mtu / self.hw.nodes) as u32,
            _ => SHARED_WINDOW,
        }
    }

    pub fn peer(&mut self, node: usize, other: usize) -> &mut Peer {
        let window = self.window();
        let repairs = self.choice.repair != Repair::None;
        let delay = if repairs { ACK_DELAY } else { NEVER };
        self.nodes[node].peers[other].get_or_insert_with(|| {
            // Credits are acknowledgements that come when buffers are free again.
            let mut recv = RecvWindow::new(Reliability::GoBackN, Seq(0), window);
            recv.set_ack_policy(AckPolicy { every: window, delay, peer_window: window });
            Box::new(Peer {
                send: SendWindow::new(Reliability::GoBackN, window, Seq(0)),
                recv,
                blocked: VecDeque::new(),
                unblocking: false,
                timer: false,
            })
        })
    }

    /// Returns the reason why packets of `node` do not leave it, if some do not.
    pub fn held_back(&self, node: usize) -> Option<String> {
        let n = &self.nodes[node];
        let peers = n.peers.iter().enumerate();
        let blocked = |(at, peer): (usize, &Option<Box<Peer>>)| {
            let count = peer.as_ref().map_or(0, |peer| peer.blocked.len());
            (count > 0).then(|| format!("{count} packets to node {at} wait for their window"))
        };
        match peers.filter_map(blocked).next() {
            Some(text) => Some(text),
            None => (n.host.free <= 0).then(|| "no send buffer is free".to_string()),
        }
    }

    pub fn add_packet(&mut self, packet: Packet) -> PacketId {
        self.packets.push(packet);
        self.packets.len() - 1
    }

    pub fn add_buffer(&mut self, from: Option<usize>, refs: u32, ready: bool) -> BufferId {
        self.buffers.push(Buffer { from, refs, ready, waiting: Vec::new() });
        self.buffers.len() - 1
    }

    /// Returns `time` of a use of the NI memory of `node`, extended when the users together need
    /// more than the memory's rate.
    pub fn shared(&self, node: usize, time: Ps) -> Ps {
        let (asked, given) = self.demand(node);
        if asked <= given {
            time
        } else {
            time * asked / given
        }
    }

    fn demand(&self, node: usize) -> (u64, u64) {
        let n = &self.nodes[node];
        let link = 1_000_000 / self.hw.link_byte;
        let bus = self.hw.bus_width * 1_000_000 / self.hw.bus_clock;
        let asked = u64::from(n.sending.now.is_some()) * link
            + u64::from(n.inlet.receiving) * link
            + u64::from(n.bus.user.is_some()) * bus
            + u64::from(n.ni.task.is_some()) * self.hw.ni_fetch_rate;
        (asked, self.hw.sram_rate)
    }

    /// Returns `time` of a copy by the host of `node`, extended while DMA uses the same memory.
    pub fn shared_memory(&self, node: usize, bytes: u64, time: Ps) -> Ps {
        let copy = bytes * 1_000_000 / time.max(1);
        let dma = self.hw.bus_width * 1_000_000 / self.hw.bus_clock;
        let busy = self.nodes[node].bus.user == Some(User::Dma);
        let asked = 2 * copy + u64::from(busy) * dma;
        if asked <= self.hw.memory_rate || !busy {
            return time;
        }
        time * asked / self.hw.memory_rate
    }

    // The I/O bus.

    /// Asks for the bus; [`Event::Bus`] comes when the transaction is over.
    pub fn want_bus(&mut self, node: usize, user: User) {
        self.nodes[node].bus.waiting.push_back(user);
        self.grant_bus(node);
    }

    fn grant_bus(&mut self, node: usize) {
        if self.nodes[node].bus.user.is_some() {
            return;
        }
        let Some(user) = self.nodes[node].bus.waiting.pop_front() else { return };
        self.nodes[node].bus.user = Some(user);
        self.counts.bus += 1;
        let time = match user {
            User::Host => self.next_pio_time(node),
            User::Posted { bytes, .. } => self.pio_time(bytes),
            User::Dma => self.burst_time(node),
        };
        self.nodes[node].bus.streaming = false;
        let time = self.shared(node, time);
        self.after(time, Event::Bus(node));
    }

    /// Returns the time of the lines that the host writes next.
    fn next_pio_time(&self, node: usize) -> Ps {
        let Some(Op::Pio { left }) = self.nodes[node].host.ops.front() else { return 0 };
        self.pio_time((*left).min(PIECE))
    }

    /// Returns the time to write bytes in combined lines.
    fn pio_time(&self, bytes: u64) -> Ps {
        let line = super::hardware::LINE;
        let full = bytes / line * self.hw.bus_time(line, self.hw.pio_clocks);
        match bytes % line {
            0 => full,
            rest => full + self.hw.bus_time(rest, self.hw.pio_clocks),
        }
    }

    fn burst_time(&self, node: usize) -> Ps {
        let Some((dma, left)) = self.nodes[node].dma.now else { return 0 };
        let idle = match dma {
            // No other user asked for the bus in between: the transaction goes on.
            _ if self.nodes[node].bus.streaming => 0,
            Dma::Fetch(_) => self.hw.read_clocks,
            _ => self.hw.write_clocks,
        };
        self.hw.bus_time(left.min(self.hw.burst), idle)
    }

    /// Ends the transaction on the bus of `node`; returns its user.
    pub fn bus_done(&mut self, node: usize) -> Option<User> {
        let user = self.nodes[node].bus.user.take();
        match user {
            Some(User::Dma) => self.burst_done(node),
            Some(User::Host) => {
                if let Some(Op::Pio { left }) = self.nodes[node].host.ops.front_mut() {
                    *left = left.saturating_sub(PIECE);
                }
            }
            Some(User::Posted { .. }) | None => {}
        }
        self.grant_bus(node);
        user
    }

    // The host DMA engine.

    /// Returns the bytes of a packet's header.
    pub fn header(&self) -> u64 {
        match self.choice.repair {
            Repair::Host => super::costs::HEADER + super::costs::REPAIR_HEADER,
            _ => super::costs::HEADER,
        }
    }

    /// Returns the bytes that `dma` moves over the bus.
    fn dma_bytes(&self, dma: Dma) -> u64 {
        match dma {
            Dma::Fetch(packet) => self.packets[packet].bytes,
            Dma::Deliver(packet) => self.packets[packet].bytes + self.header(),
            Dma::Complete(_) => super::costs::RECORD,
        }
    }

    /// Gives the engine a transfer; it starts after all before it are done.
    pub fn start_dma(&mut self, node: usize, dma: Dma) {
        self.nodes[node].dma.waiting.push_back(dma);
        self.next_dma(node);
    }

    /// Starts the next transfer if the engine is free.
    pub fn next_dma(&mut self, node: usize) {
        if self.nodes[node].dma.now.is_some() {
            return;
        }
        let Some(dma) = self.nodes[node].dma.waiting.pop_front() else { return };
        self.nodes[node].dma.now = Some((dma, self.dma_bytes(dma)));
        let start = match dma {
            Dma::Fetch(_) => self.hw.read_start,
            _ => self.hw.write_start,
        };
        self.after(start, Event::DmaReady(node));
    }

    /// Starts the next transfer, after the processor has seen the end of one.
    pub fn dma_seen(&mut self, node: usize) {
        self.nodes[node].dma.now = None;
        self.next_dma(node);
    }

    fn burst_done(&mut self, node: usize) {
        let burst = self.hw.burst;
        let Some((dma, left)) = &mut self.nodes[node].dma.now else { return };
        *left = left.saturating_sub(burst);
        if *left > 0 {
            self.nodes[node].bus.streaming = self.nodes[node].bus.waiting.is_empty();
            self.want_bus(node, User::Dma);
            return;
        }
        let dma = *dma;
        self.dma_done(node, dma);
    }

    // Links.

    /// Gives the send engine a packet.
    pub fn transmit(&mut self, node: usize, packet: PacketId) {
        self.nodes[node].sending.waiting.push_back(packet);
        self.next_send(node);
    }

    fn next_send(&mut self, node: usize) {
        if self.nodes[node].sending.now.is_some() {
            return;
        }
        let Some(packet) = self.nodes[node].sending.waiting.pop_front() else { return };
        let bytes = self.packets[packet].bytes + self.header();
        self.nodes[node].sending.now = Some((packet, bytes));
        let to = self.packets[packet].to;
        if self.nodes[to].inlet.busy {
            self.nodes[to].inlet.waiting.push_back(node);
        } else {
            self.enter(node, to);
        }
    }

    /// Lets the packet that `node` sends enter the port of `to`.
    fn enter(&mut self, node: usize, to: usize) {
        self.nodes[to].inlet.busy = true;
        self.nodes[to].inlet.receiving = true;
        self.next_chunk(node, to);
    }

    fn next_chunk(&mut self, node: usize, to: usize) {
        let Some((_, left)) = self.nodes[node].sending.now else { return };
        let time = left.min(CHUNK) * self.hw.link_byte;
        let time = self.shared(node, time).max(self.shared(to, time));
        self.after(time, Event::Sent(node));
    }

    /// Handles a piece that has left; the rest follows, or the packet is in flight.
    pub fn chunk_sent(&mut self, node: usize) {
        let Some((packet, left)) = &mut self.nodes[node].sending.now else { return };
        *left = left.saturating_sub(CHUNK);
        let (packet, left) = (*packet, *left);
        let to = self.packets[packet].to;
        if left > 0 {
            self.next_chunk(node, to);
            return;
        }
        self.leave(to);
        let latency = self.hw.latency(self.places[node], self.places[to]);
        self.after(latency, Event::Arrived(packet));
        self.add_task(node, Task::Sent(packet));
    }

    /// Gives the engine the next packet, after the processor has seen that one left.
    pub fn send_seen(&mut self, node: usize) {
        self.nodes[node].sending.now = None;
        self.next_send(node);
    }

    /// Handles a packet that is in a receive buffer of its node.
    pub fn arrived(&mut self, packet: PacketId) {
        let node = self.packets[packet].to;
        self.add_task(node, Task::Arrived(packet));
    }

    /// Lets the port take the next packet: the receive engine has a second buffer.
    fn leave(&mut self, node: usize) {
        self.nodes[node].inlet.busy = false;
        self.nodes[node].inlet.receiving = false;
        if let Some(sender) = self.nodes[node].inlet.waiting.pop_front() {
            self.enter(sender, node);
        }
    }
}

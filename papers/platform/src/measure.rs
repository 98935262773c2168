//! The paper's microbenchmarks as programs for the simulated clusters.

use super::choice::Choice;
use super::costs::Costs;
use super::hardware::{Hardware, Ps, MICROSECOND};
use super::host::{Programs, Wish};
use super::machine::{Copies, Counts, Machine};
use super::system::System;
use weft_core::group::tree::Tree;

/// Placements of the ranks over which unicast figures are averaged.
const PLACEMENTS: u64 = 4;
/// Round trips of one measurement, after one that is not counted.
const ROUNDS: u64 = 8;
/// Packets of a flood.
const FLOOD: u64 = 512;
/// Bytes of the paper's Mbyte (its peak of 64 bits at 33 MHz is 254.3 of them a second).
const MBYTE: f64 = 1_048_576.0;

/// A cluster and an implementation on it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cluster.
    pub hw: Hardware,
    /// The implementation.
    pub choice: Choice,
    /// Work of the processors, before the additions of the choice.
    pub costs: Costs,
    /// Seed of the ranks' places and of losses.
    pub seed: u64,
    /// The programming system of [`run`](Setup::run).
    pub system: System,
    /// The tree by which programs forward broadcasts themselves, message by message, in place of
    /// the packet interface (l-sdma-mpimc).
    pub message_tree: Option<Tree>,
    /// Time of computing after which a program that gets no interrupts polls. `None`: never.
    pub poll_every: Option<Ps>,
    /// Computing of all nodes after which a run ends, before its programs do. `None`: never.
    pub work_limit: Option<Ps>,
}

/// LogP parameters in microseconds, with half the round trip as end-to-end latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogP {
    /// Send overhead.
    pub os: f64,
    /// Receive overhead.
    pub or: f64,
    /// The rest of the latency.
    pub l: f64,
    /// Time between messages of a flood.
    pub g: f64,
    /// Time from one program to the other, one way.
    pub end_to_end: f64,
}

fn us(time: f64) -> f64 {
    time / MICROSECOND as f64
}

impl Setup {
    /// Creates the setup of `choice` on `hw`.
    pub fn new(hw: &Hardware, choice: Choice, seed: u64) -> Setup {
        Setup {
            hw: hw.clone(),
            choice,
            costs: Costs::default(),
            seed,
            system: System::LCI,
            message_tree: None,
            poll_every: None,
            work_limit: None,
        }
    }

    pub(super) fn machine(&self, copies: Copies, placement: u64) -> Machine {
        let seed = self.seed.wrapping_add(placement << 32);
        Machine::new(&self.hw, &self.choice, &self.costs, copies, seed)
    }

    /// Returns the copies of a message of `size` bytes; the receiver copies if `copied`.
    pub(super) fn copies(&self, size: usize, copied: bool) -> Copies {
        // The data fits half the cache: the queue and the other side's buffer need the other half.
        let cached = size <= self.hw.cache / 2;
        Copies {
            send_line: self.hw.line_copy(cached, true),
            receive_line: copied.then(|| self.hw.line_copy(false, cached)),
        }
    }

    /// Returns the LogP parameters for messages of `bytes` bytes.
    pub fn logp(&self, bytes: u64) -> LogP {
        let mut sum = LogP::default();
        for placement in 0..PLACEMENTS {
            let copies = self.copies(bytes as usize, false);
            let mut pong = PingPong::new(bytes, self.choice.mtu);
            self.machine(copies, placement).run(&mut pong);
            let mut flood = Stream::new(bytes, FLOOD);
            self.machine(copies, placement).run(&mut flood);
            sum.os += us(pong.os as f64);
            sum.or += us(pong.or as f64);
            sum.end_to_end += us(pong.time() / 2.0);
            sum.g += us(flood.gap());
        }
        let mean = |x: f64| x / PLACEMENTS as f64;
        let (os, or, end_to_end) = (mean(sum.os), mean(sum.or), mean(sum.end_to_end));
        LogP { os, or, end_to_end, g: mean(sum.g), l: end_to_end - os - or }
    }

    /// Returns the one-way time of a message in microseconds, copied at the receiver.
    pub fn latency(&self, bytes: u64) -> f64 {
        let mut pong = PingPong::new(bytes, self.choice.mtu);
        self.machine(self.copies(bytes as usize, true), 0).run(&mut pong);
        us(pong.time() / 2.0)
    }

    /// Returns the time of a fetch-and-add at another node, in microseconds.
    pub fn fetch_add(&self) -> f64 {
        let one = |placement| {
            let mut program = FetchAdd::default();
            self.machine(Copies::default(), placement).run(&mut program);
            us(program.time())
        };
        (0..PLACEMENTS).map(one).sum::<f64>() / PLACEMENTS as f64
    }

    /// Returns the throughput of a one-way stream of messages of `size` bytes, in Mbyte/s of 2^20
    /// bytes.
    pub fn throughput(&self, size: usize, copied: bool) -> f64 {
        let mut stream = Stream::messages(size, self.choice.mtu);
        self.machine(self.copies(size, copied), 0).run(&mut stream);
        stream.rate()
    }

    /// Returns the time until the last node has a multicast message of `bytes` bytes, in
    /// microseconds.
    pub fn multicast_latency(&self, bytes: u64) -> f64 {
        let one = |placement| {
            let mut program = Multicast::new(self.hw.nodes, bytes as usize, self.choice.mtu, 1);
            self.machine(self.copies(bytes as usize, false), placement).run(&mut program);
            us(program.last as f64)
        };
        (0..PLACEMENTS).map(one).sum::<f64>() / PLACEMENTS as f64
    }

    /// Returns the rate at which multicast messages of `size` bytes leave the sender, in Mbyte/s of
    /// 2^20 bytes; every receiver copies.
    pub fn multicast_throughput(&self, size: usize) -> f64 {
        let count = 2 * packets_for(size, self.choice.mtu);
        let mut program = Multicast::new(self.hw.nodes, size, self.choice.mtu, count);
        self.machine(self.copies(size, true), 0).run(&mut program);
        program.rate()
    }

    /// Sends `count` packets of `bytes` bytes, of which `loss` parts per million are lost; returns
    /// true if all arrived in order, and the counters.
    pub fn lossy(&self, bytes: u64, count: u64, loss: u32) -> (bool, Counts) {
        let mut machine = self.machine(Copies::default(), 0);
        machine.loss_ppm = loss;
        let mut stream = Stream::new(bytes, count);
        let ended = machine.run(&mut stream).is_some();
        (ended && stream.in_order, machine.counts)
    }
}

/// Returns the number of messages of `size` bytes that make a stream long enough to measure.
fn packets_for(size: usize, mtu: usize) -> u64 {
    let packets = size.div_ceil(mtu);
    (96usize.div_ceil(packets)) as u64
}

/// A message bounces between nodes 0 and 1.
struct PingPong {
    size: usize,
    mtu: usize,
    packets: u64,
    /// Packets sent and received by each node.
    sent: [u64; 2],
    got: [u64; 2],
    start: Ps,
    end: Ps,
    os: Ps,
    or: Ps,
}

impl PingPong {
    fn new(bytes: u64, mtu: usize) -> PingPong {
        let size = bytes as usize;
        let packets = size.div_ceil(mtu).max(1) as u64;
        let (start, end, os, or) = (0, 0, 0, 0);
        PingPong { size, mtu, packets, sent: [0; 2], got: [0; 2], start, end, os, or }
    }

    /// Returns the time of one round trip.
    fn time(&self) -> f64 {
        (self.end - self.start) as f64 / ROUNDS as f64
    }
}

impl Programs for PingPong {
    fn wish(&mut self, node: usize) -> Wish {
        if node > 1 || self.done() {
            return Wish::Wait;
        }
        // Node 0 begins; each node answers whole messages.
        let turns = self.got[node] / self.packets + u64::from(node == 0);
        if self.sent[node] == turns * self.packets {
            return Wish::Wait;
        }
        let bytes = fragment(self.size, self.mtu, self.sent[node]);
        Wish::Send { to: 1 - node, bytes, tag: self.sent[node], work: 0 }
    }

    fn sent(&mut self, node: usize, began: Ps, ended: Ps) {
        self.sent[node] += 1;
        self.os = ended - began;
    }

    fn received(&mut self, node: usize, _: u64, began: Ps, ended: Ps) {
        self.got[node] += 1;
        self.or = ended - began;
        if node == 0 && self.got[0] == self.packets {
            self.start = ended;
        }
        self.end = ended;
    }

    fn done(&self) -> bool {
        self.got[0] == (ROUNDS + 1) * self.packets
    }
}

/// Node 0 fetches and adds at node 1.
#[derive(Default)]
struct FetchAdd {
    asked: u64,
    got: u64,
    start: Ps,
    end: Ps,
}

impl FetchAdd {
    fn time(&self) -> f64 {
        (self.end - self.start) as f64 / ROUNDS as f64
    }
}

impl Programs for FetchAdd {
    fn wish(&mut self, node: usize) -> Wish {
        if node == 0 && self.asked == self.got {
            Wish::FetchAdd { at: 1, work: 0 }
        } else {
            Wish::Wait
        }
    }

    fn sent(&mut self, _: usize, _: Ps, _: Ps) {
        self.asked += 1;
    }

    fn received(&mut self, _: usize, value: u64, _: Ps, ended: Ps) {
        assert_eq!(value, self.got, "fetch-and-add returned another value");
        self.got += 1;
        if self.got == 1 {
            self.start = ended;
        }
        self.end = ended;
    }

    fn done(&self) -> bool {
        self.got == ROUNDS + 1
    }
}

/// Node 0 sends to node 1 at the highest rate.
struct Stream {
    size: usize,
    mtu: usize,
    count: u64,
    sent: u64,
    got: u64,
    bytes: u64,
    start: (u64, Ps),
    end: Ps,
    in_order: bool,
}

impl Stream {
    fn new(bytes: u64, count: u64) -> Stream {
        let size = bytes as usize;
        let (sent, got, start, end) = (0, 0, (0, 0), 0);
        Stream { size, mtu: size.max(1), count, sent, got, bytes: 0, start, end, in_order: true }
    }

    /// Creates a stream of enough messages of `size` bytes, cut to packets.
    fn messages(size: usize, mtu: usize) -> Stream {
        let packets = size.div_ceil(mtu).max(1) as u64;
        let count = packets * packets_for(size, mtu);
        Stream { size, mtu, count, ..Stream::new(1, 0) }
    }

    fn packet_bytes(&self, index: u64) -> u64 {
        fragment(self.size, self.mtu, index)
    }

    fn gap(&self) -> f64 {
        (self.end - self.start.1) as f64 / (self.count - self.count / 4) as f64
    }

    fn rate(&self) -> f64 {
        (self.bytes - self.start.0) as f64 / MBYTE / ((self.end - self.start.1) as f64 / 1e12)
    }
}

/// Returns the bytes of packet `index` in a sequence of messages of `size` bytes.
fn fragment(size: usize, mtu: usize, index: u64) -> u64 {
    let packets = size.div_ceil(mtu).max(1) as u64;
    let last = (size - (packets as usize - 1) * mtu) as u64;
    if index % packets == packets - 1 {
        last
    } else {
        mtu as u64
    }
}

impl Programs for Stream {
    fn wish(&mut self, node: usize) -> Wish {
        if node != 0 || self.sent == self.count {
            return Wish::Wait;
        }
        Wish::Send { to: 1, bytes: self.packet_bytes(self.sent), tag: self.sent, work: 0 }
    }

    fn sent(&mut self, _: usize, _: Ps, _: Ps) {
        self.sent += 1;
    }

    fn received(&mut self, _: usize, tag: u64, _: Ps, ended: Ps) {
        self.in_order &= tag == self.got;
        self.bytes += self.packet_bytes(self.got);
        self.got += 1;
        // The first quarter fills the pipeline.
        if self.got == self.count / 4 {
            self.start = (self.bytes, ended);
        }
        self.end = ended;
    }

    fn done(&self) -> bool {
        self.got == self.count
    }
}

/// Node 0 multicasts messages to all others.
struct Multicast {
    size: usize,
    mtu: usize,
    packets: u64,
    sent: u64,
    got: Vec<u64>,
    all: u64,
    /// Packets, and the time when the last node had the first half, and when it had all.
    start: (u64, Ps),
    end: Ps,
    last: Ps,
}

impl Multicast {
    fn new(nodes: usize, size: usize, mtu: usize, messages: u64) -> Multicast {
        let packets = size.div_ceil(mtu).max(1) as u64 * messages;
        let (sent, all, start, end, last) = (0, 0, (0, 0), 0, 0);
        Multicast { size, mtu, packets, sent, got: vec![0; nodes], all, start, end, last }
    }

    fn rate(&self) -> f64 {
        let bytes: u64 =
            (self.start.0..self.packets).map(|i| fragment(self.size, self.mtu, i)).sum();
        bytes as f64 / MBYTE / ((self.end - self.start.1) as f64 / 1e12)
    }
}

impl Programs for Multicast {
    fn wish(&mut self, node: usize) -> Wish {
        if node != 0 || self.sent == self.packets {
            return Wish::Wait;
        }
        Wish::Multicast { bytes: fragment(self.size, self.mtu, self.sent), tag: self.sent, work: 0 }
    }

    fn sent(&mut self, _: usize, _: Ps, _: Ps) {
        self.sent += 1;
    }

    fn received(&mut self, node: usize, tag: u64, _: Ps, ended: Ps) {
        assert_eq!(tag, self.got[node], "multicast out of order");
        self.got[node] += 1;
        self.all += 1;
        // The rate is that of the second half: from the time when all nodes have the first half to
        // the time when all have everything.
        if self.got[node] == self.packets / 2 {
            self.start = (self.packets / 2, ended);
        }
        self.end = ended;
        if node > 0 {
            self.last = ended;
        }
    }

    fn done(&self) -> bool {
        self.all == self.packets * (self.got.len() as u64)
    }
}

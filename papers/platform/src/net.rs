//! Programs with payloads on the simulated clusters: the packet interface of a node, as the trait
//! that live programs use.
//!
//! Each node runs tasks in virtual time. Sending and receiving take the time that the cluster's
//! implementation takes, and that of the layers of a [`System`] above it; the program's own work
//! takes none, but for [`Net::compute`]. A host that computes notices packets by the paper's
//! polling watchdog, an interrupt some time after a packet has come, or, in a system that gets no
//! interrupts, when it has done.

mod relay;
mod samples;
mod stuck;
mod tasks;
#[cfg(test)]
mod tests;

pub use samples::{Sample, Traffic};

use super::hardware::Ps;
use super::host::{Programs, Wish};
use super::machine::Counts;
use super::measure::Setup;
use super::system::System;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{poll_fn, Future};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use tasks::Tasks;
use weft_core::group::tree::Tree;
use weft_core::Instant;
use weft_packets::net::{Incoming, Lasting, Net, RankFailure, Unsent, PATIENT};
use weft_packets::Counter;

/// Packets that may wait for the host to send them.
const QUEUE: usize = 64;

type Upcall = Rc<RefCell<dyn FnMut(Incoming<'_>)>>;

/// A packet on its way.
struct Packet {
    from: usize,
    /// `None` for all other nodes.
    to: Option<usize>,
    handler: u16,
    argument: u32,
    data: Vec<u8>,
    /// Nodes that have not received it.
    left: usize,
    /// True for the first packet of a message, as far as lengths tell.
    first: bool,
    /// The root of the broadcast that programs forward, of which it is a part.
    relayed: Option<usize>,
}

/// A fetch-and-add: node, key and number; the value before goes to `answer`.
struct Ask {
    at: usize,
    key: u64,
    n: u64,
    answer: Rc<Answer>,
}

#[derive(Default)]
struct Answer {
    value: Cell<Option<u64>>,
    waker: Cell<Option<Waker>>,
}

/// The action that a host has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Nothing,
    Packet,
    Ask,
}

/// The additions to counters of other nodes.
#[derive(Default)]
struct Asks {
    waiting: RefCell<VecDeque<Ask>>,
    /// The one that is on its way.
    sent: RefCell<Option<Ask>>,
}

impl Asks {
    /// Returns the node of the next one, if none is on its way.
    fn next(&self) -> Option<usize> {
        let is_free = self.sent.borrow().is_none();
        self.waiting.borrow().front().filter(|_| is_free).map(|ask| ask.at)
    }

    /// Notes that the next one is on its way.
    fn send(&self) {
        self.sent.replace(self.waiting.borrow_mut().pop_front());
    }
}

/// The computing of a node.
#[derive(Default)]
struct Computing {
    left: Cell<Ps>,
    /// Tasks that wait for its end.
    waiting: RefCell<Vec<Waker>>,
}

impl Computing {
    fn add(&self, time: Ps) {
        self.left.set(self.left.get() + time);
    }
}

#[derive(Default)]
struct Node {
    /// With the numbers of their settings.
    handlers: RefCell<BTreeMap<u16, (Upcall, u64)>>,
    settings: Cell<u64>,
    lasting: Lasting,
    /// Packets that came before their handler.
    early: RefCell<Vec<u64>>,
    /// Numbers of the packets to send.
    out: RefCell<VecDeque<u64>>,
    asks: Asks,
    begun: Cell<Option<Begun>>,
    counters: RefCell<BTreeMap<u64, u64>>,
    computing: Computing,
    alarms: RefCell<BTreeMap<(Ps, u64), Waker>>,
    tasks: Tasks,
    /// True if something has come and no thread was switched to since.
    came: Cell<bool>,
    last: Cell<Option<stuck::Last>>,
    /// Receivers and handlers whose message goes on in the next packet: the last one was full.
    unfinished: RefCell<BTreeSet<(Option<usize>, u16)>>,
    relay: relay::Relay,
}

struct World {
    nodes: Vec<Node>,
    packets: RefCell<BTreeMap<u64, Packet>>,
    next: Cell<u64>,
    now: Cell<Ps>,
    most: usize,
    poll: Ps,
    system: System,
    /// See [`Setup`].
    message_tree: Option<Tree>,
    poll_every: Option<Ps>,
    work_limit: Option<Ps>,
    /// Time of one cycle of the host.
    cycle: Ps,
    samples: samples::Samples,
    /// Programs that have not ended.
    left: Cell<usize>,
}

/// The packet interface of a node of a simulated cluster.
#[derive(Clone)]
pub struct ClusterNet {
    world: Rc<World>,
    node: usize,
}

/// The multicast group of all nodes, the only one of the clusters.
#[derive(Clone, Copy, Debug)]
pub struct AllNodes;

/// The end of a run.
#[derive(Debug)]
pub struct Ran<T> {
    /// The programs' results, by node; those of programs that have ended.
    pub results: Vec<T>,
    /// Virtual time of the run, in microseconds.
    pub micros: f64,
    /// Counters of the cluster.
    pub counts: Counts,
    /// Computing and traffic in the course of the run.
    pub samples: Vec<Sample>,
}

impl Setup {
    /// Runs a program on each node of the cluster until all have ended. Senders copy as for
    /// messages of `size` bytes, receivers as the system does.
    ///
    /// # Errors
    /// Nothing can happen any more, and some programs have not ended; the text names their nodes
    /// and what the first ones wait for.
    pub fn run<T, F, Fut>(&self, size: usize, program: F) -> Result<Ran<T>, String>
    where
        T: 'static,
        F: Fn(ClusterNet) -> Fut,
        Fut: Future<Output = T> + 'static,
    {
        let mut machine = self.machine(self.copies(size, self.system.copies), 0);
        let count = self.hw.nodes;
        let world = Rc::new(World {
            nodes: (0..count).map(|_| Node::default()).collect(),
            packets: RefCell::default(),
            next: Cell::new(1),
            now: Cell::new(0),
            most: self.choice.mtu,
            poll: machine.host.poll * self.hw.host_cycle * self.hw.host_work / 100,
            system: self.system,
            message_tree: self.message_tree,
            poll_every: self.poll_every,
            work_limit: self.work_limit,
            cycle: self.hw.host_cycle * self.hw.host_work / 100,
            samples: samples::Samples::default(),
            left: Cell::new(count),
        });
        let results: Rc<RefCell<Vec<Option<T>>>> =
            Rc::new(RefCell::new((0..count).map(|_| None).collect()));
        for node in 0..count {
            let net = ClusterNet { world: Rc::clone(&world), node };
            let (work, world) = (program(net.clone()), Rc::downgrade(&world));
            let results = Rc::clone(&results);
            net.spawn(async move {
                let result = work.await;
                results.borrow_mut()[node] = Some(result);
                if let Some(world) = Weak::upgrade(&world) {
                    world.left.set(world.left.get() - 1);
                }
            });
        }
        let end = machine.run(&mut Run { world: Rc::clone(&world) });
        let ended = results.take();
        // Tasks own nets, which own the tasks.
        world.nodes.iter().for_each(|node| node.tasks.clear());
        let Some(end) = end else {
            let waiting: Vec<usize> = (0..count).filter(|&node| ended[node].is_none()).collect();
            return Err(stuck::report(&machine, &world, &waiting));
        };
        let results = ended.into_iter().flatten().collect();
        let micros = end as f64 / super::hardware::MICROSECOND as f64;
        let samples = world.samples.take(end);
        Ok(Ran { results, micros, counts: machine.counts, samples })
    }
}

/// The programs of all nodes, as the machine sees them.
struct Run {
    world: Rc<World>,
}

impl Programs for Run {
    fn at(&mut self, now: Ps) {
        self.world.now.set(now);
        self.world.samples.at(now);
    }

    fn wish(&mut self, node: usize) -> Wish {
        let me = &self.world.nodes[node];
        self.world.ring(node);
        let System { switch, .. } = self.world.system;
        if switch > 0 && me.tasks.has_ready() && me.came.take() {
            me.begun.set(Some(Begun::Nothing));
            return Wish::Compute { time: switch * self.world.cycle, open: false };
        }
        me.tasks.run_ready();
        if let Some(tag) = me.out.borrow().front().copied() {
            me.begun.set(Some(Begun::Packet));
            let packets = self.world.packets.borrow();
            let Some(packet) = packets.get(&tag) else { return Wish::Wait };
            let bytes = packet.data.len() as u64;
            let work = self.world.system.to_send(packet.first, packet.data.len());
            return match packet.to {
                Some(to) => Wish::Send { to, bytes, tag, work },
                None => {
                    let bytes = bytes + self.world.system.cast_bytes as u64;
                    Wish::Multicast { bytes, tag, work }
                }
            };
        }
        if let Some(at) = me.asks.next() {
            me.begun.set(Some(Begun::Ask));
            return Wish::FetchAdd { at, work: self.world.system.send_packet };
        }
        if me.computing.left.get() > 0 {
            me.begun.set(Some(Begun::Nothing));
            return self.world.compute(me);
        }
        me.computing.waiting.take().into_iter().for_each(Waker::wake);
        if me.tasks.has_ready() {
            // The tasks run after a look for packets.
            me.begun.set(Some(Begun::Nothing));
            return Wish::Compute { time: self.world.poll.max(1), open: false };
        }
        Wish::Wait
    }

    fn sent(&mut self, node: usize, _: Ps, _: Ps) {
        let me = &self.world.nodes[node];
        match me.begun.take() {
            Some(Begun::Packet) => drop(me.out.borrow_mut().pop_front()),
            Some(Begun::Ask) => me.asks.send(),
            _ => {}
        }
    }

    fn received(&mut self, node: usize, tag: u64, _: Ps, ended: Ps) {
        self.world.now.set(ended);
        self.world.nodes[node].came.set(true);
        self.world.arrived(node, tag);
    }

    fn work(&self, node: usize, tag: Option<u64>) -> u64 {
        let system = &self.world.system;
        let Some(tag) = tag else { return system.receive_packet };
        let packets = self.world.packets.borrow();
        let Some(packet) = packets.get(&tag) else { return 0 };
        match packet.from == node && !system.own_broadcasts {
            true => 0,
            false => system.to_receive(packet.first, packet.data.len()),
        }
    }

    fn interrupted(&mut self, node: usize, left: Ps) {
        self.world.nodes[node].computing.add(left);
    }

    fn replied(&mut self, node: usize, _: u64, _: Ps, ended: Ps) {
        self.world.now.set(ended);
        self.world.nodes[node].came.set(true);
        let Some(ask) = self.world.nodes[node].asks.sent.take() else { return };
        let before = self.world.add(ask.at, ask.key, ask.n);
        // A counter that has ended answers as one that counts nothing.
        ask.answer.value.set(Some(before.unwrap_or(u64::MAX)));
        if let Some(waker) = ask.answer.waker.take() {
            waker.wake();
        }
    }

    fn alarm(&self, node: usize) -> Option<Ps> {
        self.world.nodes[node].alarms.borrow().keys().next().map(|&(at, _)| at)
    }

    fn done(&self) -> bool {
        let world = &self.world;
        world.left.get() == 0 || world.work_limit.is_some_and(|limit| world.samples.work() >= limit)
    }
}

impl World {
    /// Wakes the tasks of a node whose time has come.
    fn ring(&self, node: usize) {
        let me = &self.nodes[node];
        loop {
            let due = me.alarms.borrow().keys().next().is_some_and(|(at, _)| *at <= self.now.get());
            if !due {
                break;
            }
            let first = me.alarms.borrow_mut().pop_first();
            first.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Begins a piece of computing, up to the next poll.
    fn compute(&self, me: &Node) -> Wish {
        let all = me.computing.left.take();
        if self.system.interrupts {
            return Wish::Compute { time: all, open: true };
        }
        let piece = all.min(self.poll_every.unwrap_or(all));
        me.computing.left.set(all - piece);
        let poll = if piece < all { self.poll } else { 0 };
        Wish::Compute { time: piece + poll, open: false }
    }

    fn add(&self, node: usize, key: u64, n: u64) -> Option<u64> {
        let mut counters = self.nodes[node].counters.borrow_mut();
        let value = counters.get_mut(&key)?;
        let before = *value;
        *value = before.wrapping_add(n);
        Some(before)
    }

    /// Returns the bytes of a full packet to a node, or to all of them.
    fn most_of(&self, to: Option<usize>) -> usize {
        match to {
            Some(_) => self.most,
            None => self.most - self.system.cast_bytes,
        }
    }

    /// Adds a packet to those that a node sends.
    fn send(&self, from: usize, packet: Packet) -> Result<(), Unsent> {
        let most = self.most_of(packet.to);
        if packet.data.len() > most {
            return Err(Unsent::TooLong { most });
        }
        if self.nodes[from].out.borrow().len() >= QUEUE {
            return Err(Unsent::Busy);
        }
        self.enqueue(from, packet);
        Ok(())
    }

    fn enqueue(&self, from: usize, packet: Packet) {
        let key = (packet.to, packet.handler);
        let mut unfinished = self.nodes[from].unfinished.borrow_mut();
        let first = match packet.data.len() == self.most_of(packet.to) {
            true => unfinished.insert(key),
            false => !unfinished.remove(&key),
        };
        let tag = self.next.replace(self.next.get() + 1);
        self.packets.borrow_mut().insert(tag, Packet { first, ..packet });
        self.nodes[from].out.borrow_mut().push_back(tag);
    }

    /// Calls the handler of a packet at a node.
    fn arrived(&self, node: usize, tag: u64) {
        let (handler, own, relayed) = {
            let packets = self.packets.borrow();
            let Some(packet) = packets.get(&tag) else { return };
            let own = packet.from == node;
            if !own {
                self.samples
                    .packet(packet.to.is_none() || packet.relayed.is_some(), packet.data.len());
            }
            (packet.handler, own, self.relay(node, packet))
        };
        relayed.into_iter().for_each(|packet| self.enqueue(node, packet));
        if !own {
            self.note_last(node, tag);
        }
        let upcall = self.nodes[node].handlers.borrow().get(&handler).cloned();
        let Some((upcall, _)) = upcall.filter(|_| !own) else {
            match PATIENT.contains(&handler) && !own {
                true => self.nodes[node].early.borrow_mut().push(tag),
                false => drop(self.take(tag)),
            }
            return;
        };
        let (from, argument, data) = self.take(tag);
        (upcall.borrow_mut())(Incoming { from, argument, data: &data });
    }

    fn note_last(&self, node: usize, tag: u64) {
        let packets = self.packets.borrow();
        let last = packets.get(&tag).map(|packet| stuck::Last {
            from: packet.from,
            handler: packet.handler,
            at: self.now.get(),
        });
        self.nodes[node].last.set(last);
    }

    /// Takes one node's copy of a packet.
    fn take(&self, tag: u64) -> (usize, u32, Vec<u8>) {
        let mut packets = self.packets.borrow_mut();
        let Some(packet) = packets.get_mut(&tag) else { return (0, 0, Vec::new()) };
        packet.left -= 1;
        let (from, argument) = (packet.from, packet.argument);
        let data = match packet.left {
            0 => packets.remove(&tag).map(|packet| packet.data).unwrap_or_default(),
            _ => packet.data.clone(),
        };
        (from, argument, data)
    }
}

impl ClusterNet {
    fn me(&self) -> &Node {
        &self.world.nodes[self.node]
    }

    fn until(&self, at: Ps) -> impl Future<Output = ()> + use<> {
        let net = self.clone();
        let mut key = None;
        poll_fn(move |cx| {
            let (now, number) = (net.world.now.get(), net.world.next.get());
            if let Some(key) = key.take() {
                net.me().alarms.borrow_mut().remove(&key);
            }
            if now >= at {
                return Poll::Ready(());
            }
            net.world.next.set(number + 1);
            net.me().alarms.borrow_mut().insert((at, number), cx.waker().clone());
            key = Some((at, number));
            Poll::Pending
        })
    }

    fn packet(&self, to: Option<usize>, handler: u16, argument: u32, data: &[u8]) -> Packet {
        let left = if to.is_some() { 1 } else { self.size() };
        let (from, data) = (self.node, data.to_vec());
        Packet { from, to, handler, argument, data, left, first: true, relayed: None }
    }
}

fn picos(time: Duration) -> Ps {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 1000).saturating_mul(1000)
}

impl Net for ClusterNet {
    type Group = AllNodes;

    fn downgrade(&self) -> impl Fn() -> Option<ClusterNet> + 'static + use<> {
        let (world, node) = (Rc::downgrade(&self.world), self.node);
        move || world.upgrade().map(|world| ClusterNet { world, node })
    }

    fn rank(&self) -> usize {
        self.node
    }

    fn size(&self) -> usize {
        self.world.nodes.len()
    }

    fn now(&self) -> Instant {
        Instant(self.world.now.get() / 1000)
    }

    fn packet_max(&self, _: usize) -> usize {
        self.world.most
    }

    fn handle(&self, handler: u16, upcall: impl FnMut(Incoming<'_>) + 'static) -> u64 {
        let upcall: Upcall = Rc::new(RefCell::new(upcall));
        let setting = self.me().settings.get() + 1;
        self.me().settings.set(setting);
        let before = self.me().handlers.borrow_mut().insert(handler, (upcall, setting));
        drop(before);
        let early = self.me().early.take();
        let is_mine = |tag: &u64| {
            let packets = self.world.packets.borrow();
            packets.get(tag).is_some_and(|packet| packet.handler == handler)
        };
        let (mine, others): (Vec<u64>, Vec<u64>) = early.into_iter().partition(is_mine);
        self.me().early.replace(others);
        if !mine.is_empty() {
            // In a task of their own: who sets a handler may be in the middle of something.
            let (world, node) = (Rc::downgrade(&self.world), self.node);
            self.me().tasks.add(Box::pin(async move {
                if let Some(world) = world.upgrade() {
                    mine.into_iter().for_each(|tag| world.arrived(node, tag));
                }
            }));
        }
        setting
    }

    fn end_handle(&self, handler: u16, setting: u64) {
        let mut handlers = self.me().handlers.borrow_mut();
        let is_set = handlers.get(&handler).is_some_and(|(_, is)| *is == setting);
        let before = is_set.then(|| handlers.remove(&handler));
        drop(handlers);
        drop(before);
    }

    fn lasting(&self) -> &Lasting {
        &self.me().lasting
    }

    fn try_send(&self, to: usize, handler: u16, argument: u32, data: &[u8]) -> Result<(), Unsent> {
        if let Some(failure) = self.failure(to) {
            return Err(Unsent::Failed(failure));
        }
        self.world.send(self.node, self.packet(Some(to), handler, argument, data))
    }

    fn try_gather(
        &self,
        to: usize,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), Unsent> {
        self.try_send(to, handler, argument, &memory[part])
    }

    fn group(&self, _: u16, _: u8, members: &[usize]) -> Option<AllNodes> {
        members.iter().copied().eq(0..self.size()).then_some(AllNodes)
    }

    fn end_group(&self, _: &AllNodes) {}

    fn group_max(&self, _: &AllNodes) -> usize {
        match self.world.message_tree {
            // Programs forward their own messages, to one node at a time.
            Some(_) => self.world.most,
            None => self.world.most_of(None),
        }
    }

    fn try_multicast(
        &self,
        _: &AllNodes,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), Unsent> {
        if self.world.message_tree.is_some() {
            return self.world.begin_relay(self.node, &self.packet(None, handler, argument, data));
        }
        self.world.send(self.node, self.packet(None, handler, argument, data))
    }

    fn counter(&self, value: u64) -> Option<Counter> {
        let key = self.world.next.replace(self.world.next.get() + 1);
        self.me().counters.borrow_mut().insert(key, value);
        Some(Counter { key })
    }

    fn end_counter(&self, counter: Counter) {
        self.me().counters.borrow_mut().remove(&counter.key);
    }

    fn fetch_add(
        &self,
        at: usize,
        counter: Counter,
        n: u64,
    ) -> impl Future<Output = Result<u64, RankFailure>> + use<> {
        let (net, key) = (self.clone(), counter.key);
        async move {
            let none = || RankFailure { rank: at, certain: false, why: "no such counter".into() };
            if at == net.node {
                return net.world.add(at, key, n).ok_or_else(none);
            }
            let answer = Rc::new(Answer::default());
            let ask = Ask { at, key, n, answer: Rc::clone(&answer) };
            net.me().asks.waiting.borrow_mut().push_back(ask);
            let value = poll_fn(|cx| match answer.value.get() {
                Some(value) => Poll::Ready(value),
                None => {
                    answer.waker.set(Some(cx.waker().clone()));
                    Poll::Pending
                }
            });
            Some(value.await).filter(|&value| value < u64::MAX).ok_or_else(none)
        }
    }

    fn poll(&self) -> bool {
        false
    }

    fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let mut again = false;
        poll_fn(move |cx| {
            if std::mem::replace(&mut again, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        self.until(self.world.now.get().saturating_add(picos(time)))
    }

    fn compute(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let (net, mut left) = (self.clone(), picos(time));
        poll_fn(move |cx| {
            let me = net.me();
            if left > 0 {
                net.world.samples.computes(left);
                me.computing.add(std::mem::take(&mut left));
            }
            if me.computing.left.get() == 0 {
                return Poll::Ready(());
            }
            me.computing.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    }

    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.me().tasks.add(Box::pin(work));
    }

    fn failure(&self, rank: usize) -> Option<RankFailure> {
        let why = || format!("there are {} nodes, from 0", self.size());
        (rank >= self.size()).then(|| RankFailure { rank, certain: true, why: why() })
    }

    fn on_failure(&self, _: impl FnMut(RankFailure) + 'static) {}

    fn expect(&self, rank: usize) -> bool {
        rank < self.size()
    }

    fn unexpect(&self, _: usize) {}

    fn warn_after(&self) -> Duration {
        Duration::ZERO
    }
}

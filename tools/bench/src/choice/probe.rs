//! The two ranks' part in measuring the packet interface.

use super::super::logp::{clock_ns, BURST};
use super::super::own::opened;
use super::super::rank::{Outcome, Rank, Task};
use super::super::volley::{compute_for, median_ns, per, volley};
use super::carrier::Carrier;
use anyhow::{Context, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft::choices::Transfer;
use weft::{OpError, PeerId};
use weft_packets::{Counter, Exported};

/// Handler number of measured packets.
const DATA: u16 = 1;
/// Handler number of the packet that ends a measurement.
const ACK: u16 = 2;
/// Mailbox number of packets that are received.
const BOX: u16 = 3;
/// Longest wait of an owner before it checks for the end.
const IDLE: Duration = Duration::from_micros(50);
/// Longest message that is copied remotely, in bytes.
const EXPORT: usize = 16 << 20;

/// The packet interface of a rank, with the other rank as its peer.
pub struct Line {
    packets: Carrier,
    peer: PeerId,
    transfer: Transfer,
    /// Packets and acknowledgements that arrived; one thread at a time counts.
    got: Count,
    acks: Count,
    /// Acknowledgements that the rank has waited for so far.
    awaited: Cell<u64>,
    /// Sets the length of the memory into which the receiver copies.
    resize: Box<dyn Fn(usize)>,
    /// `None` for the locked interface, which exports no memory.
    memory: Option<Exported>,
    their_memory: u64,
    counter: Counter,
    their_counter: Counter,
}

/// The bytes of a message: `own` for copies, `shared` for packets gathered from memory.
struct Message {
    own: Vec<u8>,
    shared: Rc<[u8]>,
}

impl Message {
    fn of(task: &Task) -> Message {
        let own = vec![1u8; size_of(task)];
        Message { shared: own.clone().into(), own }
    }

    fn parts(&self, room: usize) -> u64 {
        self.own.len().div_ceil(room) as u64
    }
}

fn line(rank: &mut Rank) -> Result<Rc<Line>> {
    if let Some(line) = opened::<Option<Rc<Line>>>(rank)? {
        return Ok(Rc::clone(line));
    }
    let (packets, peer) = Carrier::open(rank)?;
    let (got, acks) = (Count::default(), Count::default());
    let resize = receive(&packets, &got)?;
    let count = acks.clone();
    packets.handle(ACK, move |_, _| count.one_more());
    let (transfer, memory) = match &packets {
        Carrier::Own(own) => {
            own.mailbox(BOX);
            let memory = own.exports().make(EXPORT).context("exporting memory")?;
            (own.endpoint().choices().transfer, Some(memory))
        }
        Carrier::Watched(..) => (Transfer::Auto, None),
    };
    let counter = packets.counter(0).context("a counter")?;
    let memory_key = memory.map_or(0, |memory| memory.key);
    let keys = [memory_key.to_le_bytes(), counter.key.to_le_bytes()].concat();
    let theirs = rank.exchange(&keys)?;
    let key = |at: usize| -> Result<u64> {
        Ok(u64::from_le_bytes(theirs.get(at..at + 8).context("keys")?.try_into()?))
    };
    let line = Rc::new(Line {
        transfer,
        packets,
        peer,
        got,
        acks,
        awaited: Cell::new(0),
        resize,
        memory,
        their_memory: key(0)?,
        counter,
        their_counter: Counter { key: key(8)? },
    });
    *opened(rank)? = Some(Rc::clone(&line));
    Ok(line)
}

/// A counter that the upcalls increment, on any thread that makes progress.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A load and a store cost no locked instruction, and suffice because upcalls run one at a
    /// time.
    fn one_more(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }
}

/// Counts the packets of a message and copies them to memory. The returned function sets the length
/// of that memory.
fn receive(packets: &Carrier, got: &Count) -> Result<Box<dyn Fn(usize)>> {
    fn copy(place: &mut [u8], argument: u32, data: &[u8]) {
        let at = argument as usize;
        if let Some(to) = place.get_mut(at..at + data.len()) {
            to.copy_from_slice(data);
        }
    }
    let count = got.clone();
    if let Carrier::Own(own) = packets {
        let into: Rc<RefCell<Vec<u8>>> = Rc::default();
        let place = Rc::clone(&into);
        own.handle(DATA, move |_, packet| {
            count.one_more();
            copy(&mut place.borrow_mut(), packet.argument(), packet.data());
        });
        return Ok(Box::new(move |len| into.borrow_mut().resize(len, 0)));
    }
    let into: Arc<Mutex<Vec<u8>>> = Arc::default();
    let place = Arc::clone(&into);
    packets.handle(DATA, move |argument, data| {
        count.one_more();
        copy(&mut place.lock().unwrap_or_else(PoisonError::into_inner), argument, data);
    });
    let lock = move |len| into.lock().unwrap_or_else(PoisonError::into_inner).resize(len, 0);
    Ok(Box::new(lock))
}

impl Line {
    fn is_rcpy(&self) -> bool {
        self.transfer == Transfer::Rcpy
    }

    /// Sends a message in packets of at most `room` bytes, or copies it to the peer's memory.
    fn send(&self, message: &Message, room: usize) -> Result<()> {
        let (to, data) = (self.peer, &message.own[..]);
        match self.transfer {
            Transfer::Rcpy => self.packets.own()?.rcpy(to, self.their_memory, 0, data)?,
            Transfer::Gather => {
                let packets = self.packets.own()?;
                for at in (0..data.len()).step_by(room) {
                    let part = at..data.len().min(at + room);
                    packets.gather(to, DATA, at as u32, &message.shared, part)?;
                }
            }
            Transfer::Auto => {
                for (i, part) in data.chunks(room).enumerate() {
                    self.packets.send(to, DATA, (i * room) as u32, part)?;
                }
            }
            Transfer::Copy => {
                let packets = self.packets.own()?;
                for (i, part) in data.chunks(room).enumerate() {
                    loop {
                        let mut buffer = packets.alloc(part.len());
                        buffer.copy_from_slice(part);
                        match packets.send_buffer(to, DATA, (i * room) as u32, buffer) {
                            Err(OpError::Busy) => packets.wait(None),
                            other => break other,
                        };
                    }?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the `n`th packet, or until the exported memory holds the number `n`.
    fn await_nth(&self, n: u64) -> Result<()> {
        if !self.is_rcpy() {
            while self.got.get() < n {
                self.packets.wait(None);
            }
            return Ok(());
        }
        let (packets, mut word) = (self.packets.own()?, [0; 8]);
        let memory = self.memory.context("memory")?;
        loop {
            packets.exports().read(memory, 0, &mut word);
            if u64::from_le_bytes(word) == n {
                return Ok(());
            }
            packets.poll();
            if packets.endpoint().agent().services().is_some() {
                // The agent may share the core.
                std::thread::yield_now();
            }
        }
    }

    /// Sends a message of one packet, or copies it to the peer's memory.
    fn send_one(&self, message: &Message) -> Result<()> {
        let (packets, to, data) = (self.packets.own()?, self.peer, &message.own[..]);
        Ok(match self.transfer {
            Transfer::Rcpy => packets.rcpy(to, self.their_memory, 0, data),
            Transfer::Gather => packets.gather(to, BOX, 0, &message.shared, 0..data.len()),
            _ => packets.send(to, BOX, 0, data),
        }?)
    }

    /// Receives a message of one packet, or waits until the exported memory holds the number `n`.
    fn receive_one(&self, n: u64, into: &mut [u8]) -> Result<()> {
        if self.is_rcpy() {
            return self.await_nth(n);
        }
        self.packets.own()?.receive(Some(self.peer), BOX, into)?;
        Ok(())
    }

    fn ack(&self) -> Result<(), OpError> {
        self.packets.send(self.peer, ACK, 0, &[])
    }

    /// Waits for the next acknowledgement; it may have arrived during a send.
    fn await_ack(&self) {
        let n = self.awaited.get() + 1;
        self.awaited.set(n);
        while self.acks.get() < n {
            self.packets.wait(None);
        }
    }

    /// Writes `n` into the first bytes of a message.
    fn number(&self, message: &mut Message, n: u64) {
        if self.is_rcpy() {
            message.own[..8].copy_from_slice(&n.to_le_bytes());
        }
    }

    /// Starts a new count. Bytes copied here earlier must not equal a number that is awaited.
    fn reset(&self, copied: usize) -> u64 {
        (self.resize)(copied);
        // The numbers continue, because an earlier measurement may have left its number in the
        // memory.
        self.got.get()
    }

    fn room(&self) -> Result<usize> {
        Ok(self.packets.packet_max(self.peer)?.max(1))
    }
}

/// Returns the message length; the shortest message holds its number.
fn size_of(task: &Task) -> usize {
    task.size.max(8)
}

/// Measures the one-way time of a packet. The receiver takes it in a receive call; with `task.arg`
/// 1, or in several packets, by upcalls.
pub fn ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    let mut data = Message::of(task);
    let (mut into, room) = (data.own.clone(), line.room()?);
    // The locked interface has upcalls only.
    let received = task.arg == 0 && size_of(task) <= room && line.packets.own().is_ok();
    let base = line.reset(0);
    let parts = data.parts(room);
    let seed = rank_seed(rank)?;
    let (mut sent, mut got) = (0, 0);
    let send = |line: &mut Rc<Line>| {
        sent += 1;
        line.number(&mut data, seed + sent);
        if received {
            line.send_one(&data)
        } else {
            line.send(&data, room)
        }
    };
    let recv = |line: &mut Rc<Line>| {
        got += 1;
        match received {
            true => line.receive_one(seed + got, &mut into)?,
            false if line.is_rcpy() => line.await_nth(seed + got)?,
            false => line.await_nth(base + got * parts)?,
        }
        Ok(true)
    };
    volley(rank, task, &mut Rc::clone(&line), "lost", send, recv)
}

/// Returns a number that is the same on both ranks and new for each measurement.
fn rank_seed(rank: &mut Rank) -> Result<u64> {
    if rank.me == 0 {
        let seed = weft_link::random_u64() >> 8 << 4;
        rank.tell(&seed.to_le_bytes())?;
        return Ok(seed);
    }
    rank.hear_u64()
}

/// Measures the time of a sending call, over bursts that are answered before the next begins.
pub fn send_overhead(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    let data = Message::of(task);
    let (clock, mut spans, room) = (clock_ns(), Vec::new(), line.room()?);
    let base = line.reset(0);
    let parts = data.parts(room);
    rank.sync()?;
    for i in 0..task.iters {
        if rank.me == 1 {
            if line.is_rcpy() {
                line.await_ack();
            } else {
                line.await_nth(base + (i + 1) * BURST * parts)?;
            }
            line.ack()?;
            continue;
        }
        let start = Instant::now();
        for _ in 0..BURST {
            line.send(&data, room)?;
        }
        spans.push((start.elapsed().as_nanos() as u64).saturating_sub(clock));
        if line.is_rcpy() {
            line.ack()?;
        }
        line.await_ack();
    }
    Ok(match (rank.me, median_ns(spans)) {
        (0, Outcome::Value(burst)) => Outcome::Value(burst / BURST as f64),
        _ => Outcome::Elsewhere,
    })
}

/// Measures round trips with a computation of `task.arg` ns after the send; returns `time -
/// computation`, which is `os` + `or`.
pub fn busy_round_trip(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    let mut data = Message::of(task);
    let compute = Duration::from_nanos(task.arg);
    let (clock, mut spans, room) = (clock_ns(), Vec::new(), line.room()?);
    let base = line.reset(0);
    let parts = data.parts(room);
    rank.sync()?;
    let seed = rank_seed(rank)?;
    for i in 1..=task.iters {
        let awaited = if line.is_rcpy() { seed + i } else { base + i * parts };
        line.number(&mut data, seed + i);
        if rank.me == 1 {
            line.await_nth(awaited)?;
            line.send(&data, room)?;
            continue;
        }
        let start = Instant::now();
        line.send(&data, room)?;
        let sent = Instant::now();
        let mut computed = sent;
        while computed - sent < compute {
            computed = Instant::now();
        }
        line.await_nth(awaited)?;
        let rest = (sent - start) + computed.elapsed();
        spans.push((rest.as_nanos() as u64).saturating_sub(2 * clock));
    }
    Ok(if rank.me == 0 { median_ns(spans) } else { Outcome::Elsewhere })
}

/// Measures messages in one direction, in packets that the receiver copies, or by remote-memory
/// copy; the last message is answered.
pub fn stream(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    let data = Message::of(task);
    let room = line.room()?;
    let parts = data.parts(room);
    let copied = if line.is_rcpy() { 0 } else { data.own.len() };
    let base = line.reset(copied);
    rank.sync()?;
    if rank.me == 1 {
        if line.is_rcpy() {
            line.await_ack();
        } else {
            line.await_nth(base + task.iters * parts)?;
        }
        line.ack()?;
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        line.send(&data, room)?;
    }
    if line.is_rcpy() {
        line.ack()?;
    }
    line.await_ack();
    Ok(per(start, task.iters))
}

/// Measures fetch-and-add at the other rank, which computes for `task.arg` ns between two polls; 0:
/// it polls all the time.
pub fn fetch_add(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    let before = line.packets.counter_value(line.counter).unwrap_or(0);
    rank.sync()?;
    if rank.me == 1 {
        let compute = Duration::from_nanos(task.arg);
        let done = before + task.iters;
        while line.packets.counter_value(line.counter).unwrap_or(0) < done {
            if task.arg == 0 {
                // An agent may share the core: this wait yields it, as every wait does.
                line.packets.wait(Some(IDLE));
                continue;
            }
            compute_for(compute);
            line.packets.poll();
        }
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        line.packets.fetch_add(line.peer, line.their_counter)?;
    }
    Ok(per(start, task.iters))
}

/// Measures fetch-and-add at the other rank, which computes and calls nothing until all is done.
pub fn fetch_add_unpolled(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    rank.sync()?;
    if rank.me == 1 {
        while !rank.has_note()? {
            compute_for(IDLE);
        }
        rank.receive_note()?;
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        line.packets.fetch_add(line.peer, line.their_counter)?;
    }
    let outcome = per(start, task.iters);
    rank.tell(&[0])?;
    Ok(outcome)
}

/// Returns the longest packet from the program to the other rank, in bytes.
pub fn packet_max(rank: &mut Rank, _: &Task) -> Result<Outcome> {
    let line = line(rank)?;
    Ok(if rank.me == 0 { Outcome::Value(line.room()? as f64) } else { Outcome::Elsewhere })
}

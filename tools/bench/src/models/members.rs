//! Figures of four ranks: broadcasts of the models beside the multicast and the fetch-and-add that
//! they are made of. Member 0, which measures, is not the rank that has the counter.

use super::bytes::Bytes;
use super::Figure;
use crate::crowd::{self, Part};
use crate::rank::{Outcome, Rank, Task};
use crate::sys::monotonic_ns;
use crate::volley::per;
use anyhow::{bail, ensure, Context, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::{Address, Endpoint, Group};
use weft_models::net::{Blocking, Incoming, Live, Net, Unsent};
use weft_models::objects::{Object, ObjectCause, Objects, Placement, Read, Shared};
use weft_models::order::{Delivered, Options, OrderError, OrderedGroup};
use weft_packets::Counter;

/// Handlers of the packets: a multicast, the time of its arrival, a counter's key, the end.
const DATA: u16 = 1;
const HEARD: u16 = 2;
const KEY: u16 = 3;
const END: u16 = 4;
const GROUP: u16 = 1;
/// Longest single wait.
const STEP: Duration = Duration::from_millis(20);
/// Longest wait for members.
const TIMEOUT: Duration = Duration::from_secs(60);
const CLOSE: Duration = Duration::from_secs(2);

/// The rank that has the counter; the order's is at the lowest rank, too.
const OWNER: usize = 0;
/// The rank of member 0.
const LEADER: usize = 1;

/// An object that every rank has, which counts its writes and tells of each.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Told(u64);

#[derive(serde::Serialize, serde::Deserialize)]
struct Put(Bytes);

thread_local! {
    /// Is called after each write of the object of this member, which is a thread.
    static ON_WRITE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

impl Object for Told {
    type Op = Put;
    type Reply = ();

    fn read(&self, _: &Put) -> Read<()> {
        Read::Write
    }

    fn apply(&mut self, _: Put) {
        self.0 += 1;
        ON_WRITE.with_borrow_mut(|call| call.iter_mut().for_each(|call| call()));
    }
}

/// A member.
struct Member {
    net: Live,
    world: Group,
    /// Number and latest time of the arrivals that others have reported; key of the counter.
    heard: Rc<Cell<(usize, u64)>>,
    key: Rc<Cell<u64>>,
    /// Time of the last arrival here; 0: none, or reported.
    arrived: Rc<Cell<u64>>,
    over: Rc<Cell<bool>>,
}

/// Measures seconds for each message or operation.
pub fn measure(rank: &mut Rank, task: &Task, figure: Figure) -> Result<Outcome> {
    let task = *task;
    let members = (task.arg as usize).max(2);
    let part: Part = Arc::new(move |endpoint, addresses, me| {
        let member = Member::open(endpoint, addresses, me)?;
        let outcome = match figure {
            Figure::Multicast | Figure::MulticastStream => member.multicast(&task, figure),
            Figure::Ticket => member.tickets(&task),
            Figure::Cast | Figure::CastStream => member.casts(&task, figure),
            Figure::Ordered | Figure::OrderedStream => member.ordered(&task, figure),
            Figure::Write | Figure::WriteStream => member.writes(&task, figure),
            _ => member.rate(&task),
        };
        let outcome = outcome?;
        member.world.barrier_blocking().context("the end of all members")?;
        endpoint.close(CLOSE);
        Ok(outcome)
    });
    crowd::run(rank, members, &part)
}

impl Member {
    fn open(endpoint: &Endpoint, addresses: &[Address], me: usize) -> Result<Member> {
        let mut all = addresses.to_vec();
        all.rotate_right(LEADER);
        let world = Group::new(endpoint.clone(), all, (me + LEADER) % addresses.len());
        let net = Live::new(&world)?;
        let heard: Rc<Cell<(usize, u64)>> = Rc::default();
        let (key, over) = <(Rc<Cell<u64>>, Rc<Cell<bool>>)>::default();
        let note = Rc::clone(&heard);
        net.handle(HEARD, move |packet| {
            let (count, latest) = note.get();
            note.set((count + 1, latest.max(number(packet))));
        });
        let told = Rc::clone(&key);
        net.handle(KEY, move |packet| told.set(number(packet)));
        let end = Rc::clone(&over);
        net.handle(END, move |_| end.set(true));
        Ok(Member { net, world, heard, key, arrived: Rc::default(), over })
    }

    fn all(&self) -> Vec<usize> {
        (0..self.net.size()).collect()
    }

    fn send(&self, to: usize, handler: u16, value: u64) -> Result<()> {
        self.patiently(|| match self.net.try_send(to, handler, 0, &value.to_le_bytes()) {
            Ok(()) => Ok(true),
            Err(error) => {
                ensure!(error == Unsent::Busy, "{error}");
                Ok(false)
            }
        })
    }

    /// Waits for something, with progress meanwhile.
    fn until(&self, what: &str, holds: impl Fn() -> bool) -> Result<()> {
        let start = monotonic_ns();
        while !holds() {
            self.net.wait(Some(STEP));
            let waited = Duration::from_nanos(monotonic_ns() - start);
            ensure!(waited < TIMEOUT, "{what}: no end");
        }
        Ok(())
    }

    /// Runs `lead` on the leader. The others make progress until it ends, and report arrivals.
    fn led(&self, lead: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        self.world.barrier_blocking().context("the start of all members")?;
        if self.net.rank() == LEADER {
            let outcome = lead()?;
            let mut others = self.all().into_iter().filter(|&to| to != LEADER);
            others.try_for_each(|to| self.send(to, END, 0))?;
            return Ok(outcome);
        }
        while !self.over.get() {
            self.until("the leader", || self.over.get() || self.arrived.get() > 0)?;
            let at = self.arrived.take();
            if at > 0 {
                self.send(LEADER, HEARD, at)?;
            }
        }
        Ok(Outcome::Elsewhere)
    }

    /// Sends messages one at a time, and takes the time until the last member has each. The sender
    /// may be one of them.
    fn last_arrivals(
        &self,
        task: &Task,
        is_one: bool,
        send: impl Fn() -> Result<()>,
    ) -> Result<Outcome> {
        let (mut total, others) = (0, self.net.size() - 1);
        for _ in 0..task.iters {
            self.heard.set((0, 0));
            self.arrived.set(0);
            let start = monotonic_ns();
            send()?;
            let own = || !is_one || self.arrived.get() > 0;
            self.until("an arrival", || own() && self.heard.get().0 == others)?;
            total += self.heard.get().1.max(self.arrived.get()).saturating_sub(start);
        }
        Ok(Outcome::Value(total as f64 * 1e-9 / task.iters.max(1) as f64))
    }

    /// Sends messages as fast as they go, and takes the time until the last member has the last.
    fn stream(&self, task: &Task, send: impl Fn() -> Result<()>) -> Result<Outcome> {
        self.heard.set((0, 0));
        let start = monotonic_ns();
        for _ in 0..task.iters {
            send()?;
        }
        let others = self.net.size() - 1;
        self.until("the last message", || self.heard.get().0 == others)?;
        let span = self.heard.get().1.saturating_sub(start);
        Ok(Outcome::Value(span as f64 * 1e-9 / task.iters.max(1) as f64))
    }

    /// Sends messages in a stream or one at a time; all members return when the last has them.
    fn sent(
        &self,
        task: &Task,
        streams: bool,
        is_one: bool,
        send: impl Fn() -> Result<()>,
    ) -> Result<Outcome> {
        let outcome = self.led(|| match streams {
            true => self.stream(task, send),
            false => self.last_arrivals(task, is_one, send),
        });
        // The others need this member until they have left the loop.
        self.world.barrier_blocking().context("the end of all members")?;
        outcome
    }

    /// Returns a call that notes the time of each arrival, or of a stream that of the last one.
    fn note(&self, last: Option<u64>) -> impl FnMut() + 'static {
        let (at, mut come) = (Rc::clone(&self.arrived), 0);
        move || {
            come += 1;
            if last.is_none_or(|last| come == last) {
                at.set(monotonic_ns());
            }
        }
    }

    /// Sends while there is no room, with progress meanwhile.
    fn patiently(&self, send: impl Fn() -> Result<bool>) -> Result<()> {
        while !send()? {
            self.net.wait(Some(STEP));
        }
        Ok(())
    }

    /// A multicast alone; of a stream, in as many packets as a message needs.
    fn multicast(&self, task: &Task, figure: Figure) -> Result<Outcome> {
        let net = &self.net;
        let group = net.group(GROUP, 0, &self.all()).context("a multicast group")?;
        let parts = task.size.div_ceil(net.group_max(&group)).max(1) as u64;
        let streams = figure == Figure::MulticastStream;
        let mut note = self.note(streams.then_some(task.iters * parts));
        net.handle(DATA, move |_| note());
        let data = vec![1; task.size];
        let packet = |data: &[u8]| {
            self.patiently(|| match net.try_multicast(&group, DATA, 0, data) {
                Ok(()) => Ok(true),
                Err(Unsent::Busy) => Ok(false),
                Err(error) => bail!("{error}"),
            })
        };
        let send = || data.chunks(net.group_max(&group)).try_for_each(packet);
        self.led(|| match streams {
            true => self.stream(task, send),
            false => self.last_arrivals(task, false, send),
        })
    }

    /// A broadcast of a group without an order.
    fn casts(&self, task: &Task, figure: Figure) -> Result<Outcome> {
        let streams = figure == Figure::CastStream;
        let group = self.group(|_| ())?;
        let mut note = self.note(streams.then_some(task.iters));
        group.on_cast(move |_| note());
        let data = vec![1; task.size];
        let send = || {
            self.patiently(|| match group.cast(&data) {
                Ok(()) => Ok(true),
                Err(OrderError::Busy) => Ok(false),
                Err(error) => Err(error.into()),
            })
        };
        self.sent(task, streams, false, send)
    }

    /// Writes of an object that every member has.
    fn writes(&self, task: &Task, figure: Figure) -> Result<Outcome> {
        let streams = figure == Figure::WriteStream;
        let note = self.note(streams.then_some(task.iters));
        ON_WRITE.set(Some(Box::new(note)));
        let objects = Objects::open(&self.net);
        let class = objects.class::<Told>(1);
        let open = class.open(0, Placement::Replicated, Told::default);
        let object: Shared<Live, Told> = self.net.block_on(open)?;
        let op = Put(vec![1; task.size].into());
        let send = || {
            self.patiently(|| match object.post(&op) {
                Ok(()) => Ok(true),
                Err(error) if matches!(error.cause, ObjectCause::Group(OrderError::Busy)) => {
                    Ok(false)
                }
                Err(error) => Err(error.into()),
            })
        };
        self.sent(task, streams, true, send)
    }

    /// Fetch-and-add at another member.
    fn tickets(&self, task: &Task) -> Result<Outcome> {
        if self.net.rank() == OWNER {
            let counter = self.net.counter(0).context("a counter")?;
            self.send(LEADER, KEY, counter.key)?;
        }
        self.led(|| {
            self.until("the counter", || self.key.get() > 0)?;
            let counter = Counter { key: self.key.get() };
            let start = Instant::now();
            for _ in 0..task.iters {
                self.net.block_on(self.net.fetch_add(OWNER, counter, 1))?;
            }
            Ok(per(start, task.iters))
        })
    }

    /// Opens the ordered group of all members.
    fn group(&self, deliver: impl FnMut(Delivered) + 'static) -> Result<OrderedGroup<Live>> {
        let group = OrderedGroup::open(&self.net, 0, &self.all(), Options::default());
        group.on_deliver(deliver);
        self.net.block_on(group.view_when(|_| true))?;
        Ok(group)
    }

    /// An ordered broadcast.
    fn ordered(&self, task: &Task, figure: Figure) -> Result<Outcome> {
        let streams = figure == Figure::OrderedStream;
        let mut note = self.note(streams.then_some(task.iters));
        let group = self.group(move |_| note())?;
        let send = || {
            self.net.block_on(group.room())?;
            drop(group.send(vec![1; task.size]));
            Ok(())
        };
        self.sent(task, streams, true, send)
    }

    /// Streams of ordered broadcasts of all members.
    fn rate(&self, task: &Task) -> Result<Outcome> {
        let come = Rc::<Cell<u64>>::default();
        let count = Rc::clone(&come);
        let group = self.group(move |_| count.set(count.get() + 1))?;
        let members = self.net.size() as u64;
        let each = task.iters.div_ceil(members);
        self.world.barrier_blocking().context("the start of all members")?;
        let start = Instant::now();
        self.net.block_on(async {
            for _ in 0..each {
                group.room().await?;
                drop(group.send(vec![1; task.size]));
            }
            anyhow::Ok(())
        })?;
        self.until("the last message", || come.get() == each * members)?;
        let outcome = per(start, each * members);
        self.world.barrier_blocking().context("the end of all members")?;
        Ok(outcome)
    }
}

fn number(packet: Incoming<'_>) -> u64 {
    packet.data.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

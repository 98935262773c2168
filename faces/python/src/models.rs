//! The programming models of a job, used under its lock: regions and queues of jobs. Those that
//! call the interpreter are outside of it (`objects/outside.rs`): progress keeps their packets.

use crate::fault::{Fault, Kind};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;
use weft::Group;
use weft_models::jobs::{Aggregator, Quiescence, QUEUES};
use weft_models::net::{Live, Net, RankFailure, Unsent};
use weft_models::regions::{Access, Operation, Region, RegionCause, RegionError};
use weft_models::regions::{RegionId, Regions};
use weft_models::MESSAGE_MAX;
use weft_packets::{Counter, MulticastGroup};

/// Most bytes of a record of a queue, which the number of its run precedes.
const RECORD_MAX: usize = MESSAGE_MAX - 1;

/// Something that models outside the lock have to know, in its order.
pub enum Event {
    /// A packet for one of their handlers.
    Packet { handler: u16, from: usize, argument: u32, data: Vec<u8> },
    /// A rank has failed.
    Failed(RankFailure),
    /// The end of a time, by the number under which it was asked for.
    Slept(u64),
    /// The value of a counter, by the number under which it was asked for.
    Added(u64, Result<u64, RankFailure>),
}

type Events = Rc<RefCell<VecDeque<Event>>>;

/// A wave of the search for the end of a run.
type Wave = Pin<Box<dyn Future<Output = Result<bool, RankFailure>>>>;

/// An operation on a region that the program has begun.
struct Held {
    key: u64,
    thread: ThreadId,
    /// Reads of a thread that nest are one operation: a new one would wait for a writer, which
    /// waits for the first.
    operation: Rc<Operation<Live, u8>>,
}

impl Held {
    /// True for an operation of a thread on a region.
    fn is_on(&self, region: &Region<Live, u8>, thread: ThreadId) -> bool {
        self.thread == thread && self.operation.region().id() == region.id()
    }
}

/// A queue of jobs: records of one length.
struct Queue {
    aggregator: Rc<Aggregator<Live>>,
    quiescence: Rc<Quiescence<Live>>,
    /// Records that wait here, with the number of their run.
    records: Rc<RefCell<VecDeque<Vec<u8>>>>,
    received: Rc<Cell<u64>>,
    run: u8,
    size: usize,
    wave: Option<Wave>,
}

/// The models of a job.
pub struct Models {
    net: Live,
    regions: Option<Regions<Live>>,
    mapped: Rc<RefCell<HashMap<u64, Region<Live, u8>>>>,
    held: Rc<RefCell<HashMap<u64, Held>>>,
    /// The memory of regions that objects of Python show, by the keys of the regions.
    shown: HashMap<u64, (usize, Rc<dyn Any>)>,
    keys: Rc<Cell<u64>>,
    /// Events for the models outside, once there are some.
    events: Option<Events>,
    groups: HashMap<u64, MulticastGroup>,
    queues: HashMap<u16, Queue>,
}

impl From<RankFailure> for Fault {
    fn from(failure: RankFailure) -> Fault {
        Fault::of_rank(failure.rank, failure.to_string())
    }
}

impl From<RegionError> for Fault {
    fn from(error: RegionError) -> Fault {
        let text = error.to_string();
        match error.cause {
            RegionCause::Home(failure) | RegionCause::Holder(failure) => {
                Fault::of_rank(failure.rank, text)
            }
            _ => Fault::argument(text),
        }
    }
}

/// Polls a future that nobody wakes: its caller polls it again after progress.
pub fn poll_now<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn gone() -> Fault {
    Fault::argument("the region is not mapped any more")
}

impl Models {
    /// # Errors
    /// The endpoint has no packet interface.
    pub fn open(world: &Group) -> Result<Models, Fault> {
        let net = Live::new(world).map_err(|why| Fault::new(Kind::Job, why.to_string()))?;
        Ok(Models {
            net,
            regions: None,
            mapped: Rc::default(),
            held: Rc::default(),
            shown: HashMap::new(),
            keys: Rc::default(),
            events: None,
            groups: HashMap::new(),
            queues: HashMap::new(),
        })
    }

    fn key(&self) -> u64 {
        self.keys.set(self.keys.get() + 1);
        self.keys.get()
    }

    fn regions(&mut self) -> Regions<Live> {
        self.regions.get_or_insert_with(|| Regions::open(&self.net)).clone()
    }

    fn region(&self, key: u64) -> Result<Region<Live, u8>, Fault> {
        self.mapped.borrow().get(&key).cloned().ok_or_else(gone)
    }

    /// Makes a region of zeroes; returns its key.
    ///
    /// # Errors
    /// The region is too large.
    pub fn create(&mut self, bytes: usize) -> Result<u64, Fault> {
        let region = self.regions().create(vec![0u8; bytes])?;
        let key = self.key();
        self.mapped.borrow_mut().insert(key, region);
        Ok(key)
    }

    /// Maps a region; the future returns its key.
    pub fn map(
        &mut self,
        id: RegionId,
    ) -> impl Future<Output = Result<u64, RegionError>> + 'static {
        let (regions, key) = (self.regions(), self.key());
        let mapped = Rc::clone(&self.mapped);
        async move {
            let region = regions.map::<u8>(id).await?;
            mapped.borrow_mut().insert(key, region);
            Ok(key)
        }
    }

    /// Returns the name and the length of a region.
    ///
    /// # Errors
    /// The region is not mapped.
    pub fn shape(&self, key: u64) -> Result<(RegionId, usize), Fault> {
        self.region(key).map(|region| (region.id(), region.len()))
    }

    /// Forgets a region: its memory stays while objects of Python show it.
    pub fn unmap(&mut self, key: u64) {
        let gone = self.mapped.borrow_mut().remove(&key);
        drop(gone);
    }

    /// Begins an operation, whose number the future returns.
    ///
    /// # Errors
    /// The region is not mapped, or this thread is in an operation that this one would wait for.
    pub fn begin(
        &self,
        key: u64,
        access: Access,
    ) -> Result<impl Future<Output = Result<u64, RegionError>> + 'static, Fault> {
        let region = self.region(key)?;
        self.check(&region, access)?;
        let thread = std::thread::current().id();
        let outer = self
            .held
            .borrow()
            .values()
            .find(|held| held.is_on(&region, thread))
            .map(|held| Rc::clone(&held.operation));
        let (held, keys) = (Rc::clone(&self.held), Rc::clone(&self.keys));
        Ok(async move {
            let operation = match outer {
                Some(operation) => operation,
                None => Rc::new(region.begin_to(access).await?),
            };
            keys.set(keys.get() + 1);
            held.borrow_mut().insert(keys.get(), Held { key, thread, operation });
            Ok(keys.get())
        })
    }

    /// # Errors
    /// This thread is in an operation that another one would wait for.
    fn check(&self, region: &Region<Live, u8>, access: Access) -> Result<(), Fault> {
        let (held, thread) = (self.held.borrow(), std::thread::current().id());
        let own = |held: &&Held| held.is_on(region, thread);
        let waits = |held: &Held| access == Access::Write || held.operation.is_write();
        match held.values().filter(own).any(waits) {
            false => Ok(()),
            true => {
                let text = format!("region {}: this thread is in an operation on it", region.id());
                Err(Fault::argument(text))
            }
        }
    }

    /// Ends an operation.
    pub fn end(&self, number: u64) {
        let ended = self.held.borrow_mut().remove(&number);
        drop(ended);
    }

    /// Returns address and length of the memory of the region of an operation, which is kept until
    /// `hide`: beyond the operation, the region and the job.
    ///
    /// # Errors
    /// The operation has ended.
    pub fn show(&mut self, number: u64) -> Result<(u64, *mut u8, usize), Fault> {
        let held = self.held.borrow();
        let held = held.get(&number).ok_or_else(|| Fault::argument("the operation has ended"))?;
        let region = held.operation.region();
        let address = region.address().ok_or_else(gone)?;
        let shown = self.shown.entry(held.key).or_insert_with(|| (0, region.memory()));
        shown.0 += 1;
        Ok((held.key, address, region.len()))
    }

    /// Notes that an object of Python shows a region's memory no more.
    pub fn hide(&mut self, key: u64) {
        if let Some(shown) = self.shown.get_mut(&key) {
            shown.0 -= 1;
            if shown.0 == 0 {
                self.shown.remove(&key);
            }
        }
    }

    /// Asks for a copy early, or gives one back.
    ///
    /// # Errors
    /// The region is not mapped.
    pub fn advise(&self, key: u64, advice: Advice) -> Result<(), Fault> {
        let region = self.region(key)?;
        match advice {
            Advice::Prefetch(Access::Read) => region.prefetch(),
            Advice::Prefetch(Access::Write) => region.prefetch_to_write(),
            Advice::Flush => region.flush(),
        }
        Ok(())
    }

    /// Deletes a region.
    ///
    /// # Errors
    /// The region is not mapped.
    pub fn delete(
        &mut self,
        key: u64,
    ) -> Result<impl Future<Output = Result<(), RegionError>> + 'static, Fault> {
        let region = self.region(key)?;
        self.check(&region, Access::Write)?;
        self.unmap(key);
        Ok(region.delete())
    }

    /// Keeps the memory that objects of Python show beyond the end of the job.
    pub fn leave_memory(&mut self) {
        self.shown.drain().for_each(|(_, shown)| std::mem::forget(shown));
    }

    /// Returns the packet interface.
    pub fn net(&self) -> &Live {
        &self.net
    }

    fn outer_events(&mut self) -> Events {
        Rc::clone(self.events.get_or_insert_default())
    }

    /// Keeps the failures of ranks for the models outside, from now on: they call this once.
    pub fn forward_failures(&mut self) -> &Live {
        let to = self.outer_events();
        self.net.on_failure(move |failure| to.borrow_mut().push_back(Event::Failed(failure)));
        &self.net
    }

    /// Keeps the packets of a handler for the models outside; returns the number of the setting.
    pub fn forward(&mut self, handler: u16) -> u64 {
        let to = self.outer_events();
        self.net.handle(handler, move |packet| {
            let (from, argument, data) = (packet.from, packet.argument, packet.data.to_vec());
            to.borrow_mut().push_back(Event::Packet { handler, from, argument, data });
        })
    }

    /// Has an event of this number after a time, or after a round of progress.
    pub fn sleep(&mut self, number: u64, time: Option<Duration>) {
        let (to, net) = (self.outer_events(), self.net.clone());
        self.net.spawn(async move {
            match time {
                Some(time) => net.sleep(time).await,
                None => net.yield_now().await,
            }
            to.borrow_mut().push_back(Event::Slept(number));
        });
    }

    /// Has an event of this number with the value of a counter, to which `n` is added.
    pub fn fetch_add(&mut self, number: u64, at: usize, counter: Counter, n: u64) {
        let (to, added) = (self.outer_events(), self.net.fetch_add(at, counter, n));
        self.net.spawn(async move {
            let result = added.await;
            to.borrow_mut().push_back(Event::Added(number, result));
        });
    }

    /// Makes a multicast group for the models outside; returns its key.
    pub fn begin_group(&mut self, number: u16, generation: u8, members: &[usize]) -> Option<u64> {
        let group = self.net.group(number, generation, members)?;
        let key = self.key();
        self.groups.insert(key, group);
        Some(key)
    }

    /// Ends a multicast group here; its key stays until [`free_group`](Self::free_group).
    pub fn end_group(&self, key: u64) {
        if let Some(group) = self.groups.get(&key) {
            self.net.end_group(group);
        }
    }

    /// Frees the key of a multicast group.
    pub fn free_group(&mut self, key: u64) {
        self.groups.remove(&key);
    }

    /// Returns the longest packet of a multicast group.
    pub fn group_max(&self, key: u64) -> usize {
        self.groups.get(&key).map_or(0, |group| self.net.group_max(group))
    }

    /// Sends a packet to all other members of a multicast group.
    ///
    /// # Errors
    /// Returns the errors of [`Net::try_multicast`].
    pub fn multicast(
        &self,
        key: u64,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), Unsent> {
        match self.groups.get(&key) {
            Some(group) => self.net.try_multicast(group, handler, argument, data),
            None => Err(Unsent::TooLong { most: 0 }),
        }
    }

    /// True if there are events.
    pub fn has_events(&self) -> bool {
        self.events.as_ref().is_some_and(|events| !events.borrow().is_empty())
    }

    /// Takes the events.
    pub fn events(&mut self) -> VecDeque<Event> {
        self.events.as_ref().map(|events| events.take()).unwrap_or_default()
    }

    /// Puts records of this run back that were not done, the oldest first.
    pub fn put_back_records(&mut self, number: u16, left: impl Iterator<Item = Vec<u8>>) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        for record in left {
            let with_run = [&[queue.run][..], &record].concat();
            queue.records.borrow_mut().push_back(with_run);
        }
    }

    /// Opens a queue of jobs.
    ///
    /// # Errors
    /// The number is in use, or wrong, or records have no bytes or too many.
    pub fn open_queue(&mut self, number: u16, size: usize, batch: usize) -> Result<(), Fault> {
        if number >= QUEUES {
            return Err(Fault::argument(format!("queues have numbers below {QUEUES}")));
        }
        if size > RECORD_MAX {
            let text = format!("records of {size} bytes: they have at most {RECORD_MAX}");
            return Err(Fault::argument(text));
        }
        if size == 0 {
            return Err(Fault::argument("records have at least one byte"));
        }
        if self.queues.contains_key(&number) {
            return Err(Fault::argument(format!("queue {number} is open already")));
        }
        let records: Rc<RefCell<VecDeque<Vec<u8>>>> = Rc::default();
        let received: Rc<Cell<u64>> = Rc::default();
        let (to, count) = (Rc::clone(&records), Rc::clone(&received));
        let receive = move |_: usize, record: &[u8]| {
            count.set(count.get() + 1);
            to.borrow_mut().push_back(record.to_vec());
        };
        // The first byte of a record is the number of its run.
        let aggregator = Aggregator::open(&self.net, number, size + 1, batch, receive);
        let quiescence = Rc::new(Quiescence::open(&self.net, number));
        let aggregator = Rc::new(aggregator);
        let queue = Queue { aggregator, quiescence, records, received, run: 0, size, wave: None };
        self.queues.insert(number, queue);
        Ok(())
    }

    fn queue(&mut self, number: u16) -> Result<&mut Queue, Fault> {
        self.queues.get_mut(&number).ok_or_else(|| Fault::argument("the queue is not open"))
    }

    /// Pushes a record to its owner. False if much waits for that rank.
    ///
    /// # Errors
    /// There is no such rank, the rank has failed, or the record has another length.
    pub fn push(&mut self, number: u16, owner: usize, record: &[u8]) -> Result<bool, Fault> {
        let (rank, ranks) = (self.net.rank(), self.net.size());
        let queue = self.queue(number)?;
        if record.len() != queue.size {
            let text = format!("a record of {} bytes, not {}", record.len(), queue.size);
            return Err(Fault::argument(text));
        }
        if owner >= ranks {
            return Err(Fault::argument(format!("there are {ranks} ranks, from 0")));
        }
        let mut bytes = Vec::with_capacity(1 + record.len());
        bytes.push(queue.run);
        bytes.extend_from_slice(record);
        if owner == rank {
            queue.records.borrow_mut().push_back(bytes);
            return Ok(true);
        }
        queue.quiescence.sent(1);
        queue.aggregator.push(owner, &bytes)?;
        Ok(!queue.aggregator.is_full(owner))
    }

    /// True if there is room for records to a rank.
    ///
    /// # Errors
    /// The queue is not open.
    pub fn has_room(&mut self, number: u16, owner: usize) -> Result<bool, Fault> {
        Ok(!self.queue(number)?.aggregator.is_full(owner))
    }

    /// Takes records of this run, the newest first, at most so many. `None` if there is none now
    /// and the run goes on; an empty list if it has ended on all ranks.
    ///
    /// # Errors
    /// A rank has failed, and its records with it.
    pub fn next(&mut self, number: u16, most: usize) -> Result<Option<Vec<Vec<u8>>>, Fault> {
        let queue = self.queue(number)?;
        let mut taken = Vec::new();
        {
            let mut records = queue.records.borrow_mut();
            // Records of ranks that have begun the next run stay.
            let mut later = VecDeque::new();
            while taken.len() < most {
                match records.pop_back() {
                    Some(record) if record[0] == queue.run => taken.push(record[1..].to_vec()),
                    Some(record) => later.push_front(record),
                    None => break,
                }
            }
            records.append(&mut later);
        }
        if !taken.is_empty() {
            return Ok(Some(taken));
        }
        queue.aggregator.flush()?;
        queue.quiescence.received(queue.received.take());
        let quiescence = &queue.quiescence;
        let wave = queue.wave.get_or_insert_with(|| {
            let quiescence = Rc::clone(quiescence);
            Box::pin(async move { quiescence.wave().await })
        });
        match poll_now(wave.as_mut()) {
            Poll::Pending => Ok(None),
            Poll::Ready(ended) => {
                queue.wave = None;
                if ended? {
                    queue.run = queue.run.wrapping_add(1);
                    return Ok(Some(Vec::new()));
                }
                Ok(None)
            }
        }
    }
}

/// A wish for a region's copy.
#[derive(Clone, Copy, Debug)]
pub enum Advice {
    /// The copy will be used so.
    Prefetch(Access),
    /// The copy goes back to the home.
    Flush,
}

//! The programming models of a job, used under its lock: regions, queues of jobs, and the messages
//! of shared objects, which Python executes (`weft/_objects.py`).

use crate::fault::{Fault, Kind};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use weft::Group;
use weft_models::jobs::{Aggregator, Quiescence};
use weft_models::net::{Live, Net, RankFailure};
use weft_models::order::{Options, OrderError, OrderedGroup};
use weft_models::regions::{Access, Operation, Region, RegionCause, RegionError};
use weft_models::regions::{RegionId, Regions};
use weft_models::rpc::{Call, Request, Rpc};
use weft_models::MESSAGE_MAX;

/// The method of calls to the owners of objects.
const OBJECT: u16 = 1;
/// The number of the ordered group of objects.
const GROUP: u16 = 0;
/// Number of queues of jobs.
pub const QUEUES: u16 = 4;
/// Most bytes of a record of a queue, which the number of its run precedes.
const RECORD_MAX: usize = MESSAGE_MAX - 1;

/// Something that objects have to know, in its order.
pub enum Event {
    /// A message of the order: sender, bytes.
    Message(usize, Vec<u8>),
    /// A call of another rank.
    Asked(Asked),
}

/// A call of another rank.
pub struct Asked {
    /// The number under which it is answered.
    pub number: u64,
    pub from: usize,
    pub bytes: Vec<u8>,
}

/// The end of a call of this rank.
pub type Answered = Result<Vec<u8>, Fault>;

/// A call of this rank that has not been given its answer.
struct Calling {
    number: u64,
    call: Call<Live>,
    answer: Option<Answered>,
}

type Events = Rc<RefCell<VecDeque<Event>>>;
type Requests = Rc<RefCell<HashMap<u64, Request<Live>>>>;

/// A wave of the search for the end of a run.
type Wave = Pin<Box<dyn Future<Output = Result<bool, RankFailure>>>>;

/// The messages of objects.
struct Objects {
    order: OrderedGroup<Live>,
    rpc: Rpc<Live>,
    events: Events,
    requests: Requests,
    calls: Vec<Calling>,
}

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
    objects: Option<Objects>,
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
            objects: None,
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
    /// It is too large.
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
    /// It is not mapped.
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
    /// It is not mapped.
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

    fn objects(&mut self) -> &mut Objects {
        self.objects.get_or_insert_with(|| {
            let all: Vec<usize> = (0..self.net.size()).collect();
            let order = OrderedGroup::open(&self.net, GROUP, &all, Options::default());
            let rpc = Rpc::open(&self.net);
            let (events, requests) = (Events::default(), Requests::default());
            let to = Rc::clone(&events);
            order.on_deliver(move |message| {
                to.borrow_mut().push_back(Event::Message(message.from, message.bytes));
            });
            let (to, kept, number) = (Rc::clone(&events), Rc::clone(&requests), Cell::new(0));
            rpc.serve(OBJECT, move |request, args| {
                number.set(number.get() + 1);
                let (number, from, bytes) = (number.get(), request.from(), args.to_vec());
                kept.borrow_mut().insert(number, request);
                to.borrow_mut().push_back(Event::Asked(Asked { number, from, bytes }));
            });
            Objects { order, rpc, events, requests, calls: Vec::new() }
        })
    }

    /// Opens the messages of objects.
    pub fn open_objects(&mut self) {
        self.objects();
    }

    /// Sends a message to all ranks, in the order. False if there is no room now.
    ///
    /// # Errors
    /// This rank's part of the order has ended.
    pub fn send(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        let order = &self.objects().order;
        let mut sent = order.send(bytes);
        match poll_now(Pin::new(&mut sent)) {
            Poll::Ready(Err(OrderError::Busy)) => Ok(false),
            Poll::Ready(Err(error @ OrderError::TooLong)) => {
                Err(Fault::argument(error.to_string()))
            }
            Poll::Ready(Err(error)) => Err(Fault::new(Kind::Peer, error.to_string())),
            _ => Ok(true),
        }
    }

    /// Calls the owner of an object; returns the number of the call.
    pub fn call(&mut self, owner: usize, bytes: &[u8]) -> u64 {
        let key = self.key();
        let objects = self.objects();
        let call = objects.rpc.call(owner, OBJECT, bytes);
        objects.calls.push(Calling { number: key, call, answer: None });
        key
    }

    /// Answers a call.
    pub fn answer(&mut self, number: u64, bytes: &[u8]) {
        let request = self.objects().requests.borrow_mut().remove(&number);
        if let Some(request) = request {
            request.answer(bytes);
        }
    }

    /// Returns the place of a call that has its answer, if `is_due` says that it is time for it.
    fn answered(&mut self, number: u64, is_due: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let calls = &mut self.objects.as_mut()?.calls;
        let at = calls.iter().position(|calling| calling.number == number)?;
        let Calling { call, answer, .. } = &mut calls[at];
        if answer.is_none() {
            let Poll::Ready(came) = poll_now(Pin::new(call)) else { return None };
            *answer = Some(came.map_err(|error| Fault::of_call(&error)));
        }
        match answer {
            Some(Ok(bytes)) if !is_due(bytes) => None,
            _ => Some(at),
        }
    }

    /// True if a call has its answer, and `is_due` says that it is time for it.
    pub fn is_answered(&mut self, number: u64, is_due: impl Fn(&[u8]) -> bool) -> bool {
        self.answered(number, is_due).is_some()
    }

    /// Takes the answer of a call, once `is_due` says that it is time for it.
    pub fn take_answer(&mut self, number: u64, is_due: impl Fn(&[u8]) -> bool) -> Option<Answered> {
        let at = self.answered(number, is_due)?;
        self.objects.as_mut()?.calls.swap_remove(at).answer
    }

    /// Forgets a call: its answer is not wanted any more.
    pub fn forget_call(&mut self, number: u64) {
        if let Some(objects) = &mut self.objects {
            objects.calls.retain(|calling| calling.number != number);
        }
    }

    /// True if there are events.
    pub fn has_events(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| !objects.events.borrow().is_empty())
    }

    /// Takes the events.
    pub fn events(&mut self) -> VecDeque<Event> {
        self.objects().events.take()
    }

    /// Puts records of this run back that were not done, the oldest first.
    pub fn put_back_records(&mut self, number: u16, left: impl Iterator<Item = Vec<u8>>) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        for record in left {
            let with_run = [&[queue.run][..], &record].concat();
            queue.records.borrow_mut().push_back(with_run);
        }
    }

    /// Puts events back that were not handled: before those that came since.
    pub fn put_back(&mut self, mut events: VecDeque<Event>) {
        let all = &self.objects().events;
        events.append(&mut all.borrow_mut());
        all.replace(events);
    }

    /// # Errors
    /// There are no events, and this rank's part of the order has ended.
    pub fn check_order(&mut self) -> Result<(), Fault> {
        let objects = self.objects();
        let ended = objects.order.ended().filter(|_| objects.events.borrow().is_empty());
        ended.map_or(Ok(()), |error| Err(Fault::new(Kind::Peer, error.to_string())))
    }

    /// Notices the silence of other ranks from now on, or no more.
    pub fn expect(&mut self, on: bool) {
        self.objects().order.expect(on);
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
            // Those of ranks that have begun the next run stay.
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
    /// It will be used so.
    Prefetch(Access),
    /// It goes back to the home.
    Flush,
}

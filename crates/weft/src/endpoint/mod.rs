//! The endpoint: the local communication object of programs.

mod absence;
mod active;
mod attend;
mod bulk_rate;
mod choose;
mod closing;
mod coalescing;
mod copied;
mod copy_choice;
mod count;
mod direct;
pub(crate) mod driver;
mod future;
pub(crate) mod intake;
mod length;
pub(crate) mod ops;
mod paths;
mod patience;
mod polling;
pub(crate) mod ports;
mod queue;
mod regions;
mod routing;
mod served;
mod sized;
mod spare;
#[allow(unsafe_code)]
pub(crate) mod sys;
mod tasks;
mod transmit;
mod wait;
pub(crate) mod waits;

pub use active::ActiveMessage;
pub use choose::ChoiceError;
pub use future::wake;
pub use future::PeerWatch;
pub use future::{Operation, Sleep, Yield};
pub use queue::{Completed, CompletionQueue};
pub use regions::{Denied, Regions};
pub use routing::{choice, Choice};
pub(crate) use sys::epoll::sleep_on;
pub use sys::expect::Expected;
pub use waits::Awaits;

use crate::calibration::Calibration;
use crate::clock::{Clock, Moments};
use crate::counters::{Page, RankId};
use crate::port::ACTIVE;
use driver::Driver;
use future::State;
use ops::Owner;
use patience::Patience;
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use sys::Memory;
use wait::{Sleeper, Waiter};
use weft_agent::ServicesHandle;
use weft_core::engine::types::{self, AtomicCode, Claimed, RecvArgs, Refused, SendArgs};
use weft_core::{Config, EndpointId, Instant, LinkCaps, OpError, PeerFailure, PeerId, Stats};
use weft_launch::ends::Ends;
use weft_link::secure::JobKey;
use weft_link::{Address, Link};

/// The status of a successful operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The other side.
    pub source: Option<PeerId>,
    /// Match bits of the message.
    pub tag: u64,
    /// Bytes moved.
    pub len: usize,
    /// Completion data the sender gave.
    pub data: Option<u32>,
    /// Old value, for atomic operations.
    pub value: u64,
}

impl From<types::Status> for Status {
    fn from(s: types::Status) -> Status {
        Status { source: s.source, tag: s.tag, len: s.len as usize, data: s.data, value: s.value }
    }
}

/// No link reaches a peer; with the links that were tried.
#[derive(Clone)]
pub struct ConnectError {
    /// The address.
    pub address: String,
    /// Each link and why it refused.
    pub reasons: Vec<(&'static str, String)>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no link reaches {}", self.address)?;
        for (link, why) in &self.reasons {
            write!(f, "; {link}: {why}")?;
        }
        write!(f, "; run `weft doctor` on both machines")
    }
}

weft_core::readable!(ConnectError);

impl std::error::Error for ConnectError {}

pub(crate) struct Inner {
    pub(crate) driver: Driver,
    waiter: Waiter,
    handlers: Rc<active::Handlers>,
    sleeps: u64,
    /// Rounds of progress since the last sleep.
    awake: u32,
    patience: Patience,
    page: Option<Page>,
    /// Messages sent since the last poll.
    unpolled: u32,
    /// The time since the last round of progress for an operation that ended at once.
    moments: Moments,
    tasks: tasks::Tasks,
    /// True if there are tasks, or clients of the port that are polled in each round.
    pub(crate) above: bool,
    pub(crate) agent: Option<ServicesHandle>,
    /// The job's key, for counters in kernels.
    pub(crate) job_key: Option<JobKey>,
}

/// A local communication object: it sends messages to peers, and reads and writes their memory.
/// Clones are the same endpoint; it belongs to one thread and takes no lock.
///
/// A job has one ([`Job::endpoint`](crate::Job::endpoint)); ranks are its peers
/// ([`Group::peer`](crate::Group::peer)). A program without a launcher opens its own
/// ([`open_endpoint`](crate::job::open_endpoint)) and connects it by [`Address`].
///
/// ```no_run
/// use weft::{AtomicCode, Job, Rights};
///
/// let job = Job::init()?;
/// let (world, endpoint) = (job.world(), job.endpoint());
/// // Memory that others may read and write; its key goes to them by message.
/// let key = endpoint.register(4096, Rights::ALL).ok_or("no more keys")?;
/// let keys = world.allgather_blocking(key.to_le_bytes().to_vec())?;
/// let next = (world.rank() + 1) % world.size();
/// let (peer, theirs) = (world.peer(next)?, u64::from_le_bytes(keys[next][..].try_into()?));
/// // Write there, read back, and add to a counter of 8 bytes at offset 1024.
/// endpoint.put(peer, theirs, 0, b"hello".to_vec()).wait().0?;
/// let (result, back) = endpoint.get(peer, theirs, 0, vec![0; 5]).wait();
/// result?;
/// assert_eq!(back, b"hello");
/// let added = endpoint.atomic(peer, theirs, 1024, AtomicCode::FetchAdd, 1, 0).wait().0?;
/// println!("the counter was {}", added.value);
/// // The messages below those of groups: 64 match bits, of which a receive may ignore some.
/// endpoint.send_blocking(peer, 0x1234, b"any bytes")?;
/// let mut buffer = [0; 64];
/// let status = endpoint.recv_blocking(None, 0x1200, 0xff, &mut buffer)?;
/// println!("{} bytes with match bits {:#x}", status.len, status.tag);
/// world.barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Active messages call a handler at the receiver:
///
/// ```
/// # use std::{cell::Cell, rc::Rc};
/// # let id = weft::EndpointId(7);
/// # let links: Vec<Box<dyn weft_link::Link>> = vec![Box::new(weft::SelfLink::new(id))];
/// # let (config, clock) = (weft::Config::default(), weft::Clock::system());
/// # let endpoint = weft::Endpoint::with_links(config, id, clock, links);
/// # let peer = endpoint.connect(&endpoint.address())?;
/// let sum = Rc::new(Cell::new(0));
/// let at_handler = sum.clone();
/// endpoint.handle(1, move |_, message| at_handler.set(at_handler.get() + message.argument));
/// endpoint.send_active(peer, 1, 42, b"")?;
/// while sum.get() == 0 {
///     endpoint.wait(None);
/// }
/// assert_eq!(sum.get(), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) inner: Rc<RefCell<Inner>>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Makes an endpoint over the given links, best first.
    pub fn with_links(
        config: Config,
        id: EndpointId,
        clock: Clock,
        links: Vec<Box<dyn Link>>,
    ) -> Endpoint {
        let patience = Patience::of(&config);
        let mut inner = Inner {
            driver: Driver::new(config, id, clock, links),
            waiter: Waiter::new(),
            handlers: Rc::default(),
            sleeps: 0,
            awake: 0,
            patience,
            page: None,
            unpolled: 0,
            moments: Moments::new(),
            tasks: tasks::Tasks::default(),
            above: false,
            agent: None,
            job_key: None,
        };
        let handlers = Rc::clone(&inner.handlers);
        inner.driver.intake.ports.register(ACTIVE, handlers);
        Endpoint { inner: Rc::new(RefCell::new(inner)) }
    }

    /// True if no other handle or future of this endpoint exists.
    pub(crate) fn is_sole(&self) -> bool {
        Rc::strong_count(&self.inner) == 1
    }

    /// Uses measured figures instead of the links' estimates for peers connected from now on.
    pub fn calibrate(&self, calibration: &Calibration) {
        self.inner.borrow_mut().driver.paths.calibration = calibration.clone();
    }

    /// Returns the capabilities of the links as these estimate them, best first.
    pub fn link_caps(&self) -> Vec<LinkCaps> {
        self.inner.borrow().driver.intake.arriving.caps.clone()
    }

    /// Returns the bytes of `unexpected_max` that peers have got for unexpected messages, beyond
    /// the share that every peer has.
    pub fn unexpected_bytes(&self) -> u64 {
        self.inner.borrow().driver.intake.engine.matching().room_used()
    }

    /// Returns the address by which peers reach this endpoint.
    pub fn address(&self) -> Address {
        self.inner.borrow().driver.identity.address.clone()
    }

    /// Makes a peer of an address. Sends nothing yet. The same address gives the same peer.
    pub fn connect(&self, address: &Address) -> Result<PeerId, ConnectError> {
        self.inner
            .borrow_mut()
            .driver
            .connect(address)
            .map_err(|reasons| ConnectError { address: address.to_string(), reasons })
    }

    /// True if time passes only when a simulator advances it.
    pub fn time_is_virtual(&self) -> bool {
        self.inner.borrow().driver.polling.exact
    }

    /// Returns the time now, by the endpoint's clock.
    pub fn now(&self) -> Instant {
        self.inner.borrow().driver.intake.time.clock.now()
    }

    /// Returns the engine's statistics.
    pub fn stats(&self) -> Stats {
        *self.inner.borrow().driver.intake.engine.stats()
    }

    /// Returns the counters of the links: link, counter, value.
    pub fn link_counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut out = Vec::new();
        for link in &self.inner.borrow().driver.links {
            let of = link.caps().name;
            link.counters(&mut |name, value| out.push((of, name, value)));
        }
        out
    }

    /// Makes the counters readable from outside the process: see [`counters`](crate::counters).
    ///
    /// # Errors
    /// The system gives no memory file.
    pub fn publish_counters(&self, who: &RankId) -> std::io::Result<()> {
        self.inner.borrow_mut().page = Some(Page::create(who)?);
        Ok(())
    }

    /// Gives it the ends of the ranks of its job.
    pub(crate) fn told_of(&self, ends: Option<Ends>) {
        self.inner.borrow_mut().driver.known.ends = ends;
    }

    /// Returns a peer with its name or address, and its link, interface and addresses, for messages
    /// to people. For a failed peer, those that it had.
    pub fn describe(&self, peer: PeerId) -> String {
        self.inner.borrow().driver.describe(peer)
    }

    /// Returns the whole text of an error of this endpoint's operations: which peer over which
    /// link, interface and address, why, and what to do. The error's own `Display` knows only the
    /// number of the peer.
    pub fn explain(&self, error: OpError) -> String {
        match error {
            OpError::Peer { peer, failure } => self.inner.borrow().driver.explain(peer, failure),
            other => other.to_string(),
        }
    }

    /// Returns the peer of this identity, if it is known.
    pub(crate) fn find_peer(&self, id: EndpointId) -> Option<PeerId> {
        self.inner.borrow().driver.intake.engine.peers().find(id)
    }

    /// Sets the peer's name in messages to people, as `rank 3 (process 17 on host a)`.
    pub fn set_name(&self, peer: PeerId, name: &str) {
        self.inner.borrow_mut().driver.known.names.insert(peer, name.to_owned());
    }

    /// True if the peer has answered and has not failed.
    pub fn is_ready(&self, peer: PeerId) -> bool {
        self.inner.borrow().driver.intake.engine.peer(peer).is_ready()
    }

    /// Returns the identity of a peer.
    pub fn identity(&self, peer: PeerId) -> Option<EndpointId> {
        self.inner.borrow().driver.intake.engine.peer(peer).info().map(|(id, _, _)| id)
    }

    /// Returns the reason why a peer failed, if it did.
    pub fn peer_failure(&self, peer: PeerId) -> Option<PeerFailure> {
        self.inner.borrow().driver.intake.engine.peer(peer).failure()
    }

    /// Does all work that is possible now, without waiting. True if anything happened.
    pub fn progress(&self) -> bool {
        self.progress_by(driver::RECV_BUDGET)
    }

    /// Does the work of `progress`, with at most `budget` packets from each link inside the host: a
    /// program that waits for one message can post the receive of the next before the link is
    /// polled for it.
    #[inline]
    fn progress_by(&self, budget: usize) -> bool {
        let mut inner = self.inner.borrow_mut();
        let did = inner.driver.progress(budget);
        inner.count(did);
        self.call_back(inner, did)
    }

    /// Polls links directly between two rounds of a wait: see [`Driver::poll_closely`].
    #[inline]
    fn poll_closely(&self, budget: usize) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.driver.poll_closely(polling::CLOSE_ROUNDS, budget) && self.call_back(inner, true)
    }

    /// Calls clients of the port, and tasks, for arrived messages. True if there were any, or if
    /// `did` is.
    #[inline]
    fn call_back<'a>(&'a self, inner: RefMut<'a, Inner>, did: bool) -> bool {
        if !inner.above && inner.driver.intake.ports.is_idle() {
            return did;
        }
        drop(inner);
        let called = self.run_clients();
        let news = self.inner.borrow().tasks.has_events();
        news && self.run_tasks() || called || did
    }

    /// Asserts the invariants of the engine: see [`Engine::check`](weft_core::Engine::check).
    pub fn check(&self) {
        self.inner.borrow().driver.intake.engine.check();
    }

    /// Returns the time of the next `progress` call that is needed although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.inner.borrow().driver.next_timeout()
    }

    /// Announces that this thread is about to sleep on `wait_fd`. False if there is work: call
    /// `progress` instead of sleeping, and no `finish_wait`.
    pub fn prepare_wait(&self) -> bool {
        self.prepare(Sleeper::Program)
    }

    fn prepare(&self, sleeper: Sleeper) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        inner.driver.leave_if_copied();
        if inner.driver.coalesced.deferred_round
            || inner.driver.absence.unreported
            || inner.tasks.has_events()
        {
            return false;
        }
        inner.note_sleep();
        inner.waiter.sync(sleeper, inner.driver.links.iter().map(|link| &**link));
        if inner.driver.intake.engine.output().blocked() {
            // A full link does not report when it has room again, so the sleep is short.
            let now = inner.driver.intake.time.clock.now();
            inner.waiter.arm(now, Some(now + Duration::from_micros(100)));
        } else {
            inner.driver.intake.engine.refine_timeout();
            let timeout = inner.driver.next_timeout();
            let page = inner.page.as_mut().and_then(Page::note_wait);
            let until = timeout.into_iter().chain(page).min();
            inner.waiter.arm(inner.driver.intake.time.clock.now(), until);
        }
        let links = &mut inner.driver.links;
        let idle = links.iter_mut().all(|l| l.prepare_wait());
        if !idle {
            links.iter_mut().for_each(|l| l.finish_wait(false));
        }
        inner.driver.absence.watched = idle;
        inner.awake = 0;
        idle
    }

    /// Sets the wake-up of a thread that sleeps on `wait_fd`, for operations that other threads
    /// have begun. With `at_once` it wakes now.
    pub fn rearm(&self, at_once: bool) {
        let inner = &mut *self.inner.borrow_mut();
        inner.driver.intake.engine.refine_timeout();
        let now = inner.driver.intake.time.clock.now();
        let until = if at_once { Some(now) } else { inner.driver.next_timeout() };
        inner.waiter.arm(now, until);
    }

    /// Ends the wait that `prepare_wait` began.
    pub fn finish_wait(&self) {
        self.inner.borrow_mut().driver.end_sleep(u64::MAX);
    }

    /// Runs a future to its end, and makes progress meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut cx = Context::from_waker(&waker);
        let mut at_once = true;
        loop {
            if flag.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                    if at_once {
                        self.attend();
                    }
                    return out;
                }
                at_once = false;
                if flag.0.load(Ordering::Relaxed) {
                    self.progress();
                    continue;
                }
            }
            // A future may wait for a time, or for another thread.
            self.wait_by(None, driver::RECV_BUDGET, None);
        }
    }

    /// Sends a message. The operation has started when this returns; awaiting it gives the result
    /// and the buffer.
    pub fn send(&self, to: PeerId, tag: u64, data: Vec<u8>) -> Operation {
        self.send_with(to, tag, data, None, false)
    }

    /// Sends a message; completes only when a receive has matched it.
    pub fn send_sync(&self, to: PeerId, tag: u64, data: Vec<u8>) -> Operation {
        self.send_with(to, tag, data, None, true)
    }

    /// Sends with completion data for the receiver.
    pub fn send_with(
        &self,
        to: PeerId,
        tag: u64,
        data: Vec<u8>,
        imm: Option<u32>,
        sync: bool,
    ) -> Operation {
        let inner = &mut *self.inner.borrow_mut();
        let args = SendArgs { data: imm, sync, ..SendArgs::new(to, tag, data.len() as u64) };
        if inner.send_now(&args, &data) {
            let status = Status { source: Some(to), tag, len: data.len(), ..Status::default() };
            return self.ended(Ok(status), data);
        }
        let d = &mut inner.driver;
        // If many packets wait already, a copy would gain nothing over the memory itself.
        let inject = !sync
            && data.len() <= d.intake.engine.peer(to).inject_max()
            && d.intake.engine.peer(to).queued() * data.len() < spare::MOST;
        let args = SendArgs { addr: data.as_ptr() as u64, inject, ..args };
        if !inject {
            let now = d.intake.tick();
            let started = d.intake.engine.send(now, args);
            return self.started(d, started, Memory::Owned(data));
        }
        let status = Status { source: Some(to), tag, len: data.len(), ..Status::default() };
        self.ended(d.inject(args, &data).map(|()| status).map_err(error_of), data)
    }

    fn started(
        &self,
        d: &mut Driver,
        started: Result<weft_core::OpId, Refused>,
        memory: Memory,
    ) -> Operation {
        match started {
            Ok(op) => {
                let ticket = d.intake.ops.insert(op, Owner::Waiter, memory);
                d.flush();
                Operation { inner: self.inner.clone(), state: State::Running(ticket) }
            }
            Err(refused) => self.ended(Err(error_of(refused)), memory.into_vec()),
        }
    }

    fn ended(&self, result: Result<Status, OpError>, buffer: Vec<u8>) -> Operation {
        Operation { inner: self.inner.clone(), state: State::Ended(result, buffer) }
    }

    /// Receives a message of at most the length of `buffer`. `from: None` accepts any source, also
    /// peers that connect later: only such a wait has no bound (`Group::recv_any` has one, since it
    /// knows the possible senders). Bits set in `ignore` are not compared. The status has the
    /// length; a longer message is an error and leaves its first part in the buffer.
    pub fn recv(&self, from: Option<PeerId>, tag: u64, ignore: u64, buffer: Vec<u8>) -> Operation {
        let inner = &mut *self.inner.borrow_mut();
        let d = &mut inner.driver;
        let memory = Memory::Owned(buffer);
        let now = d.intake.tick();
        let started = d.intake.engine.matching_mut().recv(
            now,
            RecvArgs {
                source: from,
                tag,
                ignore,
                len: memory.len() as u64,
                addr: memory.addr(),
                context: 0,
                untagged: false,
            },
        );
        self.started(d, started, memory)
    }

    /// Receives a claimed message.
    pub fn recv_claimed(&self, claimed: Claimed, buffer: Vec<u8>) -> Operation {
        let inner = &mut *self.inner.borrow_mut();
        let d = &mut inner.driver;
        let memory = Memory::Owned(buffer);
        let args = RecvArgs {
            source: None,
            tag: 0,
            ignore: 0,
            len: memory.len() as u64,
            addr: memory.addr(),
            context: 0,
            untagged: false,
        };
        let now = d.intake.tick();
        let started = d.intake.engine.matching_mut().recv_claimed(now, claimed, args);
        self.started(d, started, memory)
    }

    /// Notices the peer's silence, as [`expect`](Self::expect), until the returned value is
    /// dropped. `None` if the peer has failed.
    pub fn watch(&self, peer: PeerId) -> Option<PeerWatch<'_>> {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        let watched = d.intake.engine.peer_mut(peer).watch(now);
        d.flush();
        watched.then(|| PeerWatch { endpoint: self, peer })
    }

    /// Opens the session with a peer before the first message, so that a dead peer is noticed.
    pub fn open(&self, peer: PeerId) {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        d.intake.engine.peer_mut(peer).open(now);
        d.flush();
    }

    /// Returns the number of messages, requests and active messages for a peer that have not left.
    pub fn queued(&self, peer: PeerId) -> usize {
        self.inner.borrow().driver.intake.engine.peer(peer).queued()
    }

    /// Records that an answer of the peer is awaited without an operation: until `unexpect` its
    /// silence is noticed. False if the peer has failed; then no `unexpect` follows.
    pub fn expect(&self, peer: PeerId) -> bool {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.time.clock.now();
        d.intake.engine.peer_mut(peer).watch(now)
    }

    /// Ends one `expect` that was true.
    pub fn unexpect(&self, peer: PeerId) {
        self.inner.borrow_mut().driver.intake.engine.peer_mut(peer).unwatch();
    }

    /// Writes `data` to the peer's region at `offset`. Completes when it is there.
    pub fn put(&self, to: PeerId, key: u64, offset: u64, data: Vec<u8>) -> Operation {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        let started = d.intake.engine.memory().put(now, to, key, offset, data.len() as u64, 0);
        self.started(d, started, Memory::Owned(data))
    }

    /// Fills `buffer` from the peer's region at `offset`.
    pub fn get(&self, from: PeerId, key: u64, offset: u64, buffer: Vec<u8>) -> Operation {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        let started = d.intake.engine.memory().get(now, from, key, offset, buffer.len() as u64, 0);
        self.started(d, started, Memory::Owned(buffer))
    }

    /// Does an atomic operation on the 8 bytes at `offset` of the peer's region; the status carries
    /// the old value. Only compare-and-swap uses `compare`.
    pub fn atomic(
        &self,
        at: PeerId,
        key: u64,
        offset: u64,
        code: AtomicCode,
        operand: u64,
        compare: u64,
    ) -> Operation {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        let operands = (operand, compare);
        let started = d.intake.engine.memory().atomic(now, at, key, offset, code, operands, 0);
        self.started(d, started, Memory::None)
    }

    /// Resolves after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep { inner: self.inner.clone(), at: self.now() + duration, sleeper: None }
    }

    /// Resolves after one round of progress: call it between pieces of computing.
    pub fn yield_now(&self) -> Yield {
        Yield::default()
    }
}

pub(crate) fn error_of(refused: Refused) -> OpError {
    match refused {
        Refused::Peer(peer, failure) => OpError::Peer { peer, failure },
        Refused::Busy => OpError::Busy,
        _ => OpError::Refused,
    }
}

//! The endpoint: the local communication object of programs.

mod active;
mod choose;
mod closing;
mod future;
mod of_port;
mod queue;
mod served;
mod sized;
#[allow(unsafe_code)]
pub(crate) mod sys;

pub use crate::reactor::regions::{Denied, Regions};
pub use crate::reactor::{choice, wake, Awaits, Choice, Status};
pub use active::ActiveMessage;
pub use choose::ChoiceError;
pub use future::PeerWatch;
pub use future::{Operation, Sleep, Yield};
pub use queue::{Completed, CompletionQueue};
pub use sys::expect::Expected;

use crate::calibration::Calibration;
use crate::clock::Clock;
use crate::counters::{Page, RankId};
use crate::port::{Client, NumberTaken, Port, ACTIVE};
use crate::reactor::ops::Owner;
use crate::reactor::sys::Memory;
use crate::reactor::{error_of, Handle, Reactor, Sleeper, COPIED_MAX};
use active::Handlers;
use future::State;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use weft_core::engine::types::{AtomicCode, Claimed, Probed, RecvArgs, Refused, SendArgs};
use weft_core::{Config, EndpointId, Instant, LinkCaps, OpError, PeerFailure, PeerId, Stats};
use weft_launch::ends::Ends;
use weft_link::{Address, Link};

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
#[repr(transparent)]
pub struct Endpoint {
    pub(crate) reactor: Handle,
}

impl Endpoint {
    /// Makes an endpoint over the given links, best first.
    pub fn with_links(
        config: Config,
        id: EndpointId,
        clock: Clock,
        links: Vec<Box<dyn Link>>,
    ) -> Endpoint {
        let reactor = Handle::new(config, id, clock, links);
        reactor.borrow_mut().receiver.ports.register(ACTIVE, Rc::<Handlers>::default());
        Endpoint { reactor }
    }

    /// True if no other handle or future of this endpoint exists.
    pub(crate) fn is_sole(&self) -> bool {
        self.reactor.is_sole()
    }

    /// Uses measured figures instead of the links' estimates for peers connected from now on.
    pub fn calibrate(&self, calibration: &Calibration) {
        self.reactor.borrow_mut().paths.calibration = calibration.clone();
    }

    /// Returns the capabilities of the links as these estimate them, best first.
    pub fn link_caps(&self) -> Vec<LinkCaps> {
        self.reactor.borrow().receiver.arriving.caps.clone()
    }

    /// Returns the bytes of `unexpected_max` that peers have got for unexpected messages, beyond
    /// the share that every peer has.
    pub fn unexpected_bytes(&self) -> u64 {
        self.reactor.engine().matching().room_used()
    }

    /// Returns the address by which peers reach this endpoint.
    pub fn address(&self) -> Address {
        self.reactor.borrow().known.address.clone()
    }

    /// Makes a peer of an address. Sends nothing yet. The same address gives the same peer.
    pub fn connect(&self, address: &Address) -> Result<PeerId, ConnectError> {
        self.reactor
            .borrow_mut()
            .connect(address)
            .map_err(|reasons| ConnectError { address: address.to_string(), reasons })
    }

    /// True if time passes only when a simulator advances it.
    pub fn time_is_virtual(&self) -> bool {
        self.reactor.borrow().polling.exact
    }

    /// Returns the time now, by the endpoint's clock.
    pub fn now(&self) -> Instant {
        self.reactor.now()
    }

    /// Returns the engine's statistics.
    pub fn stats(&self) -> Stats {
        *self.reactor.engine().stats()
    }

    /// Returns the counters of the links: link, counter, value.
    pub fn link_counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut out = Vec::new();
        for link in &self.reactor.borrow().links {
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
        self.reactor.borrow_mut().published.page = Some(Page::create(who)?);
        Ok(())
    }

    /// Gives it the ends of the ranks of its job.
    pub(crate) fn told_of(&self, ends: Option<Ends>) {
        self.reactor.borrow_mut().known.ends = ends;
    }

    /// Returns a peer with its name or address, and its link, interface and addresses, for messages
    /// to people. For a failed peer, those that it had.
    pub fn describe(&self, peer: PeerId) -> String {
        self.reactor.borrow().describe(peer)
    }

    /// Returns the whole text of an error of this endpoint's operations: which peer over which
    /// link, interface and address, why, and what to do. The error's own `Display` knows only the
    /// number of the peer.
    pub fn explain(&self, error: OpError) -> String {
        match error {
            OpError::Peer { peer, failure } => self.reactor.borrow().explain(peer, failure),
            other => other.to_string(),
        }
    }

    /// Returns the peer of this identity, if it is known.
    pub(crate) fn find_peer(&self, id: EndpointId) -> Option<PeerId> {
        self.reactor.engine().peers().find(id)
    }

    /// Sets the peer's name in messages to people, as `rank 3 (process 17 on host a)`.
    pub fn set_name(&self, peer: PeerId, name: &str) {
        self.reactor.borrow_mut().known.names.insert(peer, name.to_owned());
    }

    /// True if the peer has answered and has not failed.
    pub fn is_ready(&self, peer: PeerId) -> bool {
        self.reactor.engine().peer(peer).is_ready()
    }

    /// Returns the identity of a peer.
    pub fn identity(&self, peer: PeerId) -> Option<EndpointId> {
        self.reactor.engine().peer(peer).info().map(|(id, _, _)| id)
    }

    /// Returns the reason why a peer failed, if it did.
    pub fn peer_failure(&self, peer: PeerId) -> Option<PeerFailure> {
        self.reactor.engine().peer(peer).failure()
    }

    /// Does all work that is possible now, without waiting. True if anything happened.
    pub fn progress(&self) -> bool {
        self.reactor.progress()
    }

    /// Makes progress for an operation that has ended at once, if there was none for such an
    /// operation for about a tenth of a millisecond. Calls of the port's clients and tasks may run.
    #[inline]
    pub fn attend(&self) {
        self.reactor.attend();
    }

    /// Does what [`attend`](Self::attend) does for an operation that is polled as a future:
    /// `Pending` once if a round of progress is due, and the future is polled again after it.
    #[inline]
    pub fn poll_attend(&self, cx: &Context<'_>) -> Poll<()> {
        self.reactor.poll_attend(cx)
    }

    /// Waits until `progress` did something or `timeout` has passed: spins briefly, then sleeps.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.reactor.wait(timeout)
    }

    /// Waits until `progress` did something, for a client whose program waits for `awaits`: a long
    /// wait is logged with it.
    pub fn wait_for(&self, awaits: Awaits) {
        self.reactor.wait_for(awaits);
    }

    /// Makes progress for as long as [`wait`](Self::wait) would before it sleeps, at most for a
    /// time. True if anything happened.
    pub fn wait_awake(&self, at_most: Duration) -> bool {
        self.reactor.wait_awake(at_most)
    }

    /// True if the settings ask for waits that never sleep.
    pub fn polls_always(&self) -> bool {
        self.reactor.polls_always()
    }

    /// Begins a task, which runs at once as far as it can, then goes on with the endpoint's
    /// progress: also in calls that do not wait for it. [`close`](Self::close) ends it. While it
    /// runs, it must not own the last handle of its endpoint.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.reactor.begin_task(work);
    }

    /// Returns the client of a number of the port and its port; `make` makes the client if there is
    /// none.
    ///
    /// # Errors
    /// A client of another type has the number.
    pub fn port<C: Client>(
        &self,
        number: u8,
        make: impl FnOnce() -> Rc<C>,
    ) -> Result<(Port, Rc<C>), NumberTaken> {
        Port::open(&self.reactor, number, make)
    }

    /// Returns the client of a number of the port and its port, if there is one.
    ///
    /// # Errors
    /// A client of another type has the number.
    pub fn known_port<C: Client>(&self, number: u8) -> Result<Option<(Port, Rc<C>)>, NumberTaken> {
        Port::known(&self.reactor, number)
    }

    /// Returns the reason why no wait can succeed any more, for any peer.
    pub fn end_error(&self) -> Option<OpError> {
        let reactor = &mut *self.reactor.borrow_mut();
        reactor.leave_if_copied();
        reactor.receiver.engine.ops().end_error()
    }

    /// Asserts the invariants of the engine: see [`Engine::check`](weft_core::Engine::check).
    pub fn check(&self) {
        self.reactor.engine().check();
    }

    /// Returns the time of the next `progress` call that is needed although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.reactor.borrow().next_timeout()
    }

    /// Announces that this thread is about to sleep on `wait_fd`. False if there is work: call
    /// `progress` instead of sleeping, and no `finish_wait`.
    pub fn prepare_wait(&self) -> bool {
        self.reactor.prepare(Sleeper::Program)
    }

    /// Sets the wake-up of a thread that sleeps on `wait_fd`, for operations that other threads
    /// have begun. With `at_once` it wakes now.
    pub fn rearm(&self, at_once: bool) {
        self.reactor.rearm(at_once);
    }

    /// Ends the wait that `prepare_wait` began.
    pub fn finish_wait(&self) {
        self.reactor.borrow_mut().end_sleep(u64::MAX);
    }

    /// Runs a future to its end, and makes progress meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.reactor.block_on(future)
    }

    /// Looks for a message without receiving it. A program that probes repeatedly without success
    /// counts as waiting for the message.
    pub fn probe(&self, from: Option<PeerId>, tag: u64, ignore: u64) -> Option<Probed> {
        self.reactor.borrow_mut().probe(from, tag, ignore)
    }

    /// Takes the oldest matching message out of matching; receive it with `recv_claimed`. Repeated
    /// claims count as a wait, as with [`probe`](Self::probe).
    pub fn claim(&self, from: Option<PeerId>, tag: u64, ignore: u64) -> Option<(Claimed, Probed)> {
        self.reactor.borrow_mut().claim(from, tag, ignore)
    }

    /// Returns true if a signal has stopped the process of a peer, as far as its link or its agent
    /// can see. Links check the process while an answer of the peer is due and it is silent.
    pub fn is_stopped(&self, peer: PeerId) -> bool {
        self.reactor.engine().peer(peer).is_stopped()
    }

    /// Returns the operations that the program waits for now, with their peers, for people: such as
    /// "for a message with tag 0x1 from rank 1 ...". `None` if there is none.
    pub fn awaited(&self) -> Option<String> {
        self.reactor.borrow().awaited()
    }

    /// Records that the program computes, not waits, while the caller makes progress in its place.
    pub fn program_computes(&self) {
        self.reactor.borrow_mut().waits.computes = true;
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
        let reactor = &mut *self.reactor.borrow_mut();
        let args = SendArgs { data: imm, sync, ..SendArgs::new(to, tag, data.len() as u64) };
        if reactor.send_now(&args, &data) {
            let status = Status { source: Some(to), tag, len: data.len(), ..Status::default() };
            return self.ended(Ok(status), data);
        }
        // If many packets wait already, a copy would gain nothing over the memory itself.
        let inject = !sync
            && data.len() <= reactor.receiver.engine.peer(to).inject_max()
            && reactor.receiver.engine.peer(to).queued() * data.len() < COPIED_MAX;
        let args = SendArgs { addr: data.as_ptr() as u64, inject, ..args };
        if !inject {
            let now = reactor.receiver.tick();
            let started = reactor.receiver.engine.send(now, args);
            return self.started(reactor, started, Memory::Owned(data));
        }
        let status = Status { source: Some(to), tag, len: data.len(), ..Status::default() };
        self.ended(reactor.inject(args, &data).map(|()| status).map_err(error_of), data)
    }

    fn started(
        &self,
        reactor: &mut Reactor,
        started: Result<weft_core::OpId, Refused>,
        memory: Memory,
    ) -> Operation {
        match started {
            Ok(op) => {
                let ticket = reactor.receiver.ops.insert(op, Owner::Waiter, memory);
                reactor.flush();
                Operation { reactor: self.reactor.clone(), state: State::Running(ticket) }
            }
            Err(refused) => self.ended(Err(error_of(refused)), memory.into_vec()),
        }
    }

    fn ended(&self, result: Result<Status, OpError>, buffer: Vec<u8>) -> Operation {
        Operation { reactor: self.reactor.clone(), state: State::Ended(result, buffer) }
    }

    /// Receives a message of at most the length of `buffer`. `from: None` accepts any source, also
    /// peers that connect later: only such a wait has no bound (`Group::recv_any` has one, since it
    /// knows the possible senders). Bits set in `ignore` are not compared. The status has the
    /// length; a longer message is an error and leaves its first part in the buffer.
    pub fn recv(&self, from: Option<PeerId>, tag: u64, ignore: u64, buffer: Vec<u8>) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
        let memory = Memory::Owned(buffer);
        let now = reactor.receiver.tick();
        let started = reactor.receiver.engine.matching_mut().recv(
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
        self.started(reactor, started, memory)
    }

    /// Receives a claimed message.
    pub fn recv_claimed(&self, claimed: Claimed, buffer: Vec<u8>) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
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
        let now = reactor.receiver.tick();
        let started = reactor.receiver.engine.matching_mut().recv_claimed(now, claimed, args);
        self.started(reactor, started, memory)
    }

    /// Notices the peer's silence, as [`expect`](Self::expect), until the returned value is
    /// dropped. `None` if the peer has failed.
    pub fn watch(&self, peer: PeerId) -> Option<PeerWatch<'_>> {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let watched = reactor.receiver.engine.peer_mut(peer).watch(now);
        reactor.flush();
        watched.then(|| PeerWatch { endpoint: self, peer })
    }

    /// Opens the session with a peer before the first message, so that a dead peer is noticed.
    pub fn open(&self, peer: PeerId) {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        reactor.receiver.engine.peer_mut(peer).open(now);
        reactor.flush();
    }

    /// Returns the number of messages, requests and active messages for a peer that have not left.
    pub fn queued(&self, peer: PeerId) -> usize {
        self.reactor.engine().peer(peer).queued()
    }

    /// Records that an answer of the peer is awaited without an operation: until `unexpect` its
    /// silence is noticed. False if the peer has failed; then no `unexpect` follows.
    pub fn expect(&self, peer: PeerId) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.time.clock.now();
        reactor.receiver.engine.peer_mut(peer).watch(now)
    }

    /// Ends one `expect` that was true.
    pub fn unexpect(&self, peer: PeerId) {
        self.reactor.engine_mut().peer_mut(peer).unwatch();
    }

    /// Writes `data` to the peer's region at `offset`. Completes when it is there.
    pub fn put(&self, to: PeerId, key: u64, offset: u64, data: Vec<u8>) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let started =
            reactor.receiver.engine.memory().put(now, to, key, offset, data.len() as u64, 0);
        self.started(reactor, started, Memory::Owned(data))
    }

    /// Fills `buffer` from the peer's region at `offset`.
    pub fn get(&self, from: PeerId, key: u64, offset: u64, buffer: Vec<u8>) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let started =
            reactor.receiver.engine.memory().get(now, from, key, offset, buffer.len() as u64, 0);
        self.started(reactor, started, Memory::Owned(buffer))
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
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let operands = (operand, compare);
        let started =
            reactor.receiver.engine.memory().atomic(now, at, key, offset, code, operands, 0);
        self.started(reactor, started, Memory::None)
    }

    /// Resolves after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep { reactor: self.reactor.clone(), at: self.now() + duration, sleeper: None }
    }

    /// Resolves after one round of progress: call it between pieces of computing.
    pub fn yield_now(&self) -> Yield {
        Yield::default()
    }
}

//! The endpoint: the local communication object of programs.

mod active;
mod choose;
mod closing;
mod counted;
mod future;
mod moving;
mod of_port;
mod peer;
mod queue;
mod served;
mod sized;
#[allow(unsafe_code)]
pub(crate) mod sys;
mod waiting;

pub use crate::reactor::regions::{Denied, Regions};
pub use crate::reactor::{choice, wake, Awaits, Choice, Status};
pub use active::{Active, ActiveMessage};
pub use choose::ChoiceError;
pub use counted::Counters;
pub use future::PeerWatch;
pub use future::{Operation, Sleep, Yield};
pub use moving::Moving;
pub use peer::Peer;
pub use queue::{Completed, CompletionQueue};
pub use served::HostAgent;
pub use sys::expect::Expected;
pub use sys::posted::Posted;
pub use sys::registration::Registration;
pub use waiting::Waiting;

use crate::calibration::Calibration;
use crate::clock::Clock;
use crate::port::{Client, NumberTaken, Port, ACTIVE};
use crate::reactor::ops::Owner;
use crate::reactor::sys::Memory;
use crate::reactor::{error_of, Handle, Reactor, COPIED_MAX};
use active::Handlers;
use future::State;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use weft_core::engine::types::{AtomicCode, Claimed, Probed, RecvArgs, Refused, SendArgs};
use weft_core::matching::RecvSpec;
use weft_core::{Config, EndpointId, Engine, Instant, LinkCaps, OpError, OpId, PeerId, Stats};
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
/// Calls that concern a part of it are methods of that part: [`peer`](Self::peer) (one peer),
/// [`regions`](Self::regions) (memory that peers use), [`active`](Self::active) (active messages),
/// [`posted`](Self::posted) (operations on memory at an address), [`waiting`](Self::waiting) (waits
/// of the caller's own), [`counters`](Self::counters) and [`agent`](Self::agent).
///
/// ```no_run
/// use weft::{AtomicCode, Job, Rights};
///
/// let job = Job::init()?;
/// let (world, endpoint) = (job.world(), job.endpoint());
/// // Memory that others may read and write; its key goes to them by message.
/// let key = endpoint.regions().register(4096, Rights::ALL).ok_or("no more keys")?;
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
/// let add = move |n: u32| at_handler.set(at_handler.get() + n);
/// endpoint.active().handle(1, move |_, message| add(message.argument));
/// endpoint.active().send(peer, 1, 42, b"")?;
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

    /// Returns the identity of this endpoint.
    pub fn id(&self) -> EndpointId {
        self.reactor.engine().id()
    }

    /// Returns the configuration of this endpoint.
    pub fn config(&self) -> Config {
        self.reactor.engine().config().clone()
    }

    /// Returns the capabilities of the links as these estimate them, best first.
    pub fn link_caps(&self) -> Vec<LinkCaps> {
        self.reactor.borrow().receiver.arriving.caps.clone()
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

    /// Returns the time now, by the endpoint's clock.
    pub fn now(&self) -> Instant {
        self.reactor.now()
    }

    /// Returns the engine's statistics.
    pub fn stats(&self) -> Stats {
        *self.reactor.engine().stats()
    }

    /// Gives it the ends of the ranks of its job.
    pub(crate) fn told_of(&self, ends: Option<Ends>) {
        self.reactor.borrow_mut().known.ends = ends;
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

    /// Does all work that is possible now, without waiting. True if anything happened.
    pub fn progress(&self) -> bool {
        self.reactor.progress()
    }

    /// Waits until `progress` did something or `timeout` has passed: spins briefly, then sleeps.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.reactor.wait(timeout)
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

    /// Asserts the invariants of the engine: see [`Engine::check`](weft_core::Engine::check).
    pub fn check(&self) {
        self.reactor.engine().check();
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
    pub(crate) fn send_with(
        &self,
        to: PeerId,
        tag: u64,
        data: Vec<u8>,
        imm: Option<u32>,
        sync: bool,
    ) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
        let args = SendArgs {
            data: imm.map(u64::from),
            sync,
            ..SendArgs::new(to, tag, data.len() as u64)
        };
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
        started: Result<OpId, Refused>,
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

    /// Starts an operation; `start` gets its memory.
    fn start(
        &self,
        memory: Memory,
        start: impl FnOnce(&mut Engine, Instant, &Memory) -> Result<OpId, Refused>,
    ) -> Operation {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let started = start(&mut reactor.receiver.engine, now, &memory);
        self.started(reactor, started, memory)
    }

    fn ended(&self, result: Result<Status, OpError>, buffer: Vec<u8>) -> Operation {
        Operation { reactor: self.reactor.clone(), state: State::Ended(result, buffer) }
    }

    /// Receives a message of at most the length of `buffer`. `from: None` accepts any source, also
    /// peers that connect later: only such a wait has no bound (`Group::recv_any` has one, since it
    /// knows the possible senders). Bits set in `ignore` are not compared. The status has the
    /// length; a longer message is an error and leaves its first part in the buffer.
    pub fn recv(&self, from: Option<PeerId>, tag: u64, ignore: u64, buffer: Vec<u8>) -> Operation {
        let spec = RecvSpec { source: from, tag, ignore };
        self.start(Memory::Owned(buffer), |engine, now, memory| {
            engine.matching_mut().recv(now, recv_args(spec, memory))
        })
    }

    /// Receives a claimed message.
    pub(crate) fn recv_claimed(&self, claimed: Claimed, buffer: Vec<u8>) -> Operation {
        let spec = RecvSpec { source: None, tag: 0, ignore: 0 };
        self.start(Memory::Owned(buffer), |engine, now, memory| {
            engine.matching_mut().recv_claimed(now, claimed, recv_args(spec, memory))
        })
    }

    /// Writes `data` to the peer's region at `offset`. Completes when it is there.
    pub fn put(&self, to: PeerId, key: u64, offset: u64, data: Vec<u8>) -> Operation {
        let len = data.len() as u64;
        self.start(Memory::Owned(data), |engine, now, _| {
            engine.memory().put(now, to, key, offset, len, 0)
        })
    }

    /// Fills `buffer` from the peer's region at `offset`.
    pub fn get(&self, from: PeerId, key: u64, offset: u64, buffer: Vec<u8>) -> Operation {
        let len = buffer.len() as u64;
        self.start(Memory::Owned(buffer), |engine, now, _| {
            engine.memory().get(now, from, key, offset, len, 0)
        })
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
        self.start(Memory::None, |engine, now, _| {
            engine.memory().atomic(now, at, key, offset, code, (operand, compare), 0)
        })
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

/// Returns the arguments of a receive into this memory.
#[inline]
pub(crate) fn recv_args(spec: RecvSpec, memory: &Memory) -> RecvArgs {
    RecvArgs {
        source: spec.source,
        tag: spec.tag,
        ignore: spec.ignore,
        len: memory.len() as u64,
        addr: memory.addr(),
        context: 0,
        untagged: false,
    }
}

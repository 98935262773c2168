//! The locked form of an endpoint, for many threads.

mod job;
#[allow(unsafe_code)]
mod sys;
mod watchdog;

pub use job::SharedJob;

use crate::choices::Receipt;
use crate::endpoint::sys::borrowed::{Blocking, Ended};
use crate::endpoint::{ActiveMessage, ConnectError, Endpoint, Status};
use crate::job::{open_locked, JobError, Links};
use crate::reactor::ops::Ticket;
use crate::reactor::waits::next_line;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::SoleEndpoint;
use weft_core::engine::types::{AtomicCode, Probed};
use weft_core::engine::Rights;
use weft_core::matching::RecvSpec;
use weft_core::{Config, OpError, PeerId, Stats};
use weft_link::copied::Origin;
use weft_link::Address;

struct State {
    origin: Origin,
    endpoint: SoleEndpoint,
    /// True while a thread, the leader, makes progress for all; the others sleep until it has.
    leader: bool,
    /// True while the leader sleeps, without the lock.
    asleep: bool,
    /// Number of calls of the program.
    calls: u64,
}

/// A handle of one receive at a time, which another thread can cancel: see
/// [`SharedEndpoint::recv_or_cancel`].
#[derive(Debug, Default)]
pub struct Cancel {
    wish: Mutex<CancelState>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum CancelState {
    #[default]
    Nothing,
    /// A receive that can be cancelled.
    Running(Ticket),
    /// The next receive must not begin.
    Asked,
}

impl Cancel {
    /// Locks the state briefly, with or without the endpoint's lock held.
    fn lock(&self) -> MutexGuard<'_, CancelState> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When dropped, also by a panic, the handle has no receive any more.
struct CancelGuard<'a>(&'a Cancel);

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = CancelState::Nothing;
    }
}

/// A thread's wait for one operation, while other threads may make progress.
#[derive(Default)]
struct WaitLog {
    /// Start of the wait, and the time after which a line about it is logged.
    began: Option<(Instant, Duration)>,
}

impl WaitLog {
    /// Logs a due line about the wait, and returns the time until the next one.
    fn log_if_due(&mut self, endpoint: &Endpoint, ticket: Ticket) -> Duration {
        const FOREVER: Duration = Duration::from_secs(3600);
        let first = endpoint.reactor.borrow().first_line();
        let next = |waited| next_line(waited, first).unwrap_or(FOREVER);
        let (began, due) = self.began.get_or_insert_with(|| (Instant::now(), next(Duration::ZERO)));
        let waited = began.elapsed();
        if waited >= *due {
            endpoint.reactor.borrow().log_wait_of(ticket.op, waited);
            *due = next(waited);
        }
        due.saturating_sub(waited)
    }
}

/// An endpoint of many threads, as its handlers get it. It gives no handle of the endpoint away,
/// since that could be used without the lock.
pub struct Inside<'a>(&'a Endpoint);

impl Inside<'_> {
    /// Sends an active message, as [`Active::send`](crate::endpoint::Active::send).
    ///
    /// # Errors
    /// Returns the errors of [`Active::send`](crate::endpoint::Active::send).
    pub fn send_active(
        &self,
        to: PeerId,
        handler: u32,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        self.0.active().send(to, handler, argument, data)
    }
}

struct Shared {
    state: Mutex<State>,
    progressed: Condvar,
}

/// An endpoint that many threads use at once by blocking calls. A call holds one lock while it
/// works and none while it waits. One of the waiting threads makes progress for all.
///
/// ```no_run
/// use weft::{job::Links, Config, SharedEndpoint};
///
/// // Endpoints with the same key may talk to each other; the address goes to the other process.
/// let endpoint = SharedEndpoint::open(Config::default(), Links::AUTO, [7; 32])?;
/// let peer = endpoint.connect(&endpoint.address())?; // here it is its own peer
/// std::thread::scope(|scope| {
///     for tag in 0..4u64 {
///         let endpoint = endpoint.clone();
///         scope.spawn(move || endpoint.send(peer, tag, b"from a thread"));
///     }
///     for tag in 0..4 {
///         let mut buffer = [0; 64];
///         endpoint.recv(Some(peer), tag, 0, &mut buffer)?;
///     }
///     Ok::<(), weft::OpError>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedEndpoint {
    shared: Arc<Shared>,
}

/// Makes this thread the leader until this is dropped, also when a handler panics.
struct Leading<'a>(&'a Shared);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.lock().leader = false;
        self.0.progressed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a handler leaves the endpoint itself intact.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocking for SharedEndpoint {
    fn reach<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R {
        self.with(f)
    }

    fn wait_op(&self, ticket: Ticket) -> Ended {
        let mut state = self.lock();
        state.calls += 1;
        let mut patience = WaitLog::default();
        loop {
            if let Some(ended) = state.endpoint.get().collect(ticket) {
                if patience.began.is_none() {
                    state.endpoint.get().waiting().attend();
                }
                return ended;
            }
            if !state.origin.is_here() {
                // The leader thread does not exist in this forked copy of the process.
                (state.origin, state.leader, state.asleep) = (Origin::here(), false, false);
            }
            let left = patience.log_if_due(state.endpoint.get(), ticket);
            if state.leader {
                if state.asleep {
                    // An operation begun here may need a retransmission before the leader would
                    // wake.
                    state.endpoint.get().waiting().rearm(false);
                }
                let waited = self.shared.progressed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.leader = true;
            let leading = Leading(&self.shared);
            state = self.lead(state);
            state.leader = false;
            self.shared.progressed.notify_all();
            std::mem::forget(leading);
        }
    }
}

impl SharedEndpoint {
    /// Opens an endpoint over the given links with the job's key.
    ///
    /// # Errors
    /// Returns the errors of [`open_endpoint`](crate::job::open_endpoint), but allows a watchdog.
    pub fn open(config: Config, links: Links, key: [u8; 32]) -> Result<SharedEndpoint, JobError> {
        Ok(SharedEndpoint::of(open_locked(config, links, key, Vec::new())?))
    }

    /// Locks an endpoint that was just opened.
    fn of(endpoint: Endpoint) -> SharedEndpoint {
        let (watchdog, period) = {
            let reactor = endpoint.reactor.borrow();
            let config = reactor.receiver.engine.config();
            (config.receipt == Receipt::Watchdog, u64::from(config.watchdog_us.max(1)))
        };
        endpoint.reactor.borrow_mut().waits.apart = true;
        let endpoint = SoleEndpoint::new(endpoint);
        let state = Mutex::new(State {
            origin: Origin::here(),
            endpoint,
            leader: false,
            asleep: false,
            calls: 0,
        });
        let shared = Arc::new(Shared { state, progressed: Condvar::new() });
        if watchdog {
            watchdog::start(&shared, Duration::from_micros(period));
        }
        SharedEndpoint { shared }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    fn with<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R {
        let mut state = self.lock();
        state.calls += 1;
        f(state.endpoint.get())
    }

    /// Returns the address by which peers reach this endpoint.
    pub fn address(&self) -> Address {
        self.with(Endpoint::address)
    }

    /// Makes a peer of an address. Sends nothing yet.
    ///
    /// # Errors
    /// No link reaches it.
    pub fn connect(&self, address: &Address) -> Result<PeerId, ConnectError> {
        self.with(|e| e.connect(address))
    }

    /// Returns the engine's statistics.
    pub fn stats(&self) -> Stats {
        self.with(Endpoint::stats)
    }

    /// Registers a handler of active messages. It runs in the thread that makes progress, which may
    /// be any thread.
    pub fn handle(
        &self,
        number: u32,
        mut handler: impl FnMut(&Inside<'_>, ActiveMessage) + Send + 'static,
    ) {
        self.with(|e| e.active().handle(number, move |e, message| handler(&Inside(e), message)));
    }

    /// Sends an active message of at most 64 KiB.
    ///
    /// # Errors
    /// The peer failed, or too much is queued.
    pub fn send_active(
        &self,
        to: PeerId,
        handler: u32,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        self.with(|e| e.active().send(to, handler, argument, data))
    }

    /// Sends a message and returns when the buffer is free.
    ///
    /// # Errors
    /// The peer failed.
    pub fn send(&self, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
        self.send_from(to, tag, data)
    }

    /// Receives a message into `buffer` and returns when it is there. `from: None` accepts any
    /// source, also peers that connect later. Only such a wait has no bound, but
    /// [`cancel`](Self::cancel) ends that of a [`recv_or_cancel`](Self::recv_or_cancel).
    ///
    /// # Errors
    /// The peer failed, or the message was longer than the buffer.
    pub fn recv(
        &self,
        from: Option<PeerId>,
        tag: u64,
        ignore: u64,
        buffer: &mut [u8],
    ) -> Result<Status, OpError> {
        self.recv_into(RecvSpec { source: from, tag, ignore }, buffer, |_| Ok(()))
    }

    /// Receives a message as [`recv`](Self::recv) does, until another thread calls
    /// [`cancel`](Self::cancel).
    ///
    /// # Errors
    /// `Cancelled`; as `recv`.
    pub fn recv_or_cancel(
        &self,
        from: Option<PeerId>,
        tag: u64,
        ignore: u64,
        buffer: &mut [u8],
        cancel: &Cancel,
    ) -> Result<Status, OpError> {
        let _named = CancelGuard(cancel);
        self.recv_into(RecvSpec { source: from, tag, ignore }, buffer, |op| {
            let mut wish = cancel.lock();
            if *wish == CancelState::Asked {
                return Err(OpError::Cancelled);
            }
            *wish = op.map_or(CancelState::Nothing, CancelState::Running);
            Ok(())
        })
    }

    /// Ends the receive that has `cancel`, or the next one that will have it. False if its message
    /// came before.
    pub fn cancel(&self, cancel: &Cancel) -> bool {
        let mut state = self.lock();
        state.calls += 1;
        let endpoint = state.endpoint.get();
        let mut wish = cancel.lock();
        let cancelled = match *wish {
            CancelState::Running(ticket) => endpoint.posted().cancel_awaited(ticket),
            CancelState::Nothing | CancelState::Asked => {
                *wish = CancelState::Asked;
                return true;
            }
        };
        if state.asleep {
            endpoint.waiting().rearm(true);
        }
        self.shared.progressed.notify_all();
        cancelled
    }

    /// Looks for a message, without receiving it, among the arrived messages; call
    /// [`poll`](Self::poll) to handle new packets. Another thread may receive the message first.
    pub fn probe(&self, from: Option<PeerId>, tag: u64, ignore: u64) -> Option<Probed> {
        self.with(|e| e.probe(from, tag, ignore))
    }

    /// Registers `len` bytes of new memory, zeroed, for remote use; returns its key.
    pub fn register(&self, len: usize, rights: Rights) -> Option<u64> {
        self.with(|e| e.regions().register(len, rights))
    }

    /// Ends remote use of a region and returns its memory.
    pub fn unregister(&self, key: u64) -> Vec<u8> {
        self.with(|e| e.regions().unregister(key))
    }

    /// Reads or writes a registered region of this endpoint, under the lock.
    pub fn with_region<R>(&self, key: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        self.with(|e| e.regions().with(key, f))
    }

    /// Writes `data` to the peer's region at `offset`; returns when it is there.
    ///
    /// # Errors
    /// The peer failed, or refused since key, bounds or rights are wrong.
    pub fn put(&self, to: PeerId, key: u64, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.put_from(to, (key, offset), data)
    }

    /// Fills `buffer` from the peer's region at `offset`.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub fn get(
        &self,
        from: PeerId,
        key: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), OpError> {
        self.get_into(from, (key, offset), buffer)
    }

    /// Does an atomic operation on the 8 bytes at `offset` of the peer's region; returns the old
    /// value. Only compare-and-swap uses `compare`.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub fn atomic(
        &self,
        at: PeerId,
        (key, offset): (u64, u64),
        code: AtomicCode,
        operand: u64,
        compare: u64,
    ) -> Result<u64, OpError> {
        self.atomic_at(at, (key, offset), code, (operand, compare))
    }

    /// Returns the whole text of an error, as [`Endpoint::explain`].
    pub fn explain(&self, error: OpError) -> String {
        self.with(|e| e.explain(error))
    }

    /// Makes one round of progress for all; sleeps without the lock if there is nothing to do.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let endpoint = state.endpoint.get();
        if endpoint.wait(Some(Duration::from_micros(2))) || !endpoint.waiting().prepare() {
            return state;
        }
        let Some(fd) = endpoint.waiting().fd().map(|fd| fd.as_raw_fd()) else { return state };
        state.asleep = true;
        drop(state);
        crate::reactor::sleep_on(fd);
        let mut state = self.lock();
        state.asleep = false;
        state.endpoint.get().waiting().finish();
        state
    }

    /// Handles arrived packets. True if anything happened.
    pub fn poll(&self) -> bool {
        self.with(Endpoint::progress)
    }

    /// Sends queued packets (for at most `timeout`) and tells the peers that this endpoint ends.
    /// True if all packets were acknowledged.
    pub fn close(&self, timeout: Duration) -> bool {
        self.with(|e| e.close(timeout))
    }
}

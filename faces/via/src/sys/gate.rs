//! The network interfaces of this process, and the lock of each.
//!
//! An interface is in a slot that lives for ever, so that a handle of one that was closed is found
//! out, also by a thread that waits for the lock meanwhile. Every call takes the lock of its
//! interface, and gives it back while it sleeps and while it calls the program.
//!
//! A signal handler may call a function while its thread is inside another one. It would wait for
//! its own thread, so such a call is refused.

use super::bell::Bell;
use super::service;
use crate::address::NetAddress;
use crate::code::{Answer, Code};
use crate::handle::{self, Kind};
use crate::meet::{self, Post};
use crate::state::{Hub, State};
use crate::table::{next_generation, Key, GENERATION_BITS};
use std::cell::{Cell, RefMut};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use weft::port::Port;
use weft::Endpoint;
use weft_link::secure::JobKey;

/// Most interfaces that a process has open.
pub const NICS_MAX: usize = 64;

/// The thread that makes progress while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// None: calls of the program do.
    Nobody,
    /// The thread that serves the interface, asleep.
    Service,
    /// A thread of the program that waits in a call.
    Program {
        /// True while it sleeps.
        asleep: bool,
    },
}

/// Descriptors that wake threads.
pub struct Bells {
    /// Wakes the thread that serves the interface.
    pub service: Bell,
    /// Wakes the thread of the program that leads.
    pub leader: Bell,
}

/// Handler of asynchronous errors and its context.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnError {
    /// Address of the handler; 0 is the default one.
    pub handler: usize,
    /// The program's context.
    pub context: usize,
}

/// An open interface.
pub struct Open {
    /// Its state.
    pub hub: Rc<Hub>,
    /// Its port.
    pub port: Port,
    /// Its name, as the program has opened it.
    pub name: String,
    /// The job's key.
    pub key: JobKey,
    /// Its address, at which a program finds it as long as the interface is open.
    pub address: Box<[u8; 4]>,
    /// The handler of errors.
    pub on_error: OnError,
    /// Addresses at which it waits, with the number of calls that do.
    posts: Vec<(NetAddress, u32, Post)>,
    /// Addresses of requests that are to meet others, by virtual interface.
    peers: HashMap<Key, NetAddress>,
    generation: u32,
    pub(super) bells: Arc<Bells>,
    pub(super) leader: Leader,
    /// Threads that wait for the leader's progress.
    pub(super) followers: u32,
    /// Number of changes of the state of which threads that wait were told.
    told: u64,
    /// Number of calls of the program, and of rounds of progress in them.
    pub(super) calls: u64,
    pub(super) rounds: u64,
    /// True while the thread that serves the interface sleeps until a leader of the program ends.
    pub(super) stands_by: bool,
}

// SAFETY: an endpoint and its references are used only under the lock of their slot: no clone of
// them leaves the functions of this crate that hold it. Links that `job::open_endpoint` opens are
// not bound to a thread (see `weft::SharedEndpoint`, which relies on the same).
unsafe impl Send for Open {}

impl Open {
    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    /// Calls `f` with the state and the port.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut State, &Port) -> R) -> R {
        f(&mut self.state(), &self.port)
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> RefMut<'_, State> {
        self.hub.state.borrow_mut()
    }

    /// Ends the sleep of the thread that serves the interface: the caller makes progress.
    #[inline]
    pub(super) fn relieve(&mut self) {
        if self.leader == Leader::Service {
            self.leader = Leader::Nobody;
            self.endpoint().finish_wait();
            self.bells.service.ring();
        }
    }

    /// Wakes the thread that serves the interface.
    pub fn call_thread(&self) {
        self.bells.service.ring();
    }

    /// Makes one round of progress. True if anything happened.
    #[inline]
    pub(super) fn round(&self) -> bool {
        let did = self.endpoint().progress();
        self.reap();
        did
    }

    /// Handles operations that have ended, and sends that waited for room.
    #[inline]
    pub(super) fn reap(&self) {
        self.hub.reap(&self.port);
        let mut state = self.state();
        if state.is_blocked() {
            state.retry(&self.port);
        }
    }
}

impl Open {
    /// Lets processes find the interface at an address.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: another process waits there, or the system refuses.
    pub fn stay(&mut self, at: &NetAddress) -> Answer {
        if let Some((_, users, _)) = self.posts.iter_mut().find(|(of, ..)| of == at) {
            *users += 1;
            return Ok(());
        }
        let post = meet::post(&self.key, at, &self.endpoint().address()).map_err(|why| {
            match why.kind() {
                ErrorKind::AddrInUse => log::debug!("{at:?}: another process waits there"),
                _ => log::warn!("waiting at an address of virtual interfaces: {why}"),
            }
            Code::ErrorResource
        })?;
        self.posts.push((at.clone(), 1, post));
        Ok(())
    }

    /// Ends one `stay`.
    pub fn go(&mut self, at: &NetAddress) {
        self.posts.iter_mut().filter(|(of, ..)| of == at).for_each(|(_, users, _)| *users -= 1);
        self.posts.retain(|(_, users, _)| *users > 0);
    }

    /// As [`stay`](Open::stay), for a request that is to meet another. Where the other side waits
    /// at the same address, it is found there.
    pub fn stay_for(&mut self, vi: Key, at: &NetAddress) {
        if self.stay(at).is_ok() {
            self.peers.insert(vi, at.clone());
        }
    }

    /// Ends `stay_for`.
    pub fn go_for(&mut self, vi: Key) {
        if let Some(at) = self.peers.remove(&vi) {
            self.go(&at);
        }
    }
}

/// The place of an interface.
pub struct Slot {
    lock: Mutex<Option<Open>>,
    pub(super) changed: Condvar,
    generation: Mutex<u32>,
}

impl Slot {
    const fn new() -> Slot {
        Slot { lock: Mutex::new(None), changed: Condvar::new(), generation: Mutex::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // A panic was caught at the interface; what it left is whole, or fails by itself.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static SLOTS: [Slot; NICS_MAX] = [const { Slot::new() }; NICS_MAX];

thread_local! {
    /// True while this thread is inside a function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True in a child made by `fork` of a process that has used an interface.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Says farewell to the other sides, whose programs learn so that this process has ended.
extern "C" fn at_exit() {
    if FORKED.load(Ordering::Relaxed) {
        return;
    }
    for slot in &SLOTS {
        // A thread that still waits has the lock only for moments.
        for _ in 0..1000 {
            let Ok(mut open) = slot.lock.try_lock() else {
                std::thread::yield_now();
                continue;
            };
            if let Some(open) = open.take() {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(&open, BYE)));
                // Its threads may use it until the very end.
                std::mem::forget(open);
            }
            break;
        }
    }
}

/// Time for the last messages when a process ends, and when an interface closes.
const BYE: Duration = Duration::from_millis(500);
const CLOSE: Duration = Duration::from_secs(5);

fn end(open: &Open, time: Duration) {
    open.state().close(&open.port);
    open.endpoint().close(time);
}

/// Notes forks and the end of the process from now on.
fn watch_process() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are those of a library that stays mapped.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_exit);
    });
}

/// The mark of a thread that is inside.
struct Mark;

impl Mark {
    #[inline]
    fn set() -> Answer<Mark> {
        if FORKED.load(Ordering::Relaxed) || INSIDE.replace(true) {
            return Err(Code::ErrorResource);
        }
        Ok(Mark)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// An interface, locked.
pub struct Inside {
    slot: &'static Slot,
    generation: u32,
    /// Always there, but for the time of a sleep.
    pub(super) guard: Option<MutexGuard<'static, Option<Open>>>,
    /// True if this is the thread that serves the interface.
    pub(super) is_service: bool,
    _mark: Mark,
}

impl Inside {
    fn new(slot: &'static Slot, mark: Mark) -> Inside {
        Inside { slot, generation: 0, guard: Some(slot.lock()), is_service: false, _mark: mark }
    }

    /// Returns the open interface. `None` if it was closed meanwhile.
    #[inline]
    pub(super) fn find(&mut self) -> Option<&mut Open> {
        let generation = self.generation;
        self.guard.as_mut()?.as_mut().filter(|open| open.generation == generation)
    }

    /// Returns the open interface.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it was closed meanwhile.
    #[inline]
    pub fn open(&mut self) -> Answer<&mut Open> {
        self.find().ok_or(Code::InvalidParameter)
    }

    /// Returns the slot.
    pub(super) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Gives the lock back.
    pub fn unlock(&mut self) {
        self.tell();
        self.guard = None;
    }

    /// Gives the lock back for the sleep of this thread, which leads from now on.
    pub(super) fn unlock_to_sleep(&mut self) {
        self.tell();
        self.find().into_iter().for_each(|open| open.leader = Leader::Program { asleep: true });
        self.guard = None;
    }

    /// Takes the lock again. False if the interface was closed meanwhile.
    pub fn lock(&mut self) -> bool {
        self.guard = Some(self.slot.lock());
        self.find().is_some()
    }

    /// Waits for the leader's progress.
    pub(super) fn follow(&mut self, limit: Duration) -> bool {
        self.tell();
        if let Some(guard) = self.guard.take() {
            let waited = self.slot.changed.wait_timeout(guard, limit);
            self.guard = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
        }
        self.find().is_some()
    }

    /// Ends the sleep of a thread that leads, where the program calls meanwhile.
    #[inline]
    fn begin(&mut self) {
        let Some(open) = self.find() else { return };
        open.calls += 1;
        open.relieve();
    }
}

impl Inside {
    /// Tells other threads of changes, before the lock is given back.
    #[inline]
    fn tell(&mut self) {
        let (is_service, slot) = (self.is_service, self.slot);
        let Some(open) = self.find() else { return };
        let (changes, calls_due) = {
            let state = open.hub.state.borrow();
            (state.changes, !state.upcalls.is_empty())
        };
        let changed = std::mem::replace(&mut open.told, changes) != changes;
        if open.leader == (Leader::Program { asleep: true }) {
            // An operation that this call began may need the sleeper earlier.
            open.endpoint().finish_wait();
            if changed || !open.endpoint().prepare_wait() {
                open.bells.leader.ring();
            }
        }
        if changed && open.followers > 0 {
            slot.changed.notify_all();
        }
        if !is_service && calls_due {
            open.bells.service.ring();
        }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}

/// Enters the interface of an object; returns its key too.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: the handle is none of an open interface; `VIP_ERROR_RESOURCE`: this
/// thread is inside a function already, or the process is a child made by `fork`.
#[inline]
pub fn enter(kind: Kind, handle: u64) -> Answer<(Inside, Key)> {
    let (nic, key) = handle::unpack(kind, handle).ok_or(Code::InvalidParameter)?;
    let slot = SLOTS.get(usize::from(nic)).ok_or(Code::InvalidParameter)?;
    let mut inside = Inside::new(slot, Mark::set()?);
    let open = inside.guard.as_ref().and_then(|guard| guard.as_ref());
    inside.generation = open.map(|open| open.generation).ok_or(Code::InvalidParameter)?;
    if kind == Kind::Nic && inside.generation != key.generation {
        return Err(Code::InvalidParameter);
    }
    inside.begin();
    Ok((inside, key))
}

/// Enters an interface for the thread that serves it. `None` if it was closed.
pub(super) fn serve(slot: &'static Slot, generation: u32) -> Option<Inside> {
    let mut inside = Inside::new(slot, Mark::set().ok()?);
    (inside.generation, inside.is_service) = (generation, true);
    inside.find().is_some().then_some(inside)
}

/// The parts of an interface that is opened.
pub struct Parts {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The job's key.
    pub key: JobKey,
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: crate::names::Device,
}

/// Opens an interface; returns its handle.
///
/// # Errors
/// `VIP_ERROR_RESOURCE`: too many are open, or the system gives no descriptor or no thread.
pub fn open(make: impl FnOnce() -> Answer<Parts>) -> Answer<u64> {
    let mark = Mark::set()?;
    watch_process();
    let parts = make()?;
    let Parts { endpoint, key, name, device } = parts;
    for (slot, number) in SLOTS.iter().zip(0..) {
        let mut guard = slot.lock();
        if guard.is_some() {
            continue;
        }
        let generation = {
            let mut last = slot.generation.lock().unwrap_or_else(PoisonError::into_inner);
            *last = next_generation(*last);
            *last & ((1 << GENERATION_BITS) - 1)
        };
        let of = Key { index: 0, generation };
        let state = State::new(number, of, device.host, device.tagged);
        let handle = state.handle;
        let hub = Rc::new(Hub { state: state.into() });
        let made = endpoint.port(crate::wire::CLIENT, || hub);
        let (port, hub) = made.map_err(|_| Code::ErrorResource)?;
        let bell = || Bell::new().map_err(|_| Code::ErrorResource);
        let bells = Arc::new(Bells { service: bell()?, leader: bell()? });
        *guard = Some(Open {
            hub,
            port,
            name,
            key,
            address: Box::new(device.host.octets()),
            on_error: OnError::default(),
            posts: Vec::new(),
            peers: HashMap::new(),
            generation,
            bells: Arc::clone(&bells),
            leader: Leader::Nobody,
            followers: 0,
            told: 0,
            calls: 0,
            rounds: 0,
            stands_by: false,
        });
        if !service::start(slot, generation, bells) {
            *guard = None;
            return Err(Code::ErrorResource);
        }
        drop((guard, mark));
        return Ok(handle);
    }
    Err(Code::ErrorResource)
}

/// Closes an interface: connections are broken off, what was sent arrives, and all its objects are
/// gone.
///
/// # Errors
/// As of [`enter`].
pub fn close(handle: u64) -> Answer {
    let (mut inside, _) = enter(Kind::Nic, handle)?;
    let open = inside.guard.as_mut().and_then(|guard| guard.take());
    let open = open.ok_or(Code::InvalidParameter)?;
    end(&open, CLOSE);
    // Threads that wait find it closed.
    open.bells.service.ring();
    open.bells.leader.ring();
    inside.slot.changed.notify_all();
    drop(open);
    Ok(())
}

//! The open objects of this process, and the lock of each.
//!
//! An object is in a slot that lives for ever, so that a handle of one that was closed is found
//! out, also by a thread that waits for the lock meanwhile. Every call takes the lock of its
//! object, and gives it back while it sleeps and while it calls the program.
//!
//! A signal handler may call a function while its thread is inside another one. It would wait for
//! its own thread, so such a call is refused.

use crate::service;
use crate::sys::bell::Bell;
pub use crate::sys::face::Face;
use crate::sys::face::{at_exit, Owned};
use crate::table::{next_generation, GENERATION_BITS};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::Duration;
use weft_sys::forks::is_child;

/// Most objects of a face that a process has open.
pub const SEATS: usize = 64;

/// The thread that makes progress while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// None: calls of the program do.
    Nobody,
    /// The thread that serves the object, asleep.
    Service,
    /// A thread of the program that waits in a call.
    Program {
        /// True while it sleeps.
        asleep: bool,
    },
}

/// Descriptors that wake threads.
pub(crate) struct Bells {
    /// Wakes the thread that serves the object.
    pub service: Bell,
    /// Wakes the thread of the program that leads.
    pub leader: Bell,
}

/// An open object and its threads.
pub(crate) struct Seat<F> {
    pub face: Owned<F>,
    generation: u32,
    pub bells: Arc<Bells>,
    pub leader: Leader,
    /// Threads that wait for the leader's progress.
    pub followers: u32,
    /// Number of changes of the state of which threads that wait were told.
    told: u64,
    /// Number of calls of the program, and of rounds of progress in them.
    pub calls: u64,
    pub rounds: u64,
    /// True while the thread that serves the object sleeps until a leader of the program ends.
    pub stands_by: bool,
}

impl<F: Face> Seat<F> {
    /// Ends the sleep of the thread that serves the object: the caller makes progress.
    #[inline]
    pub fn relieve(&mut self) {
        if self.leader == Leader::Service {
            self.wake_service();
        }
    }

    #[cold]
    fn wake_service(&mut self) {
        self.leader = Leader::Nobody;
        self.face.endpoint().waiting().finish();
        self.bells.service.ring();
    }

    /// Makes one round of progress. True if anything happened.
    #[inline]
    pub fn round(&mut self) -> bool {
        let did = self.face.progress();
        self.face.reap();
        did
    }

    /// Announces that a thread is about to sleep. False if there is work.
    pub fn prepare_wait(&mut self) -> bool {
        let before = self.face.changes();
        self.face.before_sleep();
        self.face.changes() == before && self.face.endpoint().waiting().prepare()
    }

    fn end(&mut self, time: Duration) {
        self.face.end();
        self.face.endpoint().close(time);
    }
}

/// The place of an object.
pub struct Slot<F> {
    lock: Mutex<Option<Seat<F>>>,
    pub(crate) changed: Condvar,
    generation: Mutex<u32>,
}

impl<F> Slot<F> {
    const fn new() -> Slot<F> {
        Slot { lock: Mutex::new(None), changed: Condvar::new(), generation: Mutex::new(0) }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Option<Seat<F>>> {
        // A panic was caught at the interface; what it left is whole, or fails by itself.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of all objects of a face.
pub struct Place<F> {
    slots: [Slot<F>; SEATS],
    watched: Once,
}

impl<F> Place<F> {
    /// Makes them, empty.
    pub const fn new() -> Place<F> {
        Place { slots: [const { Slot::new() }; SEATS], watched: Once::new() }
    }
}

impl<F> Default for Place<F> {
    fn default() -> Place<F> {
        Place::new()
    }
}

thread_local! {
    /// True while this thread is inside a function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Says farewell to the other sides, whose programs learn so that this process has ended.
extern "C" fn say_farewell<F: Face>() {
    if is_child() {
        return;
    }
    for slot in &F::place().slots {
        // A thread that still waits has the lock only for moments.
        for _ in 0..1000 {
            let Ok(mut seat) = slot.lock.try_lock() else {
                std::thread::yield_now();
                continue;
            };
            if let Some(mut seat) = seat.take() {
                let end = std::panic::AssertUnwindSafe(|| seat.end(BYE));
                let _ = std::panic::catch_unwind(end);
                // Its threads may use it until the very end.
                std::mem::forget(seat);
            }
            break;
        }
    }
}

/// Time for the last messages when a process ends, and when an object closes.
const BYE: Duration = Duration::from_millis(500);
const CLOSE: Duration = Duration::from_secs(5);

/// Notes forks and the end of the process from now on.
fn watch_process<F: Face>() {
    weft_sys::forks::watch();
    F::place().watched.call_once(|| at_exit(say_farewell::<F>));
}

/// The mark of a thread that is inside.
struct Mark;

impl Mark {
    #[inline]
    fn set() -> Option<Mark> {
        if is_child() || INSIDE.replace(true) {
            return None;
        }
        Some(Mark)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// An object, locked.
pub struct Inside<F: Face> {
    slot: &'static Slot<F>,
    generation: u32,
    /// Always there, but for the time of a sleep.
    guard: Option<MutexGuard<'static, Option<Seat<F>>>>,
    /// True if this is the thread that serves the object.
    pub(crate) is_service: bool,
    mark: Option<Mark>,
}

impl<F: Face> Inside<F> {
    fn new(slot: &'static Slot<F>, mark: Mark) -> Inside<F> {
        let guard = Some(slot.lock());
        Inside { slot, generation: 0, guard, is_service: false, mark: Some(mark) }
    }

    /// Returns the open object. `None` if it was closed meanwhile.
    #[inline]
    pub(crate) fn find(&mut self) -> Option<&mut Seat<F>> {
        let generation = self.generation;
        self.guard.as_mut()?.as_mut().filter(|seat| seat.generation == generation)
    }

    /// Returns the open object.
    ///
    /// # Errors
    /// The object was closed meanwhile.
    #[inline]
    pub fn open(&mut self) -> Result<&mut F, F::Code> {
        self.seat().map(|seat| &mut *seat.face)
    }

    #[inline]
    pub(crate) fn seat(&mut self) -> Result<&mut Seat<F>, F::Code> {
        self.find().ok_or(F::CLOSED)
    }

    /// Returns the generation of the object.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Wakes the thread that serves the object.
    pub fn call_thread(&mut self) {
        self.find().into_iter().for_each(|seat| seat.bells.service.ring());
    }

    /// Returns the slot.
    pub(crate) fn slot(&self) -> &'static Slot<F> {
        self.slot
    }

    /// Gives the lock back.
    pub fn unlock(&mut self) {
        self.tell();
        self.guard = None;
    }

    /// Gives the lock back for the sleep of this thread, which leads from now on.
    pub(crate) fn unlock_to_sleep(&mut self) {
        self.tell();
        self.find().into_iter().for_each(|seat| seat.leader = Leader::Program { asleep: true });
        self.guard = None;
    }

    /// Takes the lock again. False if the object was closed meanwhile.
    pub fn lock(&mut self) -> bool {
        self.guard = Some(self.slot.lock());
        self.find().is_some()
    }

    /// Calls the program without the lock: it may call every function.
    ///
    /// # Errors
    /// The object was closed meanwhile.
    pub fn outside<R>(&mut self, call: impl FnOnce() -> R) -> Result<R, F::Code> {
        self.unlock();
        self.mark = None;
        let result = call();
        INSIDE.set(true);
        self.mark = Some(Mark);
        match self.lock() {
            true => Ok(result),
            false => Err(F::CLOSED),
        }
    }

    /// Waits for the leader's progress.
    pub(crate) fn follow(&mut self, limit: Duration) -> bool {
        self.tell();
        if let Some(guard) = self.guard.take() {
            let waited = self.slot.changed.wait_timeout(guard, limit);
            self.guard = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
        }
        self.find().is_some()
    }

    /// Tells other threads of changes, before the lock is given back.
    #[inline]
    fn tell(&mut self) {
        let (is_service, slot) = (self.is_service, self.slot);
        let Some(seat) = self.find() else { return };
        let (changes, call_due) = (seat.face.changes(), seat.face.is_call_due());
        let changed = std::mem::replace(&mut seat.told, changes) != changes;
        if seat.leader == Leader::Nobody && seat.followers == 0 && !call_due {
            return;
        }
        if seat.leader == (Leader::Program { asleep: true }) {
            // An operation that this call began may need the sleeper earlier.
            seat.face.endpoint().waiting().finish();
            if changed || !seat.prepare_wait() {
                seat.bells.leader.ring();
            }
        }
        if changed && seat.followers > 0 {
            slot.changed.notify_all();
        }
        if !is_service && call_due {
            seat.bells.service.ring();
        }
    }
}

impl<F: Face> Drop for Inside<F> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}

/// Enters an object by its number, whatever object is there.
///
/// # Errors
/// `CLOSED`: nothing is open there; `REFUSED`: this thread is inside a function already, or the
/// process is a child made by `fork`.
#[inline]
pub fn enter<F: Face>(number: u8) -> Result<Inside<F>, F::Code> {
    let slot = F::place().slots.get(usize::from(number)).ok_or(F::CLOSED)?;
    let mark = Mark::set().ok_or(F::REFUSED)?;
    let mut guard = slot.lock();
    let seat = guard.as_mut().ok_or(F::CLOSED)?;
    seat.calls += 1;
    // The call ends the sleep of a thread that leads.
    seat.relieve();
    let generation = seat.generation;
    Ok(Inside { slot, generation, guard: Some(guard), is_service: false, mark: Some(mark) })
}

/// Enters an object by its number, if it is the one of this generation.
///
/// # Errors
/// Returns the errors of [`enter`].
#[inline]
pub fn enter_same<F: Face>(number: u8, generation: u32) -> Result<Inside<F>, F::Code> {
    let inside = enter::<F>(number)?;
    match inside.generation == generation {
        true => Ok(inside),
        false => Err(F::CLOSED),
    }
}

/// Enters an object for the thread that serves it. `None` if it was closed.
pub(crate) fn serve<F: Face>(slot: &'static Slot<F>, generation: u32) -> Option<Inside<F>> {
    let mut inside = Inside::new(slot, Mark::set()?);
    (inside.generation, inside.is_service) = (generation, true);
    inside.find().is_some().then_some(inside)
}

/// Opens an object: `prepare` makes its parts without a lock, `make` the object from them, the
/// number of its slot and its generation, of 24 bits.
///
/// # Errors
/// Returns the errors of `prepare` and `make`; `REFUSED`: too many are open, or the system gives no
/// descriptor or no thread.
pub fn open<F: Face, P>(
    prepare: impl FnOnce() -> Result<P, F::Code>,
    make: impl FnOnce(P, u8, u32) -> Result<F, F::Code>,
) -> Result<(), F::Code> {
    let _mark = Mark::set().ok_or(F::REFUSED)?;
    watch_process::<F>();
    let parts = prepare()?;
    let (number, slot, mut guard) = free_slot::<F>().ok_or(F::REFUSED)?;
    let generation = {
        let mut last = slot.generation.lock().unwrap_or_else(PoisonError::into_inner);
        *last = next_generation(*last);
        *last & ((1 << GENERATION_BITS) - 1)
    };
    let bell = || Bell::new().map_err(|_| F::REFUSED);
    let bells = Arc::new(Bells { service: bell()?, leader: bell()? });
    let face = make(parts, number, generation)?;
    *guard = Some(Seat {
        face: Owned::new(face),
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
        return Err(F::REFUSED);
    }
    Ok(())
}

/// The number of a slot, the slot and its lock.
type Locked<F> = (u8, &'static Slot<F>, MutexGuard<'static, Option<Seat<F>>>);

/// Locks a slot that has no object. Locks that other threads have are waited for only if all other
/// slots have objects: a thread that closes an object has its lock for seconds, where its peers are
/// silent.
fn free_slot<F: Face>() -> Option<Locked<F>> {
    let slots = || (0..).zip(&F::place().slots);
    let is_free = |guard: &MutexGuard<'_, Option<Seat<F>>>| guard.is_none();
    let at_once = slots().find_map(|(number, slot)| {
        let guard = match slot.lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        is_free(&guard).then_some((number, slot, guard))
    });
    at_once.or_else(|| {
        let mut locked = slots().map(|(number, slot)| (number, slot, slot.lock()));
        locked.find(|(_, _, guard)| is_free(guard))
    })
}

/// Closes an object: connections are broken off, what was sent arrives, and all its parts are gone.
///
/// # Errors
/// `CLOSED`: it was closed meanwhile.
pub fn close<F: Face>(mut inside: Inside<F>) -> Result<(), F::Code> {
    let seat = inside.guard.as_mut().and_then(|guard| guard.take());
    let mut seat = seat.ok_or(F::CLOSED)?;
    seat.end(CLOSE);
    // Threads that wait find it closed.
    seat.bells.service.ring();
    seat.bells.leader.ring();
    inside.slot.changed.notify_all();
    drop(seat);
    Ok(())
}

/// Closes all objects of a face, or none if `may_close` refuses one of them. A child made by `fork`
/// has none.
///
/// # Errors
/// `REFUSED`: this thread is inside a function; those of `may_close`.
pub fn close_all<F: Face>(may_close: impl Fn(&F) -> Result<(), F::Code>) -> Result<(), F::Code> {
    each_open(|mut inside| inside.open().and_then(|face| may_close(face)))?;
    each_open(close::<F>)
}

/// Enters the open objects of a face, one after the other.
fn each_open<F: Face>(with: impl Fn(Inside<F>) -> Result<(), F::Code>) -> Result<(), F::Code> {
    for number in 0..SEATS as u8 {
        match enter::<F>(number) {
            Ok(inside) => with(inside)?,
            Err(_) if INSIDE.get() => return Err(F::REFUSED),
            Err(_) => {}
        }
    }
    Ok(())
}

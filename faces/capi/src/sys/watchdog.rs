//! The polling watchdog of a program in C (`WEFT_RECEIPT=watchdog`): a thread makes progress for a
//! job that has called nothing for `WEFT_WATCHDOG_US`. All functions take one gate while it runs,
//! and none otherwise. A function that waits keeps the gate, because it makes progress itself.

use super::job::WeftJob;
use super::{enter, Fault, WEFT_INIT, WEFT_OK};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;

/// True if a job of this process has a watchdog.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// The number of the program's calls so far. The holder may use objects of the interface.
static GATE: Mutex<u64> = Mutex::new(0);
/// The thread that holds the gate; 0 for none. Upcalls call functions again.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// True while the watchdog waits for the holder.
static AWAITED: AtomicBool = AtomicBool::new(false);
static SLEEPER: OnceLock<Mutex<Option<Thread>>> = OnceLock::new();

/// Longest sleep of the watchdog while a function waits.
const CHECK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    static WATCHES: Cell<bool> = const { Cell::new(false) };
    static ME: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns true if this thread is a watchdog, which runs upcalls.
pub(super) fn is_this_thread() -> bool {
    WATCHES.with(Cell::get)
}

/// Proof of holding the gate; empty if there is no watchdog, or an outer call holds it.
pub(super) struct Held(Option<MutexGuard<'static, u64>>);

impl Drop for Held {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        HOLDER.store(0, Ordering::Relaxed);
        drop(guard);
        // In one order with the watchdog, which sets the flag and then tries again.
        if AWAITED.load(Ordering::SeqCst) && AWAITED.swap(false, Ordering::SeqCst) {
            let sleeper = SLEEPER.get_or_init(Mutex::default).lock();
            sleeper.unwrap_or_else(PoisonError::into_inner).iter().for_each(Thread::unpark);
        }
    }
}

fn held(mut guard: MutexGuard<'static, u64>, call: u64) -> Held {
    HOLDER.store(ME.with(|me| *me), Ordering::Relaxed);
    *guard += call;
    Held(Some(guard))
}

/// Takes the gate for a call of the program, or of an upcall.
pub(super) fn hold() -> Held {
    match WATCHED.load(Ordering::Acquire) {
        true => take(),
        false => Held(None),
    }
}

fn take() -> Held {
    if HOLDER.load(Ordering::Relaxed) == ME.with(|me| *me) {
        return Held(None);
    }
    held(GATE.lock().unwrap_or_else(PoisonError::into_inner), 1)
}

/// Takes the gate for the watchdog; `None` if a call holds it.
fn try_take() -> Option<Held> {
    match GATE.try_lock() {
        Ok(guard) => Some(held(guard, 0)),
        Err(TryLockError::Poisoned(guard)) => Some(held(guard.into_inner(), 0)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A watchdog of a job. Once it is dropped in a call that holds the gate, its thread never uses the
/// job again.
pub(super) struct Watchdog {
    over: Arc<AtomicBool>,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        WATCHED.store(false, Ordering::Release);
    }
}

/// The job of a watchdog.
struct Charge(*const WeftJob);

// SAFETY: the thread uses the job only while it holds the gate and the job is not over; the job
// ends in a call that holds the gate, before it is freed. All other code that uses the job or
// counts references to parts of it is in functions of this interface, which take the gate too. No
// link that a job opens is bound to a thread.
unsafe impl Send for Charge {}

/// Starts the watchdog of a job that will not move in memory; the caller keeps the gate until its
/// function returns.
///
/// # Errors
/// Another job of this process has one, whose functions hold the gate while they wait; or the
/// system starts no thread.
pub(super) fn start(job: *const WeftJob, period: Duration) -> Result<(Watchdog, Held), Fault> {
    if WATCHED.swap(true, Ordering::AcqRel) {
        let why = "WEFT_RECEIPT=watchdog: one job of a process at a time, and another has it";
        return Err(Fault(WEFT_INIT, why.into()));
    }
    let watchdog = Watchdog { over: Arc::default() };
    let gate = take();
    let (charge, over) = (Charge(job), Arc::clone(&watchdog.over));
    let run = move || watch(&charge, &over, period);
    match without_signals(|| thread::Builder::new().name("weft watchdog".into()).spawn(run)) {
        Ok(_) => Ok((watchdog, gate)),
        Err(error) => Err(Fault(WEFT_INIT, format!("WEFT_RECEIPT=watchdog: no thread: {error}"))),
    }
}

/// Starts a thread that no signal interrupts: a handler of the program there would have no call of
/// the program to return to.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are memory of this function, filled before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // Faults of upcalls, which may run there.
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

fn watch(charge: &Charge, over: &AtomicBool, period: Duration) {
    WATCHES.with(|watches| watches.set(true));
    let sleeper = SLEEPER.get_or_init(Mutex::default);
    *sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
    let mut seen = 0;
    loop {
        thread::sleep(period);
        let gate = try_take().or_else(|| {
            AWAITED.store(true, Ordering::SeqCst);
            try_take()
        });
        if over.load(Ordering::Relaxed) {
            return;
        }
        let Some(Held(Some(calls))) = &gate else {
            // A call works, or makes progress while it waits.
            thread::park_timeout(CHECK_EVERY);
            continue;
        };
        if **calls == seen {
            // A panic has printed its place, like any in a call.
            enter(|| {
                // SAFETY: as `Charge` says; this thread holds the gate, and the job is not over.
                unsafe { &*charge.0 }.watched();
                Ok(WEFT_OK)
            });
        }
        seen = **calls;
    }
}

//! The polling watchdog of a program in C (`WEFT_RECEIPT=watchdog`): a thread makes progress for a
//! job that has called nothing for `WEFT_WATCHDOG_US`. All functions take one gate while it runs,
//! and none otherwise. A function that waits keeps the gate, because it makes progress itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;
use weft_sys::threads::without_signals;

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
pub(crate) fn is_this_thread() -> bool {
    WATCHES.with(Cell::get)
}

/// Proof of holding the gate; empty if there is no watchdog, or an outer call holds it.
pub(crate) struct Held(Option<MutexGuard<'static, u64>>);

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            release(guard);
        }
    }
}

/// Gives the gate back, and wakes the watchdog if it waits for it.
fn release(guard: MutexGuard<'static, u64>) {
    HOLDER.store(0, Ordering::Relaxed);
    drop(guard);
    // In one order with the watchdog, which sets the flag and then tries again.
    if AWAITED.load(Ordering::SeqCst) && AWAITED.swap(false, Ordering::SeqCst) {
        let sleeper = SLEEPER.get_or_init(Mutex::default).lock();
        sleeper.unwrap_or_else(PoisonError::into_inner).iter().for_each(Thread::unpark);
    }
}

fn held(mut guard: MutexGuard<'static, u64>, call: u64) -> Held {
    HOLDER.store(ME.with(|me| *me), Ordering::Relaxed);
    *guard += call;
    Held(Some(guard))
}

/// Takes the gate for a call of the program, or of an upcall.
#[inline]
pub(crate) fn hold() -> Held {
    match WATCHED.load(Ordering::Acquire) {
        true => take(),
        false => Held(None),
    }
}

#[cold]
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
pub(crate) struct Watchdog {
    over: Arc<AtomicBool>,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        WATCHED.store(false, Ordering::Release);
    }
}

/// Starts a watchdog, which calls `round` while it holds the gate, unless the program calls
/// functions or the watchdog was dropped. The caller keeps the gate until its function returns.
///
/// # Errors
/// Another job of this process has one, whose functions hold the gate while they wait; or the
/// system starts no thread.
pub(crate) fn start(
    round: impl FnMut() + Send + 'static,
    period: Duration,
) -> Result<(Watchdog, Held), String> {
    if WATCHED.swap(true, Ordering::AcqRel) {
        return Err("one job of a process at a time, and another has it".into());
    }
    let watchdog = Watchdog { over: Arc::default() };
    let (gate, over) = (take(), Arc::clone(&watchdog.over));
    let run = move || watch(round, &over, period);
    match without_signals(|| thread::Builder::new().name("weft watchdog".into()).spawn(run)) {
        Ok(_) => Ok((watchdog, gate)),
        Err(error) => Err(format!("no thread: {error}")),
    }
}

fn watch(mut round: impl FnMut(), over: &AtomicBool, period: Duration) {
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
            round();
        }
        seen = **calls;
    }
}

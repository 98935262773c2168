//! Progress for callers that have been absent for long.
//!
//! An MPI program that computes makes no progress; its endpoint acknowledges, retransmits and
//! answers nothing. One thread of the process visits every domain from time to time, and makes
//! progress where no caller has entered since its last visit. Operations that end thereby are
//! reported at the caller's next call.

use super::domain::Domain;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use weft_sys::forks::is_child;
use weft_sys::threads::{stack, without_signals};

/// Interval to the next visit after one that found work, and where callers asked for progress
/// without calls.
pub const SOON: Duration = Duration::from_millis(1);

/// A domain to be visited.
struct Watched {
    domain: *const Domain,
    /// The lock's turns at the last visit.
    turns: u64,
}

// SAFETY: the pointer is used under the lock of `WATCH` alone, and removed from there, under that
// lock, before the domain is freed; the domain is used under its lock, or where its fields are
// atomic.
unsafe impl Send for Watched {}

struct Watch {
    domains: Vec<Watched>,
    every: Duration,
    running: bool,
    ended: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    domains: Vec::new(),
    every: Duration::from_millis(20),
    running: false,
    ended: false,
});
/// Rung when the thread is to end.
static BELL: Condvar = Condvar::new();

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value in <linux/membarrier.h>.
const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the arguments are numbers alone.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns true if `barrier` works here: Linux 4.14 has it, a sandbox may forbid it.
fn has_barrier() -> bool {
    static ONCE: Once = Once::new();
    static HAS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    use std::sync::atomic::Ordering;
    ONCE.call_once(|| {
        let has = membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
        HAS.store(has, Ordering::Relaxed);
    });
    HAS.load(Ordering::Relaxed)
}

fn barrier() {
    let passed = membarrier(MEMBARRIER_PRIVATE_EXPEDITED);
    assert!(passed, "membarrier worked when it was registered for");
}

/// Has the thread visit a domain at intervals of `every` from now on. False, and without effect,
/// where its callers take no lock and the system has no barrier, or no thread starts.
pub fn add(domain: &Domain, every: Duration) -> bool {
    if every.is_zero() {
        return false;
    }
    if !domain.lock.locks() && !has_barrier() {
        log::debug!("no membarrier: nobody makes progress for a program that computes");
        return false;
    }
    let mut watch = watch();
    if watch.domains.iter().any(|w| std::ptr::eq(w.domain, domain)) {
        return watch.running;
    }
    watch.every = if watch.domains.is_empty() { every } else { watch.every.min(every) };
    watch.domains.push(Watched { domain, turns: domain.lock.turns() });
    watch.ended = false;
    if !watch.running {
        watch.running = start();
    }
    watch.running
}

/// Removes the domain before it is freed.
pub fn remove(domain: &Domain) {
    if is_child() {
        // The lock may have been held when the parent forked.
        return;
    }
    let mut watch = watch();
    watch.domains.retain(|w| !std::ptr::eq(w.domain, domain));
    if watch.domains.is_empty() {
        BELL.notify_all();
    }
}

/// Ends all visits.
pub fn end() {
    if is_child() {
        return;
    }
    watch().ended = true;
    BELL.notify_all();
}

/// Starts the thread.
fn start() -> bool {
    let builder = std::thread::Builder::new().name("weft-progress".to_owned());
    let spawned = without_signals(|| builder.stack_size(stack(256 << 10)).spawn(run));
    if let Err(why) = &spawned {
        log::warn!("no thread that makes progress while the program computes: {why}");
    }
    spawned.is_ok()
}

fn run() {
    let mut watch = watch();
    let mut nap = watch.every;
    loop {
        watch = BELL.wait_timeout(watch, nap).unwrap_or_else(PoisonError::into_inner).0;
        if watch.ended || watch.domains.is_empty() {
            watch.running = false;
            return;
        }
        let mut did = false;
        for watched in &mut watch.domains {
            did |= look(watched);
        }
        nap = if did { SOON } else { watch.every };
    }
}

/// Makes progress in a domain if no caller has entered it since the last visit.
fn look(watched: &mut Watched) -> bool {
    // SAFETY: domains in the list exist; the list is locked.
    let domain = unsafe { &*watched.domain };
    let turns = domain.lock.turns();
    if std::mem::replace(&mut watched.turns, turns) != turns {
        return false;
    }
    let Some(_visit) = domain.lock.try_enter_guest(barrier) else { return false };
    let mut did = false;
    domain.each_port(|worker| did |= worker.progress_for_caller());
    did
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::lock::Lock;
    use std::cell::UnsafeCell;

    /// A number that the lock must protect from changes by two threads at a time.
    struct Sum(UnsafeCell<u64>);

    // SAFETY: changed under the lock alone.
    unsafe impl Sync for Sum {}

    #[test]
    fn visit__is_alone_without_a_lock() {
        if !has_barrier() {
            return weft_conformance::skip("no membarrier(2)");
        }
        let lock = Lock::new(false);
        let sum = Sum(UnsafeCell::new(0));
        // SAFETY: the callers hold the lock.
        let add = || unsafe {
            let was = sum.0.get().read_volatile();
            std::hint::spin_loop();
            sum.0.get().write_volatile(was + 1);
        };
        const EACH: u64 = 2_000;
        let shared = (&lock, &sum);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (lock, sum) = shared;
                let mut visits = 0;
                while visits < EACH {
                    let Some(_visit) = lock.try_enter_guest(barrier) else {
                        // A thread that enters again at once may keep the guest out for ever.
                        while lock.turns() % 2 == 1 {
                            std::thread::yield_now();
                        }
                        continue;
                    };
                    // SAFETY: under the lock.
                    unsafe { *sum.0.get() += 1 };
                    visits += 1;
                }
            });
            for _ in 0..200 * EACH {
                let _inside = lock.enter().unwrap();
                add();
            }
        });
        assert_eq!(sum.0.into_inner(), 201 * EACH);
    }
}

//! Progress for callers that have been absent for long.
//!
//! An MPI program that computes makes no progress; its endpoint acknowledges, retransmits and
//! answers nothing. One thread of the process visits every domain from time to time, and makes
//! progress where no caller has entered since its last visit. Operations that end thereby are
//! reported at the caller's next call.

#[allow(unsafe_code)]
mod sys;

use crate::lock::{GuestEntry, Lock};
use crate::mover::Step;
use rustix::thread::{membarrier, MembarrierCommand};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::Pointer;
use weft_sys::forks::is_child;
use weft_sys::threads::{stack, without_signals};

/// Interval to the next visit after one that found work, and where callers asked for progress
/// without calls.
pub const SOON: Duration = Duration::from_millis(1);
/// Time after which a visit is tried again while a caller is inside.
const TRY_AGAIN: Duration = Duration::from_micros(20);

/// A domain, as the thread sees it.
pub trait Visited {
    /// The lock of its callers.
    fn lock(&self) -> &Lock;
    /// Makes progress for an absent caller, under the lock. True if anything happened.
    fn progress_for_caller(&self) -> bool;
    /// Does a step of a move of this process to another host, under the lock. Returns the number of
    /// peers that it leaves without news.
    fn step(&self, step: &Step) -> Result<usize, String>;
}

/// A domain to be visited.
struct Watched {
    domain: Pointer,
    /// The lock's turns at the last visit.
    turns: u64,
}

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

/// Returns true if `barrier` works here: Linux 4.14 has it, a sandbox may forbid it.
fn has_barrier() -> bool {
    static HAS: LazyLock<bool> =
        LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    *HAS
}

fn barrier() {
    let passed = membarrier(MembarrierCommand::PrivateExpedited);
    assert!(passed.is_ok(), "membarrier worked when it was registered for");
}

/// Has the thread visit a domain at intervals of `every` from now on. False, and without effect,
/// where its callers take no lock and the system has no barrier, or no thread starts.
pub fn add(domain: &(impl Visited + 'static), every: Duration) -> bool {
    if every.is_zero() {
        return false;
    }
    if !domain.lock().locks() && !has_barrier() {
        log::debug!("no membarrier: nobody makes progress for a program that computes");
        return false;
    }
    let mut watch = watch();
    if watch.domains.iter().any(|w| w.domain.is(domain)) {
        return watch.running;
    }
    watch.every = if watch.domains.is_empty() { every } else { watch.every.min(every) };
    watch.domains.push(Watched { domain: Pointer::to(domain), turns: domain.lock().turns() });
    watch.ended = false;
    if !watch.running {
        watch.running = start();
    }
    watch.running
}

/// Removes a domain: its last call here, before it is freed.
pub fn remove<T>(domain: &T) {
    if is_child() {
        // The lock may have been held when the parent forked.
        return;
    }
    let mut watch = watch();
    watch.domains.retain(|w| !w.domain.is(domain));
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

/// Calls `f`, which does steps of a move of this process, with all callers kept out of all domains.
/// `None` if one of them stays inside for `limit`.
pub fn standstill<R>(
    limit: Duration,
    f: impl FnOnce(&dyn Fn(&Step) -> Result<usize, String>) -> R,
) -> Option<R> {
    let until = Instant::now() + limit;
    // The list is locked for as long, so that no domain is freed.
    let watch = watch();
    let mut visits = Vec::new();
    for watched in &watch.domains {
        visits.push(enter(watched.domain.get().lock(), until)?);
    }
    let all = f(&|step| watch.domains.iter().map(|w| w.domain.get().step(step)).sum());
    drop(visits);
    Some(all)
}

/// Enters as the guest as soon as no caller is inside, until a time.
fn enter(lock: &Lock, until: Instant) -> Option<GuestEntry<'_>> {
    loop {
        if let Some(visit) = lock.try_enter_guest(barrier) {
            return Some(visit);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(TRY_AGAIN);
    }
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
    let domain = watched.domain.get();
    let turns = domain.lock().turns();
    if std::mem::replace(&mut watched.turns, turns) != turns {
        return false;
    }
    let Some(_visit) = domain.lock().try_enter_guest(barrier) else { return false };
    domain.progress_for_caller()
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn visit__is_alone_without_a_lock() {
        if !has_barrier() {
            return weft_conformance::skip("no membarrier(2)");
        }
        let lock = Lock::new(false);
        // A number that the lock must protect from changes by two threads at a time.
        let sum = AtomicU64::new(0);
        let add = || {
            let was = sum.load(Ordering::Relaxed);
            std::hint::spin_loop();
            sum.store(was + 1, Ordering::Relaxed);
        };
        const EACH: u64 = 2_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut visits = 0;
                while visits < EACH {
                    let Some(_visit) = lock.try_enter_guest(barrier) else {
                        // A thread that enters again at once may keep the guest out for ever.
                        while lock.turns() % 2 == 1 {
                            std::thread::yield_now();
                        }
                        continue;
                    };
                    add();
                    visits += 1;
                }
            });
            for _ in 0..200 * EACH {
                let _inside = lock.enter().unwrap();
                add();
            }
        });
        assert_eq!(sum.into_inner(), 201 * EACH);
    }
}

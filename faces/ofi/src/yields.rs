//! `sched_yield(2)` of a program that loads the provider before its other libraries (`LD_PRELOAD`;
//! `weft mpi` has MPICH do so).
//!
//! MPICH yields its core after every poll for messages, also after one that found its message: 0.4
//! us each time on Linux 6.18 where no other process is ready. The provider yields itself where it
//! is useful (`idle.rs`), so a yield right after one of its polls is left out. All others go
//! to the kernel.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// True once the program calls the function below; before, nothing is noted for it.
static CALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True if this thread's next yield comes right after a poll, and would serve no process.
    static NEEDLESS: Cell<bool> = const { Cell::new(false) };
}

/// Notes the end of a poll; `needless` says that a yield after it would serve no process.
#[inline]
pub fn polled(needless: bool) {
    if CALLED.load(Ordering::Relaxed) {
        NEEDLESS.set(needless);
    }
}

/// Notes that the program yields its core; true if that may serve a process.
pub fn is_needed() -> bool {
    CALLED.store(true, Ordering::Relaxed);
    // In a thread that ends, the note exists no more.
    !NEEDLESS.try_with(Cell::take).unwrap_or(false)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_needed__but_for_one_yield_behind_a_poll() {
        assert!(is_needed());
        polled(true);
        assert!(!is_needed());
        assert!(is_needed(), "only that one was not");
        polled(true);
        polled(false);
        assert!(is_needed(), "somebody wants the core");
    }

    #[test]
    fn polled__of_one_thread_is_nothing_to_another() {
        assert!(is_needed());
        polled(true);
        std::thread::spawn(|| assert!(is_needed())).join().unwrap();
    }
}

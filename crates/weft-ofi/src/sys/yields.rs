//! `sched_yield(2)` of a program that loads the provider before its other libraries (`LD_PRELOAD`;
//! `weft mpi` has MPICH do so).
//!
//! MPICH hands its core over after every look for messages, also after one that found what it waits
//! for: 0.4 us each time on Linux 6.18, where nobody wants the core. The provider judges that by
//! itself (`port/wait.rs`), so the yield behind one of its polls is left out while no one has taken
//! the core. All others are as the C library's.

use libc::{c_int, c_long};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody calls the function below: else nothing need be noted for it.
static CALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The next yield of this thread comes right behind a poll, and nobody wants the core.
    static NEEDLESS: Cell<bool> = const { Cell::new(false) };
}

/// A poll ends; whether a yield behind it would be for nobody.
#[inline]
pub fn polled(needless: bool) {
    if CALLED.load(Ordering::Relaxed) {
        NEEDLESS.set(needless);
    }
}

/// As the C library's.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    CALLED.store(true, Ordering::Relaxed);
    // A thread that ends has no such note any more.
    if NEEDLESS.try_with(Cell::take).unwrap_or(false) {
        return 0;
    }
    // SAFETY: it takes no argument and touches no memory.
    let done: c_long = unsafe { libc::syscall(libc::SYS_sched_yield) };
    done as c_int
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn sched_yield__one_behind_a_poll_is_left_out() {
        assert_eq!(sched_yield(), 0);
        polled(true);
        assert!(NEEDLESS.get());
        assert_eq!(sched_yield(), 0);
        assert!(!NEEDLESS.get(), "only that one");
        polled(true);
        polled(false);
        assert!(!NEEDLESS.get(), "somebody wants the core");
    }

    #[test]
    fn polled__of_one_thread_is_nothing_to_another() {
        assert_eq!(sched_yield(), 0);
        polled(true);
        std::thread::spawn(|| assert!(!NEEDLESS.get())).join().unwrap();
    }
}

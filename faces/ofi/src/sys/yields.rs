//! `sched_yield(2)` of a program that loads the provider before its other libraries (`LD_PRELOAD`;
//! `weft mpi` has MPICH do so).
//!
//! MPICH yields its core after every poll for messages, also after one that found its message: 0.4
//! us each time on Linux 6.18 where no other process is ready. The provider yields itself where it
//! is useful (`worker/wait.rs`), so a yield right after one of its polls is left out. All others go
//! to the kernel.

use libc::{c_int, c_long};
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

/// Replaces the C library's function.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    CALLED.store(true, Ordering::Relaxed);
    // In a thread that ends, the note exists no more.
    if NEEDLESS.try_with(Cell::take).unwrap_or(false) {
        return 0;
    }
    // SAFETY: the call takes no argument and uses no memory.
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

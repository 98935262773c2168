//! Ctrl-C, held back from the process.
//!
//! The kernel gives SIGINT to any thread that does not block it, as one of a library, and Python
//! then raises `KeyboardInterrupt` in its main thread. So a mask of the main thread is not enough:
//! the signal has another handler meanwhile, which notes it.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// True if the signal came while it was held back.
static CAME: AtomicBool = AtomicBool::new(false);
/// The process that holds it back.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Holds SIGINT back until dropped. One thread alone, the main one, holds it.
pub struct Held {
    before: libc::sigaction,
}

/// Returns the number of this thread, as the module `threading` of Python knows it.
pub fn thread() -> u64 {
    // SAFETY: it takes no argument and never fails.
    unsafe { libc::pthread_self() as u64 }
}

/// Notes the signal. A copy of the process that another thread made meanwhile ends by it: nobody
/// puts the old handler back there.
extern "C" fn note(signal: libc::c_int) {
    if std::process::id() == PROCESS.load(Ordering::Relaxed) {
        return CAME.store(true, Ordering::Relaxed);
    }
    // SAFETY: a handler may call both functions (signal-safety(7)).
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn noting() -> libc::sighandler_t {
    note as extern "C" fn(libc::c_int) as libc::sighandler_t
}

/// Holds SIGINT back.
pub fn hold() -> Held {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let mut before = MaybeUninit::uninit();
    // SAFETY: zeros are a valid `sigaction`, with an empty mask. The call reads it and writes
    // `before`: it fails for a wrong signal or address alone. `note` is a handler of one argument.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = noting();
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGINT, &raw const action, before.as_mut_ptr());
        Held { before: before.assume_init() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut now = MaybeUninit::uninit();
        // SAFETY: `before` was written by the system, which writes `now` here. `raise` has the
        // handler of before called in this thread.
        unsafe {
            libc::sigaction(libc::SIGINT, &raw const self.before, now.as_mut_ptr());
            let now: libc::sigaction = now.assume_init();
            if now.sa_sigaction != noting() {
                // The program has set one of its own in the meantime.
                libc::sigaction(libc::SIGINT, &raw const now, std::ptr::null_mut());
            }
            if CAME.swap(false, Ordering::Relaxed) {
                libc::raise(libc::SIGINT);
            }
        }
    }
}

//! Ctrl-C, held back from a thread.

use std::mem::MaybeUninit;

/// Holds SIGINT back from this thread until dropped.
pub struct Held {
    before: libc::sigset_t,
}

/// Returns the number of this thread, as the module `threading` of Python knows it.
pub fn thread() -> u64 {
    // SAFETY: it takes no argument and never fails.
    unsafe { libc::pthread_self() as u64 }
}

/// Holds SIGINT back from this thread.
pub fn hold() -> Held {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are memory for one; `sigemptyset` makes the first, and `pthread_sigmask`
    // the second: it fails for a wrong first argument alone.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        Held { before: before.assume_init() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: a set that `pthread_sigmask` has made.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

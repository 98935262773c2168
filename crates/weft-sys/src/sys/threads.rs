//! Threads of a library in a program that it does not know.

use std::mem::zeroed;

/// Runs `start` with all signals blocked, so that no signal interrupts a thread that it starts: the
/// program's own threads handle them, and a handler in that thread would have no call of the
/// program to return to. Faults are not blocked, as functions of the program may run there.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a valid set; both sets are live for the calls.
    let before = unsafe {
        let (mut all, mut before) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: `before` is the set that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

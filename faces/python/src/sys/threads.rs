//! Threads and signals.

/// Returns the number of this thread, as the module `threading` of Python knows it.
pub fn thread() -> u64 {
    // SAFETY: it takes no argument and never fails.
    unsafe { libc::pthread_self() as u64 }
}

/// Has the handler of a signal called in this thread.
pub fn raise_signal(signal: u32) {
    // SAFETY: it fails for a wrong number alone. The handler is one that the program has set.
    unsafe { libc::raise(signal as libc::c_int) };
}

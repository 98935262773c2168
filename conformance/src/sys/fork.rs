//! Code in a fork.

use std::io;

/// Returns the bits that `f` returns in a process forked from this one; the child does nothing
/// else.
///
/// # Panics
/// There is no process, or the child ends in another way.
pub fn in_a_fork<const N: usize>(f: impl FnOnce() -> [bool; N]) -> [bool; N] {
    // SAFETY: the child computes, draws random numbers and ends, without running anything that
    // other threads of this process may have held.
    match unsafe { libc::fork() } {
        0 => {
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            let found = found.unwrap_or([false; N]);
            let bits = found.iter().rev().fold(0, |bits, &bit| bits << 1 | i32::from(bit));
            // SAFETY: ends the child without the exit handlers of this process.
            unsafe { libc::_exit(bits) }
        }
        child => {
            assert!(child > 0, "{}", io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: `status` is writable.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(waited == child && libc::WIFEXITED(status), "{status}");
            let bits = libc::WEXITSTATUS(status);
            std::array::from_fn(|i| bits >> i & 1 != 0)
        }
    }
}

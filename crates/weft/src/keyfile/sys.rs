//! What the standard library does not tell of this process.
#![allow(unsafe_code)]

/// Number of the user whose rights this process has.
pub(super) fn user() -> u32 {
    // SAFETY: passes no memory and cannot fail.
    unsafe { libc::geteuid() }
}

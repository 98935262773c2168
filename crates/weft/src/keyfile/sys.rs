//! Facts about this process that the standard library does not give.
#![allow(unsafe_code)]

/// Returns the effective user id of this process.
pub(super) fn user() -> u32 {
    // SAFETY: passes no memory and cannot fail.
    unsafe { libc::geteuid() }
}

//! Waiting on descriptors; network namespaces.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

/// Returns true if one of the descriptors becomes readable in time; false if the wait is
/// interrupted.
pub fn readable(fds: &[RawFd], limit: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `polled` is a live array of the length given.
    let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
    n > 0
}

/// Moves the calling thread into a new, nameless network namespace. It ends with its last user.
pub fn new_namespace() -> std::io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

//! A call of the C library that has no safe form elsewhere.

use std::os::fd::AsRawFd;

extern "C" {
    fn sockatmark(fd: libc::c_int) -> libc::c_int;
}

/// sockatmark(3).
pub fn is_at_mark(fd: &impl AsRawFd) -> bool {
    // SAFETY: no memory is passed.
    let mark = unsafe { sockatmark(fd.as_raw_fd()) };
    assert!(mark >= 0, "{}", std::io::Error::last_os_error());
    mark > 0
}

//! A descriptor that wakes a thread which sleeps on it.

use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use std::os::fd::{AsRawFd, OwnedFd};

/// Returns a descriptor that is readable while bytes that were written to it are unread: eight at a
/// time. Neither end waits. Where a filter of system calls refuses eventfd(2), it is both ends of a
/// pipe.
///
/// # Errors
/// The limit on descriptors is reached, or a pipe is refused too.
pub fn bell() -> rustix::io::Result<OwnedFd> {
    match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => piped(),
        made => made,
    }
}

/// Opens a pipe for reading and writing by one descriptor.
fn piped() -> rustix::io::Result<OwnedFd> {
    let (read, _write) = pipe_with(PipeFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", read.as_raw_fd());
    open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bell__of_both_kinds_is_readable_until_it_is_read() {
        for fd in [bell().unwrap(), piped().unwrap()] {
            let mut bytes = [0; 512];
            assert_eq!(rustix::io::read(&fd, &mut bytes), Err(Errno::AGAIN));
            for _ in 0..2 {
                assert_eq!(rustix::io::write(&fd, &1u64.to_ne_bytes()), Ok(8));
            }
            assert!(rustix::io::read(&fd, &mut bytes).is_ok_and(|len| len >= 8));
            assert_eq!(rustix::io::read(&fd, &mut bytes), Err(Errno::AGAIN));
        }
    }
}

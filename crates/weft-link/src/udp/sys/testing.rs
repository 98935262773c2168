//! Network namespaces for tests.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Moves the calling thread into a network namespace made by `ip netns add`.
pub fn enter_namespace(name: &str) -> io::Result<()> {
    let file = File::open(format!("/var/run/netns/{name}"))?;
    // SAFETY: no memory is passed.
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

//! Unix sockets with abstract names, which belong to a network namespace like packet sockets. Calls
//! block for a bounded time.

use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{accept_with, socket_with, AddressFamily, Shutdown, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A process that takes longer to answer does not run.
const TIMEOUT: Duration = Duration::from_secs(10);

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Listens under a name. `AddrInUse`: another process listens under it.
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    rustix::net::bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&fd, 4096)?;
    Ok(fd)
}

/// Connects to a name. `ConnectionRefused`: no process listens under that name.
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    be_patient(&fd)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(fd)
}

/// Waits for the next connection and returns it. An error after [`shut_down`].
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let fd = accept_with(listener, SocketFlags::CLOEXEC)?;
    be_patient(&fd)?;
    Ok(fd)
}

fn be_patient(fd: &OwnedFd) -> io::Result<()> {
    set_socket_timeout(fd, Timeout::Recv, Some(TIMEOUT))?;
    Ok(set_socket_timeout(fd, Timeout::Send, Some(TIMEOUT))?)
}

/// Ends a listener: a thread that waits in [`accept`] returns.
pub fn shut_down(fd: &OwnedFd) {
    let _ended = rustix::net::shutdown(fd, Shutdown::Both);
}

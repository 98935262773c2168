//! Messages between processes that may carry descriptors.

use crate::foreign::{self, Foreign};
use crate::{sys, Peer};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{sockopt, AddressFamily, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// One received message, or part of a stream.
#[derive(Debug)]
pub struct Received {
    /// Its length; 0 also when the other end is closed.
    pub len: usize,
    /// The descriptors that came with it.
    pub passed: Vec<Foreign<OwnedFd>>,
    /// True if the message was longer than the buffer.
    pub is_cut: bool,
    /// This process had no free descriptor for one that came with it.
    pub has_lost: bool,
}

impl Received {
    /// Returns the length and the descriptor of a message that has at most one.
    ///
    /// # Errors
    /// `InvalidData`: it was longer than the buffer, or has more than one. `EMFILE`: this process
    /// had no free descriptor.
    pub fn only(mut self) -> io::Result<(usize, Option<Foreign<OwnedFd>>)> {
        if self.has_lost && self.passed.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        if self.is_cut || self.has_lost || self.passed.len() > 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((self.len, self.passed.pop()))
    }
}

/// Sends one message, with a descriptor if given; never waits.
///
/// # Errors
/// The other side has ended or does not read, or too many descriptors are under way.
pub fn send(socket: impl AsFd, bytes: &[u8], pass: Option<BorrowedFd<'_>>) -> io::Result<()> {
    sys::send(socket.as_fd(), bytes, pass)
}

/// Sends one message with descriptors, at most 253, to a process that this one trusts: waits as
/// long as the time limit of the socket allows.
///
/// # Errors
/// `WouldBlock`: the time is over. The other side has ended.
///
/// # Panics
/// There are more descriptors.
pub fn send_patiently(socket: impl AsFd, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> io::Result<()> {
    sys::send_patiently(socket.as_fd(), bytes, pass)
}

/// Receives one message of a process that this one trusts, with its descriptors: waits as long as
/// the time limit of the socket allows. Its length is 0 if the other end is closed.
///
/// # Errors
/// `WouldBlock`: the time is over. `InvalidData`: the message was longer than the buffer, or this
/// process had no free descriptor for one that came with it.
pub fn recv_patiently(socket: impl AsFd, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    match sys::recv_patiently(socket.as_fd(), buf)? {
        (len, passed, false, false) => Ok((len, passed)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until a socket can be read.
///
/// # Errors
/// Nothing can be read within this time.
pub fn awaits(socket: impl AsFd, most: Duration) -> io::Result<()> {
    let most = Timespec::try_from(most).ok();
    match poll(&mut [PollFd::new(&socket, PollFlags::IN)], most.as_ref())? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Receives one message of a process of `user`, with all descriptors in it; never waits. There is
/// room for as many as a message can have: those without room the kernel would close at once, on
/// this thread.
///
/// # Errors
/// There is none (`WouldBlock`), or the connection has one. `PermissionDenied`: descriptors of this
/// user wait to be closed ([`foreign::takes`]), so nothing was received.
pub fn recv(socket: impl AsFd, buf: &mut [u8], user: u32) -> io::Result<Received> {
    if !foreign::takes(user) {
        let why = format!("descriptors of user {user} that have to be closed first do not close");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let (len, passed, is_cut, has_lost) = sys::recv(socket.as_fd(), buf)?;
    let passed = passed.into_iter().map(|fd| Foreign::new(fd, user)).collect();
    Ok(Received { len, passed, is_cut, has_lost })
}

/// True if a descriptor that somebody passed is a connected Unix socket of messages.
pub fn is_connection(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_acceptconn(fd) == Ok(false)
        && Peer::of(fd).is_ok()
}

/// True if a descriptor is a Unix socket.
pub(crate) fn is_local(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// Ends a connection for both sides, and throws away what nobody read. False if a descriptor is
/// among it, or if it is no Unix socket: to close that may take its maker's time.
pub(crate) fn drains(socket: BorrowedFd<'_>) -> bool {
    /// Most messages that are looked at; a sender's memory holds fewer.
    const MOST: usize = 4096;
    if !is_local(socket) {
        return false;
    }
    sys::shutdown(socket);
    let mut buf = [0; 4096];
    for _ in 0..MOST {
        // Nothing comes any more, so the message that is seen is the one that is received next.
        match sys::peek(socket, &mut buf) {
            Ok(None) => return true,
            Ok(Some((_, true))) => return false,
            Ok(Some((len, false))) => {
                // Of a stream no byte beyond those seen is taken, and so no descriptor.
                if sys::recv(socket, &mut buf[..len]).is_err() {
                    return false;
                }
            }
            // The other end was closed before it had read all. This is told once, before the rest.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The socket has no queue of messages; a listener has one of connections.
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::user;
    use rustix::net::{socketpair, SocketFlags};

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn file() -> OwnedFd {
        std::fs::File::open("/proc/self/stat").unwrap().into()
    }

    #[test]
    fn recv__all_descriptors_that_a_message_can_have() {
        let (one, other) = pair(SocketType::SEQPACKET);
        let file = file();
        let many = vec![file.as_fd(); 253];
        sys::send_all(one.as_fd(), b"many", &many).unwrap();
        send(&one, b"one", Some(file.as_fd())).unwrap();
        send(&one, b"none", None).unwrap();
        let mut buf = [0; 16];
        let many = recv(&other, &mut buf, user::effective()).unwrap();
        assert_eq!((many.len, many.passed.len(), many.has_lost), (4, 253, false));
        assert_eq!(many.only().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (len, passed) = recv(&other, &mut buf, user::effective()).unwrap().only().unwrap();
        assert!(len == 3 && passed.is_some());
        let (len, passed) = recv(&other, &mut buf, user::effective()).unwrap().only().unwrap();
        assert!(len == 4 && passed.is_none());
        let none = recv(&other, &mut buf, user::effective()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn drains__unless_a_descriptor_is_in_the_queue() {
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            for descriptors in [false, true] {
                let (one, other) = pair(kind);
                let file = file();
                for _ in 0..3 {
                    send(&one, b"text", None).unwrap();
                    // A message may have no byte, and a descriptor all the same.
                    send(&one, b"", None).unwrap();
                }
                if descriptors {
                    let text = if kind == SocketType::STREAM { &b"x"[..] } else { b"" };
                    send(&one, text, Some(file.as_fd())).unwrap();
                }
                send(&one, b"text", None).unwrap();
                assert_eq!(drains(other.as_fd()), !descriptors, "{kind:?}");
                assert!(send(&one, b"late", None).is_err(), "nothing comes any more");
            }
        }
        assert!(!drains(file().as_fd()), "it is no socket");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!drains(tcp.as_fd()), "its close may wait for its bytes");
        assert!(!is_connection(&tcp) && !is_connection(file()));
        assert!(is_connection(pair(SocketType::SEQPACKET).0));
        assert!(!is_connection(pair(SocketType::STREAM).0));
    }

    #[test]
    fn drains__also_after_the_other_end_was_closed_before_it_had_read_all() {
        for descriptors in [false, true] {
            let (one, other) = pair(SocketType::SEQPACKET);
            let file = file();
            send(&one, b"text", descriptors.then_some(file.as_fd())).unwrap();
            send(&other, b"not read", None).unwrap();
            drop(one);
            assert_eq!(drains(other.as_fd()), !descriptors);
        }
    }
}

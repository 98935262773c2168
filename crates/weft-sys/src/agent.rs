//! The way of every client to a socket of an agent.
//!
//! Any user may take an abstract name, or the number of an agent that has ended. So a client
//! believes an agent only if the kernel says that root or its own user runs it, and no connection
//! lasts longer than [`PATIENCE`] before that is known.

use crate::{user, Peer};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Longest wait until a listener takes a connection, and until an agent greets.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The kind of a socket of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream of bytes.
    Stream,
    /// Messages, which may carry descriptors.
    Messages,
}

/// Checks that an agent at a name may be believed: root or this user runs it.
///
/// # Errors
/// The agent may not be believed; the text tells people why.
pub fn check(peer: Peer) -> Result<(), String> {
    peer.is_trusted()
}

/// Checks that an agent at a name may be believed, for calls that give the agent no secret and no
/// descriptor of the program; see [`check`] for others. A user namespace may have no number for the
/// agent's user; then the path decides, as in a container the maker of its mounts has put the
/// socket there. An abstract name proves nothing.
///
/// # Errors
/// The agent may not be believed; the text tells people why.
pub fn check_at(name: &str, peer: Peer) -> Result<(), String> {
    match user::unknown() == Some(peer.uid) && !name.starts_with('@') {
        true => Ok(()),
        false => check(peer),
    }
}

/// Connects to a socket at a name: a path, or `@` and an abstract name. Waits at most
/// [`PATIENCE`]. Nothing was sent yet: the caller checks the process.
///
/// # Errors
/// Nobody listens there, or the listener takes no connection in time.
pub fn connect_to(name: &str, kind: Kind) -> io::Result<(OwnedFd, Peer)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(name)?,
    };
    let kind = match kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Messages => SocketType::SEQPACKET,
    };
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &address).map_err(|e| match e {
        rustix::io::Errno::AGAIN => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("its process takes no connection at {name} within {} s", PATIENCE.as_secs()),
        ),
        e => e.into(),
    })?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    let peer = Peer::of(&socket)?;
    Ok((socket, peer))
}

/// Connects to a socket of an agent, and checks the agent's user by [`check`].
///
/// # Errors
/// Returns the errors of [`connect_to`], and `PermissionDenied` if another user listens there; the
/// text says which user.
pub fn reach(name: &str, kind: Kind) -> io::Result<(OwnedFd, Peer)> {
    let (socket, peer) = connect_to(name, kind)?;
    check(peer).map_err(distrust)?;
    Ok((socket, peer))
}

/// Connects to a socket of an agent, and checks the agent's user by [`check_at`].
///
/// # Errors
/// Returns the errors of [`reach`].
pub fn reach_at(name: &str, kind: Kind) -> io::Result<(OwnedFd, Peer)> {
    let (socket, peer) = connect_to(name, kind)?;
    check_at(name, peer).map_err(distrust)?;
    Ok((socket, peer))
}

/// Returns the error about an agent that is not believed.
pub fn distrust(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("not trusted: {why}"))
}

/// Returns the error about an agent that took a connection and says nothing.
pub fn silent(name: &str, peer: Peer) -> io::Error {
    let Peer { pid, uid } = peer;
    let process = match pid {
        0 => "its process".to_string(),
        pid => format!("process {pid}"),
    };
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!(
            "{process} of user {uid} has {name} and does not answer within {} s; it may be \
             stopped, or it is no agent",
            PATIENCE.as_secs()
        ),
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    fn listener(kind: SocketType, backlog: i32) -> (OwnedFd, String) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("weft-sys-test-{}-{number}", std::process::id());
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        bind(&socket, &address).unwrap();
        listen(&socket, backlog).unwrap();
        (socket, format!("@{name}"))
    }

    #[test]
    fn connect_to__names_its_process_or_the_reason() {
        let (_listener, name) = listener(SocketType::SEQPACKET, 1);
        let (_, peer) = connect_to(&name, Kind::Messages).unwrap();
        assert_eq!(peer.uid, user::effective());
        let none = connect_to(&format!("{name}-none"), Kind::Stream).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn connect_to__a_listener_that_takes_nobody_holds_nobody() {
        let (_listener, name) = listener(SocketType::STREAM, 0);
        let mut taken = Vec::new();
        let why = loop {
            match connect_to(&name, Kind::Stream) {
                Ok(connection) => taken.push(connection),
                Err(why) => break why,
            }
        };
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        assert!(why.to_string().contains(&name), "{why}");
    }

    #[test]
    fn check_at__a_path_decides_only_where_the_user_has_no_number() {
        let stranger = Peer { pid: 1, uid: user::effective() + 4242 };
        for name in ["@weft-agent", "/run/weft/agent.sock"] {
            let known = user::unknown() != Some(stranger.uid);
            assert_eq!(check_at(name, stranger).is_err(), known || name.starts_with('@'));
        }
        let nameless = Peer { pid: 1, uid: user::unknown().unwrap_or(4242) };
        assert!(check_at("@weft-agent", nameless).is_err() || nameless.uid == user::effective());
    }
}

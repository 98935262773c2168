//! The process at the other end of a Unix socket.

use crate::{sys, user};
use std::io;
use std::os::fd::AsFd;

/// A process, as the kernel names it at the time when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 where it is not visible from here (another PID namespace).
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

impl Peer {
    /// Returns the process at the other end of a socket.
    ///
    /// # Errors
    /// The descriptor is no connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        sys::peer(socket.as_fd()).map(|(pid, uid)| Peer { pid, uid })
    }

    /// Checks that it is of this process's user.
    ///
    /// # Errors
    /// The users differ, or may differ; the text tells people which.
    pub fn is_own(self) -> Result<(), String> {
        user::same(user::effective(), self.uid)
    }

    /// Checks that this process may believe it: it is of this process's user, or of root.
    ///
    /// # Errors
    /// Returns the errors of [`Peer::is_own`].
    pub fn is_trusted(self) -> Result<(), String> {
        user::trusts(self.uid)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn of__a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer, Peer { pid: std::process::id() as i32, uid: user::effective() });
        assert!(Peer::of(std::fs::File::open("/proc/self/stat").unwrap()).is_err());
    }
}

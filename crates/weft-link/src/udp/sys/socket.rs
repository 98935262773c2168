//! A non-blocking UDP socket.

use super::SockAddr;
use crate::ip::sys::{check, get, local, open, set, set_discovery};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A non-blocking UDP socket of one address family.
pub struct Socket {
    fd: OwnedFd,
    v6: bool,
    local: SocketAddr,
}

impl Socket {
    /// Opens and binds. Datagrams larger than the path's MTU are refused (`EMSGSIZE`), not
    /// fragmented.
    pub fn bind(addr: SocketAddr) -> io::Result<Socket> {
        let v6 = addr.is_ipv6();
        let fd = open(v6)?;
        let raw = fd.as_raw_fd();
        if v6 {
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        set_discovery(raw, v6, true)?;
        Socket::bound(fd, v6, addr)
    }

    fn bound(fd: OwnedFd, v6: bool, addr: SocketAddr) -> io::Result<Socket> {
        let (raw, name) = (fd.as_raw_fd(), SockAddr::new(addr));
        // SAFETY: `name` is readable for its length.
        check(unsafe { libc::bind(raw, name.as_ptr(), name.len()) })?;
        let local = local(raw)?;
        Ok(Socket { fd, v6, local })
    }

    /// Opens a socket at `addr`, with the port of `main`, and connects it to `to`: datagrams from
    /// `to` come only to the new socket. `addr` must be one of the addresses to which `main` is
    /// bound.
    pub fn beside(
        main: &Socket,
        addr: SocketAddr,
        to: &SockAddr,
        gro: bool,
        buffer: usize,
    ) -> io::Result<Socket> {
        if !main.local.ip().is_unspecified() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let fd = open(main.v6)?;
        let raw = fd.as_raw_fd();
        if main.v6 {
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        set_discovery(raw, main.v6, true)?;
        // Set only now: sockets that allow sharing from the beginning may be given the same port.
        set(main.raw(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        set(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        let socket = Socket::bound(fd, main.v6, addr)?;
        if gro {
            let _ = socket.enable_gro();
        }
        socket.set_buffers(buffer)?;
        socket.connect(to)?;
        Ok(socket)
    }

    /// Connects the socket, also if it was connected before: only datagrams from `to` are received
    /// from now on.
    pub fn connect(&self, to: &SockAddr) -> io::Result<()> {
        // SAFETY: `to` is readable for its length.
        check(unsafe { libc::connect(self.raw(), to.as_ptr(), to.len()) })?;
        Ok(())
    }

    /// Returns the address to which the socket is bound.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// True if it is an IPv6 socket.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Lets the kernel deliver several datagrams of one sender at once.
    pub fn enable_gro(&self) -> io::Result<()> {
        set(self.raw(), libc::SOL_UDP, libc::UDP_GRO, 1)
    }

    /// True if the kernel knows UDP segmentation offload.
    pub fn has_gso(&self) -> bool {
        get(self.raw(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// Requests buffers of `bytes` in each direction, beyond the system's limit if permitted;
    /// returns the actual sizes of the receive and the send buffer.
    pub fn set_buffers(&self, bytes: usize) -> io::Result<(usize, usize)> {
        // The kernel doubles the value to account for its own overhead.
        let want = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
        let (rcv, snd) = (libc::SO_RCVBUF, libc::SO_SNDBUF);
        let mut got = [0; 2];
        let pairs = [(libc::SO_RCVBUFFORCE, rcv), (libc::SO_SNDBUFFORCE, snd)];
        for (i, (force, plain)) in pairs.into_iter().enumerate() {
            if set(self.raw(), libc::SOL_SOCKET, force, want).is_err() {
                set(self.raw(), libc::SOL_SOCKET, plain, want)?;
            }
            got[i] = get(self.raw(), libc::SOL_SOCKET, plain)?.max(0) as usize / 2;
        }
        Ok((got[0], got[1]))
    }

    /// Selects refusal (`on`) or fragmentation of datagrams larger than the path's MTU.
    pub fn set_discovery(&self, on: bool) -> io::Result<()> {
        set_discovery(self.raw(), self.v6, on)
    }
}

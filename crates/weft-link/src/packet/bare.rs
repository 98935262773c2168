//! The link's socket and ring alone: to measure the best that a link on them can reach, and for
//! frames of another format than weft's.

use super::sys::{Carries, Geometry, Held, Keep, Ring, Socket};
use super::SEND_BUFFER;
use crate::ether::{EtherType, Interface};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A packet socket on one interface with a receive ring. It receives every frame
/// of its EtherType; use an EtherType on which no [`PacketLink`](super::PacketLink) works.
pub struct BarePacket {
    socket: Socket,
    ring: Ring,
}

impl BarePacket {
    /// Opens a socket, with a ring of `ring` bytes.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`.
    pub fn open(interface: &Interface, kind: EtherType, ring: usize) -> io::Result<BarePacket> {
        let sizes = Geometry::new(interface.mtu, ring);
        let (carries, socket) = (Carries::Packets(kind), Socket::open()?);
        socket.prepare(carries, sizes, SEND_BUFFER)?;
        let ring = Ring::map(&socket.fd, sizes, false)?;
        socket.bind(carries, interface.index)?;
        Ok(BarePacket { socket, ring })
    }

    /// Takes only frames that rules keep. The byte at `kind.0`, under the mask `kind.1`, is a
    /// frame's kind; the first rule for it decides. Without rules it takes all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep(&self, kind: (u32, u8), rules: &[Keep]) -> io::Result<()> {
        self.socket.keep(kind, rules)
    }

    /// True if a frame is on the ring.
    #[inline]
    pub fn has_frame(&mut self) -> bool {
        self.ring.ready()
    }

    /// Sends one frame, Ethernet header included.
    ///
    /// # Errors
    /// The kernel's: `EAGAIN` and `ENOBUFS` when there is no room now.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame)
    }

    /// Sends frames of two parts each by one system call; returns the number that left, of at most
    /// 64. An error concerns the first.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn send_pairs(&mut self, frames: &[[&[u8]; 2]]) -> io::Result<usize> {
        self.socket.send_pairs(frames)
    }

    /// Sends frames that lie `stride` bytes apart in `buffer`, by one system call; returns their
    /// number, of at most 64. An error concerns the first.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn send_many(&mut self, buffer: &[u8], stride: usize, lens: &[u32]) -> io::Result<usize> {
        self.socket.send_many(buffer, stride, lens)
    }

    /// Takes the next frame, which stays in the ring until the result is dropped.
    #[inline]
    pub fn hold(&mut self) -> Option<Held> {
        self.ring.hold()
    }

    /// Calls `f` with the next frame where it lies in the ring, and gives it back.
    #[inline]
    pub fn take_with<R>(&mut self, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let result = f(self.ring.peek()?.bytes);
        self.ring.release();
        Some(result)
    }

    /// Copies the next frame off the ring, as much as fits; returns its length with Ethernet
    /// header.
    #[inline]
    pub fn take_into(&mut self, into: &mut [u8]) -> Option<usize> {
        let bytes = self.ring.peek()?.bytes;
        let fits = bytes.len().min(into.len());
        into[..fits].copy_from_slice(&bytes[..fits]);
        let len = bytes.len();
        self.ring.release();
        Some(len)
    }

    /// Takes the next frame off the ring; returns its length with Ethernet header.
    #[inline]
    pub fn take(&mut self) -> Option<usize> {
        self.take_into(&mut [])
    }
}

impl AsFd for BarePacket {
    /// Returns the descriptor, which is readable when there is a frame.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

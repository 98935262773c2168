//! The link's program, sockets and rings alone, to measure the best that a link on them can reach.

use super::open::{self, Rail};
use super::sys::Flushed;
use super::{XdpConfig, XdpMode};
use crate::ether::Interface;
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An AF_XDP socket on each queue of one interface, for measurements: opened as by
/// [`XdpLink`](super::XdpLink), in the same mode.
pub struct BareXdp {
    rail: Rail,
    mode: XdpMode,
}

impl BareXdp {
    /// Opens the sockets; ignores the interfaces in `config`.
    ///
    /// # Errors
    /// Returns the errors of [`XdpLink::new`](super::XdpLink::new) for this interface.
    pub fn open(interface: &Interface, config: &XdpConfig) -> Result<BareXdp, LinkError> {
        let rail = open::open(config, interface)?;
        let mode = rail.mode.ok_or(LinkError::Unsupported)?;
        Ok(BareXdp { rail, mode })
    }

    /// Returns the mode of the program.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Returns the slot of frames for these sockets.
    pub fn slot(&self) -> u16 {
        self.rail.slot
    }

    /// Sends one frame, Ethernet header included.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room now; `NetworkDown` if the interface is down.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let connection = self.rail.connections.first_mut().ok_or(io::ErrorKind::NotConnected)?;
        let put = connection.put(|into| {
            let len = frame.len().min(into.len());
            into[..len].copy_from_slice(&frame[..len]);
            len
        });
        match (connection.flush(), put) {
            (Flushed::Down, _) => Err(io::ErrorKind::NetworkDown.into()),
            (_, false) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }

    /// Takes the next frame; returns its length with Ethernet header.
    #[inline]
    pub fn take(&mut self) -> Option<usize> {
        for connection in &mut self.rail.connections {
            if let Some(frame) = connection.next() {
                let len = frame.len();
                connection.end_burst();
                return Some(len);
            }
        }
        None
    }
}

impl AsFd for BareXdp {
    /// Returns the descriptor, which is readable when there is a frame in the first queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rail.connections[0].fd()
    }
}

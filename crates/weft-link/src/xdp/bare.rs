//! The link's program, sockets and rings with nothing around them: what a link on them can reach at
//! best.

use super::open::{self, Rail};
use super::sys::Flushed;
use super::{XdpConfig, XdpMode};
use crate::ether::Interface;
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An AF_XDP socket on each queue of one interface, for measurements: opened as
/// [`XdpLink`](super::XdpLink) does it, in the same mode, and no more.
pub struct BareXdp {
    rail: Rail,
    mode: XdpMode,
}

impl BareXdp {
    /// Opens them; of the configuration, the interfaces do not matter.
    ///
    /// # Errors
    /// As [`XdpLink::new`](super::XdpLink::new) for this interface.
    pub fn open(interface: &Interface, config: &XdpConfig) -> Result<BareXdp, LinkError> {
        let rail = open::open(config, interface)?;
        let mode = rail.mode.ok_or(LinkError::Unsupported)?;
        Ok(BareXdp { rail, mode })
    }

    /// How it works.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The slot that frames for it carry.
    pub fn slot(&self) -> u16 {
        self.rail.slot
    }

    /// Sends one frame, Ethernet header included.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room now; `NetworkDown` when the interface is.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let way = self.rail.ways.first_mut().ok_or(io::ErrorKind::NotConnected)?;
        let put = way.put(|into| {
            let len = frame.len().min(into.len());
            into[..len].copy_from_slice(&frame[..len]);
            len
        });
        match (way.flush(), put) {
            (Flushed::Down, _) => Err(io::ErrorKind::NetworkDown.into()),
            (_, false) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }

    /// Takes the next frame; its length, Ethernet header included.
    #[inline]
    pub fn take(&mut self) -> Option<usize> {
        for way in &mut self.rail.ways {
            if let Some(frame) = way.next() {
                let len = frame.len();
                way.settle();
                return Some(len);
            }
        }
        None
    }
}

impl AsFd for BareXdp {
    /// Readable when there is a frame in the first queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rail.ways[0].fd()
    }
}

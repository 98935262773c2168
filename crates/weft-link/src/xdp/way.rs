//! How frames get from an interface into this process and back: by a queue of its own, or by a
//! packet socket in its place.

use super::sys::{Flushed, Port, Statistics};
use crate::packet::{Sent, StandIn};
use std::os::fd::BorrowedFd;

/// One of the two.
pub(super) enum Way {
    /// An AF_XDP socket on a queue.
    Queue(Port),
    /// A packet socket: the queue serves another process.
    StandIn(StandIn),
}

impl Way {
    /// The AF_XDP socket, where it is one.
    pub fn port(&self) -> Option<&Port> {
        match self {
            Way::Queue(port) => Some(port),
            Way::StandIn(_) => None,
        }
    }

    /// The packet socket, where it is one.
    pub fn stand_in(&self) -> Option<&StandIn> {
        match self {
            Way::Queue(_) => None,
            Way::StandIn(socket) => Some(socket),
        }
    }

    /// Readable when there is something to receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Way::Queue(port) => port.fd(),
            Way::StandIn(socket) => socket.fd(),
        }
    }

    /// Whether nothing was received.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        match self {
            Way::Queue(port) => port.is_empty(),
            Way::StandIn(socket) => socket.is_empty(),
        }
    }

    /// The next received frame; see [`Port::next`].
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        match self {
            Way::Queue(port) => port.next(),
            Way::StandIn(socket) => socket.next(),
        }
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn settle(&mut self) {
        match self {
            Way::Queue(port) => port.settle(),
            Way::StandIn(socket) => socket.settle(),
        }
    }

    /// Lets the kernel poll the card.
    pub fn busy_poll(&self) {
        if let Way::Queue(port) = self {
            port.busy_poll();
        }
    }

    /// Puts up one frame for sending; see [`Port::put`].
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match self {
            Way::Queue(port) => port.put(write),
            Way::StandIn(socket) => socket.put(write),
        }
    }

    /// Whether frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match self {
            Way::Queue(port) => port.has_unsent(),
            Way::StandIn(socket) => socket.has_unsent(),
        }
    }

    /// Sends what was put up.
    #[inline]
    pub fn flush(&mut self) -> Flushed {
        match self {
            Way::Queue(port) => port.flush(),
            Way::StandIn(socket) => match socket.flush() {
                Sent::All => Flushed::Gone,
                Sent::Some => Flushed::Some,
                Sent::Down => Flushed::Down,
            },
        }
    }

    /// Something about the interface changed.
    pub fn changed(&self) {
        if let Way::StandIn(socket) = self {
            socket.clear_error();
        }
    }

    /// What the kernel dropped.
    pub fn statistics(&self) -> Statistics {
        match self {
            Way::Queue(port) => port.socket().statistics().unwrap_or_default(),
            Way::StandIn(socket) => {
                Statistics { ring_full: socket.drops(), ..Statistics::default() }
            }
        }
    }
}

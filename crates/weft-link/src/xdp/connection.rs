//! The connection of an endpoint to an interface: a queue of its own, a share of a queue, or a
//! packet socket in place of a queue.

use super::share::QueueShare;
use super::sys::{Flushed, Port, Statistics};
use crate::packet::{FallbackSocket, Sent};
use std::os::fd::BorrowedFd;

/// One of the three connections.
pub(super) enum Connection {
    /// An AF_XDP socket on a queue.
    Queue(Port),
    /// A share of a queue that other endpoints of this process use too.
    QueueShare(QueueShare),
    /// A packet socket, because the queue serves another process.
    FallbackSocket(FallbackSocket),
}

impl Connection {
    /// Returns the AF_XDP socket, if it is one.
    pub fn port(&self) -> Option<&Port> {
        match self {
            Connection::Queue(port) => Some(port),
            _ => None,
        }
    }

    /// Returns the packet socket, if it is one.
    pub fn fallback(&self) -> Option<&FallbackSocket> {
        match self {
            Connection::FallbackSocket(socket) => Some(socket),
            _ => None,
        }
    }

    /// True if the driver uses our memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        match self {
            Connection::Queue(port) => port.is_zero_copy(),
            Connection::QueueShare(share) => share.is_zero_copy(),
            Connection::FallbackSocket(_) => false,
        }
    }

    /// Drops frames of the last endpoint, because another endpoint has the slot now.
    pub fn clear(&mut self) {
        if let Connection::QueueShare(share) = self {
            share.clear();
        }
    }

    /// Returns the descriptor, readable if there is a frame to receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Queue(port) => port.fd(),
            Connection::QueueShare(share) => share.fd(),
            Connection::FallbackSocket(socket) => socket.fd(),
        }
    }

    /// True if no frame was received.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        match self {
            Connection::Queue(port) => port.is_empty(),
            Connection::QueueShare(share) => share.is_empty(),
            Connection::FallbackSocket(socket) => socket.is_empty(),
        }
    }

    /// Returns the next received frame; see [`Port::next`].
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        match self {
            Connection::Queue(port) => port.next(),
            Connection::QueueShare(share) => share.next(),
            Connection::FallbackSocket(socket) => socket.next(),
        }
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn end_burst(&mut self) {
        match self {
            Connection::Queue(port) => port.end_burst(),
            Connection::QueueShare(share) => share.end_burst(),
            Connection::FallbackSocket(socket) => socket.end_burst(),
        }
    }

    /// Lets the kernel poll the card.
    pub fn busy_poll(&self) {
        match self {
            Connection::Queue(port) => port.busy_poll(),
            Connection::QueueShare(share) => share.busy_poll(),
            Connection::FallbackSocket(_) => {}
        }
    }

    /// Queues one frame for sending; see [`Port::put`].
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match self {
            Connection::Queue(port) => port.put(write),
            Connection::QueueShare(share) => share.put(write),
            Connection::FallbackSocket(socket) => socket.put(write),
        }
    }

    /// True if frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match self {
            Connection::Queue(port) => port.has_unsent(),
            Connection::QueueShare(share) => share.has_unsent(),
            Connection::FallbackSocket(socket) => socket.has_unsent(),
        }
    }

    /// Sends the queued frames.
    #[inline]
    pub fn flush(&mut self) -> Flushed {
        match self {
            Connection::Queue(port) => port.flush(),
            Connection::QueueShare(share) => share.flush(),
            Connection::FallbackSocket(socket) => match socket.flush() {
                Sent::All => Flushed::Gone,
                Sent::Some => Flushed::Some,
                Sent::Down => Flushed::Down,
            },
        }
    }

    /// Handles a change of the interface's state.
    pub fn changed(&self) {
        if let Connection::FallbackSocket(socket) = self {
            socket.clear_error();
        }
    }

    /// Returns the frames that the kernel dropped.
    pub fn statistics(&self) -> Statistics {
        match self {
            Connection::Queue(port) => port.socket().statistics().unwrap_or_default(),
            Connection::QueueShare(share) => share.statistics(),
            Connection::FallbackSocket(socket) => {
                Statistics { ring_full: socket.drops(), ..Statistics::default() }
            }
        }
    }
}

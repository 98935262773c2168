//! The connection of an endpoint to an interface: a queue of its own, a share of a queue, or a
//! packet socket in place of a queue.

use super::share::Seat;
use super::sys::{Flushed, Port, Statistics};
use crate::packet::{Sent, StandIn};
use std::os::fd::BorrowedFd;

/// One of the three connections.
pub(super) enum Way {
    /// An AF_XDP socket on a queue.
    Queue(Port),
    /// A share of a queue that other endpoints of this process use too.
    Seat(Seat),
    /// A packet socket, because the queue serves another process.
    StandIn(StandIn),
}

impl Way {
    /// Returns the AF_XDP socket, if it is one.
    pub fn port(&self) -> Option<&Port> {
        match self {
            Way::Queue(port) => Some(port),
            _ => None,
        }
    }

    /// Returns the packet socket, if it is one.
    pub fn stand_in(&self) -> Option<&StandIn> {
        match self {
            Way::StandIn(socket) => Some(socket),
            _ => None,
        }
    }

    /// True if the driver uses our memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        match self {
            Way::Queue(port) => port.is_zero_copy(),
            Way::Seat(seat) => seat.is_zero_copy(),
            Way::StandIn(_) => false,
        }
    }

    /// Drops frames of the last endpoint, because another endpoint has the slot now.
    pub fn clear(&mut self) {
        if let Way::Seat(seat) = self {
            seat.clear();
        }
    }

    /// Returns the descriptor, readable if there is a frame to receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Way::Queue(port) => port.fd(),
            Way::Seat(seat) => seat.fd(),
            Way::StandIn(socket) => socket.fd(),
        }
    }

    /// True if no frame was received.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        match self {
            Way::Queue(port) => port.is_empty(),
            Way::Seat(seat) => seat.is_empty(),
            Way::StandIn(socket) => socket.is_empty(),
        }
    }

    /// Returns the next received frame; see [`Port::next`].
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        match self {
            Way::Queue(port) => port.next(),
            Way::Seat(seat) => seat.next(),
            Way::StandIn(socket) => socket.next(),
        }
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn settle(&mut self) {
        match self {
            Way::Queue(port) => port.settle(),
            Way::Seat(seat) => seat.settle(),
            Way::StandIn(socket) => socket.settle(),
        }
    }

    /// Lets the kernel poll the card.
    pub fn busy_poll(&self) {
        match self {
            Way::Queue(port) => port.busy_poll(),
            Way::Seat(seat) => seat.busy_poll(),
            Way::StandIn(_) => {}
        }
    }

    /// Queues one frame for sending; see [`Port::put`].
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match self {
            Way::Queue(port) => port.put(write),
            Way::Seat(seat) => seat.put(write),
            Way::StandIn(socket) => socket.put(write),
        }
    }

    /// True if frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match self {
            Way::Queue(port) => port.has_unsent(),
            Way::Seat(seat) => seat.has_unsent(),
            Way::StandIn(socket) => socket.has_unsent(),
        }
    }

    /// Sends the queued frames.
    #[inline]
    pub fn flush(&mut self) -> Flushed {
        match self {
            Way::Queue(port) => port.flush(),
            Way::Seat(seat) => seat.flush(),
            Way::StandIn(socket) => match socket.flush() {
                Sent::All => Flushed::Gone,
                Sent::Some => Flushed::Some,
                Sent::Down => Flushed::Down,
            },
        }
    }

    /// Handles a change of the interface's state.
    pub fn changed(&self) {
        if let Way::StandIn(socket) = self {
            socket.clear_error();
        }
    }

    /// Returns the frames that the kernel dropped.
    pub fn statistics(&self) -> Statistics {
        match self {
            Way::Queue(port) => port.socket().statistics().unwrap_or_default(),
            Way::Seat(seat) => seat.statistics(),
            Way::StandIn(socket) => {
                Statistics { ring_full: socket.drops(), ..Statistics::default() }
            }
        }
    }
}

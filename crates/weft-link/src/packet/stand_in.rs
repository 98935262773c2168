//! A packet socket that stands in for the queue which an endpoint of the XDP link did not get: the
//! same frames, delivered by the network stack.

use super::seat::{GroupName, Seat};
use super::sys::{Carries, Geometry, BURST};
use super::SEND_BUFFER;
use crate::ether::{EtherHead, EtherType, Interface};
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What became of the frames that were put up for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// On their way.
    All,
    /// The kernel has no room for some; flush again later.
    Some,
    /// The interface is down or gone, and they are lost.
    Down,
}

/// A packet socket with its receive ring and the frames on their way to it.
pub(crate) struct StandIn {
    seat: Seat,
    /// Frames to send, `stride` bytes apart.
    out: Box<[u8]>,
    stride: usize,
    lens: [u32; BURST],
    /// Those from `from` up to `to` wait.
    from: usize,
    to: usize,
    /// The frame at the ring's head was given out.
    held: bool,
    /// Frames the kernel refused to send, for other reasons than room.
    pub errors: u64,
    /// Frames for another station, or cut off, as they were longer than the ring's frames.
    pub unusable: u64,
    drops: std::cell::Cell<u64>,
}

impl StandIn {
    /// Takes a place among the endpoints of the job on the interface that have no queue. Frames
    /// arrive from now on.
    ///
    /// # Errors
    /// As [`PacketLink::new`](super::PacketLink::new).
    pub fn take(job: u64, kind: EtherType, interface: &Interface) -> Result<StandIn, LinkError> {
        let carries = Carries::Packets(kind);
        let group = GroupName { job, carries, interface: interface.index, xdp: true };
        let seat = Seat::take(&group, Geometry::new(interface.mtu, 0), SEND_BUFFER)?;
        let stride = (interface.mtu as usize + EtherHead::ETHERNET).next_multiple_of(64);
        Ok(StandIn {
            seat,
            out: vec![0; stride * BURST].into(),
            stride,
            lens: [0; BURST],
            from: 0,
            to: 0,
            held: false,
            errors: 0,
            unusable: 0,
            drops: std::cell::Cell::new(0),
        })
    }

    /// The number that peers put into their frames.
    pub fn slot(&self) -> u16 {
        self.seat.slot
    }

    /// It is the first one of its job on the interface.
    pub fn is_first(&self) -> bool {
        self.seat.index() == 0
    }

    /// Readable when there is something to receive, or the interface went down.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.seat.socket.fd.as_fd()
    }

    /// The next received frame, Ethernet header included. It is ours until the next call of this or
    /// of `settle`.
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        self.settle();
        // A flood of frames of no use cannot keep us here.
        for _ in 0..BURST {
            let seen = self.seat.ring.peek()?;
            if seen.station == libc::PACKET_HOST && seen.whole {
                self.held = true;
                break;
            }
            self.unusable += 1;
            self.seat.ring.release();
        }
        match self.held {
            true => self.seat.ring.peek().map(|seen| seen.bytes),
            false => None,
        }
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.held) {
            self.seat.ring.release();
        }
    }

    /// Whether nothing was received.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        !self.seat.ring.ready()
    }

    /// Puts up one frame for sending: `write` fills it and says its length. False if there is no
    /// room now. A length of 0 puts up nothing.
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.to == BURST {
            return false;
        }
        let len = write(&mut self.out[self.to * self.stride..][..self.stride]).min(self.stride);
        if len > 0 {
            self.lens[self.to] = len as u32;
            self.to += 1;
        }
        true
    }

    /// Whether frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.from < self.to
    }

    /// Sends what was put up.
    #[inline]
    pub fn flush(&mut self) -> Sent {
        let mut stale = false;
        while self.from < self.to {
            match self.hand_over() {
                Ok(sent) => self.from += sent,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => return Sent::Some,
                    // Of a time when the interface was down; said once.
                    Some(libc::ENETDOWN) if !std::mem::replace(&mut stale, true) => {}
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        self.errors += (self.to - self.from) as u64;
                        (self.from, self.to) = (0, 0);
                        return Sent::Down;
                    }
                    _ => {
                        // As good as lost on the way.
                        self.errors += 1;
                        self.from += 1;
                    }
                },
            }
        }
        (self.from, self.to) = (0, 0);
        Sent::All
    }

    #[inline]
    fn hand_over(&mut self) -> io::Result<usize> {
        let out = &self.out[self.from * self.stride..];
        let lens = &self.lens[self.from..self.to];
        match lens {
            [one] => self.seat.socket.send(&out[..*one as usize]).map(|()| 1),
            _ => self.seat.socket.send_many(out, self.stride, lens),
        }
    }

    /// Frames lost as the ring was full.
    pub fn drops(&self) -> u64 {
        self.drops.set(self.drops.get() + self.seat.socket.drops());
        self.drops.get()
    }

    /// The interface went down or came back, and the socket is no longer readable for that.
    pub fn clear_error(&self) {
        self.seat.socket.clear_error();
    }
}

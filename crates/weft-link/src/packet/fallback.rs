//! A packet socket in place of the queue that an endpoint of the XDP link did not get: the same
//! frames, delivered by the network stack.

use super::fanout::{FanoutMember, GroupName};
use super::sys::{Carries, Geometry, BURST};
use super::SEND_BUFFER;
use crate::ether::{EtherHead, EtherType, Interface};
use crate::no_buffers::NoBuffers;
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All frames are sent.
    All,
    /// The kernel has no room for some frames; flush again later.
    Some,
    /// The interface is down or gone; the frames are lost.
    Down,
}

/// A packet socket with its receive ring, and the frames that wait to be sent.
pub(crate) struct FallbackSocket {
    membership: FanoutMember,
    /// Frames to send, `stride` bytes apart.
    out: Box<[u8]>,
    stride: usize,
    lens: [u32; BURST],
    /// The frames with indices in `from..to` wait.
    from: usize,
    to: usize,
    /// The caller of `next` still uses the frame at the ring's head.
    held: bool,
    /// Frames that the kernel refused to send, for another reason than missing room.
    pub errors: u64,
    no_buffers: NoBuffers,
    /// Frames for another station, and frames cut because they were longer than the ring's frames.
    pub unusable: u64,
    drops: std::cell::Cell<u64>,
}

impl FallbackSocket {
    /// Joins the endpoints of the job on the interface that have no queue. Frames arrive from now
    /// on.
    ///
    /// # Errors
    /// Returns the errors of [`PacketLink::new`](super::PacketLink::new).
    pub fn take(
        job: u64,
        kind: EtherType,
        interface: &Interface,
    ) -> Result<FallbackSocket, LinkError> {
        let carries = Carries::Packets(kind);
        let group = GroupName { job, carries, interface: interface.index, xdp: true };
        let membership = FanoutMember::take(&group, Geometry::new(interface.mtu, 0), SEND_BUFFER)?;
        let stride = (interface.mtu as usize + EtherHead::ETHERNET).next_multiple_of(64);
        Ok(FallbackSocket {
            membership,
            out: vec![0; stride * BURST].into(),
            stride,
            lens: [0; BURST],
            from: 0,
            to: 0,
            held: false,
            errors: 0,
            no_buffers: NoBuffers::default(),
            unusable: 0,
            drops: std::cell::Cell::new(0),
        })
    }

    /// Returns the number that peers put into their frames.
    pub fn slot(&self) -> u16 {
        self.membership.slot
    }

    /// True if it is the first one of its job on the interface.
    pub fn is_first(&self) -> bool {
        self.membership.index() == 0
    }

    /// Returns the descriptor, readable if there is a frame, or if the interface went down.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.membership.socket.fd.as_fd()
    }

    /// Returns the next received frame, Ethernet header included. The frame is valid until the next
    /// call of this method or of `end_burst`.
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        self.end_burst();
        // The bound ends the loop under a flood of useless frames.
        for _ in 0..BURST {
            let seen = self.membership.ring.peek()?;
            if seen.station == libc::PACKET_HOST && seen.whole {
                self.held = true;
                break;
            }
            self.unusable += 1;
            self.membership.ring.release();
        }
        match self.held {
            true => self.membership.ring.peek().map(|seen| seen.bytes),
            false => None,
        }
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn end_burst(&mut self) {
        if std::mem::take(&mut self.held) {
            self.membership.ring.release();
        }
    }

    /// True if no frame was received.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        !self.membership.ring.ready()
    }

    /// Queues one frame: `write` fills it and returns its length; 0 queues nothing. False if there
    /// is no room now.
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

    /// True if frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.from < self.to
    }

    /// Sends the queued frames.
    #[inline]
    pub fn flush(&mut self) -> Sent {
        let mut stale = false;
        while self.from < self.to {
            match self.hand_over() {
                Ok(sent) => {
                    self.no_buffers.end();
                    self.from += sent;
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => return Sent::Some,
                    Some(libc::ENOBUFS) if !self.no_buffers.is_lasting() => return Sent::Some,
                    // An error from the time when the interface was down; the socket reports it
                    // once.
                    Some(libc::ENETDOWN) if !std::mem::replace(&mut stale, true) => {}
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        self.errors += (self.to - self.from) as u64;
                        (self.from, self.to) = (0, 0);
                        return Sent::Down;
                    }
                    _ => {
                        // A frame that the socket refuses counts as lost on the network.
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
            [one] => self.membership.socket.send(&out[..*one as usize]).map(|()| 1),
            _ => self.membership.socket.send_many(out, self.stride, lens),
        }
    }

    /// Returns the number of frames lost because the ring was full.
    pub fn drops(&self) -> u64 {
        self.drops.set(self.drops.get() + self.membership.socket.drops());
        self.drops.get()
    }

    /// Clears the error of an interface that went down or came back, so that the socket is no
    /// longer readable because of the error.
    pub fn clear_error(&self) {
        self.membership.socket.clear_error();
    }
}

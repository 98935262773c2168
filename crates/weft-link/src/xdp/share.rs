//! One queue for several endpoints of a process, which have different slots. The program sends the
//! frames of all of them to one socket, and an endpoint stores frames for others in their lists. So
//! an agent serves many ranks over a queue, for which the kernel allows one socket.

use super::sys::{Flushed, Port, Statistics};
use crate::ether::EtherFrame;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Highest number of stored frames of one endpoint; further ones are lost, as when a ring is full.
const ASIDE_MAX: usize = 512;
/// Highest number of frames of others stored in one poll.
const QUEUES_MAX: usize = 256;
/// Highest number of spare frame buffers.
const SPARE_MAX: usize = 1024;

/// The stored frames of one endpoint.
#[derive(Default)]
struct Aside {
    frames: VecDeque<Vec<u8>>,
    lost: u64,
}

struct Queue {
    port: Port,
    aside: BTreeMap<u16, Aside>,
    spare: Vec<Vec<u8>>,
}

impl Queue {
    /// Takes the next frame for a slot into `current`.
    fn next(&mut self, slot: u16, current: &mut Vec<u8>) -> bool {
        if let Some(frame) = self.aside.get_mut(&slot).and_then(|a| a.frames.pop_front()) {
            let old = std::mem::replace(current, frame);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(old);
            }
            return true;
        }
        for _ in 0..QUEUES_MAX {
            let Some(bytes) = self.port.next() else { break };
            let of = EtherFrame::new_checked(&*bytes, None).map(|view| view.slot());
            let other = of.ok().filter(|of| *of != slot);
            let Some(aside) = other.and_then(|of| self.aside.get_mut(&of)) else {
                // A frame of its own, or of no endpoint: the caller counts the error.
                current.clear();
                current.extend_from_slice(bytes);
                return true;
            };
            if aside.frames.len() >= ASIDE_MAX {
                aside.lost += 1;
                continue;
            }
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(bytes);
            aside.frames.push_back(frame);
        }
        false
    }
}

/// An endpoint's part of a queue.
pub(super) struct QueueShare {
    queue: Rc<RefCell<Queue>>,
    slot: u16,
    current: Vec<u8>,
    fd: OwnedFd,
}

/// Divides a queue among the endpoints that have these slots.
///
/// # Errors
/// No descriptors are left.
pub(super) fn share(port: Port, slots: &[u16]) -> io::Result<Vec<QueueShare>> {
    let fds: Vec<OwnedFd> =
        slots.iter().map(|_| port.fd().try_clone_to_owned()).collect::<Result<_, _>>()?;
    let aside = slots.iter().map(|&slot| (slot, Aside::default())).collect();
    let queue = Rc::new(RefCell::new(Queue { port, aside, spare: Vec::new() }));
    let part = |(&slot, fd)| QueueShare { queue: Rc::clone(&queue), slot, current: Vec::new(), fd };
    Ok(slots.iter().zip(fds).map(part).collect())
}

impl QueueShare {
    /// Returns the descriptor, readable if there is a frame, possibly for another endpoint.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True if the driver uses the memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.queue.borrow().port.is_zero_copy()
    }

    /// True if no frame was received, for any endpoint.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let queue = self.queue.borrow();
        queue.port.is_empty() && queue.aside.get(&self.slot).is_none_or(|a| a.frames.is_empty())
    }

    /// Returns the next frame for this endpoint; see [`Port::next`].
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        let found = self.queue.borrow_mut().next(self.slot, &mut self.current);
        found.then_some(&mut self.current)
    }

    /// Ends a burst of `next`.
    #[inline]
    pub fn end_burst(&mut self) {
        self.queue.borrow_mut().port.end_burst();
    }

    /// Drops the stored frames, because another endpoint has the slot now.
    pub fn clear(&mut self) {
        if let Some(aside) = self.queue.borrow_mut().aside.get_mut(&self.slot) {
            aside.frames.clear();
        }
    }

    /// Lets the kernel poll the card.
    pub fn busy_poll(&self) {
        self.queue.borrow().port.busy_poll();
    }

    /// Queues one frame for sending; see [`Port::put`].
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        self.queue.borrow_mut().port.put(write)
    }

    /// True if frames wait for a flush, of any endpoint.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.queue.borrow().port.has_unsent()
    }

    /// Sends the queued frames.
    #[inline]
    pub fn flush(&mut self) -> Flushed {
        self.queue.borrow_mut().port.flush()
    }

    /// Returns the frames that the kernel dropped, for any endpoint, and those lost because the
    /// list was full.
    pub fn statistics(&self) -> Statistics {
        let queue = self.queue.borrow();
        let mut all = queue.port.socket().statistics().unwrap_or_default();
        all.ring_full += queue.aside.get(&self.slot).map_or(0, |aside| aside.lost);
        all
    }
}

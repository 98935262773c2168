//! Reads and writes of the memory that a program lends to a request, by this library and by
//! operations of the endpoint.
//!
//! Nobody but a program in C makes a [`Segment`], and so a [`Memory`] of any but the library's own
//! bytes: it lends them until the request has ended. The requests keep their memory until their
//! operations have ended, or take these back before.

use super::{Many, Memory, Segment};
use crate::copier::Job;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weft::memory::{copied, reserved};
use weft::{Endpoint, OpId, RecvArgs, Refused, SendArgs};
use weft_core::engine::types::Claimed;
use weft_core::matching::RecvSpec;
use weft_link::Held;

impl Segment {
    /// Makes a segment.
    ///
    /// # Safety
    /// The memory is there, and nobody else's where it is received into, until the request that
    /// gets the segment has ended.
    pub unsafe fn new(at: *mut u8, len: u32) -> Segment {
        Segment { at, len }
    }
}

impl Many {
    /// Copies bytes to the segments, in order.
    fn spread(&self, mut rest: &[u8]) {
        for &(at, len) in &self.segments {
            let (part, after) = rest.split_at(len.min(rest.len()));
            // SAFETY: the program lends the segments to the request.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            rest = after;
        }
    }
}

impl Memory {
    /// Makes one piece with the bytes of the segments, if there are several. `None` if there is no
    /// memory for it.
    #[inline]
    pub fn gather(&mut self) -> Option<()> {
        let Some(many) = &mut self.many else { return Some(()) };
        many.piece = reserved(self.len)?;
        for &(at, len) in &many.segments {
            // SAFETY: the program lends the segments to the request.
            many.piece.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
        }
        Some(())
    }

    /// Starts a send of the piece, all of it; the length in `args` is none. `None` as of
    /// [`weft::endpoint::Posted::send`].
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::send`].
    #[inline]
    pub fn send(&mut self, endpoint: &Endpoint, args: SendArgs) -> Result<Option<OpId>, Refused> {
        let (at, len) = self.whole();
        // SAFETY: memory of the request, until the operation has ended.
        unsafe { endpoint.posted().send(at, SendArgs { len: len as u64, ..args }) }
    }

    /// Expects a message, if the bytes are in one piece of the program. False if its receive must
    /// be posted.
    #[inline]
    pub fn expect(&mut self, endpoint: &Endpoint, (tag, ignore): (u64, u64)) -> bool {
        let (at, len) = self.whole();
        let spec = RecvSpec { source: None, tag, ignore };
        // SAFETY: memory of the request, whose end forgets the expectation.
        self.is_one_piece() && unsafe { endpoint.posted().expect(at, len, spec) }
    }

    /// Starts a receive. `None` without resources.
    pub fn receive(
        &mut self,
        endpoint: &Endpoint,
        matching: (u64, u64),
        context: u64,
    ) -> Option<OpId> {
        let (at, args) = self.args(matching, context)?;
        // SAFETY: memory of the request, until the operation has ended.
        unsafe { endpoint.posted().recv(at, args) }.ok()
    }

    /// Starts the receive of a claimed message. `None` without resources.
    pub fn receive_claimed(
        &mut self,
        endpoint: &Endpoint,
        claimed: Claimed,
        context: u64,
    ) -> Option<OpId> {
        let (at, args) = self.args((0, u64::MAX), context)?;
        // SAFETY: memory of the request or the message, until the operation has ended.
        unsafe { endpoint.posted().recv_claimed(claimed, at, args) }.ok()
    }

    fn args(&mut self, (tag, ignore): (u64, u64), context: u64) -> Option<(*mut u8, RecvArgs)> {
        self.make_room()?;
        let (at, len) = self.whole();
        let (source, addr, untagged) = (None, 0, false);
        Some((at, RecvArgs { source, tag, ignore, len: len as u64, addr, context, untagged }))
    }

    /// Moves received bytes from the piece to the segments.
    #[inline]
    pub fn scatter(&self, stored: usize) {
        let Some(many) = &self.many else { return };
        many.spread(&many.piece[..stored.min(many.piece.len())]);
    }

    /// Stores a message that lies elsewhere.
    pub fn fill(&mut self, data: &[u8]) {
        let stored = &data[..data.len().min(self.len)];
        match &self.many {
            Some(many) => many.spread(stored),
            None => {
                // SAFETY: the program lends the one segment, of `len` bytes, to the request.
                unsafe { self.whole().0.copy_from_nonoverlapping(stored.as_ptr(), stored.len()) }
            }
        }
    }

    /// Returns a copy of the piece. `None` if there is no memory for it.
    pub fn copied(&mut self) -> Option<Vec<u8>> {
        let (at, len) = self.whole();
        // SAFETY: memory of the request.
        copied(unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Returns the bytes of the piece, to be dropped before the request ends.
    pub fn borrowed(&mut self) -> Borrowed {
        let (at, len) = self.whole();
        Borrowed(at, len)
    }

    /// Returns the segments as the place of a message, to be dropped before the request ends.
    pub fn target(&self) -> Target {
        let parts = match &self.many {
            Some(many) => many.segments.clone(),
            None if self.len == 0 => Vec::new(),
            None => vec![(self.at, self.len)],
        };
        Target { parts, pending: Arc::default() }
    }
}

/// The bytes of a message that a program has lent.
pub struct Borrowed(*const u8, usize);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: memory of a request that has not ended.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

/// The place of a message that comes in parts. It ends when all copies to it have ended.
pub struct Target {
    parts: Vec<(*mut u8, usize)>,
    /// Copies by another thread.
    pending: Arc<AtomicUsize>,
}

impl Target {
    /// Returns the pieces of memory from an offset on, with a length in all.
    fn pieces(&self, mut at: usize, mut len: usize) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        self.parts.iter().filter_map(move |&(part, size)| {
            let skip = at.min(size);
            at -= skip;
            let part_len = len.min(size - skip);
            len -= part_len;
            (part_len > 0).then(|| (part.wrapping_add(skip), part_len))
        })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, len)| len).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores bytes at an offset, as much as there is room for.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for (to, len) in self.pieces(at, bytes.len()) {
            let (part, after) = rest.split_at(len);
            // SAFETY: the program has lent the memory until this is dropped; `bytes` lies in the
            // library's own memory.
            unsafe { to.copy_from_nonoverlapping(part.as_ptr(), len) };
            rest = after;
        }
    }

    /// Returns the same as work for another thread: to store the bytes of a frame from `from` on.
    /// `None` if they lie in several pieces.
    pub fn job(
        &mut self,
        at: usize,
        frame: Held,
        (from, len): (usize, usize),
    ) -> Result<Job, Held> {
        let mut pieces = self.pieces(at, len);
        match (pieces.next(), frame.bytes().len() >= from + len) {
            (Some((to, of)), true) if of == len => {
                self.pending.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the memory is the program's until this is dropped, which waits for the
                // end of the work.
                Ok(unsafe { Job::new(frame, (from, len), to, Arc::clone(&self.pending)) })
            }
            _ => Err(frame),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let mut polls = 0u32;
        while self.pending.load(Ordering::Acquire) > 0 {
            polls += 1;
            match polls % 64 {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

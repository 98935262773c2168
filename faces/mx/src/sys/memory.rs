//! The memory of requests: segments of the program, and one piece that stands for several.

use super::abi::Segment;
use super::copier::Job;
use crate::code::{self, Answer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weft::memory::{reserved, seems_mapped, zeroed};
use weft_link::Held;

/// Most segments of a request.
const SEGMENTS_MAX: u32 = 256;

/// The memory of a request. It is moved with each request, so what few of them have lies elsewhere.
pub struct Memory {
    /// The one segment; null if there is none, or if there are several.
    at: *mut u8,
    len: usize,
    many: Option<Box<Many>>,
}

/// Several segments.
struct Many {
    /// The program's segments, but for empty ones.
    segments: Vec<(*mut u8, usize)>,
    /// Memory for all segments together.
    piece: Vec<u8>,
}

/// True if a segment may be memory of this process.
#[inline]
fn is_there(segment: &Segment) -> bool {
    segment.len == 0
        || !segment.at.is_null() && seems_mapped(segment.at.cast(), segment.len as usize)
}

impl Many {
    /// Copies bytes to the segments, in order.
    ///
    /// # Safety
    /// The segments are there, and nobody else's.
    unsafe fn spread(&self, mut rest: &[u8]) {
        for &(at, len) in &self.segments {
            let (part, after) = rest.split_at(len.min(rest.len()));
            // SAFETY: promised by the caller.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            rest = after;
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { at: std::ptr::null_mut(), len: 0, many: None }
    }
}

impl Memory {
    /// Reads a list of segments.
    ///
    /// # Errors
    /// `MX_BAD_SEG_CNT`, `MX_BAD_SEG_LIST`, `MX_BAD_SEG_MEM`.
    ///
    /// # Safety
    /// `list` is null, misaligned or has `count` segments, whose memory the program lends until the
    /// request has ended.
    #[inline]
    pub unsafe fn of(list: *const Segment, count: u32) -> Answer<Memory> {
        match count {
            0 => return Ok(Memory::default()),
            count if count > SEGMENTS_MAX => return Err(code::BAD_SEG_CNT),
            _ if list.is_null() || !list.is_aligned() => return Err(code::BAD_SEG_LIST),
            _ => {}
        }
        // SAFETY: promised by the caller.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        match list {
            [one] if one.len == 0 => Ok(Memory::default()),
            [one] if !is_there(one) => Err(code::BAD_SEG_MEM),
            [one] => Ok(Memory { at: one.at, len: one.len as usize, many: None }),
            list => Memory::of_many(list),
        }
    }

    fn of_many(list: &[Segment]) -> Answer<Memory> {
        let mut segments = Vec::new();
        let mut len = 0;
        for segment in list.iter().filter(|segment| segment.len > 0) {
            if segment.at.is_null() {
                return Err(code::BAD_SEG_MEM);
            }
            len += segment.len as usize;
            segments.push((segment.at, segment.len as usize));
        }
        // Lengths in statuses have 32 bits.
        u32::try_from(len).map_err(|_| code::BAD_SEG_CNT)?;
        if !list.iter().all(is_there) {
            return Err(code::BAD_SEG_MEM);
        }
        Ok(match segments[..] {
            [] => Memory::default(),
            [(at, len)] => Memory { at, len, many: None },
            _ => {
                let many = Some(Box::new(Many { segments, piece: Vec::new() }));
                Memory { at: std::ptr::null_mut(), len, many }
            }
        })
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the one segment.
    #[inline]
    fn single(&self) -> *mut u8 {
        if self.at.is_null() {
            return std::ptr::dangling_mut();
        }
        self.at
    }

    /// Makes the segments one piece with their bytes; returns its address, or `None` if there is
    /// no memory for it.
    ///
    /// # Safety
    /// The segments are there.
    #[inline]
    pub unsafe fn gather(&mut self) -> Option<*const u8> {
        let Some(many) = &mut self.many else { return Some(self.single()) };
        many.piece = reserved(self.len)?;
        for &(at, len) in &many.segments {
            // SAFETY: promised by the caller.
            many.piece.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
        }
        Some(many.piece.as_ptr())
    }

    /// Returns the address of memory for all bytes of a receive, or `None` if there is none.
    #[inline]
    pub fn room(&mut self) -> Option<*mut u8> {
        let Some(many) = &mut self.many else { return Some(self.single()) };
        if many.piece.len() < self.len {
            many.piece = zeroed(self.len)?;
        }
        Some(many.piece.as_mut_ptr())
    }

    /// Returns address and length, if the bytes are in one piece.
    #[inline]
    pub fn one_piece(&mut self) -> Option<(*mut u8, usize)> {
        self.many.is_none().then(|| (self.single(), self.len))
    }

    /// Moves received bytes from the piece to the segments.
    ///
    /// # Safety
    /// The segments are there, and nobody else's.
    #[inline]
    pub unsafe fn scatter(&mut self, stored: usize) {
        let Some(many) = &self.many else { return };
        let rest = &many.piece[..stored.min(many.piece.len())];
        // SAFETY: promised by the caller.
        unsafe { many.spread(rest) };
    }

    /// Stores a message that lies elsewhere.
    ///
    /// # Safety
    /// The caller keeps the rules of `scatter`.
    pub unsafe fn fill(&mut self, data: &[u8]) {
        let stored = &data[..data.len().min(self.len)];
        match &self.many {
            // SAFETY: promised by the caller.
            Some(many) => unsafe { many.spread(stored) },
            // SAFETY: promised by the caller: the one segment has `len` bytes.
            None => unsafe {
                self.single().copy_from_nonoverlapping(stored.as_ptr(), stored.len())
            },
        }
    }

    /// Returns the segments as the place of a message.
    ///
    /// # Safety
    /// The segments are there, and nobody else's, until the result is dropped.
    pub unsafe fn target(&self) -> Target {
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

impl Borrowed {
    /// Lends the bytes.
    ///
    /// # Safety
    /// The bytes are there and stay as they are until the result is dropped.
    pub unsafe fn of(at: *const u8, len: usize) -> Borrowed {
        Borrowed(at, len)
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: promised where it was made.
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
            // SAFETY: `skip` is at most the length of the part.
            (part_len > 0).then(|| (unsafe { part.add(skip) }, part_len))
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn put__parts_lie_across_segments() {
        let (mut a, mut b) = ([0u8; 5], [0u8; 7]);
        let segment = |at: *mut u8, len| Segment { at, len };
        let list = [segment(a.as_mut_ptr(), 5), segment(b.as_mut_ptr(), 7)];
        // SAFETY: the arrays outlive the target.
        let mut target = unsafe { Memory::of(list.as_ptr(), 2).unwrap().target() };
        target.put(8, &[8, 9, 10, 11, 12, 13]);
        target.put(0, &[0, 1, 2, 3]);
        target.put(4, &[4, 5, 6, 7]);
        drop(target);
        assert_eq!((a, b), ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11]));
    }
}

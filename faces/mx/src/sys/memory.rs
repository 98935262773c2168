//! The memory of requests: segments of the program, and one piece that stands for several.

use super::abi::Segment;
use crate::code::{self, Answer};

/// Most segments of a request.
const SEGMENTS_MAX: u32 = 256;

/// The memory of a request.
#[derive(Default)]
pub struct Memory {
    /// The program's segments, but for empty ones; at most one if there is no `piece`.
    segments: Vec<(*mut u8, usize)>,
    single: Option<(*mut u8, usize)>,
    /// Memory for all segments together.
    piece: Vec<u8>,
    len: usize,
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
    pub unsafe fn of(list: *const Segment, count: u32) -> Answer<Memory> {
        match count {
            0 => return Ok(Memory::default()),
            count if count > SEGMENTS_MAX => return Err(code::BAD_SEG_CNT),
            _ if list.is_null() || !list.is_aligned() => return Err(code::BAD_SEG_LIST),
            _ => {}
        }
        // SAFETY: promised by the caller.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        let mut memory = Memory::default();
        for segment in list.iter().filter(|segment| segment.len > 0) {
            if segment.at.is_null() {
                return Err(code::BAD_SEG_MEM);
            }
            let one = (segment.at, segment.len as usize);
            memory.len += one.1;
            if memory.single.is_none() {
                memory.single = Some(one);
            } else {
                let first = memory.single.filter(|_| memory.segments.is_empty());
                memory.segments.extend(first);
                memory.segments.push(one);
            }
        }
        // Lengths in statuses have 32 bits.
        match u32::try_from(memory.len) {
            Ok(_) => Ok(memory),
            Err(_) => Err(code::BAD_SEG_CNT),
        }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes the segments one piece with their bytes; returns its address.
    ///
    /// # Safety
    /// The segments are there.
    #[inline]
    pub unsafe fn gather(&mut self) -> *const u8 {
        if self.segments.is_empty() {
            return self.single.map_or(std::ptr::dangling(), |(at, _)| at.cast_const());
        }
        self.piece.reserve_exact(self.len);
        for &(at, len) in &self.segments {
            // SAFETY: promised by the caller.
            self.piece.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
        }
        self.piece.as_ptr()
    }

    /// Returns the address of memory for all bytes of a receive.
    #[inline]
    pub fn room(&mut self) -> *mut u8 {
        if self.segments.is_empty() {
            return self.single.map_or(std::ptr::dangling_mut(), |(at, _)| at);
        }
        self.piece.resize(self.len, 0);
        self.piece.as_mut_ptr()
    }

    /// Moves received bytes from the piece to the segments.
    ///
    /// # Safety
    /// The segments are there, and nobody else's.
    #[inline]
    pub unsafe fn scatter(&mut self, stored: usize) {
        let mut rest = &self.piece[..stored.min(self.piece.len())];
        for &(at, len) in &self.segments {
            let (part, after) = rest.split_at(len.min(rest.len()));
            // SAFETY: promised by the caller.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            rest = after;
        }
    }

    /// Stores a message that lies elsewhere.
    ///
    /// # Safety
    /// As of `scatter`.
    pub unsafe fn fill(&mut self, data: &[u8]) {
        let stored = data.len().min(self.len);
        let room = self.room();
        // SAFETY: `room` has `len` bytes of the program or of the piece.
        unsafe { room.copy_from_nonoverlapping(data.as_ptr(), stored) };
        // SAFETY: promised by the caller.
        unsafe { self.scatter(stored) };
    }
}

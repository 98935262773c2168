//! The memory of requests: segments of the program, and one piece that stands for several.

#[allow(unsafe_code)]
mod sys;

pub use sys::{Borrowed, Target};

use crate::code::{self, Answer};
use weft::memory::{seems_mapped, zeroed};
use weft::{Endpoint, OpId, Refused, SendArgs};
use weft_ffi::given::List;

/// Most segments of a request.
const SEGMENTS_MAX: usize = 256;

/// `mx_segment_t`: memory that the program lends from the call on that gets it until the request
/// has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    /// The first byte.
    at: *mut u8,
    /// Bytes.
    len: u32,
}

/// The memory of a request. It is moved with each request, so what few of them have lies elsewhere.
pub struct Memory {
    /// The one segment; null if there is none, or if there are several.
    at: *mut u8,
    len: usize,
    many: Option<Box<Many>>,
}

/// Several segments.
struct Many {
    /// The program's segments, but for empty ones; none of memory that is the library's own.
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
    #[inline]
    pub fn of(list: List<'_, Segment>) -> Answer<Memory> {
        match list.count() {
            0 => return Ok(Memory::default()),
            count if count > SEGMENTS_MAX => return Err(code::BAD_SEG_CNT),
            _ => {}
        }
        match list.read().ok_or(code::BAD_SEG_LIST)? {
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
            _ => Memory::many(segments, len, Vec::new()),
        })
    }

    fn many(segments: Vec<(*mut u8, usize)>, len: usize, piece: Vec<u8>) -> Memory {
        let many = Some(Box::new(Many { segments, piece }));
        Memory { at: std::ptr::null_mut(), len, many }
    }

    /// Makes memory of the library's own bytes.
    pub fn own(bytes: Vec<u8>) -> Memory {
        Memory::many(Vec::new(), bytes.len(), bytes)
    }

    /// Returns the library's own bytes.
    pub fn into_own(self) -> Vec<u8> {
        self.many.map(|many| many.piece).unwrap_or_default()
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the bytes are in one piece of the program.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.many.is_none()
    }

    /// Makes a piece for all bytes of a receive, if they are in several. `None` if there is no
    /// memory for it.
    #[inline]
    pub fn make_room(&mut self) -> Option<()> {
        let Some(many) = &mut self.many else { return Some(()) };
        if many.piece.len() < self.len {
            many.piece = zeroed(self.len)?;
        }
        Some(())
    }

    /// Starts a send, of a copy where `args` say so and there is room for one.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::send`].
    pub fn send_or_borrow(
        &mut self,
        endpoint: &Endpoint,
        args: SendArgs,
    ) -> Result<Option<OpId>, Refused> {
        match self.send(endpoint, args) {
            Err(Refused::Busy) if args.inject => {
                self.send(endpoint, SendArgs { inject: false, ..args })
            }
            sent => sent,
        }
    }

    /// Returns the address of all bytes in one piece, and the length of that.
    #[inline]
    fn whole(&mut self) -> (*mut u8, usize) {
        match &mut self.many {
            Some(many) => (many.piece.as_mut_ptr(), many.piece.len()),
            None if self.at.is_null() => (std::ptr::dangling_mut(), 0),
            None => (self.at, self.len),
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
        let mut list = [segment(a.as_mut_ptr(), 5), segment(b.as_mut_ptr(), 7)];
        let mut target = Memory::of(List::of(&mut list)).unwrap().target();
        target.put(8, &[8, 9, 10, 11, 12, 13]);
        target.put(0, &[0, 1, 2, 3]);
        target.put(4, &[4, 5, 6, 7]);
        drop(target);
        assert_eq!((a, b), ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11]));
    }

    #[test]
    fn of__lists_of_a_program_are_checked() {
        let mut bytes = [1u8, 2, 3];
        let at = bytes.as_mut_ptr();
        let code = |list: &mut [Segment]| Memory::of(List::of(list)).map(|of| of.len()).err();
        let (one, null) = (Segment { at, len: 3 }, Segment { at: std::ptr::null_mut(), len: 1 });
        assert_eq!((code(&mut []), code(&mut [one]), code(&mut [one, one])), (None, None, None));
        assert_eq!(code(&mut [one; SEGMENTS_MAX + 1]), Some(code::BAD_SEG_CNT));
        for mut wrong in [vec![null], vec![one, null]] {
            assert_eq!(code(&mut wrong), Some(code::BAD_SEG_MEM));
        }
        assert_eq!(code(&mut [Segment { at, len: u32::MAX }, one]), Some(code::BAD_SEG_CNT));
    }

    #[test]
    fn gather__one_piece_has_the_bytes_of_all_segments() {
        let (mut a, mut b) = ([1u8, 2], [3u8]);
        let mut list =
            [Segment { at: a.as_mut_ptr(), len: 2 }, Segment { at: b.as_mut_ptr(), len: 1 }];
        let mut memory = Memory::of(List::of(&mut list)).unwrap();
        assert!(!memory.is_one_piece() && memory.gather().is_some());
        assert_eq!(memory.copied().as_deref(), Some(&[1, 2, 3][..]));
        memory.fill(&[7, 8, 9, 10]);
        assert_eq!((a, b), ([7, 8], [9]));
        assert_eq!(Memory::own(vec![5]).into_own(), [5]);
    }
}

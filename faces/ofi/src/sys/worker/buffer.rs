//! Callers' buffers.

use libc::{c_void, iovec};

/// A caller's buffer, in one piece or several.
#[derive(Clone, Copy)]
pub enum Pieces<'a> {
    One(*mut u8, usize),
    Many(&'a [iovec]),
}

impl<'a> Pieces<'a> {
    #[inline]
    pub fn one(buf: *mut c_void, len: usize) -> Pieces<'a> {
        Pieces::One(buf.cast(), len)
    }

    pub fn many(iov: &'a [iovec]) -> Pieces<'a> {
        match iov {
            [] => Pieces::One(std::ptr::null_mut(), 0),
            [one] => Pieces::One(one.iov_base.cast(), one.iov_len),
            more => Pieces::Many(more),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Pieces::One(_, len) => *len,
            Pieces::Many(iov) => iov.iter().map(|piece| piece.iov_len).sum(),
        }
    }

    /// Copies all bytes into one piece.
    ///
    /// # Safety
    /// The pieces can be read.
    pub unsafe fn gather(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        let mut add = |start: *const u8, len: usize| {
            if len > 0 {
                // SAFETY: promised by the caller.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
            }
        };
        match self {
            Pieces::One(start, len) => add(*start, *len),
            Pieces::Many(iov) => iov.iter().for_each(|p| add(p.iov_base.cast(), p.iov_len)),
        }
        out
    }
}

/// The provider's own memory in place of a caller's buffer in several pieces.
pub struct Bounce {
    pub bytes: Vec<u8>,
    /// Final destination of the bytes; empty for a send.
    pub pieces: Vec<(*mut u8, usize)>,
}

impl Bounce {
    /// Copies received bytes to the caller's pieces.
    pub fn scatter(&self, len: usize) {
        let mut rest = &self.bytes[..len.min(self.bytes.len())];
        for &(start, room) in &self.pieces {
            let (now, later) = rest.split_at(room.min(rest.len()));
            if !now.is_empty() {
                // SAFETY: the caller gave the pieces until the completion, which is yet to come.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
            }
            rest = later;
        }
    }
}

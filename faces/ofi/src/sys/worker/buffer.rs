//! Callers' buffers.

use crate::sys::abi::err;
use libc::{c_int, c_void, iovec};
use weft::memory::{reserved, seems_mapped};

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
            Pieces::Many(iov) => {
                iov.iter().fold(0, |len: usize, piece| len.saturating_add(piece.iov_len))
            }
        }
    }

    /// Checks pieces of at most `longest` bytes together.
    ///
    /// # Errors
    /// `FI_EMSGSIZE`: they are longer. `FI_EFAULT`: one is so long that it is checked, and is not
    /// memory of the process.
    #[inline]
    pub fn check(&self, longest: usize) -> Result<(), c_int> {
        if self.len() > longest {
            return Err(err::EMSGSIZE);
        }
        let is_there = match self {
            Pieces::One(start, len) => seems_mapped(start.cast(), *len),
            Pieces::Many(iov) => iov.iter().all(|p| seems_mapped(p.iov_base, p.iov_len)),
        };
        if is_there {
            Ok(())
        } else {
            Err(err::EFAULT)
        }
    }

    /// Copies all bytes into one piece.
    ///
    /// # Errors
    /// `FI_ENOMEM`: the machine does not have so much memory.
    ///
    /// # Safety
    /// The pieces can be read.
    pub unsafe fn gather(&self) -> Result<Vec<u8>, c_int> {
        let mut out = reserved(self.len()).ok_or(err::ENOMEM)?;
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
        Ok(out)
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

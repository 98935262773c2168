//! Callers' memory.

#[allow(unsafe_code)]
mod sys;

pub use sys::{list, Borrowed, Bounce, Elements};

use crate::abi::err;
use libc::c_int;
use weft::memory::reserved;

/// A caller's buffer, in one piece or several.
#[derive(Clone, Copy)]
pub enum Pieces<'a> {
    One(Borrowed),
    Many(&'a [Borrowed]),
}

impl<'a> Pieces<'a> {
    /// Returns the buffer of a caller's list.
    #[inline]
    pub fn of(list: &'a [Borrowed]) -> Pieces<'a> {
        match list {
            [] => Pieces::One(Borrowed::NONE),
            [one] => Pieces::One(*one),
            more => Pieces::Many(more),
        }
    }

    /// Returns the pieces as a list.
    pub fn list(&self) -> &[Borrowed] {
        match self {
            Pieces::One(one) => std::slice::from_ref(one),
            Pieces::Many(more) => more,
        }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Pieces::One(one) => one.len(),
            Pieces::Many(more) => {
                more.iter().fold(0, |len: usize, piece| len.saturating_add(piece.len()))
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
            Pieces::One(one) => one.seems_mapped(),
            Pieces::Many(more) => more.iter().all(|piece| piece.seems_mapped()),
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
    pub fn gather(&self) -> Result<Vec<u8>, c_int> {
        let mut out = reserved(self.len()).ok_or(err::ENOMEM)?;
        self.list().iter().for_each(|piece| out.extend_from_slice(piece.bytes()));
        Ok(out)
    }
}

//! Buffers in parts (`iovec`).

mod sys;

use libc::iovec;

/// Parts that one call of the kernel is given.
const MOST: usize = 16;

/// The buffers of a call.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    parts: &'a [iovec],
    len: usize,
}

/// Some of the bytes of buffers, in parts.
pub struct Cut {
    parts: [iovec; MOST],
    n: usize,
}

impl Cut {
    /// Returns the parts.
    pub fn parts(&self) -> &[iovec] {
        &self.parts[..self.n]
    }

    /// Adds at most `most` bytes of `parts` after the first `skip`, as far as one call takes them.
    pub fn add(&mut self, parts: &Parts<'_>, skip: usize, most: usize) {
        parts.each(skip, most, |base, len| {
            if self.n == MOST {
                return false;
            }
            self.parts[self.n] = iovec { iov_base: base.cast(), iov_len: len };
            self.n += 1;
            true
        });
    }
}

impl<'a> Parts<'a> {
    /// Makes it of a caller's parts. `None` if their lengths are more than a call may move: the
    /// kernel says what is wrong.
    pub fn new(parts: &'a [iovec]) -> Option<Parts<'a>> {
        let mut len = 0usize;
        for part in parts {
            len = len.checked_add(part.iov_len)?;
        }
        (len <= isize::MAX as usize && parts.len() <= 1024).then_some(Parts { parts, len })
    }

    /// The bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns at most `most` bytes after the first `skip`, in as many parts as one call takes.
    pub fn cut(&self, skip: usize, most: usize) -> Cut {
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut some = Cut { parts: [none; MOST], n: 0 };
        some.add(self, skip, most);
        some
    }

    /// True if one call of the kernel takes all after the first `skip` bytes.
    pub fn fits(&self) -> bool {
        self.parts.len() <= MOST
    }
}

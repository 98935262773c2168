//! Buffers in parts (`iovec`).

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

    /// Returns the parts, for a message of the kernel.
    pub fn as_message(&mut self) -> libc::msghdr {
        // SAFETY: all-zero is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.parts.as_mut_ptr();
        message.msg_iovlen = self.n as _;
        message
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

    /// Calls `each` with address and length of each part of at most `most` bytes after the first
    /// `skip`, until it returns false.
    pub fn each(&self, skip: usize, most: usize, mut each: impl FnMut(*mut u8, usize) -> bool) {
        let (mut skip, mut left) = (skip, most);
        for part in self.parts {
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            let len = (part.iov_len - skip).min(left);
            // SAFETY: within the caller's part.
            let base = unsafe { part.iov_base.cast::<u8>().add(skip) };
            (skip, left) = (0, left - len);
            if len > 0 && !each(base, len) || left == 0 {
                return;
            }
        }
    }
}

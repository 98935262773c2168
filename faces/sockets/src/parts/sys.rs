//! Calls of the kernel with parts of a caller, which says what is wrong with their addresses.

use super::{Cut, Parts};
use crate::sys::real;
use libc::{c_int, msghdr};
use std::mem::zeroed;

impl Cut {
    fn as_message(&self) -> msghdr {
        // SAFETY: all-zero is a valid value.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_iov = self.parts.as_ptr().cast_mut();
        message.msg_iovlen = self.n as _;
        message
    }

    /// Receives by recvmsg(2).
    pub fn receive(&self, fd: c_int, flags: c_int) -> isize {
        let mut message = self.as_message();
        // SAFETY: the caller's parts.
        unsafe { real::recvmsg(fd, &mut message, flags) }
    }

    /// Receives into the first part, by read(2).
    pub fn read(&self, fd: c_int) -> isize {
        let part = self.parts[0];
        // SAFETY: the caller's part.
        unsafe { real::read(fd, part.iov_base, part.iov_len) }
    }

    /// Sends by sendmsg(2).
    pub fn send(&self, fd: c_int, flags: c_int) -> isize {
        let message = self.as_message();
        // SAFETY: the caller's parts.
        unsafe { real::sendmsg(fd, &message, flags) }
    }
}

impl Parts<'_> {
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

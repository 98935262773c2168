//! Registered memory that its program may unmap, or make read-only, while peers write to it.
//!
//! The kernel copies the first bytes to a page in each call of the program, and reports a page that
//! cannot be written to instead of sending a signal. Further bytes for that page in the same call
//! are copied without it: the program runs only between its calls. Only a thread of the program
//! that unmaps the memory during a call of another is not noticed.

use std::io;
use std::ops::Range;
use weft_link::Bytes;

/// The kernel's smallest page; larger ones consist of these.
const PAGE: usize = 4096;

/// Memory that may vanish.
#[derive(Debug)]
pub(crate) struct Vanishing {
    start: *mut u8,
    len: usize,
    /// This process; a copy of it, made by fork, handles no packets.
    pid: i32,
    /// Returns the number of the program's present call.
    call: fn() -> u64,
    /// Addresses of pages that were written to in the call with this number.
    pages: Range<usize>,
    of: u64,
    /// True if its end was reported.
    told: bool,
}

impl Vanishing {
    pub fn new(start: *mut u8, len: usize, call: fn() -> u64) -> Vanishing {
        let pid = std::process::id() as i32;
        Vanishing { start, len, pid, call, pages: 0..0, of: 0, told: false }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn addr(&self) -> usize {
        self.start.addr()
    }

    /// Copies `bytes` to `offset`. False if there is no such memory, or it may not be written to;
    /// parts of it may have been written.
    pub fn place(&mut self, offset: u64, bytes: Bytes<'_>) -> bool {
        let start = offset as usize;
        if start.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        let into = self.start.wrapping_add(start);
        let pages = into.addr() / PAGE * PAGE..(into.addr() + bytes.len()).next_multiple_of(PAGE);
        let call = (self.call)();
        let same = self.of == call;
        if same && self.pages.start <= pages.start && pages.end <= self.pages.end {
            // SAFETY: within the memory that is registered, of which these pages could be written
            // to before in this call of the program; nothing else of this process uses it now.
            bytes.copy_to(unsafe { std::slice::from_raw_parts_mut(into, bytes.len()) });
            return true;
        }
        if !self.write(into, bytes) {
            return false;
        }
        let joins = same && (self.pages.start..=self.pages.end).contains(&pages.start);
        self.pages = match joins {
            true => self.pages.start..pages.end.max(self.pages.end),
            false => pages,
        };
        self.of = call;
        true
    }

    /// Lets the kernel copy the bytes.
    fn write(&mut self, into: *mut u8, bytes: Bytes<'_>) -> bool {
        let iov = |at: *const u8| libc::iovec { iov_base: at as *mut _, iov_len: bytes.len() };
        let (local, remote) = (iov(bytes.as_ptr()), iov(into));
        // SAFETY: the kernel reads the bytes, which are there, and checks the other range.
        let n = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        if usize::try_from(n) == Ok(bytes.len()) {
            return true;
        }
        let error = io::Error::last_os_error();
        if n < 0 && error.raw_os_error() != Some(libc::EFAULT) {
            // A filter of system calls forbids it: the promise of `register_vanishing` has to do.
            // SAFETY: within the memory that is registered, and promised to be there.
            bytes.copy_to(unsafe { std::slice::from_raw_parts_mut(into, bytes.len()) });
            return true;
        }
        if !std::mem::replace(&mut self.told, true) {
            weft_link::warn!(
                "memory of {} bytes at {:p} is exported, but not mapped any more or read-only: \
                 copies of other ranks to it are refused",
                self.len,
                self.start,
            );
        }
        false
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Calls `f` with four pages of new memory.
    fn with_pages(f: impl FnOnce(*mut u8)) {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let len = 4 * PAGE;
        // SAFETY: new memory at no address of ours, which is given back.
        unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), len, rights, kind | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            f(at.cast());
            libc::munmap(at, len);
        }
    }

    #[test]
    fn place__bytes_arrive_and_vanished_pages_are_noticed_in_the_next_call() {
        thread_local!(static CALL: Cell<u64> = const { Cell::new(0) });
        with_pages(|start| {
            let mut memory = Vanishing::new(start, 4 * PAGE, || CALL.with(Cell::get));
            let bytes: Vec<u8> = (0..2 * PAGE).map(|i| (i / 5) as u8).collect();
            let mut place = |offset: usize, len: usize, call| {
                CALL.with(|now| now.set(call));
                memory.place(offset as u64, Bytes::from_slice(&bytes[..len]))
            };
            // By the kernel, without it, by it again for the page behind.
            let pieces = [(10, 100, 1), (200, 50, 1), (PAGE - 5, 10, 1), (PAGE + 9, 2 * PAGE, 2)];
            for (offset, len, round) in pieces {
                assert!(place(offset, len, round));
                // SAFETY: memory made above, which nothing else uses now.
                let there = unsafe { std::slice::from_raw_parts(start.add(offset), len) };
                assert!(there == &bytes[..len], "{offset}");
            }
            assert!(!place(4 * PAGE - 1, 2, 2) && !place(usize::MAX, 2, 2), "out of bounds");
            // SAFETY: memory made above.
            unsafe {
                assert_eq!(libc::mprotect(start.cast(), PAGE, libc::PROT_READ), 0);
                assert_eq!(libc::munmap(start.add(2 * PAGE).cast(), PAGE), 0);
            }
            assert!(!place(0, 1, 3) && !place(0, PAGE + 1, 3) && place(PAGE, PAGE, 3));
            assert!(!place(2 * PAGE, 1, 3) && !place(PAGE, PAGE + 1, 3) && place(3 * PAGE, 7, 3));
        });
    }
}

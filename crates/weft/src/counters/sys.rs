//! The memory file of a page of counters.

use super::WORDS;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;

/// A mapped memory file of [`WORDS`] words. Others can only read it.
pub(super) struct Words {
    base: NonNull<AtomicU64>,
    /// Keeps the file visible under `/proc/<pid>/fd`.
    file: OwnedFd,
}

impl Words {
    pub fn create() -> io::Result<Words> {
        // SAFETY: the name is a C string; no other memory is passed.
        let fd = unsafe {
            libc::memfd_create(super::NAME_C.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a new descriptor that nothing else owns.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(super::LEN as u64)?;
        // SAFETY: a new mapping of the whole file at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                super::LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let words = Words { base, file: file.into() };
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(words)
    }

    /// Returns the file, by which others can only read.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `WORDS` words long, aligned to a page, lives as long as self, and
        // the file can no longer shrink.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), WORDS) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: exactly what `create` mapped; no reference outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), super::LEN) };
    }
}

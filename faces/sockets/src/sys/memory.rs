//! Memory of the kernel: mappings.

use libc::c_int;
use std::os::fd::{BorrowedFd, RawFd};

/// Maps so many bytes. `None`: the system has none.
fn map(len: usize, kind: c_int, fd: RawFd) -> Option<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Maps zeros for this process alone.
pub fn map_own(len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// Maps zeros that children share.
pub fn map_for_children(len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
}

/// Maps a memory file, which has at least this length.
pub fn map_file(fd: RawFd, len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_SHARED, fd)
}

/// Unmaps memory.
///
/// # Safety
/// The mapping was made of this length, and nobody uses it.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { libc::munmap(at.cast(), len) };
}

/// True if a descriptor is shared memory of this length that can be mapped, and keeps it.
pub fn is_steady(fd: RawFd, len: usize) -> bool {
    // SAFETY: the caller has the descriptor, and it is open meanwhile.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    weft_sys::memory::is_steady(fd, len)
}

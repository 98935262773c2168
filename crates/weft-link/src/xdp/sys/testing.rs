//! Threads and raw frames, for tests.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns the calling thread's id, by which other programs find its namespaces.
pub(in crate::xdp) fn thread_number() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() }
}

/// Sends one frame unchanged.
pub(in crate::xdp) fn send_raw(ifindex: u32, frame: &[u8]) {
    // SAFETY: no memory is passed; the descriptor is new and checked below.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a new descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero is a valid value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = ifindex as i32;
    let (data, len) = (frame.as_ptr().cast(), size_of::<libc::sockaddr_ll>() as u32);
    // SAFETY: frame and address are readable for their lengths.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), data, frame.len(), 0, (&raw const to).cast(), len) };
    assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
}

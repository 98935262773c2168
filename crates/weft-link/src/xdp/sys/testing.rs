//! Network namespaces, raw frames and missing rights, for tests.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Moves the calling thread into a new network namespace without a name. The namespace ends with
/// its last user.
pub(in crate::xdp) fn new_namespace() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

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

/// Runs `f` on a thread that has no right to open raw sockets.
pub(in crate::xdp) fn without_rights<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let body = || {
            // The system call, not the C function, which would change all threads: only this thread
            // becomes another user and so loses its capabilities.
            // SAFETY: no memory is passed.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0, "root may become another user");
            f()
        };
        scope.spawn(body).join().expect("no panic")
    })
}

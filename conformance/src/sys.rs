//! Waiting on descriptors; network namespaces; users; memory that comes late.
#![allow(unsafe_code)]

mod fork;

pub use fork::in_a_fork;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Returns true if one of the descriptors becomes readable in time; false if the wait is
/// interrupted.
pub fn readable(fds: &[RawFd], limit: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `polled` is a live array of the length given.
    let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
    n > 0
}

/// Moves the calling thread into a new, nameless network namespace. It ends with its last user.
pub fn new_namespace() -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has the calling thread alone be of another user and group.
pub fn be_user(user: u32) -> io::Result<()> {
    for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
        // SAFETY: no memory is passed. (The C library's calls would change all threads.)
        if unsafe { libc::syscall(call, user, user, user) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A page of memory whose first access waits until somebody fills it (userfaultfd(2)): a system
/// call that reads from it holds meanwhile what it has locked. Filled when it is dropped.
#[derive(Debug)]
pub struct LatePage {
    faults: OwnedFd,
    page: usize,
}

/// Requests of ioctl_userfaultfd(2), and the version of this interface.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFD_API: u64 = 0xaa;
/// Accesses to pages that are missing are told.
const MISSING: u64 = 1;
const LEN: usize = 4096;

impl LatePage {
    /// Makes such a page.
    ///
    /// # Errors
    /// The system has no such pages for this user, or none of this size.
    pub fn new() -> io::Result<LatePage> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the call made the descriptor, and nobody else has it.
        let faults = unsafe { OwnedFd::from_raw_fd(fd) };
        let (protection, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let late = LatePage { faults, page: page as usize };
        late.request(UFFDIO_API, [UFFD_API, 0, 0, 0])?;
        late.request(UFFDIO_REGISTER, [late.page as u64, LEN as u64, MISSING, 0])?;
        Ok(late)
    }

    fn request(&self, request: libc::c_ulong, mut words: [u64; 4]) -> io::Result<()> {
        let at = words.as_mut_ptr();
        // SAFETY: each of these requests reads and writes at most four words.
        match unsafe { libc::ioctl(self.faults.as_raw_fd(), request as _, at) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends the page by a socket; returns once it is filled.
    pub fn send_by(&self, socket: BorrowedFd<'_>) {
        let at = self.page as *const libc::c_void;
        // SAFETY: the page is mapped until this is dropped.
        unsafe { libc::send(socket.as_raw_fd(), at, LEN, libc::MSG_NOSIGNAL) };
    }

    /// Receives into the page by a socket; returns once it is filled.
    pub fn receive_by(&self, socket: BorrowedFd<'_>) {
        let at = self.page as *mut libc::c_void;
        // SAFETY: the page is mapped until this is dropped, and nobody has a reference to it.
        unsafe { libc::recv(socket.as_raw_fd(), at, LEN, 0) };
    }

    /// Returns true once somebody waits for the page; false at the limit.
    pub fn is_awaited(&self, limit: Duration) -> bool {
        readable(&[self.faults.as_raw_fd()], limit)
    }

    /// Fills the page: those who wait for it go on.
    pub fn fill(&self) {
        // The request fails only if the page is filled already.
        let _ = self.request(UFFDIO_ZEROPAGE, [self.page as u64, LEN as u64, 0, 0]);
    }
}

impl Drop for LatePage {
    fn drop(&mut self) {
        self.fill();
        // SAFETY: the page was mapped by `new`, and nobody has a reference to it.
        unsafe { libc::munmap(self.page as *mut libc::c_void, LEN) };
    }
}

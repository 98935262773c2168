//! The page that no fork copies, and the kernel's events.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Used if the kernel wipes no pages (some sandboxes do not): the C library calls `wipe` in the
/// child.
static WIPED_BY_HAND: AtomicU64 = AtomicU64::new(0);

extern "C" fn wipe() {
    WIPED_BY_HAND.store(0, Ordering::Release);
}

/// Returns the number of this generation of the process: 0 until it has one.
pub(super) fn generation() -> &'static AtomicU64 {
    static WORD: OnceLock<&AtomicU64> = OnceLock::new();
    WORD.get_or_init(|| {
        page().unwrap_or_else(|| {
            // SAFETY: `wipe` only stores to a static.
            unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
            &WIPED_BY_HAND
        })
    })
}

/// Maps a page that is zero in every process forked from this one.
fn page() -> Option<&'static AtomicU64> {
    const LEN: usize = 4096;
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), LEN, rights, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made, which no code uses yet.
    if unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above.
        unsafe { libc::munmap(page, LEN) };
        return None;
    }
    // SAFETY: zeroed, aligned to a page, never unmapped from now on, and taken for an atomic only.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// Blocks all signals in the calling thread.
pub(super) fn take_no_signals() {
    // SAFETY: a set that is filled before it is used; no other memory is passed.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// The kernel's events of devices (`NETLINK_KOBJECT_UEVENT`).
pub(super) struct Events(OwnedFd);

/// Length of the longest event that the kernel makes.
const EVENT_MAX: usize = 8 << 10;

impl Events {
    pub fn open() -> io::Result<Events> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an all-zero address is a valid value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = 1;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is `len` bytes long.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        (bound == 0).then_some(Events(socket)).ok_or_else(io::Error::last_os_error)
    }

    /// Returns the next event of the kernel; `None` when the socket fails.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut event = vec![0; EVENT_MAX];
        loop {
            // SAFETY: an all-zero address is a valid value.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            let (fd, into) = (self.0.as_raw_fd(), event.as_mut_ptr().cast());
            // SAFETY: `event` is writable for its length, `from` for `len` bytes.
            let n = unsafe {
                libc::recvfrom(fd, into, event.len(), 0, (&raw mut from).cast(), &mut len)
            };
            match usize::try_from(n) {
                // Senders other than the kernel have a number.
                Ok(n) if from.nl_pid == 0 => {
                    event.truncate(n);
                    return Some(event);
                }
                Ok(_) => {}
                Err(_) => match io::Error::last_os_error().raw_os_error() {
                    // Some events were lost; later ones arrive.
                    Some(libc::EINTR | libc::ENOBUFS) => {}
                    _ => return None,
                },
            }
        }
    }
}

//! The list of this process's connections that it shows to its agent.

use super::real;
use super::slot::{self, SLOTS};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use weft_streams::board::{Entry, Head, ENTRY};

const LEN: usize = ENTRY * (1 + SLOTS);

static BOARD: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The process that made it: a child writes to its parent's until it has its own.
static MAKER: AtomicU32 = AtomicU32::new(0);

fn head() -> Option<&'static Head> {
    // SAFETY: mapped for good, of this length; all of it are atomics, for which zeros are valid.
    unsafe { BOARD.load(Ordering::Acquire).cast::<Head>().as_ref() }
}

/// Returns the place of a slot's connection, once there is a list.
#[inline]
pub fn entry(at: usize) -> Option<&'static Entry> {
    let base = BOARD.load(Ordering::Acquire);
    if base.is_null() || at >= SLOTS {
        return None;
    }
    // SAFETY: within the mapping; as above.
    unsafe { base.add(ENTRY * (1 + at)).cast::<Entry>().as_ref() }
}

/// True if somebody has turned the use of weft off in this process.
#[inline]
pub fn is_off() -> bool {
    head().is_some_and(Head::is_off)
}

/// A wait for bytes by TCP has found some by a look.
#[inline]
pub fn looked() {
    head().iter().for_each(|head| head.looked());
}

/// Says why a connection is by TCP.
pub fn stays(at: usize, why: &str) {
    entry(at).iter().for_each(|entry| entry.stays(why));
}

/// Makes the list, with what a former one of this process has; returns its memory, for the agent.
/// `None` if the system has none.
pub fn make(process: u32) -> Option<RawFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: the name is a C string; then a new mapping of a file of this length.
    let (fd, at) = unsafe {
        let fd = libc::memfd_create(c"weft-sockets-list".as_ptr(), flags);
        if fd < 0 {
            return None;
        }
        let ready = libc::ftruncate(fd, LEN as libc::off_t) == 0
            && real::fcntl(fd, libc::F_ADD_SEALS, seals.into()) == 0;
        let at = match ready {
            true => libc::mmap(std::ptr::null_mut(), LEN, rights, shared, fd, 0),
            false => libc::MAP_FAILED,
        };
        (fd, at)
    };
    if at == libc::MAP_FAILED {
        // SAFETY: a descriptor of this library.
        unsafe { real::close(fd) };
        return None;
    }
    let (old, off) = (BOARD.load(Ordering::Acquire), is_off());
    if !old.is_null() && MAKER.load(Ordering::Relaxed) == process {
        let used = slot::region().map_or(0, |region| region.used.load(Ordering::Acquire) as usize);
        let len = ENTRY * (1 + used.min(SLOTS));
        // SAFETY: both are mapped for this length. Counts that change meanwhile may be lost.
        unsafe { std::ptr::copy_nonoverlapping(old, at.cast(), len) };
    }
    MAKER.store(process, Ordering::Relaxed);
    BOARD.store(at.cast(), Ordering::Release);
    head().iter().for_each(|head| head.begin(off));
    Some(fd)
}

/// A slot is another connection's from now on, or nobody's.
pub fn renew(at: usize) {
    entry(at).iter().for_each(|entry| entry.renew());
}

//! The list of this process's connections that it shows to its agent.

mod sys;

pub use sys::entry;

use crate::slot;
use crate::sys::calls;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use sys::{head, LEN};
use weft_streams::board::Head;

/// The process that made it: a child writes to its parent's until it has its own.
static MAKER: AtomicU32 = AtomicU32::new(0);

/// True if somebody has turned the use of weft off in this process.
#[inline]
pub fn is_off() -> bool {
    head().is_some_and(Head::is_off)
}

/// A wait for bytes by TCP has found some by a spin.
#[inline]
pub fn has_spun() {
    head().iter().for_each(|head| head.has_spun());
}

/// Says why a connection is by TCP.
pub fn stays(at: usize, why: &str) {
    entry(at).iter().for_each(|entry| entry.stays(why));
}

/// Makes the list, with what a former one of this process has; returns its memory, for the agent.
/// `None` if the system has none.
pub fn make(process: u32) -> Option<RawFd> {
    let fd = calls::memory_file(c"weft-sockets-list", libc::MFD_CLOEXEC, LEN, true)?;
    let is_own = MAKER.load(Ordering::Relaxed) == process;
    let used = slot::region().map_or(0, |region| region.used.load(Ordering::Acquire) as usize);
    let off = is_off();
    if !sys::replace(fd, if is_own { used } else { 0 }) {
        calls::close(fd);
        return None;
    }
    MAKER.store(process, Ordering::Relaxed);
    head().iter().for_each(|head| head.begin(off));
    Some(fd)
}

/// A slot is another connection's from now on, or nobody's.
pub fn renew(at: usize) {
    entry(at).iter().for_each(|entry| entry.renew());
}

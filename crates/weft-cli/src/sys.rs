//! What children of this command do before they become other programs.
#![allow(unsafe_code)]

use rustix::process::{getppid, set_parent_process_death_signal, Pid, Signal};
use std::io;

/// Has this process, a child of `parent` before its `exec`, get `signal` when that ends.
///
/// # Errors
/// The system refuses it.
pub fn end_with(parent: Pid, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    // The parent may have died before the line above took effect.
    if getppid() != Some(parent) {
        vanish();
    }
    Ok(())
}

/// Ends a child whose parent is gone, before its `exec`: nobody is left to hear of an error.
pub fn vanish() -> ! {
    // SAFETY: ends this process at once, without running what its parent registered for the end.
    unsafe { libc::_exit(127) }
}

//! Steps of this command's children before they become other programs, and options of sockets.
#![allow(unsafe_code)]

use rustix::process::{getppid, set_parent_process_death_signal, Pid, Signal};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends `signal` to this process when `parent` ends; called in a child before its `exec`.
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

/// Makes a socket send datagrams whole or not at all, whatever path MTU the kernel has found.
///
/// # Errors
/// Errors of the system.
pub fn unfragmented(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, name, value) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
    };
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let at = std::ptr::from_ref(&value).cast();
    // SAFETY: the kernel reads `len` bytes of `value`.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a child whose parent is gone, before its `exec`: no process is left to read an error.
pub fn vanish() -> ! {
    // SAFETY: ends this process at once, without the exit handlers that its parent registered.
    unsafe { libc::_exit(127) }
}

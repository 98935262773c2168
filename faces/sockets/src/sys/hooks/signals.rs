//! Functions that set handlers of signals. They do what they do; that there are handlers is noted.

use crate::sys::{real, signals, urgent};
use libc::{c_int, sigaction as Action, sighandler_t};

/// Notes a handler that was set by a function without flags.
fn set(signal: c_int, handler: sighandler_t, restarts: bool, was: sighandler_t) -> sighandler_t {
    if was != libc::SIG_ERR && signals::is_handler(handler) {
        signals::has_handler(signal, restarts);
    }
    match was {
        libc::SIG_ERR => was,
        _ => urgent::changed(signal, was),
    }
}

/// Notes a handler that is set past the C library.
///
/// # Safety
/// The kernel's form of an action, or none.
pub(super) unsafe fn set_by_kernel(signal: c_int, new: *const [usize; 2]) {
    // SAFETY: handler and flags come first.
    if let Some([handler, flags]) = unsafe { new.as_ref() } {
        if signals::is_handler(*handler) {
            signals::has_handler(signal, *flags & libc::SA_RESTART as usize != 0);
        }
    }
}

/// sigaction(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
) -> c_int {
    // Before: the handler may run at once.
    // SAFETY: the caller's action.
    if let Some(new) = unsafe { new.as_ref() }.filter(|new| signals::is_handler(new.sa_sigaction)) {
        signals::has_handler(signal, new.sa_flags & libc::SA_RESTART != 0);
    }
    // SAFETY: the caller's arguments.
    unsafe {
        urgent::sigaction(signal, new, old).unwrap_or_else(|| real::sigaction(signal, new, old))
    }
}

/// sigaction(2) under its other name.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn __sigaction(
    signal: c_int,
    new: *const Action,
    old: *mut Action,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { sigaction(signal, new, old) }
}

/// signal(2): calls go on after its handlers.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    set(signal, handler, true, unsafe { real::signal(signal, handler) })
}

/// bsd_signal(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn bsd_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    unsafe { signal(one, handler) }
}

/// ssignal(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn ssignal(one: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    unsafe { signal(one, handler) }
}

/// sysv_signal(3): its handlers end calls.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sysv_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    set(one, handler, false, unsafe { real::sysv_signal(one, handler) })
}

/// sysv_signal(3) under its other name: signal(2) of programs built for System V.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn __sysv_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    unsafe { sysv_signal(one, handler) }
}

/// sigset(3): its handlers end calls.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sigset(one: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's arguments.
    set(one, handler, false, unsafe { real::sigset(one, handler) })
}

/// siginterrupt(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
    if ends != 0 {
        signals::has_handler(signal, false);
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::siginterrupt(signal, ends) };
    urgent::changed(signal, 0);
    result
}

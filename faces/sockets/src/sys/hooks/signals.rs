//! Functions that set handlers of signals, hold signals back, and send them. They do what they do;
//! what this library needs to know is noted.

use crate::sys::{guard, masked, real, signals, urgent};
use libc::{c_int, c_long, pid_t, sigaction as Action, sighandler_t, sigset_t};

/// The program has set an action, `was` is the one before. Returns the program's.
fn changed(signal: c_int, was: sighandler_t) -> sighandler_t {
    guard::changed(signal, urgent::changed(signal, masked::changed(signal, was)))
}

/// Notes a handler that was set by a function without flags.
fn set(signal: c_int, handler: sighandler_t, restarts: bool, was: sighandler_t) -> sighandler_t {
    if was == libc::SIG_ERR {
        return was;
    }
    if signals::is_handler(handler) {
        signals::has_handler(signal, restarts);
    }
    changed(signal, was)
}

/// The kernel's form of an action: handler, flags, the function that returns, mask.
pub(super) type OfKernel = [usize; 4];

/// A handler is set past the C library, by this call.
///
/// # Safety
/// The caller's actions.
pub(super) unsafe fn set_by_kernel(
    signal: c_int,
    new: *const OfKernel,
    old: *mut OfKernel,
    call: impl FnOnce() -> c_long,
) -> c_long {
    // SAFETY: the caller's action, if it can be read.
    let new = unsafe { guard::get(new) };
    if let Some([_, flags, _, mask]) = new.filter(|[handler, ..]| signals::is_handler(*handler)) {
        signals::has_handler(signal, *flags & libc::SA_RESTART as usize != 0);
        if guard::has_faults(*mask as u64) {
            guard::are_unknown();
        }
    }
    let result = call();
    if result == 0 {
        // SAFETY: the caller's room, which the kernel has written to.
        match unsafe { old.as_mut() } {
            Some([handler, ..]) => *handler = changed(signal, *handler),
            None => _ = changed(signal, 0),
        }
    }
    result
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
        urgent::sigaction(signal, new, old)
            .or_else(|| guard::sigaction(signal, new, old))
            .or_else(|| masked::sigaction(signal, new, old))
            .unwrap_or_else(|| real::sigaction(signal, new, old))
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
    changed(signal, 0);
    result
}

/// pthread_sigmask(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, which the kernel has read if it was no error.
    unsafe {
        let result = real::pthread_sigmask(how, new, old);
        guard::masks(if result == 0 { new.cast() } else { std::ptr::null() });
        result
    }
}

/// sigprocmask(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, which the kernel has read if it was no error.
    unsafe {
        let result = real::sigprocmask(how, new, old);
        guard::masks(if result == 0 { new.cast() } else { std::ptr::null() });
        result
    }
}

/// kill(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn kill(to: pid_t, signal: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    urgent::sends(to, signal, || unsafe { real::kill(to, signal) }.into()) as c_int
}

/// killpg(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn killpg(group: pid_t, signal: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    urgent::sends(group.wrapping_neg(), signal, || unsafe { real::killpg(group, signal) }.into())
        as c_int
}

/// sigqueue(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sigqueue(to: pid_t, signal: c_int, value: libc::sigval) -> c_int {
    // SAFETY: the caller's arguments.
    urgent::sends(to, signal, || unsafe { real::sigqueue(to, signal, value) }.into()) as c_int
}

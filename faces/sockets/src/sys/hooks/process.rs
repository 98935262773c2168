//! Functions that make processes, or confine this one.

use super::data::{hand_over, stay_tcp};
use crate::sys::table::{self, Connection};
use crate::sys::{holders, line, real, settings, slot, vfork};
use libc::{c_int, c_long, c_void, pid_t};
use std::sync::atomic::Ordering;

extern "C" {
    fn __register_atfork(
        before: extern "C" fn(),
        parent: Option<extern "C" fn()>,
        child: extern "C" fn(),
        object: *mut c_void,
    ) -> c_int;
}

extern "C" fn before_fork() {
    table::is_forking();
}

extern "C" fn in_parent() {
    holders::child_came();
}

extern "C" fn in_child() {
    let was = real::errno();
    vfork::is_over();
    holders::is_child();
    line::is_child();
    if holders::is_foreign() {
        // Locks cannot be shared with processes of other numbers.
        each(true, stay_tcp_with_strangers);
    }
    real::set_errno(was);
}

/// Follows processes from now on, and ends this one at a fault of the library: no panic may leave
/// it.
pub fn begin() {
    // SAFETY: functions that stay.
    unsafe { __register_atfork(before_fork, Some(in_parent), in_child, std::ptr::null_mut()) };
    let own = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        own(info);
        std::process::abort();
    }));
}

/// fork(2) without the handlers that libraries register.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: no memory is passed.
    forks(|| unsafe { real::_Fork() }.into()) as pid_t
}

/// A process is made by a call that runs no handlers.
pub(super) fn forks(call: impl FnOnce() -> c_long) -> c_long {
    before_fork();
    let child = call();
    match child {
        0 => in_child(),
        _ => in_parent(),
    }
    made(child as pid_t);
    child
}

/// A child that could not be made holds nothing.
fn made(child: pid_t) -> pid_t {
    if child < 0 {
        holders::child_failed();
    }
    child
}

/// fork(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn fork() -> pid_t {
    // SAFETY: no memory is passed. The handlers of this library follow it.
    made(unsafe { real::fork() })
}

/// Calls `act` with the connections of this process: all, or those that another program would have.
pub(super) fn each(all: bool, mut act: impl FnMut(&Connection)) {
    let was = real::errno();
    let mut from = 0;
    while let Some(fd) = table::next(from, c_int::MAX) {
        from = fd + 1;
        // SAFETY: no memory is passed.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
        if all || flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            table::connection(fd).iter().for_each(&mut act);
        }
    }
    real::set_errno(was);
}

fn stay_tcp_with_strangers(one: &Connection) {
    one.slot.holders.has_strangers();
    if one.slot.is_shared() {
        stay_tcp(one);
    }
}

/// The kernel is about to end this program for calls of its own choice (seccomp), among which may
/// be those that only this library makes. All connections are the kernel's alone from now on.
#[cold]
pub(super) fn is_confined() {
    if vfork::is_child() {
        return;
    }
    let was = real::errno();
    settings::turn_off();
    each(true, |one| {
        one.slot.ask.state.store(slot::DENIED, Ordering::Release);
        // Bytes that could not go back are read from the ring, for which calls of the C library on
        // the connection are enough.
        if !one.slot.is_shared() || hand_over(one).is_ok() {
            table::forget(one.fd);
        }
    });
    line::ends();
    real::set_errno(was);
}

/// True if such a call of prctl(2) confines the program.
pub(super) fn confines(what: c_long, mode: c_long) -> bool {
    what == c_long::from(libc::PR_SET_SECCOMP) && mode != 0
}

/// prctl(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn prctl(
    what: c_int,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
) -> c_int {
    if confines(what.into(), a) && settings::is_on() {
        is_confined();
    }
    // SAFETY: the caller's arguments.
    unsafe { real::prctl(what, a, b, c, d) }
}

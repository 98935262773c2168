//! Functions that make processes, or confine this one.

use super::data::{hand_over, stay_tcp};
use crate::sys::table::{self, Connection};
use crate::sys::{holders, line, real, room, settings, slot, vfork};
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
    room::is_child();
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
fn forks(call: impl FnOnce() -> c_long) -> c_long {
    before_fork();
    let child = call();
    match child {
        0 => in_child(),
        _ => in_parent(),
    }
    made(child as pid_t);
    child
}

/// The same by clone(2), with these flags.
pub(super) fn forks_by(flags: c_int, call: impl FnOnce() -> c_long) -> c_long {
    shares(flags);
    forks(call)
}

/// clone(2) by its number. A child with a stack of its own goes on where that says, so that nothing
/// is known of it: as of one in the memory of its parent.
pub(super) fn clones_by(flags: u64, stack: u64, call: impl FnOnce() -> c_long) -> c_long {
    let has = |flag: c_int| flags & flag as u64 != 0;
    if has(libc::CLONE_THREAD) {
        return call();
    }
    if has(libc::CLONE_VM) || stack != 0 {
        if settings::is_on() {
            is_confined();
        }
        return call();
    }
    forks_by(flags as c_int, call)
}

/// A child is about to be made that has more in common with this process than can be followed: its
/// descriptors, or its memory, while both go on. Or its number may be that of its parent.
fn shares(flags: c_int) {
    let both = |some: c_int| flags & some == some;
    let runs_beside = flags & (libc::CLONE_VM | libc::CLONE_VFORK) == libc::CLONE_VM;
    let files = both(libc::CLONE_FILES);
    let is_hidden = both(libc::CLONE_VM | libc::CLONE_NEWPID);
    if (files || runs_beside || is_hidden) && settings::is_on() {
        is_confined();
    }
}

/// A function that a child begins with, and its argument.
type Function = extern "C-unwind" fn(*mut c_void) -> c_int;
struct Begin(Function, *mut c_void);

extern "C-unwind" fn begins(at: *mut c_void) -> c_int {
    // SAFETY: the caller's of `clone`, in the child's copy of the memory.
    let Begin(function, argument) = unsafe { &*at.cast::<Begin>() };
    in_child();
    function(*argument)
}

/// clone(2), which has three arguments more, for some flags.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut pid_t,
    tls: *mut c_void,
    child_id: *mut pid_t,
) -> c_int {
    // SAFETY: the caller's arguments, or the function above with its argument.
    let call = |function, argument| unsafe {
        real::clone(function, stack, flags, argument, parent_id, tls, child_id)
    };
    let Some(begin) = function.filter(|_| flags & libc::CLONE_THREAD == 0 && !stack.is_null())
    else {
        return call(function, argument);
    };
    shares(flags);
    match flags & (libc::CLONE_VM | libc::CLONE_VFORK) {
        libc::CLONE_VM => vfork::runs_beside(|| call(function, argument)),
        0 | libc::CLONE_VFORK => {
            let mut begin = Begin(begin, argument);
            forks(|| call(Some(begins), (&raw mut begin).cast()).into()) as c_int
        }
        _ => vfork::waits(|| call(function, argument)),
    }
}

/// clone(2) under its other name.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn __clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut pid_t,
    tls: *mut c_void,
    child_id: *mut pid_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { clone(function, stack, flags, argument, parent_id, tls, child_id) }
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

/// All connections are the kernel's alone from now on: the kernel is about to end this program for
/// calls of its own choice (seccomp), among which may be those that only this library makes; or a
/// child comes that cannot be followed.
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

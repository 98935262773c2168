//! Functions that make processes, or confine this one.

use super::leave::{hand_over, stay_tcp};
use crate::sys::{calls, real};
use crate::table::{self, Connection};
use crate::{agent, holders, lock, scratch, settings, slot, vfork};
use libc::{c_int, c_long, pid_t};
use std::sync::atomic::Ordering;

extern "C" fn before_fork() {
    table::is_forking();
}

extern "C" fn in_parent() {
    holders::child_came();
}

pub extern "C" fn in_child() {
    let was = real::errno();
    vfork::is_over();
    scratch::is_child();
    holders::is_child();
    agent::is_child();
    if lock::is_foreign() {
        // Locks cannot be shared with processes of other numbers.
        each(true, stay_tcp_with_strangers);
    }
    real::set_errno(was);
}

/// Follows processes from now on, and ends this one at a fault of the library: no panic may leave
/// it.
pub fn begin() {
    calls::follow_forks(before_fork, in_parent, in_child);
    let own = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        own(info);
        std::process::abort();
    }));
}

/// A process is made by a call that runs no handlers.
pub fn forks(call: impl FnOnce() -> c_long) -> c_long {
    before_fork();
    let child = call();
    match child {
        0 => in_child(),
        _ => in_parent(),
    }
    made(child as pid_t);
    child
}

/// A process is made by clone(2) with these flags.
pub fn forks_by(flags: c_int, call: impl FnOnce() -> c_long) -> c_long {
    shares(flags);
    forks(call)
}

/// clone(2) by its number. A child with a stack of its own goes on where that says, so that nothing
/// is known of it: as of one in the memory of its parent.
pub fn clones_by(flags: u64, stack: u64, call: impl FnOnce() -> c_long) -> c_long {
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
pub fn shares(flags: c_int) {
    let both = |some: c_int| flags & some == some;
    let runs_beside = flags & (libc::CLONE_VM | libc::CLONE_VFORK) == libc::CLONE_VM;
    let files = both(libc::CLONE_FILES);
    let is_hidden = both(libc::CLONE_VM | libc::CLONE_NEWPID);
    if (files || runs_beside || is_hidden) && settings::is_on() {
        is_confined();
    }
}

/// A child that could not be made holds nothing.
pub fn made(child: pid_t) -> pid_t {
    if child < 0 {
        holders::child_failed();
    }
    child
}

/// Calls `act` with the connections of this process: all, or those that another program would have.
pub fn each(all: bool, mut act: impl FnMut(&Connection)) {
    let was = real::errno();
    let mut from = 0;
    while let Some(fd) = table::next(from, c_int::MAX) {
        from = fd + 1;
        let flags = calls::descriptor_flags(fd);
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
pub fn is_confined() {
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
    agent::ends();
    real::set_errno(was);
}

/// True if such a call of prctl(2) confines the program.
pub fn confines(what: c_long, mode: c_long) -> bool {
    what == c_long::from(libc::PR_SET_SECCOMP) && mode != 0
}

//! Functions that wait.

use super::{chk_fail, mask_at};
use crate::guard::{waits_with, Caller};
use crate::hooks::waits;
use crate::sys::real;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use std::ptr::null;

const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// The sets of a select.
///
/// # Safety
/// The caller's sets.
unsafe fn sets(sets: [*mut fd_set; 3]) -> [Caller<fd_set>; 3] {
    // SAFETY: the caller's.
    sets.map(|set| unsafe { Caller::new(set) })
}

/// ppoll(2), whose sleep is this call.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub unsafe fn ppoll_by(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    sleep: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let now = || real::poll(fds, n, 0);
        waits::ppoll(Caller::new(fds), n, Caller::new(timeout), now, sleep)
    }
}

/// pselect(2), whose sleep is this call.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub unsafe fn pselect_by(
    n: c_int,
    all: [*mut fd_set; 3],
    timeout: *const timespec,
    sleep: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let now = || real::pselect(n, all[0], all[1], all[2], &NO_TIME, null());
        waits::pselect(n, sets(all), Caller::new(timeout), now, sleep)
    }
}

/// epoll_pwait2(2), whose sleep is this call, for so many events at this place.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub unsafe fn epoll_pwait2_by(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    sleep: impl Fn(*mut epoll_event, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let now = |events, n| real::epoll_wait(set, events, n, 0);
        waits::pwait2(set, Caller::new(events), n, Caller::new(timeout), now, sleep)
    }
}

hooks! {
    /// poll(2).
    fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
        let call = |now: bool| real::poll(fds, n, if now { 0 } else { timeout });
        waits::run_poll(Caller::new(fds), n, timeout == 0, call)
    }

    /// poll(2) of programs built with checks.
    fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, space: size_t) -> c_int {
        chk_fail(space / size_of::<pollfd>() < n as usize);
        poll(fds, n, timeout)
    }

    /// poll(2) under its other name.
    fn __poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
        poll(fds, n, timeout)
    }

    /// ppoll(2) of programs built with checks.
    fn __ppoll_chk(
        fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        space: size_t,
    ) -> c_int {
        chk_fail(space / size_of::<pollfd>() < n as usize);
        ppoll(fds, n, timeout, mask)
    }

    /// select(2) under its other name.
    fn __select(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        select(n, read, write, except, timeout)
    }

    /// ppoll(2).
    fn ppoll(
        fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        let sleep = || waits_with(mask_at(mask), || real::ppoll(fds, n, timeout, mask));
        ppoll_by(fds, n, timeout, sleep)
    }

    /// select(2).
    fn select(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        let call = |now: bool| {
            let mut none = timeval { tv_sec: 0, tv_usec: 0 };
            real::select(n, read, write, except, if now { &mut none } else { timeout })
        };
        waits::select(n, sets([read, write, except]), Caller::new(timeout), call)
    }

    /// pselect(2).
    fn pselect(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        let call = || real::pselect(n, read, write, except, timeout, mask);
        let sleep = || waits_with(mask_at(mask), call);
        pselect_by(n, [read, write, except], timeout, sleep)
    }

    /// epoll_create(2).
    fn epoll_create(size: c_int) -> c_int {
        waits::made(real::epoll_create(size))
    }

    /// epoll_create1(2).
    fn epoll_create1(flags: c_int) -> c_int {
        waits::made(real::epoll_create1(flags))
    }

    /// epoll_ctl(2).
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let result = real::epoll_ctl(set, what, fd, event);
        // The kernel has read the event too.
        let is_there = result == 0 && what != libc::EPOLL_CTL_DEL;
        let event = is_there.then(|| event.read_unaligned());
        waits::has_controlled(result, (set, what, fd), event)
    }

    /// epoll_wait(2).
    fn epoll_wait(set: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int {
        waits::run_wait(set, Caller::new(events), n, timeout == 0, |events, n, now| {
            real::epoll_wait(set, events, n, if now { 0 } else { timeout })
        })
    }

    /// epoll_pwait(2).
    fn epoll_pwait(
        set: c_int, events: *mut epoll_event, n: c_int, timeout: c_int, mask: *const sigset_t,
    ) -> c_int {
        // A call that does not sleep takes no mask.
        waits::run_wait(set, Caller::new(events), n, timeout == 0, |events, n, now| match now {
            true => real::epoll_wait(set, events, n, 0),
            false => waits_with(mask_at(mask), || {
                real::epoll_pwait(set, events, n, timeout, mask)
            }),
        })
    }

    /// epoll_pwait2(2).
    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, n: c_int, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let sleep = |events, n| {
            waits_with(mask_at(mask), || real::epoll_pwait2(set, events, n, timeout, mask))
        };
        epoll_pwait2_by(set, events, n, timeout, sleep)
    }
}

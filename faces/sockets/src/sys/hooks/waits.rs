//! Functions that wait.

use crate::sys::set::{self, Wait};
use crate::sys::table;
use crate::sys::wait::{self, Waiting};
use crate::sys::{clock, guard, real, slot};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::sync::atomic::Ordering;

/// Bits of a wait for something to read.
const IN: i16 = libc::POLLIN | libc::POLLRDNORM;

/// Bits that come at the end of a connection.
const END: i16 = IN | libc::POLLRDHUP;

/// Runs a poll. `call` is the call of the kernel; its argument says if it is to return at once.
unsafe fn run_poll(
    fds: *mut pollfd,
    n: nfds_t,
    is_poll: bool,
    call: impl Fn(bool) -> c_int,
) -> c_int {
    // SAFETY: the caller's array, if it is there.
    let is_there = || unsafe { !fds.is_null() && guard::is_readable(fds, n as usize) };
    if slot::region().is_none() || !guard::is_on() || !is_there() {
        // The kernel says what is wrong.
        return call(false);
    }
    // SAFETY: the caller's array has `n` entries.
    let list = unsafe { std::slice::from_raw_parts(fds, n as usize) };
    let mut waiting = Waiting::new();
    list.iter().filter(|one| one.events & IN != 0).for_each(|one| waiting.add(one.fd));
    if waiting.is_empty() {
        return call(false);
    }
    let readable = |one: &pollfd| one.events & IN != 0 && wait::has_bytes(one.fd);
    let any = || {
        // SAFETY: as above; no call is under way.
        unsafe { std::slice::from_raw_parts(fds, n as usize) }.iter().any(readable)
    };
    let now = || {
        let was = real::errno();
        let failed = call(true) < 0;
        if failed && real::errno() == libc::EFAULT {
            return -1;
        }
        real::set_errno(was);
        // SAFETY: as above.
        let list = unsafe { std::slice::from_raw_parts_mut(fds, n as usize) };
        for one in list.iter_mut() {
            if failed {
                one.revents = 0;
            }
            if readable(one) {
                one.revents |= one.events & IN;
            }
        }
        list.iter().filter(|one| one.revents != 0).count() as c_int
    };
    // The events that came are written again by a later call.
    let found = wait::run(waiting, is_poll, any, || call(true) > 0, now, || call(false));
    if found > 0 {
        let was = real::errno();
        // SAFETY: as above; the kernel has written to it.
        let list = unsafe { std::slice::from_raw_parts_mut(fds, n as usize) };
        let ended = |one: &&mut pollfd| one.revents & END != 0 && wait::is_broken(one.fd);
        list.iter_mut().filter(ended).for_each(|one| one.revents |= libc::POLLERR | libc::POLLHUP);
        real::set_errno(was);
    }
    found
}

/// poll(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let call = |now: bool| unsafe { real::poll(fds, n, if now { 0 } else { timeout }) };
    // SAFETY: the caller's array.
    unsafe { run_poll(fds, n, timeout == 0, call) }
}

/// poll(2) of programs built with checks.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: c_int,
    room: libc::size_t,
) -> c_int {
    extern "C" {
        fn __chk_fail() -> !;
    }
    // SAFETY: the caller's arguments.
    unsafe {
        if room / size_of::<pollfd>() < n as usize {
            __chk_fail();
        }
        poll(fds, n, timeout)
    }
}

/// poll(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { poll(fds, n, timeout) }
}

/// ppoll(2) of programs built with checks.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: libc::size_t,
) -> c_int {
    extern "C" {
        fn __chk_fail() -> !;
    }
    // SAFETY: the caller's arguments.
    unsafe {
        if room / size_of::<pollfd>() < n as usize {
            __chk_fail();
        }
        ppoll(fds, n, timeout, mask)
    }
}

/// select(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { select(n, read, write, except, timeout) }
}

/// Returns the time of a caller, or that there is none. `None`: the kernel says what is wrong.
///
/// # Safety
/// The caller's time.
pub(super) unsafe fn time_of<'a>(timeout: *const timespec) -> Option<Option<&'a timespec>> {
    if timeout.is_null() {
        return Some(None);
    }
    // SAFETY: the caller's time, if it is there.
    let time = unsafe { guard::get(timeout) }?;
    (!is_wrong(time)).then_some(Some(time))
}

/// True for a time that the kernel refuses.
fn is_wrong(time: &timespec) -> bool {
    time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec)
}

/// True for no time.
fn is_none(time: &timespec) -> bool {
    time.tv_sec == 0 && time.tv_nsec == 0
}

static NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// ppoll(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let sleep = || unsafe { guard::waits_with(mask, || real::ppoll(fds, n, timeout, mask)) };
    // SAFETY: the caller's arguments.
    unsafe { ppoll_by(fds, n, timeout, sleep) }
}

/// ppoll(2), whose sleep is this call.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub(super) unsafe fn ppoll_by(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    sleep: impl Fn() -> c_int,
) -> c_int {
    // A signal that only the mask lets through is to end the call that sleeps, not one before it.
    let call = |now: bool| match now {
        // SAFETY: the caller's array.
        true => unsafe { real::poll(fds, n, 0) },
        false => sleep(),
    };
    // SAFETY: the caller's time and array.
    unsafe {
        match time_of(timeout) {
            Some(time) => run_poll(fds, n, time.is_some_and(is_none), call),
            None => call(false),
        }
    }
}

/// Words of a set of select that is not a large one.
const WORDS: usize = size_of::<fd_set>() / 8;

/// The bits of a set of select, which may be larger than `fd_set`.
#[derive(Clone, Copy)]
struct Bits {
    words: *mut u64,
    n: usize,
}

impl Bits {
    fn new(set: *mut fd_set, n: c_int) -> Bits {
        Bits { words: set.cast(), n: if set.is_null() { 0 } else { n.max(0) as usize } }
    }

    fn has(&self, fd: usize) -> bool {
        // SAFETY: the caller's set has at least `n` bits.
        fd < self.n && unsafe { *self.words.add(fd / 64) } >> (fd % 64) & 1 != 0
    }

    fn set(&self, fd: usize) {
        // SAFETY: as above.
        unsafe { *self.words.add(fd / 64) |= 1 << (fd % 64) };
    }

    /// Returns the words of a set that is not a large one.
    fn get(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (i, to) in words.iter_mut().enumerate().take(self.n.div_ceil(64)) {
            // SAFETY: the caller's set has at least `n` bits, in words.
            *to = unsafe { *self.words.add(i) };
        }
        words
    }

    /// Writes them again.
    fn put(&self, words: &[u64; WORDS]) {
        for (i, from) in words.iter().enumerate().take(self.n.div_ceil(64)) {
            // SAFETY: as above.
            unsafe { *self.words.add(i) = *from };
        }
    }

    fn count(&self) -> c_int {
        (0..self.n).filter(|&fd| self.has(fd)).count() as c_int
    }

    fn clear(&self) {
        for word in 0..self.n.div_ceil(64) {
            // SAFETY: as above.
            unsafe { *self.words.add(word) = 0 };
        }
    }
}

/// True if there is no set, or one that can be read.
fn is_there(set: *const fd_set, n: c_int) -> bool {
    // SAFETY: the caller's set, if it is there.
    set.is_null()
        || unsafe { guard::is_readable(set.cast::<u64>(), (n.max(0) as usize).div_ceil(64)) }
}

/// Descriptors that may be in a ring's reach of one select.
const READABLE: usize = 128;

/// Runs a select. `call` is the call of the kernel; its argument says if it is to return at once.
fn run_select(
    n: c_int,
    sets: [*mut fd_set; 3],
    is_poll: bool,
    time: *mut timeval,
    call: impl Fn(bool) -> c_int,
) -> c_int {
    let read = Bits::new(sets[0], n);
    let mut waiting = Waiting::new();
    if slot::region().is_some() && guard::is_on() && sets.iter().all(|&set| is_there(set, n)) {
        (0..read.n).filter(|&fd| read.has(fd)).for_each(|fd| waiting.add(fd as c_int));
    }
    if waiting.is_empty() {
        return call(false);
    }
    let kept = sets.map(|set| Bits::new(set, n).get());
    let any = || (0..read.n).any(|fd| read.has(fd) && wait::has_bytes(fd as c_int));
    let now = || {
        let (mut readable, mut found) = ([0u32; READABLE], 0);
        for fd in (0..read.n).filter(|&fd| read.has(fd) && wait::has_bytes(fd as c_int)) {
            if found < READABLE {
                readable[found] = fd as u32;
                found += 1;
            }
        }
        let was = real::errno();
        let all = sets.map(|set| Bits::new(set, n));
        if call(true) < 0 {
            if real::errno() == libc::EFAULT {
                return -1;
            }
            all.iter().for_each(Bits::clear);
        }
        real::set_errno(was);
        readable[..found].iter().for_each(|&fd| read.set(fd as usize));
        let found = all.iter().map(Bits::count).sum();
        if found == 0 {
            // The wait goes on with what it was for.
            kept.iter().zip(&all).for_each(|(from, to)| to.put(from));
        }
        found
    };
    let is_ready = || is_ready(n, sets);
    // SAFETY: the caller's time, unless there is none.
    let Some(time) = (unsafe { time.as_mut() }) else {
        return wait::run(waiting, is_poll, any, is_ready, now, || call(false));
    };
    let (was, from) = (*time, clock::now_ns());
    let found = wait::run(waiting, is_poll, any, is_ready, now, || call(false));
    if (time.tv_sec, time.tv_usec) == (was.tv_sec, was.tv_usec) {
        // The kernel did not wait, and so did not lessen the time.
        let all = (was.tv_sec as u64).saturating_mul(1_000_000).saturating_add(was.tv_usec as u64);
        let left = all.saturating_sub(clock::now_ns().saturating_sub(from) / 1000);
        (time.tv_sec, time.tv_usec) = ((left / 1_000_000) as _, (left % 1_000_000) as _);
    }
    found
}

/// True if a select of these sets would find something now. Large sets are not looked at.
fn is_ready(n: c_int, sets: [*mut fd_set; 3]) -> bool {
    if n as usize > 8 * size_of::<fd_set>() {
        return false;
    }
    // SAFETY: all-zero is a valid value; each of the caller's sets has at least `n` bits, in words.
    unsafe {
        let mut copies: [fd_set; 3] = std::mem::zeroed();
        let len = (n as usize).div_ceil(64) * 8;
        let to = std::array::from_fn::<_, 3, _>(|i| {
            let to = &raw mut copies[i];
            if sets[i].is_null() {
                return std::ptr::null_mut();
            }
            std::ptr::copy_nonoverlapping(sets[i].cast::<u8>(), to.cast::<u8>(), len);
            to
        });
        let mut none = timeval { tv_sec: 0, tv_usec: 0 };
        let was = real::errno();
        let found = real::select(n, to[0], to[1], to[2], &mut none) != 0;
        real::set_errno(was);
        found
    }
}

/// select(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let call = |now: bool| {
        let mut none = timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the caller's arguments.
        unsafe { real::select(n, read, write, except, if now { &mut none } else { timeout }) }
    };
    // SAFETY: the caller's time, if it is there.
    let time = unsafe { (timeout.is_null() || guard::is_readable(timeout, 1)).then_some(timeout) };
    // SAFETY: as above.
    let Some(time) = time.map(|time| unsafe { time.as_ref() }) else { return call(false) };
    if time.is_some_and(|t| t.tv_sec < 0 || t.tv_usec < 0) {
        return call(false);
    }
    let is_poll = time.is_some_and(|t| t.tv_sec == 0 && t.tv_usec == 0);
    run_select(n, [read, write, except], is_poll, timeout, call)
}

/// pselect(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's arguments.
    let sleep = || unsafe {
        guard::waits_with(mask, || real::pselect(n, read, write, except, timeout, mask))
    };
    // SAFETY: the caller's arguments.
    unsafe { pselect_by(n, sets, timeout, sleep) }
}

/// pselect(2), whose sleep is this call.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub(super) unsafe fn pselect_by(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timespec,
    sleep: impl Fn() -> c_int,
) -> c_int {
    let [read, write, except] = sets;
    let call = |now: bool| match now {
        // The look takes no mask: see `ppoll_by`.
        // SAFETY: the caller's sets.
        true => unsafe { real::pselect(n, read, write, except, &NO_TIME, std::ptr::null()) },
        false => sleep(),
    };
    // SAFETY: the caller's time.
    match unsafe { time_of(timeout) } {
        Some(time) => run_select(n, sets, time.is_some_and(is_none), std::ptr::null_mut(), call),
        None => call(false),
    }
}

fn made(fd: c_int) -> c_int {
    if fd >= 0 {
        table::begin_set(fd);
    }
    fd
}

/// epoll_create(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the caller's argument.
    made(unsafe { real::epoll_create(size) })
}

/// epoll_create1(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the caller's argument.
    made(unsafe { real::epoll_create1(flags) })
}

/// epoll_ctl(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    what: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::epoll_ctl(set, what, fd, event) };
    if result == 0 {
        let was = real::errno();
        // SAFETY: the caller's event, which the kernel has read too; a removal needs none.
        let event = (what != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
        set::changed(set, what, fd, event);
        real::set_errno(was);
    }
    result
}

/// Most events that the kernel lets a wait ask for.
const EVENTS_MAX: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// Runs a wait for a set. `call` is the call of the kernel.
fn run_wait(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    is_poll: bool,
    call: impl Fn(*mut epoll_event, c_int, bool) -> c_int,
) -> c_int {
    let is_usual = (1..=EVENTS_MAX).contains(&n) && !events.is_null();
    let Some((found, index)) = table::set(set).filter(|_| is_usual) else {
        return call(events, n, false);
    };
    if found.is_hooked.load(Ordering::Relaxed) == 0 {
        found.is_hooked.store(1, Ordering::Relaxed);
    }
    // SAFETY: the caller's array has room for `n` events.
    let events = unsafe { std::slice::from_raw_parts_mut(events, n as usize) };
    Wait { set: found, index, fd: set, events }.run(is_poll, call)
}

/// epoll_wait(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
) -> c_int {
    run_wait(set, events, n, timeout == 0, |events, n, now| {
        // SAFETY: the caller's arguments, or a part of the room.
        unsafe { real::epoll_wait(set, events, n, if now { 0 } else { timeout }) }
    })
}

/// epoll_pwait(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    run_wait(set, events, n, timeout == 0, |events, n, now| match now {
        // The look takes no mask: see `ppoll_by`.
        // SAFETY: room for so many events.
        true => unsafe { real::epoll_wait(set, events, n, 0) },
        // SAFETY: as above.
        false => unsafe {
            guard::waits_with(mask, || real::epoll_pwait(set, events, n, timeout, mask))
        },
    })
}

/// epoll_pwait2(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, or a part of the room.
    let sleep = |events, n| unsafe {
        guard::waits_with(mask, || real::epoll_pwait2(set, events, n, timeout, mask))
    };
    // SAFETY: the caller's arguments.
    unsafe { epoll_pwait2_by(set, events, n, timeout, sleep) }
}

/// epoll_pwait2(2), whose sleep is this call, for so many events at this place.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
pub(super) unsafe fn epoll_pwait2_by(
    set: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    sleep: impl Fn(*mut epoll_event, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's time.
    let Some(time) = (unsafe { time_of(timeout) }) else { return sleep(events, n) };
    run_wait(set, events, n, time.is_some_and(is_none), |events, n, now| match now {
        // The look takes no mask: see `ppoll_by`.
        // SAFETY: room for so many events.
        true => unsafe { real::epoll_wait(set, events, n, 0) },
        false => sleep(events, n),
    })
}

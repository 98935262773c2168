//! Waits.

use crate::guard::{self, Caller};
use crate::set::{self, Wait};
use crate::sys::{calls, clock, real};
use crate::wait::{self, Waiting};
use crate::{readiness, slot, table};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, timespec, timeval};
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// Bits of a wait for something to read.
const IN: i16 = libc::POLLIN | libc::POLLRDNORM;

/// Bits that come at the end of a connection.
const END: i16 = IN | libc::POLLRDHUP;

/// Adds bits to the events that came.
fn add(one: &Cell<pollfd>, bits: i16) {
    let was = one.get();
    one.set(pollfd { revents: was.revents | bits, ..was });
}

/// Runs a poll. `call` is the call of the kernel; its argument says if it is to return at once.
pub fn run_poll(
    fds: Caller<pollfd>,
    n: nfds_t,
    is_poll: bool,
    call: impl Fn(bool) -> c_int,
) -> c_int {
    let list = || fds.cast::<Cell<pollfd>>().list(n as usize);
    let is_on = slot::region().is_some() && guard::is_on();
    // Where the list is not there, the kernel says what is wrong.
    let Some(list) = is_on.then(list).flatten() else { return call(false) };
    let mut waiting = Waiting::new();
    let is_for_bytes = |one: &pollfd| one.events & IN != 0;
    let all = || list.iter().map(Cell::get);
    all().filter(is_for_bytes).for_each(|one| waiting.add(one.fd));
    if waiting.is_empty() {
        return call(false);
    }
    let readable = |one: &pollfd| is_for_bytes(one) && readiness::has_bytes(one.fd);
    let any = || all().any(|one| readable(&one));
    let now = || {
        let was = real::errno();
        let failed = call(true) < 0;
        if failed && real::errno() == libc::EFAULT {
            return -1;
        }
        real::set_errno(was);
        for one in list {
            if failed {
                one.set(pollfd { revents: 0, ..one.get() });
            }
            if readable(&one.get()) {
                add(one, one.get().events & IN);
            }
        }
        all().filter(|one| one.revents != 0).count() as c_int
    };
    // The events that came are written again by a later call.
    let found = wait::run(waiting, is_poll, any, || call(true) > 0, now, || call(false));
    if found > 0 {
        let was = real::errno();
        let ended = |one: pollfd| one.revents & END != 0 && readiness::is_broken(one.fd);
        let ended = list.iter().filter(|one| ended(one.get()));
        ended.for_each(|one| add(one, libc::POLLERR | libc::POLLHUP));
        real::set_errno(was);
    }
    found
}

/// Returns the time of a caller, or that there is none. `None`: the kernel says what is wrong.
pub fn time_of(timeout: Caller<timespec>) -> Option<Option<timespec>> {
    if timeout.is_null() {
        return Some(None);
    }
    let time = *timeout.get()?;
    let is_wrong = time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec);
    (!is_wrong).then_some(Some(time))
}

/// True for no time.
fn is_none(time: timespec) -> bool {
    time.tv_sec == 0 && time.tv_nsec == 0
}

/// ppoll(2), with the call that sleeps, and one that does not and takes no mask: a signal that only
/// the mask lets through is to end the call that sleeps, not one before it.
pub fn ppoll(
    fds: Caller<pollfd>,
    n: nfds_t,
    timeout: Caller<timespec>,
    now: impl Fn() -> c_int,
    sleep: impl Fn() -> c_int,
) -> c_int {
    let call = |at_once: bool| if at_once { now() } else { sleep() };
    match time_of(timeout) {
        Some(time) => run_poll(fds, n, time.is_some_and(is_none), call),
        None => call(false),
    }
}

/// The bits of a set of select, which may be larger than `fd_set`.
#[derive(Clone, Copy)]
struct Bits<'a>(&'a [Cell<u64>]);

impl<'a> Bits<'a> {
    /// The first `n` bits. `None`: the set cannot be read.
    fn new(set: Caller<fd_set>, n: c_int) -> Option<Bits<'a>> {
        match set.is_null() {
            true => Some(Bits(&[])),
            false => set.cast().list((n.max(0) as usize).div_ceil(64)).map(Bits),
        }
    }

    fn has(&self, fd: usize) -> bool {
        self.0.get(fd / 64).is_some_and(|word| word.get() >> (fd % 64) & 1 != 0)
    }

    fn set(&self, fd: usize) {
        self.0.get(fd / 64).iter().for_each(|word| word.set(word.get() | 1 << (fd % 64)));
    }

    /// Returns the words of a set that is not a large one.
    fn get(&self) -> [u64; calls::WORDS] {
        std::array::from_fn(|i| self.0.get(i).map_or(0, Cell::get))
    }

    /// Writes them again.
    fn put(&self, words: &[u64; calls::WORDS]) {
        self.0.iter().zip(words).for_each(|(to, from)| to.set(*from));
    }

    /// Returns the number of the first `n` bits that are set.
    fn count(&self, n: usize) -> c_int {
        (0..n).filter(|&fd| self.has(fd)).count() as c_int
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.set(0));
    }
}

/// Descriptors that may be in a ring's reach of one select.
const READABLE: usize = 128;

/// Runs a select. `call` is the call of the kernel; its argument says if it is to return at once.
fn run_select(
    n: c_int,
    sets: [Caller<fd_set>; 3],
    is_poll: bool,
    time: Caller<timeval>,
    call: impl Fn(bool) -> c_int,
) -> c_int {
    let is_on = slot::region().is_some() && guard::is_on();
    let all = is_on.then(|| sets.map(|set| Bits::new(set, n)));
    let Some([Some(read), Some(write), Some(except)]) = all else { return call(false) };
    let (all, count) = ([read, write, except], n.max(0) as usize);
    let mut waiting = Waiting::new();
    (0..count).filter(|&fd| read.has(fd)).for_each(|fd| waiting.add(fd as c_int));
    if waiting.is_empty() {
        return call(false);
    }
    let kept = all.map(|set| set.get());
    let has_bytes = |fd: &usize| read.has(*fd) && readiness::has_bytes(*fd as c_int);
    let any = || (0..count).any(|fd| has_bytes(&fd));
    let now = || {
        let (mut readable, mut found) = ([0u32; READABLE], 0);
        for (to, fd) in readable.iter_mut().zip((0..count).filter(has_bytes)) {
            *to = fd as u32;
            found += 1;
        }
        let was = real::errno();
        if call(true) < 0 {
            if real::errno() == libc::EFAULT {
                return -1;
            }
            all.iter().for_each(Bits::clear);
        }
        real::set_errno(was);
        readable[..found].iter().for_each(|&fd| read.set(fd as usize));
        let found: c_int = all.iter().map(|set| set.count(count)).sum();
        if found == 0 {
            // The wait goes on with what it was for.
            kept.iter().zip(&all).for_each(|(from, to)| to.put(from));
        }
        found
    };
    // True if a select of these sets would find something now. Large sets are not looked at.
    let is_ready = || {
        let is_small = count <= 64 * calls::WORDS;
        let words = |i: usize| (!sets[i].is_null()).then(|| all[i].get());
        is_small && calls::select_now(n, std::array::from_fn(words))
    };
    let Some(time) = time.get_mut() else {
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

/// select(2).
pub fn select(
    n: c_int,
    sets: [Caller<fd_set>; 3],
    timeout: Caller<timeval>,
    call: impl Fn(bool) -> c_int,
) -> c_int {
    let time = timeout.get().copied();
    let is_wrong = |time: timeval| time.tv_sec < 0 || time.tv_usec < 0;
    if time.is_none() && !timeout.is_null() || time.is_some_and(is_wrong) {
        return call(false);
    }
    let is_poll = time.is_some_and(|time| time.tv_sec == 0 && time.tv_usec == 0);
    run_select(n, sets, is_poll, timeout, call)
}

/// pselect(2), with the call that sleeps, and one that does not and takes no mask, as of [`ppoll`].
pub fn pselect(
    n: c_int,
    sets: [Caller<fd_set>; 3],
    timeout: Caller<timespec>,
    now: impl Fn() -> c_int,
    sleep: impl Fn() -> c_int,
) -> c_int {
    let call = |at_once: bool| if at_once { now() } else { sleep() };
    match time_of(timeout) {
        Some(time) => run_select(n, sets, time.is_some_and(is_none), Caller::NONE, call),
        None => call(false),
    }
}

/// A descriptor of a new set.
pub fn made(fd: c_int) -> c_int {
    if fd >= 0 {
        table::begin_set(fd);
    }
    fd
}

/// epoll_ctl(2) has ended with this result. A removal needs no event.
pub fn has_controlled(
    result: c_int,
    (set, what, fd): (c_int, c_int, c_int),
    event: Option<epoll_event>,
) -> c_int {
    if result == 0 {
        let was = real::errno();
        set::changed(set, what, fd, event);
        real::set_errno(was);
    }
    result
}

/// Most events that the kernel lets a wait ask for.
const EVENTS_MAX: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// Runs a wait for a set. `call` is the call of the kernel.
pub fn run_wait(
    set: c_int,
    events: Caller<epoll_event>,
    n: c_int,
    is_poll: bool,
    call: impl Fn(*mut epoll_event, c_int, bool) -> c_int,
) -> c_int {
    let space = (1..=EVENTS_MAX).contains(&n).then(|| events.space(n as usize)).flatten();
    let Some(((found, index), events)) = table::set(set).zip(space) else {
        return call(events.at(), n, false);
    };
    if found.is_hooked.load(Ordering::Relaxed) == 0 {
        found.is_hooked.store(1, Ordering::Relaxed);
    }
    Wait { set: found, index, fd: set, events }.run(is_poll, call)
}

/// epoll_pwait2(2), with the call that sleeps, and one that does not and takes no mask, as of
/// [`ppoll`]: each for so many events at this place.
pub fn pwait2(
    set: c_int,
    events: Caller<epoll_event>,
    n: c_int,
    timeout: Caller<timespec>,
    now: impl Fn(*mut epoll_event, c_int) -> c_int,
    sleep: impl Fn(*mut epoll_event, c_int) -> c_int,
) -> c_int {
    let Some(time) = time_of(timeout) else { return sleep(events.at(), n) };
    run_wait(set, events, n, time.is_some_and(is_none), |events, n, at_once| {
        if at_once {
            now(events, n)
        } else {
            sleep(events, n)
        }
    })
}

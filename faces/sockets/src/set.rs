//! Epoll sets: which connections are registered where, and waits for them.

use crate::own::{HIDDEN, KICKER};
use crate::readiness::{self, Rest};
use crate::signals::{self, Held, ANY};
use crate::slot::{Registration, Set, Slot, PLACES, READ, SPINS, WATCHED, WORD};
use crate::sys::{calls, real};
use crate::{
    affinity, board, guard, history, registrations, settings, spin, table, tcp, tcp_spin, wake,
};
use libc::{c_int, epoll_event};
use std::sync::atomic::Ordering;

/// The number of the event that makes a thread look at rings.
const KICK: u64 = 0x77e5_70cc_61b2_9d03;
/// Waits in a row with an event of one registration alone, after which waits spin on TCP.
const ALONE: u32 = 2;

/// A registration has changed.
pub fn changed(set_fd: c_int, what: c_int, fd: c_int, event: Option<epoll_event>) {
    if let Some((inner, _)) = table::set(fd) {
        return is_unseen(fd, inner);
    }
    let tracked = table::connection(fd).or_else(|| {
        // A socket that is connected later keeps its place in the set.
        let is_new = what == libc::EPOLL_CTL_ADD && settings::is_on();
        (is_new && tcp::is_unconnected(fd)).then(|| table::begin(fd)).flatten()
    });
    let Some(connection) = tracked else { return };
    let slot = connection.slot;
    slot.set(WATCHED);
    let Some((set, index)) = table::set(set_fd) else {
        // A set that was made elsewhere.
        return readiness::never(&connection);
    };
    let number = set.number(index);
    let held = slot.receiving.take();
    let of_this = |one: &&Registration| {
        one.set.load(Ordering::Acquire) == number && one.fd.load(Ordering::Relaxed) == fd as u32
    };
    let found = slot.registrations.iter().find(of_this);
    let Some(event) = event.filter(|_| what != libc::EPOLL_CTL_DEL) else {
        if let Some(one) = found {
            set.leave(one);
            one.set.store(0, Ordering::Release);
        }
        return;
    };
    let is_free = |one: &&Registration| {
        let number = one.set.load(Ordering::Acquire);
        number == 0 || table::set_of(number).is_none()
    };
    let Some(one) = found.or_else(|| {
        let one = slot.registrations.iter().find(is_free)?;
        one.place.store(0, Ordering::Relaxed);
        Some(one)
    }) else {
        drop(held);
        return readiness::never(&connection);
    };
    one.events.store(event.events, Ordering::Relaxed);
    one.data.store(event.u64, Ordering::Relaxed);
    one.set_fd.store(set_fd as u32, Ordering::Relaxed);
    one.fd.store(fd as u32, Ordering::Relaxed);
    one.notified.store(0, Ordering::Relaxed);
    one.set.store(number, Ordering::Release);
    if slot.has(SPINS) {
        set.by_tcp.store(1, Ordering::Relaxed);
    }
    if wake::is_followed(set, &connection, one) {
        return;
    }
    drop(held);
    // Bytes in the ring make the registration ready at once.
    if readiness::lie_down(connection.at, slot) != Rest::Empty
        && set.waiting.load(Ordering::SeqCst) > 0
    {
        kick(set_fd);
    }
}

/// A set is waited for in another set, or by poll: its connections get all bytes by TCP.
pub fn is_unseen(fd: c_int, set: &Set) {
    if set.unseen.swap(1, Ordering::SeqCst) != 0 {
        return;
    }
    let mut left = false;
    each_awake(set, |_, at, slot| left |= readiness::lie_down(at, slot) == Rest::Readable);
    if left {
        // Bytes that are in a ring already make the set readable.
        kick(fd);
    }
}

/// Returns the descriptor by which sets are made readable, and makes it if it is not there.
fn kicker() -> Option<c_int> {
    let before = KICKER.number();
    if let Some(fd) = KICKER.get() {
        return Some(fd);
    }
    let made = calls::move_to(calls::always_readable()?, HIDDEN)?;
    Some(KICKER.set_from(before, made))
}

/// True if sets can be made readable, whatever the system refuses later.
pub fn can_kick() -> bool {
    kicker().is_some()
}

/// Makes a set readable once.
fn kick(set_fd: c_int) {
    let Some(fd) = kicker() else { return };
    let event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: KICK };
    let control = |what| calls::epoll_ctl(set_fd, what, fd, event);
    // Another thread may do the same.
    let _ = control(libc::EPOLL_CTL_MOD)
        || control(libc::EPOLL_CTL_ADD)
        || control(libc::EPOLL_CTL_MOD);
}

/// Calls `each` with the places of a set that may be awake and the connections there, each time
/// others first.
fn each_awake(set: &Set, each: impl FnMut(usize, usize, &'static Slot)) {
    each_place(set, |word| set.awake[word].load(Ordering::SeqCst), each);
}

/// Calls `each` with the places of the bits that `bits` returns for a word.
fn each_place(
    set: &Set,
    bits: impl Fn(usize) -> u64,
    mut each: impl FnMut(usize, usize, &'static Slot),
) {
    if set.is_empty() {
        return;
    }
    let turn = set.turn.fetch_add(1, Ordering::Relaxed) as usize;
    for i in 0..PLACES / WORD {
        let word = (turn / WORD + i) % (PLACES / WORD);
        let first = turn % WORD;
        let mut left = bits(word).rotate_right(first as u32);
        while left != 0 {
            let place = word * WORD + (left.trailing_zeros() as usize + first) % WORD;
            left &= left - 1;
            let at = set.places[place].load(Ordering::Acquire).checked_sub(1);
            if let Some((at, slot)) = at.and_then(|at| Some((at, table::slot_at(at as usize)?))) {
                each(place, at as usize, slot);
            }
        }
    }
}

/// True if events are told by edges.
fn is_edge(events: u32) -> bool {
    events & libc::EPOLLET as u32 != 0
}

/// True if a registration is to be told of the bytes in the ring of a connection. All that arrive
/// make an edge, those behind bytes of TCP as well: the kernel has told of bytes of TCP once, and
/// knows of no others.
fn is_due(one: &Registration, at: usize, slot: &Slot) -> bool {
    let wanted = one.events.load(Ordering::Relaxed);
    wanted & READ != 0
        && match is_edge(wanted) {
            true => one.notified.load(Ordering::Relaxed) != arrived(at, slot),
            false => readiness::is_readable(at, slot),
        }
}

/// A number that changes with all that arrives in the ring of a connection, never 0.
fn arrived(at: usize, slot: &Slot) -> u64 {
    let arrived = |memory: table::Memory| slot.receiver.arrived(memory.incoming());
    table::with_memory(at, slot, arrived).unwrap_or(0) + 1
}

/// A wait for a set.
pub struct Wait<'a> {
    /// The set.
    pub set: &'static Set,
    /// Its index.
    pub index: usize,
    /// Its descriptor.
    pub fd: c_int,
    /// Space for events.
    pub events: &'a mut [epoll_event],
}

impl Wait<'_> {
    /// Puts the events of rings into `events`; returns their number.
    /// `None`: the caller has no space.
    fn notify(&mut self) -> Option<usize> {
        let (number, set_fd) = (self.set.number(self.index), self.fd);
        let (events, mut n, mut has_space) = (&mut *self.events, 0, true);
        each_awake(self.set, |place, at, slot| {
            if n == events.len() || !has_space || !readiness::holds_bytes(at, slot) {
                return;
            }
            let Some(one) =
                registrations::of_place(slot, number, place).filter(|one| is_due(one, at, slot))
            else {
                return;
            };
            let wanted = one.events.load(Ordering::Relaxed);
            // Edge-triggered: told once for all that has arrived.
            let arrived = arrived(at, slot);
            if is_edge(wanted) && one.notified.swap(arrived, Ordering::AcqRel) == arrived {
                return;
            }
            let bits = wanted & READ;
            let event = epoll_event { events: bits, u64: one.data.load(Ordering::Relaxed) };
            has_space = guard::put(&mut events[n], event);
            if !has_space {
                return;
            }
            if wanted & libc::EPOLLONESHOT as u32 != 0 {
                registrations::disarm(set_fd, one);
            }
            n += 1;
        });
        (has_space || n > 0).then_some(n)
    }

    /// True if a ring has bytes, told or not.
    fn has_bytes(&self) -> bool {
        let mut any = false;
        each_awake(self.set, |place, at, slot| any |= any || self.is_news(place, at, slot));
        any
    }

    /// True if a place has bytes that this set would tell.
    fn is_news(&self, place: usize, at: usize, slot: &Slot) -> bool {
        readiness::holds_bytes(at, slot)
            && registrations::of_place(slot, self.set.number(self.index), place)
                .is_some_and(|one| is_due(one, at, slot))
    }

    /// True if waits spin on TCP: one connection alone is busy. Where several are, a thread that
    /// sleeps gets many events for one wait, and one that spins a wait for each.
    fn spins_on_tcp(&self) -> bool {
        let by_tcp = self.set.by_tcp.load(Ordering::Relaxed) != 0
            && self.set.alone.load(Ordering::Relaxed) >= ALONE;
        by_tcp && settings::is_on() && !board::is_off()
    }

    /// The kernel has told so many events.
    fn has_notified(&self, n: usize) {
        if self.set.by_tcp.load(Ordering::Relaxed) == 0 || n == 0 {
            return;
        }
        let (set, number) = (self.set, self.events[0].u64);
        let is_same = set.last.swap(number, Ordering::Relaxed) == number && n == 1;
        let alone = if is_same { set.alone.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        set.alone.store(alone, Ordering::Relaxed);
    }

    /// Spins on the rings, and lets bytes come there meanwhile; at TCP as well if a
    /// connection leads to another host. Events of the kernel do not wait for that: the result is
    /// their number, or an error. `None`: nothing came, and this is not worth a spin. 0: there are
    /// bytes.
    fn spin(
        &mut self,
        held: &mut Option<Held>,
        kernel: &impl Fn(*mut epoll_event, c_int, bool) -> c_int,
    ) -> Option<c_int> {
        if !history::may_pay(&self.set.history) {
            return None;
        }
        let n = kernel(self.events.as_mut_ptr(), self.events.len() as c_int, true);
        if n < 0 {
            // The set was closed by another thread, or the call is wrong.
            return Some(n);
        }
        match self.without_kicks(n as usize) {
            0 => {}
            n => {
                self.has_notified(n);
                history::is_busy(&self.set.history);
                return Some(n as c_int);
            }
        }
        let asleep = |word: usize| {
            let awake = self.set.awake[word].load(Ordering::Relaxed);
            self.set.taken[word].load(Ordering::Relaxed) & !awake
        };
        each_place(self.set, asleep, |_, at, slot| {
            readiness::wake(at, slot);
        });
        let (by_tcp, places) = (self.spins_on_tcp(), self.set.awake_places());
        if places == 0 && !by_tcp {
            return None;
        }
        let (mut times, mut is_vain) = (1, !by_tcp);
        each_awake(self.set, |_, at, slot| {
            times = wake::times(slot);
            table::with_memory(at, slot, |memory| is_vain &= affinity::shares_core(slot, memory));
        });
        if is_vain {
            history::learn_vain(&self.set.history);
            return None;
        }
        let fd = self.fd;
        let found = || places > 0 && self.has_bytes() || by_tcp && tcp::has_input(fd);
        // Others do not wait longer than a spin on a ring.
        let times = match places {
            0 => tcp_spin::TIMES,
            1 => times,
            _ => 1,
        };
        if !spin::spin(&self.set.history, 1, times, (ANY, held), found) {
            return None;
        }
        if by_tcp {
            board::has_spun();
        }
        Some(0)
    }

    /// Has the bytes of all connections come by TCP. False if one has bytes to be told.
    fn lie_down(&self) -> bool {
        self.set.waiting.fetch_add(1, Ordering::SeqCst);
        let mut news = false;
        each_awake(self.set, |place, at, slot| {
            if registrations::of_place(slot, self.set.number(self.index), place).is_none() {
                // Its descriptors were closed elsewhere.
                return self.set.give(place);
            }
            match readiness::lie_down(at, slot) {
                Rest::Empty => self.set.mark_asleep(place),
                Rest::Later | Rest::Readable => news |= self.is_news(place, at, slot),
            }
        });
        if news {
            self.rise();
        }
        !news
    }

    fn rise(&self) {
        self.set.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits; `kernel` is the wait of the kernel, for the events at this place and this many, and
    /// for no time if the last is true.
    pub fn run(
        &mut self,
        is_poll: bool,
        kernel: impl Fn(*mut epoll_event, c_int, bool) -> c_int,
    ) -> c_int {
        if self.set.awake_places() >= self.events.len()
            && self.set.turn.fetch_add(1, Ordering::Relaxed) & 2 != 0
        {
            // Events of rings may fill the space: those of the kernel come first now and then.
            let n = kernel(self.events.as_mut_ptr(), self.events.len() as c_int, true);
            let n = self.without_kicks(n.max(0) as usize);
            if n > 0 {
                return n as c_int;
            }
        }
        loop {
            let Some(found) = self.notify() else { return real::fail(libc::EFAULT) };
            if found > 0 {
                return self.merge(found, &kernel);
            }
            let n = if is_poll {
                kernel(self.events.as_mut_ptr(), self.events.len() as c_int, false)
            } else {
                let mut held = None;
                if settings::spins() && (self.spins_on_tcp() || !self.set.is_empty()) {
                    match self.spin(&mut held, &kernel) {
                        Some(0) => continue,
                        Some(n) => return n,
                        None => {}
                    }
                }
                if !self.lie_down() {
                    continue;
                }
                if signals::end(held) {
                    self.rise();
                    return real::fail(libc::EINTR);
                }
                let sleep = || kernel(self.events.as_mut_ptr(), self.events.len() as c_int, false);
                let (n, waited) = spin::time(sleep);
                let was = real::errno();
                if n > 0 {
                    history::learn(&self.set.history, waited);
                }
                self.rise();
                real::set_errno(was);
                n
            };
            if n <= 0 {
                return n;
            }
            match self.without_kicks(n as usize) {
                0 => {}
                n => {
                    self.has_notified(n);
                    return n as c_int;
                }
            }
        }
    }

    /// Adds the events of the kernel: one event for each number, as a registration has one.
    fn merge(
        &mut self,
        found: usize,
        kernel: &impl Fn(*mut epoll_event, c_int, bool) -> c_int,
    ) -> c_int {
        let space = self.events.len() - found;
        if space == 0 {
            return found as c_int;
        }
        let was = real::errno();
        let more = kernel(self.events[found..].as_mut_ptr(), space as c_int, true);
        real::set_errno(was);
        let all = self.without_kicks(found + more.max(0) as usize);
        let mut end = found;
        for i in found..all {
            let event = self.events[i];
            let data = event.u64;
            match self.events[..found].iter_mut().find(|one| {
                let own = one.u64;
                own == data
            }) {
                Some(one) => one.events |= event.events,
                None => {
                    self.events[end] = event;
                    end += 1;
                }
            }
        }
        end as c_int
    }

    /// Takes out events by which a thread was made to look.
    fn without_kicks(&mut self, n: usize) -> usize {
        let mut end = 0;
        for i in 0..n {
            let data = self.events[i].u64;
            if data != KICK {
                self.events[end] = self.events[i];
                end += 1;
            }
        }
        end
    }
}

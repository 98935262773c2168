//! Waits: poll, select and epoll_wait over connections whose bytes may be in a ring, where the
//! kernel does not see them.
//!
//! Each wait looks at the rings first. Before it sleeps in the kernel it has the bytes of all its
//! connections come by TCP, and looks again.

use crate::readiness::{self, Rest};
use crate::signals::{self, Held, ANY};
use crate::slot::{Slot, WATCHED};
use crate::sys::real;
use crate::{board, history, set, settings, spin, table, tcp_spin, wake};
use libc::c_int;
use std::sync::atomic::Ordering;

/// Most connections of one wait. Those beyond never have bytes in a ring.
const MOST: usize = 128;

/// The connections and sets of one wait.
pub struct Waiting {
    slots: [(u32, u32); MOST],
    n: usize,
    /// Epoll sets among the descriptors: not seen any more.
    has_sets: bool,
    is_sleeping: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.rise();
    }
}

impl Waiting {
    /// A wait for nothing.
    pub fn new() -> Waiting {
        Waiting { slots: [(0, 0); MOST], n: 0, has_sets: false, is_sleeping: false }
    }

    /// Adds a descriptor that is waited for until it can be read.
    pub fn add(&mut self, fd: i32) {
        let Some(connection) = table::connection(fd) else {
            if let Some((set, _)) = table::set(fd) {
                self.has_sets = true;
                set::is_unseen(fd, set);
            }
            return;
        };
        let slot = connection.slot;
        slot.set(WATCHED);
        if self.n == MOST {
            return readiness::never(&connection);
        }
        self.slots[self.n] = (connection.at as u32, slot.generation.load(Ordering::Relaxed));
        self.n += 1;
    }

    /// True if nothing here can have bytes in a ring.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    fn each(&self) -> impl Iterator<Item = (usize, &'static Slot)> + '_ {
        self.slots[..self.n].iter().filter_map(|&(at, generation)| {
            let slot = table::slot_at(at as usize)?;
            let same = slot.generation.load(Ordering::Acquire) == generation;
            same.then_some((at as usize, slot))
        })
    }

    /// Spins on the rings, and lets bytes come there meanwhile; at TCP as well if a
    /// connection leads to another host. True: there are some, or the kernel has something, which
    /// does not wait for a spin on rings.
    fn spin(&self, held: &mut Option<Held>, is_ready: impl Fn() -> bool) -> bool {
        let mut chosen = [None; MOST];
        let pays = |&(at, slot): &(usize, &Slot)| {
            if tcp_spin::is_one(slot) {
                return history::may_pay(&slot.history);
            }
            let pays = |memory| wake::may_pay(&slot.history, slot, memory);
            table::with_memory(at, slot, pays).unwrap_or(false)
        };
        let all = self.each().filter(pays);
        let found = chosen.iter_mut().zip(all).map(|(to, one)| *to = Some(one)).count();
        if found == 0 {
            return false;
        }
        if is_ready() {
            chosen[..found].iter().flatten().for_each(|(_, slot)| history::is_busy(&slot.history));
            return true;
        }
        let (mut first, mut by_tcp) = (None, false);
        for (at, slot) in chosen[..found].iter().flatten() {
            let spins = tcp_spin::is_one(slot);
            by_tcp |= spins;
            if spins || readiness::wake(*at, slot) {
                first.get_or_insert(*slot);
            }
        }
        let Some(first) = first else { return false };
        // Others do not wait longer than a spin on a ring.
        let times = if found == 1 { wake::times(first) } else { 1 };
        let found = spin::spin(&first.history, 1, times, (ANY, held), || {
            self.each().any(|(at, slot)| readiness::is_readable(at, slot)) || by_tcp && is_ready()
        });
        if found && by_tcp {
            board::has_spun();
        }
        found
    }

    /// Has all bytes come by TCP from now on. False if there are bytes in a ring: there is
    /// something to read.
    pub fn lie_down(&mut self) -> bool {
        self.is_sleeping = true;
        self.each().for_each(|(_, slot)| slot.receiver.wait_begins());
        let quiet = self.each().all(|(at, slot)| readiness::lie_down(at, slot) != Rest::Readable);
        if !quiet {
            self.rise();
        }
        quiet
    }

    /// The sleep is over.
    pub fn rise(&mut self) {
        if std::mem::take(&mut self.is_sleeping) {
            self.each().for_each(|(_, slot)| slot.receiver.wait_ends());
        }
    }
}

/// Runs a wait of the kernel. `now` is a call that does not wait, and returns with the rings'
/// readiness merged; `is_ready` tells if that would find something; `sleep` is the call itself.
/// Another thread may take what was found: then the wait goes on.
pub fn run(
    mut waiting: Waiting,
    is_poll: bool,
    any: impl Fn() -> bool,
    is_ready: impl Fn() -> bool,
    now: impl Fn() -> c_int,
    sleep: impl FnOnce() -> c_int,
) -> c_int {
    let found = || Some(now()).filter(|&n| n != 0);
    if let Some(n) = any().then(found).flatten() {
        return n;
    }
    if is_poll {
        // A wait for no time.
        return sleep();
    }
    let mut held = None;
    if settings::spins() && waiting.spin(&mut held, is_ready) {
        if let Some(n) = found() {
            return n;
        }
    }
    while !waiting.lie_down() {
        if let Some(n) = any().then(found).flatten() {
            return n;
        }
    }
    if signals::end(held) {
        waiting.rise();
        return real::fail(libc::EINTR);
    }
    let (result, waited) = spin::time(sleep);
    let was = real::errno();
    waiting.each().for_each(|(_, slot)| history::learn(&slot.history, waited));
    waiting.rise();
    real::set_errno(was);
    result
}

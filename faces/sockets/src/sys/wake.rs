//! Letting a direction be awake, and looking at rings for a bounded moment.

use super::slot::{Set, Slot, NONBLOCKING, UNSEEN, WATCHED};
use super::table::{self, Connection, Memory};
use super::{board, settings};
use std::sync::atomic::Ordering;

/// Looks that may fail before they are rarer.
pub const LUCK: u32 = 4;
const LUCK_MAX: u32 = 8;
/// Calls without luck for one that looks all the same: at first, and doublings of that.
const RARE: u32 = 32;
const RARER_MAX: u32 = 8;

/// Experience with looks at a ring: luck, calls since the last look, doublings.
struct Luck {
    luck: u32,
    calls: u32,
    rarer: u32,
}

impl Luck {
    fn of(slot: &Slot) -> Luck {
        let word = slot.luck.load(Ordering::Relaxed);
        Luck { luck: word & 0xff, calls: word >> 8 & 0xffff, rarer: word >> 24 }
    }

    fn store(&self, slot: &Slot) {
        let word = self.luck | self.calls << 8 | self.rarer << 24;
        slot.luck.store(word, Ordering::Relaxed);
    }
}

/// True if looking has paid, or is to be tried again.
pub fn is_lucky(slot: &Slot) -> bool {
    let mut known = Luck::of(slot);
    if known.luck > 0 {
        return true;
    }
    known.calls += 1;
    let again = known.calls >= RARE << known.rarer;
    if again {
        known.calls = 0;
    }
    known.store(slot);
    again
}

fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The condition holds.
    Found,
    /// It holds, but another thread had this processor meanwhile: a sleep would have been better.
    Late,
    /// The time is over.
    Nothing,
}

/// Looks until the condition holds, or for the time of the settings.
pub fn spin_for(done: impl Fn() -> bool) -> Look {
    let (from, most) = (now_ns(), settings::spin_ns());
    loop {
        for _ in 0..32 {
            if done() {
                return if now_ns() - from > 2 * most { Look::Late } else { Look::Found };
            }
            std::hint::spin_loop();
        }
        if now_ns() - from >= most {
            return Look::Nothing;
        }
    }
}

/// The same, and learns if it pays for this connection. True if the condition holds.
pub fn spin(slot: &Slot, done: impl Fn() -> bool) -> bool {
    let look = spin_for(done);
    let mut known = Luck::of(slot);
    match look {
        Look::Found => (known.luck, known.rarer) = ((known.luck + 2).min(LUCK_MAX), 0),
        Look::Nothing if known.luck > 0 => known.luck -= 1,
        Look::Late if known.luck > 0 => known.luck /= 2,
        _ => known.rarer = (known.rarer + 1).min(RARER_MAX),
    }
    known.store(slot);
    look != Look::Nothing
}

/// Lets bytes come into the ring, if every wait for them would see them there. The receiver's lock
/// is held. False if they come by TCP.
pub fn wake(connection: &Connection, memory: Memory) -> bool {
    let slot = connection.slot;
    if board::is_off() || slot.has(UNSEEN) || slot.has(NONBLOCKING) && !slot.has(WATCHED) {
        return false;
    }
    // The marks are read after the connection is in the lists of its sets: a thread that begins to
    // sleep in one sets its mark, then looks at the list.
    let mut seen = true;
    for one in &slot.registrations {
        let number = one.set.load(Ordering::Acquire);
        if number == 0 {
            continue;
        }
        let events = one.events.load(Ordering::Relaxed) as i32;
        let odd = events & (libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) != 0;
        let set = table::set_of(number).filter(|_| !odd && events & libc::EPOLLIN != 0);
        seen &= set.is_some_and(|(set, _)| {
            set.unseen.load(Ordering::SeqCst) == 0 && heat(set, connection.at)
        });
    }
    for one in &slot.registrations {
        let number = one.set.load(Ordering::Acquire);
        if let Some((set, _)) = (number != 0).then(|| table::set_of(number)).flatten() {
            seen &= set.waiting.load(Ordering::SeqCst) == 0;
        }
    }
    seen && slot.receiver.wake(memory.incoming())
}

/// Puts a connection into the list of a set. False if there is no room.
pub fn heat(set: &Set, at: usize) -> bool {
    let own = at as u32 + 1;
    let Some(_held) = set.lock.take() else { return false };
    let mut free = None;
    for (i, place) in set.hot.iter().enumerate() {
        match place.load(Ordering::Relaxed) {
            0 => {
                free.get_or_insert(i);
            }
            one if one == own => return true,
            _ => {}
        }
    }
    let Some(free) = free else { return false };
    set.hot[free].store(own, Ordering::Relaxed);
    set.heat.fetch_add(1, Ordering::SeqCst);
    true
}

/// Takes a connection out of the list of a set.
pub fn cool(set: &Set, at: usize) {
    let own = at as u32 + 1;
    let Some(_held) = set.lock.take() else { return };
    for place in &set.hot {
        if place.load(Ordering::Relaxed) == own {
            place.store(0, Ordering::Relaxed);
            set.heat.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

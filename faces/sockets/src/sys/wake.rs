//! Letting a direction be awake, and looking at rings for a bounded moment.

use super::slot::{Registration, Set, NONBLOCKING, READ, UNSEEN, WATCHED};
use super::table::{self, Connection, Memory};
use super::{board, settings};
use std::sync::atomic::{AtomicU32, Ordering};

/// Looks that may fail before they are rarer.
pub const LUCK: u32 = 4;
const LUCK_MAX: u32 = 8;
/// Looks at one ring for a look at the clock.
pub const LOOKS: u32 = 32;
/// Calls without luck for one that looks all the same: at first, and doublings of that.
const RARE: u32 = 32;
const RARER_MAX: u32 = 8;

/// Experience with looks at rings: luck, calls since the last look, doublings.
struct Luck {
    luck: u32,
    calls: u32,
    rarer: u32,
}

impl Luck {
    fn of(luck: &AtomicU32) -> Luck {
        let word = luck.load(Ordering::Relaxed);
        Luck { luck: word & 0xff, calls: word >> 8 & 0xffff, rarer: word >> 24 }
    }

    fn store(&self, luck: &AtomicU32) {
        let word = self.luck | self.calls << 8 | self.rarer << 24;
        luck.store(word, Ordering::Relaxed);
    }
}

/// True if looking has paid, or is to be tried again.
pub fn is_lucky(luck: &AtomicU32) -> bool {
    let mut known = Luck::of(luck);
    if known.luck > 0 {
        return true;
    }
    known.calls += 1;
    let again = known.calls >= RARE << known.rarer;
    if again {
        known.calls = 0;
    }
    known.store(luck);
    again
}

/// A wait would not have slept, or not for long: the next one looks too.
pub fn is_busy(luck: &AtomicU32) {
    let mut known = Luck::of(luck);
    known.luck = known.luck.max(1);
    known.store(luck);
}

/// Runs a wait of the kernel. The other result is true if it was so short that a look would have
/// paid.
pub fn time<R>(wait: impl FnOnce() -> R) -> (R, bool) {
    if !settings::spins() {
        return (wait(), false);
    }
    let from = now_ns();
    let result = wait();
    (result, now_ns() - from < settings::spin_ns())
}

/// The time of a clock that never steps back, in nanoseconds.
pub fn now_ns() -> u64 {
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

/// Looks until the condition holds, or for so many times the time of the settings; `looks` looks
/// for one at the clock.
pub fn spin_for(looks: u32, times: u64, done: impl Fn() -> bool) -> Look {
    let (from, most) = (now_ns(), settings::spin_ns() * times);
    loop {
        for _ in 0..looks {
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

/// The same, and learns if it pays. True if the condition holds.
pub fn spin(luck: &AtomicU32, looks: u32, times: u64, done: impl Fn() -> bool) -> bool {
    let look = spin_for(looks, times, done);
    let mut known = Luck::of(luck);
    match look {
        Look::Found => (known.luck, known.rarer) = ((known.luck + 2).min(LUCK_MAX), 0),
        Look::Nothing if known.luck > 0 => known.luck -= 1,
        Look::Late if known.luck > 0 => known.luck /= 2,
        _ => known.rarer = (known.rarer + 1).min(RARER_MAX),
    }
    known.store(luck);
    look != Look::Nothing
}

/// Lets bytes come into the ring, if every wait for them would see them there. The receiver's lock
/// is held. False if they come by TCP.
pub fn wake(connection: &Connection, memory: Memory) -> bool {
    let slot = connection.slot;
    if board::is_off() || slot.has(UNSEEN) || slot.has(NONBLOCKING) && !slot.has(WATCHED) {
        return false;
    }
    let seen = slot.registrations.iter().all(|one| {
        let number = one.set.load(Ordering::Acquire);
        let set = (number != 0).then(|| table::set_of(number));
        set.is_none_or(|set| set.is_some_and(|(set, _)| is_followed(set, connection, one)))
    });
    seen && slot.receiver.wake(memory.incoming())
}

/// True if every wait in a set sees the bytes of a registration there. The receiver's lock is held.
pub fn is_followed(set: &Set, connection: &Connection, one: &Registration) -> bool {
    let events = one.events.load(Ordering::Relaxed);
    if events & READ == 0 || !connection.slot.is_shared() {
        // No wait in the set is for bytes; or they come by TCP.
        return true;
    }
    let odd = events & (libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) as u32 != 0;
    // The marks are read after the place says that it may be awake: a thread that begins to sleep
    // sets its mark, then looks at the places.
    set.mark_awake(connection.at, one)
        && !odd
        && set.unseen.load(Ordering::SeqCst) == 0
        && set.waiting.load(Ordering::SeqCst) == 0
}

//! Letting a direction be awake, and looking at rings for a bounded moment.

use super::clock::now_ns;
use super::signals::{self, Held};
use super::slot::{Registration, Set, Slot, NONBLOCKING, READ, UNSEEN, WATCHED};
use super::table::{self, Connection, Memory};
use super::{affinity, board, settings};
use std::sync::atomic::{AtomicU32, Ordering};

/// Looks that may fail before they are rarer.
pub const LUCK: u32 = 4;
const LUCK_MAX: u32 = 8;
/// The shortest time of a look and of the pause after it, in nanoseconds.
const LOOK_NS: u64 = 2;
/// Looks at one ring for a look at the clock.
pub const LOOKS: u32 = 32;
/// Calls without luck for one that looks all the same: at first, and doublings of that.
const RARE: u32 = 32;
const RARER_MAX: u32 = 8;
/// Calls that do not look for one whose wait is timed.
const SAMPLE: u32 = 8;
/// An answer of a process that sleeps takes so many times the time of a look, as it is woken first.
/// (A wake-up by TCP takes 15 to 55 us on virtual machines.)
const WOKEN: u64 = 4;
/// A wait that may have been for a process to be woken counts as so many calls without luck: the
/// next look is sooner.
const HINT: u32 = RARE / 4;

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
    is_lucky_again(luck, RARER_MAX)
}

/// True if looking at a connection has paid, or is to be tried again, and its peer may run
/// meanwhile.
pub fn pays(luck: &AtomicU32, slot: &Slot, memory: Memory) -> bool {
    if !is_lucky(luck) {
        return false;
    }
    let is_vain = affinity::shares_core(slot, memory);
    if is_vain {
        learn_vain(luck);
    }
    !is_vain
}

/// Learns that a look would be vain, as no peer can run meanwhile.
pub fn learn_vain(luck: &AtomicU32) {
    let mut known = Luck::of(luck);
    fails(&mut known);
    known.store(luck);
}

/// True if looking has paid, or is to be tried again. Tries become rarer by at most `rarer`
/// doublings.
pub fn is_lucky_again(luck: &AtomicU32, rarer: u32) -> bool {
    let mut known = Luck::of(luck);
    if known.luck > 0 {
        return true;
    }
    known.calls += 1;
    let again = known.calls >= RARE << known.rarer.min(rarer);
    if again {
        known.calls = 0;
    }
    known.store(luck);
    again
}

/// True for one call in some that do not look: its wait is timed.
pub fn is_sample(luck: &AtomicU32) -> bool {
    Luck::of(luck).calls.is_multiple_of(SAMPLE)
}

/// A wait would not have slept, or not for long: the next one looks too.
pub fn is_busy(luck: &AtomicU32) {
    let mut known = Luck::of(luck);
    known.luck = known.luck.max(1);
    known.store(luck);
}

/// The time of a wait of the kernel that has found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A look would have paid.
    Short,
    /// A look may have paid: this process was woken, and its peer perhaps too, which takes no time
    /// if both look.
    Woken,
    /// A look would not have paid.
    Long,
}

/// Runs a wait of the kernel, and returns its time.
pub fn time<R>(wait: impl FnOnce() -> R) -> (R, Waited) {
    if !settings::spins() {
        return (wait(), Waited::Long);
    }
    let from = now_ns();
    let result = wait();
    let (took, look) = (now_ns().saturating_sub(from), settings::spin_ns());
    let waited = match took {
        _ if took < look => Waited::Short,
        _ if took < 2 * WOKEN * look => Waited::Woken,
        _ => Waited::Long,
    };
    (result, waited)
}

/// Learns from a wait of the kernel that has found something.
pub fn learn(luck: &AtomicU32, waited: Waited) {
    match waited {
        Waited::Short => is_busy(luck),
        Waited::Woken => {
            let mut known = Luck::of(luck);
            if known.luck == 0 {
                known.calls = (known.calls + HINT).min(RARE << RARER_MAX);
                known.store(luck);
            }
        }
        Waited::Long => {}
    }
}

/// Returns the time for which a look at a connection lasts, as [`spin`] takes it: longer if the
/// peer had to be woken for what it has to answer.
pub fn times(slot: &Slot) -> u64 {
    if slot.sender.is_by_tcp() {
        WOKEN
    } else {
        1
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The condition holds.
    Found,
    /// The condition holds, but another thread had this processor meanwhile: a sleep would have
    /// been better.
    Late,
    /// The time is over.
    Nothing,
}

/// Looks until the condition holds, or for so many times the time of the settings; `looks` looks
/// for one at the clock.
pub fn spin_for(looks: u32, times: u64, done: impl Fn() -> bool) -> Look {
    let (from, most) = (now_ns(), settings::spin_ns() * times);
    let passed = || now_ns().saturating_sub(from);
    // A clock may stand still.
    for _ in 0..=most / (LOOK_NS * u64::from(looks)) {
        for _ in 0..looks {
            if done() {
                return if passed() > 2 * most { Look::Late } else { Look::Found };
            }
            std::hint::spin_loop();
        }
        if passed() >= most {
            break;
        }
    }
    Look::Nothing
}

/// Looks until the condition holds, or for a time, as [`spin_for`] does, and learns if looks pay.
/// True if the condition holds. Else signals stay held back, if handlers of the kind `ends` (see
/// `signals`) are there, until the caller is about to sleep.
pub fn spin(
    luck: &AtomicU32,
    looks: u32,
    times: u64,
    (ends, held): (u32, &mut Option<Held>),
    done: impl Fn() -> bool,
) -> bool {
    // Signals of a look before are let go first: their set is the thread's.
    *held = None;
    *held = signals::hold(ends);
    let look = spin_for(looks, times, done);
    let mut known = Luck::of(luck);
    match look {
        Look::Found => (known.luck, known.rarer) = ((known.luck + 2).min(LUCK_MAX), 0),
        Look::Late if known.luck > 0 => known.luck /= 2,
        _ => fails(&mut known),
    }
    known.store(luck);
    let is_found = look != Look::Nothing;
    if is_found {
        *held = None;
    }
    is_found
}

fn fails(known: &mut Luck) {
    match known.luck {
        0 => known.rarer = (known.rarer + 1).min(RARER_MAX),
        _ => known.luck -= 1,
    }
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
    slot.receiver.set_core(memory.incoming(), affinity::only_core());
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
        && set.is_hooked.load(Ordering::Relaxed) != 0
        && set.unseen.load(Ordering::SeqCst) == 0
        && set.waiting.load(Ordering::SeqCst) == 0
}

//! Spin histories: the records that say if spins have paid, one for each thing that is waited for.

use std::sync::atomic::{AtomicU32, Ordering};

/// Spins that may fail before they are rarer.
pub const NEW: u32 = 4;
const PAID_MAX: u32 = 8;
/// Calls that do not spin for one that does all the same: at first, and doublings of that.
const RARE: u32 = 32;
const RARER_MAX: u32 = 8;
/// Calls that do not spin for one whose wait is timed.
const SAMPLE: u32 = 8;
/// A wait that may have been for a process to be woken counts as so many calls that do not
/// spin: the next spin is sooner.
const HINT: u32 = RARE / 4;

/// A history: how far spins have paid, calls since the last spin, doublings.
struct History {
    paid: u32,
    calls: u32,
    rarer: u32,
}

impl History {
    fn of(history: &AtomicU32) -> History {
        let word = history.load(Ordering::Relaxed);
        History { paid: word & 0xff, calls: word >> 8 & 0xffff, rarer: word >> 24 }
    }

    fn store(&self, history: &AtomicU32) {
        let word = self.paid | self.calls << 8 | self.rarer << 24;
        history.store(word, Ordering::Relaxed);
    }
}

/// True if spins have paid, or are to be tried again.
pub fn may_pay(history: &AtomicU32) -> bool {
    may_pay_again(history, RARER_MAX)
}

/// Learns that a spin would be vain, as no peer can run meanwhile.
pub fn learn_vain(history: &AtomicU32) {
    let mut known = History::of(history);
    fails(&mut known);
    known.store(history);
}

/// True if spins have paid, or are to be tried again. Tries become rarer by at most `rarer`
/// doublings.
fn may_pay_again(history: &AtomicU32, rarer: u32) -> bool {
    let mut known = History::of(history);
    if known.paid > 0 {
        return true;
    }
    known.calls += 1;
    let again = known.calls >= RARE << known.rarer.min(rarer);
    if again {
        known.calls = 0;
    }
    known.store(history);
    again
}

/// True for one call in some that do not spin: its wait is timed.
pub fn is_sample(history: &AtomicU32) -> bool {
    History::of(history).calls.is_multiple_of(SAMPLE)
}

/// A wait would not have slept, or not for long: the next one spins too.
pub fn is_busy(history: &AtomicU32) {
    let mut known = History::of(history);
    known.paid = known.paid.max(1);
    known.store(history);
}

/// The time of a wait of the kernel that has found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A spin would have paid.
    Short,
    /// A spin may have paid: this process was woken, and its peer perhaps too, which takes no time
    /// if both spin.
    Woken,
    /// A spin would not have paid.
    Long,
}

/// Learns from a wait of the kernel that has found something.
pub fn learn(history: &AtomicU32, waited: Waited) {
    match waited {
        Waited::Short => is_busy(history),
        Waited::Woken => {
            let mut known = History::of(history);
            if known.paid == 0 {
                known.calls = (known.calls + HINT).min(RARE << RARER_MAX);
                known.store(history);
            }
        }
        Waited::Long => {}
    }
}

/// Learns from a spin. True if its condition held.
pub fn learn_spin(history: &AtomicU32, found: Found) -> bool {
    let mut known = History::of(history);
    match found {
        Found::InTime => (known.paid, known.rarer) = ((known.paid + 2).min(PAID_MAX), 0),
        Found::Late if known.paid > 0 => known.paid /= 2,
        _ => fails(&mut known),
    }
    known.store(history);
    found != Found::Nothing
}

/// The result of a spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The condition holds.
    InTime,
    /// The condition holds, but another thread had this processor meanwhile: a sleep would have
    /// been better.
    Late,
    /// The time is over.
    Nothing,
}

fn fails(known: &mut History) {
    match known.paid {
        0 => known.rarer = (known.rarer + 1).min(RARER_MAX),
        _ => known.paid -= 1,
    }
}

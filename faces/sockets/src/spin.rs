//! Polls for a bounded moment before a sleep.

use crate::history::{self, Found, Waited};
use crate::settings;
use crate::signals::{self, Held};
use crate::sys::clock::now_ns;
use std::sync::atomic::AtomicU32;

/// The shortest time of a poll of a ring and of the pause after it, in nanoseconds.
const POLL_NS: u64 = 2;
/// Polls of one ring for a look at the clock.
pub const POLLS: u32 = 32;
/// An answer of a process that sleeps takes so many times the time of a spin, as it is woken first.
/// (A wake-up by TCP takes 15 to 55 us on virtual machines.)
pub const WOKEN: u64 = 4;

/// Runs a wait of the kernel, and returns its time.
pub fn time<R>(wait: impl FnOnce() -> R) -> (R, Waited) {
    if !settings::spins() {
        return (wait(), Waited::Long);
    }
    let from = now_ns();
    let result = wait();
    let (took, spin) = (now_ns().saturating_sub(from), settings::spin_ns());
    let waited = match took {
        _ if took < spin => Waited::Short,
        _ if took < 2 * WOKEN * spin => Waited::Woken,
        _ => Waited::Long,
    };
    (result, waited)
}

/// Polls until the condition holds, or for so many times the time of the settings; `polls` polls
/// for one look at the clock.
fn spin_for(polls: u32, times: u64, done: impl Fn() -> bool) -> Found {
    let (from, most) = (now_ns(), settings::spin_ns() * times);
    let passed = || now_ns().saturating_sub(from);
    // A clock may stand still.
    for _ in 0..=most / (POLL_NS * u64::from(polls)) {
        for _ in 0..polls {
            if done() {
                return if passed() > 2 * most { Found::Late } else { Found::InTime };
            }
            std::hint::spin_loop();
        }
        if passed() >= most {
            break;
        }
    }
    Found::Nothing
}

/// Polls until the condition holds, or for a time, as [`spin_for`] does, and learns if spins pay.
/// True if the condition holds. Else signals stay held back, if handlers of the kind `ends` (see
/// `signals`) are there, until the caller is about to sleep.
pub fn spin(
    history: &AtomicU32,
    polls: u32,
    times: u64,
    (ends, held): (u32, &mut Option<Held>),
    done: impl Fn() -> bool,
) -> bool {
    // Signals of a spin before are let go first: their set is the thread's.
    *held = None;
    *held = signals::hold(ends);
    let is_found = history::learn_spin(history, spin_for(polls, times, done));
    if is_found {
        *held = None;
    }
    is_found
}

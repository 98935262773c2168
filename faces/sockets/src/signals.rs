//! Handlers of signals that are to end a wait.
//!
//! A handler that runs while a call spins is forgotten by the sleep that follows: a program that
//! sets an alarm to end its wait would sleep on. So signals are held back during a spin, in
//! programs that have handlers, and a spin without success asks which have come.

use crate::sys::action::{self, Mask};
use libc::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// All handlers: they end waits for several files (poll, select, epoll_wait).
pub const ANY: u32 = 1;
/// Handlers without SA_RESTART: they end receives and sends as well.
pub const ENDING: u32 = 2;

/// Kinds of handlers that the program has, or had.
static HANDLERS: AtomicU32 = AtomicU32::new(0);

/// Signals that a thread sends itself by an instruction; they cannot be held back.
const OWN: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// The program has a handler from now on; `restarts`: calls go on after it.
pub fn has_handler(signal: c_int, restarts: bool) {
    if !OWN.contains(&signal) {
        let kinds = if restarts { ANY } else { ANY | ENDING };
        HANDLERS.fetch_or(kinds, Ordering::Relaxed);
    }
}

/// True if an action of a signal is a function of the program.
pub fn is_handler(action: usize) -> bool {
    action != libc::SIG_DFL && action != libc::SIG_IGN && action != libc::SIG_ERR
}

/// Signals that are held back until this object ends. It ends just before a call that sleeps.
pub struct Held {
    was: Mask,
    ends: u32,
}

/// Holds signals back, if the program has handlers of this kind.
#[inline]
pub fn hold(ends: u32) -> Option<Held> {
    (HANDLERS.load(Ordering::Relaxed) & ends != 0).then(|| begin(ends))
}

fn begin(ends: u32) -> Held {
    let own = OWN.iter().fold(0, |mask, &signal| mask | action::bit(signal));
    Held { was: action::hold(libc::SIG_SETMASK, !own), ends }
}

/// Holds signals back no more. True if one has come whose handler is to end the call.
pub fn end(held: Option<Held>) -> bool {
    held.is_some_and(|held| held.has_come())
}

impl Held {
    fn has_come(&self) -> bool {
        let new = action::pending() & !self.was;
        (1..=Mask::BITS as c_int)
            .any(|signal| new & action::bit(signal) != 0 && self.ends_call(signal))
    }

    fn ends_call(&self, signal: c_int) -> bool {
        action::get(signal).is_some_and(|action| {
            let restarts = action.flags & libc::SA_RESTART != 0;
            is_handler(action.function) && (self.ends == ANY || !restarts)
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The set that this thread had.
        action::hold(libc::SIG_SETMASK, self.was);
    }
}

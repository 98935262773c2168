//! Handlers of signals that are to end a wait.
//!
//! A handler that runs while a call looks is forgotten by the sleep that follows: a program that
//! sets an alarm to end its wait would sleep on. So signals are held back during a look, in
//! programs that have handlers, and a look without success asks which have come.

use super::real;
use libc::{c_int, sigset_t};
use std::mem::{size_of, zeroed};
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
    was: sigset_t,
    ends: u32,
}

/// Holds signals back, if the program has handlers of this kind.
#[inline]
pub fn hold(ends: u32) -> Option<Held> {
    (HANDLERS.load(Ordering::Relaxed) & ends != 0).then(|| begin(ends))
}

fn begin(ends: u32) -> Held {
    // SAFETY: all-zero is a valid value; the sets are writable.
    unsafe {
        let (mut all, mut was): (sigset_t, sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        OWN.iter().for_each(|&signal| _ = libc::sigdelset(&mut all, signal));
        real::pthread_sigmask(libc::SIG_SETMASK, &all, &mut was);
        Held { was, ends }
    }
}

/// Holds signals back no more. True if one has come whose handler is to end the call.
pub fn end(held: Option<Held>) -> bool {
    held.is_some_and(|held| held.has_come())
}

impl Held {
    fn has_come(&self) -> bool {
        // SAFETY: all-zero is a valid value, written for its size.
        let pending = unsafe {
            let mut pending: sigset_t = zeroed();
            libc::sigpending(&mut pending);
            pending
        };
        (1..=8 * size_of::<u64>() as c_int).any(|signal| {
            // SAFETY: both sets are valid.
            let is_new = unsafe {
                libc::sigismember(&pending, signal) == 1
                    && libc::sigismember(&self.was, signal) != 1
            };
            is_new && self.ends_call(signal)
        })
    }

    fn ends_call(&self, signal: c_int) -> bool {
        // SAFETY: all-zero is a valid value; no action is set.
        let action = unsafe {
            let mut action: libc::sigaction = zeroed();
            match real::sigaction(signal, std::ptr::null(), &mut action) {
                0 => action,
                _ => return false,
            }
        };
        let restarts = action.sa_flags & libc::SA_RESTART != 0;
        is_handler(action.sa_sigaction) && (self.ends == ANY || !restarts)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had.
        unsafe { real::pthread_sigmask(libc::SIG_SETMASK, &self.was, std::ptr::null_mut()) };
    }
}

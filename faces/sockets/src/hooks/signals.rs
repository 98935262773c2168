//! Handlers of signals, and signals that are held back and sent. The functions do what they do;
//! what this library needs to know is noted.

use crate::guard::{self, Caller};
use crate::sys::action;
use crate::{masked, signals, urgent};
use libc::{c_int, c_long, sigaction as Action, sighandler_t};

/// The program has set an action, `was` is the one before. Returns the program's.
fn changed(signal: c_int, was: sighandler_t) -> sighandler_t {
    guard::changed(signal, urgent::changed(signal, masked::changed(signal, was)))
}

/// Notes a handler that was set by a function without flags.
pub fn set(
    signal: c_int,
    handler: sighandler_t,
    restarts: bool,
    was: sighandler_t,
) -> sighandler_t {
    if was == libc::SIG_ERR {
        return was;
    }
    if signals::is_handler(handler) {
        signals::has_handler(signal, restarts);
    }
    changed(signal, was)
}

/// The kernel's form of an action: handler, flags, the function that returns, mask.
pub type OfKernel = [usize; 4];

/// A handler is set past the C library, by this call.
pub fn set_by_kernel(
    signal: c_int,
    new: Caller<OfKernel>,
    old: Caller<OfKernel>,
    call: impl FnOnce() -> c_long,
) -> c_long {
    let new = new.get().filter(|[handler, ..]| signals::is_handler(*handler));
    if let Some([_, flags, _, mask]) = new {
        signals::has_handler(signal, *flags & libc::SA_RESTART as usize != 0);
        if guard::has_faults(*mask as u64) {
            guard::are_unknown();
        }
    }
    let result = call();
    if result == 0 {
        match old.get_mut() {
            Some([handler, ..]) => *handler = changed(signal, *handler),
            None => _ = changed(signal, 0),
        }
    }
    result
}

/// sigaction(2).
pub fn sigaction(signal: c_int, new: Option<&Action>, mut old: Option<&mut Action>) -> c_int {
    // Before: the handler may run at once.
    if let Some(new) = new.filter(|new| signals::is_handler(new.sa_sigaction)) {
        signals::has_handler(signal, new.sa_flags & libc::SA_RESTART != 0);
    }
    urgent::sigaction(signal, new, old.as_deref_mut())
        .or_else(|| guard::sigaction(signal, new, old.as_deref_mut()))
        .or_else(|| masked::sigaction(signal, new, old.as_deref_mut()))
        .unwrap_or_else(|| action::exchange(signal, new, old))
}

/// siginterrupt(3), by this call.
pub fn has_interrupts(signal: c_int, ends: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if ends != 0 {
        signals::has_handler(signal, false);
    }
    let result = call();
    changed(signal, 0);
    result
}

//! Handlers of the program that hold the signals of faults back while they run.
//!
//! A copy from an address of nothing has to know if its thread holds them back ([`guard`]), and the
//! kernel changes that at both ends of such a handler. So this library's function stands in its
//! place. The program reads back what it has set.

use crate::sys::action::{self, Action, Context, Info};
use crate::{guard, settings, signals, vfork};
use libc::{c_int, sigaction as OfC, sighandler_t};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The handler, its flags and its mask that the program has set for a signal.
struct Kept {
    function: AtomicUsize,
    flags: AtomicI32,
}

/// One more than the highest signal.
const SIGNALS: usize = 65;
static KEPT: [Kept; SIGNALS] =
    [const { Kept { function: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) } };
        SIGNALS];

/// Signals whose handlers this library calls anyway.
const OTHERS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGURG];

fn own() -> usize {
    action::address(on_signal)
}

fn kept(signal: c_int) -> Option<&'static Kept> {
    KEPT.get(usize::try_from(signal).ok()?).filter(|_| !OTHERS.contains(&signal))
}

/// A handler may also end by a jump; then this thread is thought to hold signals back, which does
/// no harm.
extern "C-unwind" fn on_signal(signal: c_int, info: &Info, context: &mut Context) {
    let Some(kept) = kept(signal) else { return };
    let function = kept.function.load(Ordering::Acquire);
    if signals::is_handler(function) {
        guard::begins_handler();
        Action { function, flags: 0, mask: 0 }.call(signal, info, context);
        guard::ends_handler();
    }
}

/// sigaction(2). `None`: the kernel has the program's own action, now and before.
pub fn sigaction(signal: c_int, new: Option<&OfC>, mut old: Option<&mut OfC>) -> Option<c_int> {
    let kept = kept(signal)?;
    let holds = |action: &OfC| {
        let is_on = settings::is_on() && !vfork::is_child();
        is_on
            && signals::is_handler(action.sa_sigaction)
            && guard::has_faults(Action::of(action).mask)
    };
    let (function, flags) =
        (kept.function.load(Ordering::Acquire), kept.flags.load(Ordering::Relaxed));
    let mut set = new.copied();
    // The child's table of handlers is its own, what is kept here its parent's.
    if let Some(action) = set.as_mut().filter(|action| holds(action)) {
        kept.flags.store(action.sa_flags, Ordering::Relaxed);
        kept.function.store(action.sa_sigaction, Ordering::Release);
        guard::may_be_held();
        action.sa_flags |= libc::SA_SIGINFO;
        action.sa_sigaction = own();
    }
    let result = action::exchange(signal, set.as_ref(), old.as_deref_mut());
    if let Some(old) = old.filter(|old| result == 0 && old.sa_sigaction == own()) {
        old.sa_sigaction = function;
        old.sa_flags &= !libc::SA_SIGINFO | flags;
    }
    Some(result)
}

/// The program has set an action in another way, and got `was` as its handler before. Returns its
/// own.
pub fn changed(signal: c_int, was: sighandler_t) -> sighandler_t {
    let function = kept(signal).map(|kept| kept.function.load(Ordering::Acquire));
    function.filter(|_| was == own()).unwrap_or(was)
}

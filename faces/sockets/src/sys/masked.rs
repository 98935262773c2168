//! Handlers of the program that hold the signals of faults back while they run.
//!
//! A copy from an address of nothing has to know if its thread holds them back ([`guard`]), and the
//! kernel changes that at both ends of such a handler. So this library's function stands in its
//! place. The program reads back what it has set.

use super::{guard, real, settings, signals, vfork};
use libc::{c_int, c_void, sigaction as Action, sighandler_t, siginfo_t};
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
    on_signal as extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) as usize
}

fn kept(signal: c_int) -> Option<&'static Kept> {
    KEPT.get(usize::try_from(signal).ok()?).filter(|_| !OTHERS.contains(&signal))
}

/// A handler may also end by a jump; then this thread is thought to hold signals back, which does
/// no harm.
extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Handler = extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    let Some(kept) = kept(signal) else { return };
    let function = kept.function.load(Ordering::Acquire);
    if signals::is_handler(function) {
        guard::begins_handler();
        // SAFETY: the program's handler, called as the kernel calls one of either form.
        let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
        function(signal, info, context);
        guard::ends_handler();
    }
}

/// sigaction(2). `None`: the kernel has the program's own action, now and before.
///
/// # Safety
/// The caller's actions.
pub unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> Option<c_int> {
    let kept = kept(signal)?;
    // SAFETY: the caller's action, if there is one.
    let new = unsafe { new.as_ref() };
    let holds = |action: &Action| {
        // SAFETY: the set has at least the bits of 64 signals.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read_unaligned() };
        let is_on = settings::is_on() && !vfork::is_child();
        is_on && signals::is_handler(action.sa_sigaction) && guard::has_faults(mask)
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
    let set = set.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a valid action, and the caller's room for one.
    let result = unsafe { real::sigaction(signal, set, old) };
    // SAFETY: the kernel has written to it.
    let old = unsafe { old.as_mut() }.filter(|old| result == 0 && old.sa_sigaction == own());
    if let Some(old) = old {
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

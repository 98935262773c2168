//! SIGURG, by which the bell rings, beside the program's own use of it.
//!
//! The kernel says which descriptor has rung. Any other such signal is the program's: its handler
//! is called as if it had set it itself, and it reads back what it has set.
//!
//! The kernel keeps one such signal at most, so a signal of the program's is lost while the bell's
//! is pending. The bell's stands for it then, where the program has sent it itself, or has urgent
//! data to be read.

use crate::own::BELL;
use crate::sys::action::{self, Action, Context, Info};
use crate::sys::{calls, real};
use crate::{guard, loan, signals, table, tcp, vfork};
use libc::{c_int, c_long, pid_t, sigaction as OfC, sighandler_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// 1 once this library handles the signal.
static IS_CAUGHT: AtomicU32 = AtomicU32::new(0);
/// The program's action: its function, flags and mask.
static FUNCTION: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicI32 = AtomicI32::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);

/// 1 from the time when the program sends itself the signal until its handler is called.
static IS_OWED: AtomicU32 = AtomicU32::new(0);

/// The signals of the bell that the program was not told of.
static RUNG: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True once such a signal has interrupted this thread.
    static HAS_RUNG: Cell<bool> = const { Cell::new(false) };
}

/// Returns a number that another one follows when the bell has interrupted a thread.
#[inline]
pub fn rung() -> u32 {
    RUNG.load(Ordering::Relaxed)
}

/// True if the bell alone has interrupted this thread since `rung` returned this number.
#[cold]
pub fn has_rung(before: u32) -> bool {
    rung() != before && HAS_RUNG.replace(false)
}

/// Makes a call of the kernel, and again if the bell has interrupted it: the program has no part in
/// that.
#[inline]
pub fn steady(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let before = rung();
        let n = call();
        if n >= 0 || real::errno() != libc::EINTR || !has_rung(before) {
            return n;
        }
    }
}

/// Flags of the program that are the kernel's with this library's function too.
const KEPT: c_int = libc::SA_RESTART | libc::SA_NODEFER | libc::SA_ONSTACK;

fn own() -> usize {
    action::address(on_signal)
}

/// Has this library handle the signal. False if the system refuses it.
pub fn is_caught() -> bool {
    IS_CAUGHT.load(Ordering::Acquire) != 0 || take_over()
}

/// Takes the action that the kernel has for the program's, and sets this library's.
fn take_over() -> bool {
    let Some(old) = action::get(libc::SIGURG) else { return false };
    if old.function != own() {
        keep(&old);
    }
    let is_set = set();
    IS_CAUGHT.store(u32::from(is_set), Ordering::Release);
    is_set
}

fn keep(action: &Action) {
    FUNCTION.store(action.function, Ordering::Relaxed);
    FLAGS.store(action.flags, Ordering::Relaxed);
    MASK.store(action.mask, Ordering::Relaxed);
    if guard::has_faults(action.mask) {
        guard::may_be_held();
    }
}

/// Returns the program's action.
fn kept() -> Action {
    Action {
        function: FUNCTION.load(Ordering::Relaxed),
        flags: FLAGS.load(Ordering::Relaxed),
        mask: MASK.load(Ordering::Relaxed),
    }
}

/// Sets this library's function, with the flags of the program's if it has one.
fn set() -> bool {
    let action = kept();
    let flags = match signals::is_handler(action.function) {
        true => action.flags & KEPT,
        false => libc::SA_RESTART,
    };
    let action = Action { function: own(), flags: flags | libc::SA_SIGINFO, ..action };
    action::set(libc::SIGURG, &action)
}

extern "C-unwind" fn on_signal(signal: c_int, info: &Info, context: &mut Context) {
    let was = real::errno();
    let is_bell = info.is_of_kernel() && BELL.has_number(info.descriptor());
    loan::answer();
    let is_owed = IS_OWED.swap(0, Ordering::AcqRel) != 0;
    let is_programs = !is_bell || is_owed || has_urgent();
    real::set_errno(was);
    if !is_programs {
        RUNG.fetch_add(1, Ordering::Relaxed);
        HAS_RUNG.set(true);
    }
    if is_programs {
        pass_on(signal, info, context);
        real::set_errno(was);
    }
}

/// True if urgent data waits of which a handler of the program may not know.
fn has_urgent() -> bool {
    if !signals::is_handler(FUNCTION.load(Ordering::Relaxed)) {
        return false;
    }
    let mut from = 0;
    while let Some(fd) = table::next(from, c_int::MAX) {
        if table::connection(fd).is_some() && tcp::has_urgent(fd) {
            return true;
        }
        from = fd + 1;
    }
    false
}

/// The program makes a call that sends a signal to a process, or to a group of processes.
pub fn sends(to: pid_t, signal: c_int, call: impl FnOnce() -> c_long) -> c_long {
    if signal != libc::SIGURG || IS_CAUGHT.load(Ordering::Acquire) == 0 || !is_to_itself(to) {
        return call();
    }
    // Before: the handler may run at once.
    IS_OWED.store(1, Ordering::Release);
    let sent = call();
    if sent < 0 {
        IS_OWED.store(0, Ordering::Release);
    }
    sent
}

/// True if a number names this process, or its group.
fn is_to_itself(to: pid_t) -> bool {
    let is_own =
        to == 0 || to == calls::process() || to < -1 && to.wrapping_neg() == calls::group();
    is_own && !vfork::is_child()
}

/// Calls the program's function.
fn pass_on(signal: c_int, info: &Info, context: &mut Context) {
    let action = kept();
    if !signals::is_handler(action.function) {
        return;
    }
    if action.flags & libc::SA_RESETHAND != 0 {
        FUNCTION.store(libc::SIG_DFL, Ordering::Relaxed);
    }
    guard::begins_handler();
    action.call(signal, info, context);
    guard::ends_handler();
}

/// sigaction(2). `None`: the kernel carries it out.
pub fn sigaction(signal: c_int, new: Option<&OfC>, mut old: Option<&mut OfC>) -> Option<c_int> {
    if signal != libc::SIGURG || IS_CAUGHT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let was = kept().as_sigaction();
    if vfork::is_child() {
        // The child's table of handlers is its own, what is kept here its parent's.
        let result = action::exchange(signal, new, old.as_deref_mut());
        if let Some(old) = old.filter(|old| old.sa_sigaction == own()) {
            *old = was;
        }
        return Some(result);
    }
    if let Some(new) = new {
        keep(&Action::of(new));
        set();
    }
    old.into_iter().for_each(|old| *old = was);
    Some(0)
}

/// A function without flags has set an action; `was` is the one before. Returns the program's.
pub fn changed(signal: c_int, was: sighandler_t) -> sighandler_t {
    if signal != libc::SIGURG || IS_CAUGHT.load(Ordering::Acquire) == 0 {
        return was;
    }
    let before = FUNCTION.load(Ordering::Relaxed);
    if !vfork::is_child() {
        take_over();
    }
    match was == own() {
        true => before,
        false => was,
    }
}

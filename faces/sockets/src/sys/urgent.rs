//! SIGURG, by which the bell rings, beside the program's own use of it.
//!
//! The kernel says which descriptor has rung. Any other such signal is the program's: its handler
//! is called as if it had set it itself, and it reads back what it has set.
//!
//! The kernel keeps one such signal at most, so a signal of the program's is lost while the bell's
//! is pending. The bell's stands for it then, where the program has sent it itself, or has urgent
//! data to be read.

use super::{giving, guard, real, signals, table, tcp, vfork};
use libc::{c_int, c_long, c_void, pid_t, sigaction as Action, sighandler_t, siginfo_t};
use std::cell::Cell;
use std::mem::zeroed;
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
pub fn steady(call: impl Fn() -> isize) -> isize {
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
/// Place of the descriptor in what the kernel says of a signal (F_SETSIG).
const DESCRIPTOR: usize = 24;

fn own() -> usize {
    on_signal as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize
}

/// Has this library handle the signal. False if the system refuses it.
pub fn is_caught() -> bool {
    IS_CAUGHT.load(Ordering::Acquire) != 0 || take_over()
}

/// Takes the action that the kernel has for the program's, and sets this library's.
fn take_over() -> bool {
    // SAFETY: all-zero is a valid action, which is written for its size.
    let old = unsafe {
        let mut old: Action = zeroed();
        if real::sigaction(libc::SIGURG, std::ptr::null(), &mut old) != 0 {
            return false;
        }
        old
    };
    if old.sa_sigaction != own() {
        keep(&old);
    }
    let is_set = set();
    IS_CAUGHT.store(u32::from(is_set), Ordering::Release);
    is_set
}

fn keep(action: &Action) {
    FUNCTION.store(action.sa_sigaction, Ordering::Relaxed);
    FLAGS.store(action.sa_flags, Ordering::Relaxed);
    // SAFETY: the first word of a set of signals has all that the kernel knows.
    let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    MASK.store(mask, Ordering::Relaxed);
    if guard::has_faults(mask) {
        guard::may_be_held();
    }
}

/// Returns the program's action.
fn kept() -> Action {
    // SAFETY: all-zero is a valid action, of whose mask the first word is written.
    unsafe {
        let mut action: Action = zeroed();
        action.sa_sigaction = FUNCTION.load(Ordering::Relaxed);
        action.sa_flags = FLAGS.load(Ordering::Relaxed);
        (&raw mut action.sa_mask).cast::<u64>().write(MASK.load(Ordering::Relaxed));
        action
    }
}

/// Sets this library's function, with the flags of the program's if it has one.
fn set() -> bool {
    let mut action = kept();
    let flags = match signals::is_handler(action.sa_sigaction) {
        true => action.sa_flags & KEPT,
        false => libc::SA_RESTART,
    };
    action.sa_sigaction = own();
    action.sa_flags = flags | libc::SA_SIGINFO;
    // SAFETY: a handler that calls only what is safe in one.
    unsafe { real::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) == 0 }
}

extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let was = real::errno();
    // SAFETY: what the kernel says of the signal, long enough for all of its kinds.
    let is_bell = unsafe {
        let fd = info.cast::<u8>().add(DESCRIPTOR).cast::<c_int>().read_unaligned();
        (*info).si_code > 0 && giving::is_own(fd)
    };
    giving::answer();
    let is_owed = IS_OWED.swap(0, Ordering::AcqRel) != 0;
    let is_programs = !is_bell || is_owed || has_urgent();
    real::set_errno(was);
    if !is_programs {
        RUNG.fetch_add(1, Ordering::Relaxed);
        HAS_RUNG.set(true);
    }
    if is_programs {
        // SAFETY: the kernel's arguments.
        unsafe { pass_on(signal, info, context) };
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
    // SAFETY: no memory is passed.
    let is_own = unsafe {
        to == 0 || to == libc::getpid() || to < -1 && to.wrapping_neg() == libc::getpgrp()
    };
    is_own && !vfork::is_child()
}

/// Calls the program's function.
///
/// # Safety
/// The arguments of a handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let action = kept();
    if !signals::is_handler(action.sa_sigaction) {
        return;
    }
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        FUNCTION.store(libc::SIG_DFL, Ordering::Relaxed);
    }
    guard::begins_handler();
    // SAFETY: the program has said that this is such a function.
    unsafe {
        if action.sa_flags & libc::SA_SIGINFO == 0 {
            let call: extern "C-unwind" fn(c_int) = std::mem::transmute(action.sa_sigaction);
            call(signal);
        } else {
            let call: extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(action.sa_sigaction);
            call(signal, info, context);
        }
    }
    guard::ends_handler();
}

/// sigaction(2). `None`: the kernel carries it out.
///
/// # Safety
/// As the C library's.
pub unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> Option<c_int> {
    if signal != libc::SIGURG || IS_CAUGHT.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: the caller's action, and its room for one.
    unsafe {
        let was = kept();
        if vfork::is_child() {
            // The child's table of handlers is its own, what is kept here its parent's.
            let result = real::sigaction(signal, new, old);
            if let Some(old) = old.as_mut().filter(|old| old.sa_sigaction == own()) {
                *old = was;
            }
            return Some(result);
        }
        if let Some(new) = new.as_ref() {
            keep(new);
            set();
        }
        if !old.is_null() {
            old.write(was);
        }
    }
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

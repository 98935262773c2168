//! Copies from and to addresses that a program gave, which may be addresses of nothing.
//!
//! The kernel answers such a call by EFAULT. So the copies are one function, of which every address
//! is known, and this library handles the signals of a fault: a fault within the function makes it
//! return. All others are the program's: its handlers are called as if it had set them itself, and
//! it reads back what it has set. A program that sets its handlers past this library and past the
//! C library dies of such an address, as it does by a function of the C library that reads it.
//!
//! A call of the kernel that copies (process_vm_readv) takes as long as a whole message by a ring.

mod sys;

pub use sys::{copy, put, Caller};

use crate::sys::action::{self, Action, Context, Info, Mask};
use crate::sys::real;
use crate::{signals, vfork};
use libc::{c_int, sigaction as OfC};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// 1 once a thread of this process has held the signals of faults back. The kernel ends a process
/// at a fault that is held back.
static HOLDS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// 1 if this thread holds them back, 2 if it does not; 0: that is not known.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// 1 once handlers may hold them back that this library does not call: then nothing is noted.
static IS_UNKNOWN: AtomicU32 = AtomicU32::new(0);

/// True if the signals of faults are among these.
pub fn has_faults(mask: Mask) -> bool {
    mask & FAULTS != 0
}

/// A thread may hold them back from now on.
pub fn may_be_held() {
    HOLDS.store(1, Ordering::Relaxed);
}

/// A handler that this library does not call may hold them back from now on.
pub fn are_unknown() {
    IS_UNKNOWN.store(1, Ordering::Relaxed);
    may_be_held();
}

/// This thread is in a handler of the program that may hold them back.
pub fn begins_handler() {
    HELD.with(|held| held.set(0));
}

/// The handler returns.
pub fn ends_handler() {
    HELD.with(|held| held.set(0));
}

/// A thread changes the signals that it holds back by this set.
pub fn masks(set: Mask) {
    HELD.with(|held| held.set(0));
    if has_faults(set) {
        may_be_held();
    }
}

/// Makes a call that waits while this thread holds these other signals back: so do the handlers
/// that run meanwhile.
#[inline]
pub fn waits_with<T>(mask: Option<Mask>, call: impl FnOnce() -> T) -> T {
    let holds = mask.is_some_and(has_faults);
    if holds {
        may_be_held();
        begins_handler();
    }
    let result = call();
    if holds {
        ends_handler();
    }
    result
}

/// Notes the signals that the program before this one has held back.
pub fn look() {
    HOLDS.store(u32::from(asks_if_held()), Ordering::Relaxed);
}

/// True if a copy would end the process at a fault.
#[inline]
fn may_fail() -> bool {
    HOLDS.load(Ordering::Relaxed) != 0 && is_held()
}

/// True if this thread holds signals of faults back.
fn is_held() -> bool {
    // A child in the memory of its parent has its parent's note.
    if vfork::is_child() || IS_UNKNOWN.load(Ordering::Relaxed) != 0 {
        return asks_if_held();
    }
    HELD.with(|held| {
        if held.get() == 0 {
            held.set(if asks_if_held() { 1 } else { 2 });
        }
        held.get() == 1
    })
}

#[cold]
fn asks_if_held() -> bool {
    has_faults(action::hold(libc::SIG_BLOCK, 0))
}

/// The action that the program has set for a signal.
#[derive(Debug)]
struct Set {
    signal: c_int,
    handler: AtomicUsize,
    flags: AtomicI32,
    /// The signals that its handler holds back.
    mask: AtomicU64,
}

impl Set {
    const fn of(signal: c_int) -> Set {
        let handler = AtomicUsize::new(libc::SIG_DFL);
        Set { signal, handler, flags: AtomicI32::new(0), mask: AtomicU64::new(0) }
    }

    fn store(&self, action: &Action) {
        self.mask.store(action.mask, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.handler.store(action.function, Ordering::Release);
    }

    fn load(&self) -> Action {
        Action {
            function: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    /// Has this library's handler run in the place of the program's, as the program asked for.
    fn install(&self) -> bool {
        let mut action = self.load();
        if !signals::is_handler(action.function) {
            // On a stack of its own, if the program has one for handlers.
            action.flags = libc::SA_ONSTACK | libc::SA_RESTART;
        }
        action.flags = action.flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        action.function = own();
        action::set(self.signal, &action)
    }
}

static SETS: [Set; 2] = [Set::of(libc::SIGSEGV), Set::of(libc::SIGBUS)];
/// The signals of faults.
const FAULTS: Mask = action::bit(libc::SIGSEGV) | action::bit(libc::SIGBUS);
/// 1 once this library handles faults.
static IS_ON: AtomicU32 = AtomicU32::new(0);

fn own() -> usize {
    action::address(on_fault)
}

/// Returns the program's action of a signal of a fault, if this library handles it.
fn set_of(signal: c_int) -> Option<&'static Set> {
    let is_on = IS_ON.load(Ordering::Acquire) != 0;
    SETS.iter().find(|one| one.signal == signal).filter(|_| is_on)
}

/// Has this library handle faults from now on: there is a connection that may share memory.
#[inline]
pub fn begin() {
    if IS_ON.load(Ordering::Relaxed) == 0 && !vfork::is_child() {
        install();
    }
}

#[cold]
fn install() {
    let was = real::errno();
    let is_first = IS_ON.swap(1, Ordering::AcqRel) == 0;
    SETS.iter().filter(|_| is_first).for_each(|one| {
        if let Some(action) = action::get(one.signal).filter(|now| now.function != own()) {
            one.store(&action);
            one.install();
        }
    });
    real::set_errno(was);
}

/// True once faults are handled. Before, there is no connection.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) != 0
}

/// sigaction(2) of a signal of a fault. `None`: it is no such signal, or none is handled.
pub fn sigaction(signal: c_int, new: Option<&OfC>, mut old: Option<&mut OfC>) -> Option<c_int> {
    let one = set_of(signal)?;
    let was = one.load();
    let is_set = match new {
        None => true,
        // The child's table of handlers is its own, what is kept here its parent's.
        Some(new) if vfork::is_child() => {
            action::exchange(signal, Some(new), old.as_deref_mut()) == 0
        }
        Some(new) => {
            one.store(&Action::of(new));
            one.install()
        }
    };
    if let Some(old) = old.filter(|_| is_set) {
        *old = was.as_sigaction();
    }
    Some(if is_set { 0 } else { -1 })
}

/// The program has set an action past `sigaction`; returns the handler that it had before, as which
/// the caller got `was`.
pub fn changed(signal: c_int, was: usize) -> usize {
    let Some(one) = set_of(signal) else { return was };
    let before = one.handler.load(Ordering::Acquire);
    let action = action::get(signal).filter(|now| now.function != own());
    if let Some(action) = action.filter(|_| !vfork::is_child()) {
        one.store(&action);
        one.install();
    }
    match was == own() {
        true => before,
        false => was,
    }
}

extern "C-unwind" fn on_fault(signal: c_int, info: &Info, context: &mut Context) {
    if info.is_of_kernel() && sys::goes_on(context) {
        return;
    }
    let Some(one) = SETS.iter().find(|one| one.signal == signal) else { return };
    let (action, is_sent) = (one.load(), !info.is_of_kernel());
    match action.function {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, is_sent),
        _ => {
            if action.flags & libc::SA_RESETHAND != 0 {
                one.handler.store(libc::SIG_DFL, Ordering::Release);
            }
            // The kernel holds this signal back meanwhile.
            may_be_held();
            begins_handler();
            action.call(signal, info, context);
            ends_handler();
        }
    }
}

/// The signal ends the program, when the handler has returned: by the same fault, or by the same
/// signal.
#[cold]
fn die(signal: c_int, is_sent: bool) {
    action::set(signal, &Action { function: libc::SIG_DFL, flags: 0, mask: 0 });
    if is_sent {
        action::raise(signal);
    }
}

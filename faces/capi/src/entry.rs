//! The way into every function and out of it: one call of a thread at a time, no panic comes out,
//! and the text of a fault is kept for `weft_last_error`.

use crate::fault::{Fault, WEFT_OK, WEFT_PANIC, WEFT_SIGNAL};
use crate::watchdog;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{compiler_fence, AtomicBool, Ordering};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// True while this thread is in a function of this interface, and not in an upcall.
    static INSIDE: AtomicBool = const { AtomicBool::new(false) };
    /// Number of the calls in this thread so far, and of the ends of upcalls.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of the program's present call: another one after the program has run.
pub(crate) fn call() -> u64 {
    CALLS.with(Cell::get) | u64::from(watchdog::is_this_thread()) << 63
}

/// The answer of a function that has succeeded.
pub(crate) trait Answer {
    /// Returns it as the number of `weft.h`.
    fn number(self) -> c_int;
}

macro_rules! answers {
    ($($kind:ty: $number:expr;)*) => {$(
        impl Answer for $kind {
            #[inline]
            fn number(self) -> c_int {
                $number(self)
            }
        }
    )*};
}

answers! {
    (): |()| WEFT_OK;
    bool: c_int::from;
    c_int: c_int::from;
    usize: |number| c_int::try_from(number).unwrap_or(c_int::MAX);
}

fn count_call() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

/// Runs the body of a function; returns its number, or the code of its fault. A signal handler that
/// interrupts a function and calls another gets a code and no text: what the other needs may be in
/// the middle of a change, and memory cannot be allocated there.
#[inline]
pub(crate) fn enter(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    enter_with(|| run(body))
}

#[inline]
fn enter_with(body: impl FnOnce() -> c_int) -> c_int {
    if INSIDE.with(|inside| inside.load(Ordering::Relaxed)) {
        return WEFT_SIGNAL;
    }
    INSIDE.with(|inside| inside.store(true, Ordering::Relaxed));
    // Only handlers in this thread look, so that the compiler's order is the order.
    compiler_fence(Ordering::SeqCst);
    let code = body();
    compiler_fence(Ordering::SeqCst);
    INSIDE.with(|inside| inside.store(false, Ordering::Relaxed));
    code
}

/// Runs the body of a function that uses no job: it may wait, and a watchdog goes on meanwhile.
pub(crate) fn enter_apart(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    enter_with(|| finish(catch_unwind(AssertUnwindSafe(body))))
}

/// Runs an upcall, which may call functions.
pub(crate) fn outside(upcall: impl FnOnce()) {
    INSIDE.with(|inside| {
        compiler_fence(Ordering::SeqCst);
        inside.store(false, Ordering::Relaxed);
        upcall();
        count_call();
        inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    });
}

#[inline]
fn run(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let gate = watchdog::hold();
    count_call();
    let result = catch_unwind(AssertUnwindSafe(body));
    drop(gate);
    finish(result)
}

/// Returns the number of a body, or the code of its fault, and keeps the fault's text.
#[inline]
fn finish(result: std::thread::Result<Result<c_int, Fault>>) -> c_int {
    match result {
        Ok(Ok(number)) => number,
        Ok(Err(fault)) => keep(fault),
        Err(panic) => keep(of_panic(&*panic)),
    }
}

/// Returns the fault of a panic.
#[cold]
fn of_panic(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Fault(WEFT_PANIC, format!("a fault in weft: {}", text.unwrap_or("no text")))
}

/// Keeps the text of a fault; returns its code.
#[cold]
fn keep(fault: Fault) -> c_int {
    let text = CString::new(fault.1.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    fault.0
}

/// Returns the text of the last fault of this thread.
pub(crate) fn last_text() -> *const c_char {
    // A signal handler may interrupt the change of the text.
    LAST.with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()))
}

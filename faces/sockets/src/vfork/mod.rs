//! vfork(2), and clone(2) with the same meaning: a child in the memory of its parent, whose thread
//! waits until the child has become another program or has ended.
//!
//! The child has descriptors of its own, of which nothing is kept: what is known here are those of
//! the parent. A connection that the child copies is one of the next program's.

mod sys;

use crate::sys::{calls, real};
use crate::{lock, scratch};
use libc::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Threads that wait for such children, and the process that they are of.
static WAITING: AtomicU32 = AtomicU32::new(0);
static PARENT: AtomicI32 = AtomicI32::new(0);

/// True in such a child.
#[inline]
pub fn is_child() -> bool {
    WAITING.load(Ordering::Relaxed) > 0 && is_other()
}

#[cold]
fn is_other() -> bool {
    calls::process() != PARENT.load(Ordering::Relaxed)
}

/// The process whose connections are known here.
pub fn process() -> u32 {
    match WAITING.load(Ordering::Relaxed) {
        0 => calls::process() as u32,
        _ => PARENT.load(Ordering::Relaxed) as u32,
    }
}

/// This process is a child with a memory of its own.
pub fn is_over() {
    WAITING.store(0, Ordering::Relaxed);
}

extern "C" fn before() {
    // The child names this thread in locks.
    lock::thread();
    // A child may have a child of the same kind.
    if !is_child() {
        PARENT.store(calls::process(), Ordering::Relaxed);
    }
    WAITING.fetch_add(1, Ordering::AcqRel);
}

/// The child has left the memory to its parent, which is here.
fn is_back() {
    WAITING.fetch_sub(1, Ordering::AcqRel);
    scratch::is_left();
}

/// Makes a child by a call from which the child does not return, and which runs beside this thread.
/// Its end is not known, so it is one of those that are waited for, for good.
pub fn runs_beside(call: impl FnOnce() -> c_int) -> c_int {
    before();
    let child = call();
    if child < 0 {
        is_back();
    }
    child
}

/// Makes a child by a call while which this thread waits.
pub fn waits(call: impl FnOnce() -> c_int) -> c_int {
    before();
    let child = call();
    is_back();
    child
}

/// The kernel has returned, in the child or in the parent; the result is the function's.
extern "C" fn after(result: isize) -> isize {
    if result != 0 {
        is_back();
    }
    match result {
        0.. => result,
        error => real::fail(-error as c_int) as isize,
    }
}

//! vfork(2), and clone(2) with the same meaning: a child in the memory of its parent, whose thread
//! waits until the child has become another program or has ended.
//!
//! The child has descriptors of its own, of which nothing is kept: what is known here are those of
//! the parent. A connection that the child copies is one of the next program's.

use super::{lock, real, room};
use libc::{c_int, pid_t};
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
    // SAFETY: no memory is passed.
    unsafe { libc::getpid() != PARENT.load(Ordering::Relaxed) }
}

/// The process whose connections are known here.
pub fn process() -> pid_t {
    match WAITING.load(Ordering::Relaxed) {
        // SAFETY: no memory is passed.
        0 => unsafe { libc::getpid() },
        _ => PARENT.load(Ordering::Relaxed),
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
        // SAFETY: no memory is passed.
        PARENT.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    }
    WAITING.fetch_add(1, Ordering::AcqRel);
}

/// The child has left the memory to its parent, which is here.
fn is_back() {
    WAITING.fetch_sub(1, Ordering::AcqRel);
    room::is_left();
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

/// The same, while this thread waits.
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

/// vfork(2). The child returns from here first, so that nothing of this function may be on the
/// stack then: the address to return to is in a register.
///
/// # Safety
/// As the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "mov rdi, rax",
        "jmp {after}",
        before = sym before,
        number = const libc::SYS_vfork,
        after = sym after,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -16]!",
        "bl {before}",
        "ldp x29, x30, [sp], 16",
        "mov x0, {flags}",
        "mov x1, 0",
        "mov x8, {number}",
        "svc 0",
        "b {after}",
        before = sym before,
        flags = const libc::CLONE_VFORK | libc::CLONE_VM | libc::SIGCHLD,
        number = const libc::SYS_clone,
        after = sym after,
    );
}

/// vfork(2) under its other name.
///
/// # Safety
/// As the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {vfork}", vfork = sym vfork);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {vfork}", vfork = sym vfork);
}

//! The functions of the C library themselves.

use super::{after, before};
use libc::pid_t;

/// vfork(2). The child returns from here first, so that nothing of this function may be on the
/// stack then: the address to return to is in a register.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
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
/// The caller keeps the rules of the C library's function.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {vfork}", vfork = sym vfork);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {vfork}", vfork = sym vfork);
}

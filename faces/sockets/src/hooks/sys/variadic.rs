//! Functions with any number of arguments: a look at the first of them, then a jump to the function
//! of the C library with all of them untouched; or the function with a list instead.

use super::programs;
use crate::hooks::leave::is_printed_to;
use crate::sys::real;
use crate::target::Texts;
use libc::{c_char, c_int, c_void};

hooks! {
    /// vdprintf(3).
    fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
        is_printed_to(fd);
        // A list of arguments is passed by its address.
        real::vdprintf(fd, format, list)
    }

    /// vdprintf(3) of programs built with checks.
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int {
        is_printed_to(fd);
        real::__vdprintf_chk(fd, flag, format, list)
    }
}

extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    is_printed_to(fd);
    real::address_of(c"dprintf")
}

extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    is_printed_to(fd);
    real::address_of(c"__dprintf_chk")
}

/// Defines a function that calls another one, which returns an address, and goes on there with the
/// registers and the stack that it was called with.
macro_rules! goes_on {
    ($(#[doc = $doc:literal] $name:ident: $before:ident;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// The caller keeps the rules of the C library's function.
            #[cfg(target_arch = "x86_64")]
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                // The stack is off a multiple of 16 by the return address.
                core::arch::naked_asm!(
                    "sub rsp, 200",
                    "movaps [rsp], xmm0",
                    "movaps [rsp + 16], xmm1",
                    "movaps [rsp + 32], xmm2",
                    "movaps [rsp + 48], xmm3",
                    "movaps [rsp + 64], xmm4",
                    "movaps [rsp + 80], xmm5",
                    "movaps [rsp + 96], xmm6",
                    "movaps [rsp + 112], xmm7",
                    "mov [rsp + 128], rdi",
                    "mov [rsp + 136], rsi",
                    "mov [rsp + 144], rdx",
                    "mov [rsp + 152], rcx",
                    "mov [rsp + 160], r8",
                    "mov [rsp + 168], r9",
                    "mov [rsp + 176], rax",
                    "call {before}",
                    "mov r11, rax",
                    "movaps xmm0, [rsp]",
                    "movaps xmm1, [rsp + 16]",
                    "movaps xmm2, [rsp + 32]",
                    "movaps xmm3, [rsp + 48]",
                    "movaps xmm4, [rsp + 64]",
                    "movaps xmm5, [rsp + 80]",
                    "movaps xmm6, [rsp + 96]",
                    "movaps xmm7, [rsp + 112]",
                    "mov rdi, [rsp + 128]",
                    "mov rsi, [rsp + 136]",
                    "mov rdx, [rsp + 144]",
                    "mov rcx, [rsp + 152]",
                    "mov r8, [rsp + 160]",
                    "mov r9, [rsp + 168]",
                    "mov rax, [rsp + 176]",
                    "add rsp, 200",
                    "jmp r11",
                    before = sym $before,
                )
            }

            #[doc = $doc]
            ///
            /// # Safety
            /// The caller keeps the rules of the C library's function.
            #[cfg(target_arch = "aarch64")]
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, -224]!",
                    "mov x29, sp",
                    "stp x0, x1, [sp, 16]",
                    "stp x2, x3, [sp, 32]",
                    "stp x4, x5, [sp, 48]",
                    "stp x6, x7, [sp, 64]",
                    "str x8, [sp, 80]",
                    "stp q0, q1, [sp, 96]",
                    "stp q2, q3, [sp, 128]",
                    "stp q4, q5, [sp, 160]",
                    "stp q6, q7, [sp, 192]",
                    "bl {before}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, 16]",
                    "ldp x2, x3, [sp, 32]",
                    "ldp x4, x5, [sp, 48]",
                    "ldp x6, x7, [sp, 64]",
                    "ldr x8, [sp, 80]",
                    "ldp q0, q1, [sp, 96]",
                    "ldp q2, q3, [sp, 128]",
                    "ldp q4, q5, [sp, 160]",
                    "ldp q6, q7, [sp, 192]",
                    "ldp x29, x30, [sp], 224",
                    "br x16",
                    before = sym $before,
                )
            }
        )*
    };
}

goes_on! {
    #[doc = "dprintf(3): the C library writes past this library."] dprintf: before_dprintf;
    #[doc = "dprintf(3) of programs built with checks."] __dprintf_chk: before_dprintf_chk;
}

/// execle(3): the environment stands behind the words.
///
/// # Safety
/// The caller's path, words and environment.
unsafe extern "C-unwind" fn execle_of(path: *const c_char, argv: Texts) -> c_int {
    let mut end = argv;
    // SAFETY: the words end with a null.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        programs::execve(path, argv, *end.add(1).cast())
    }
}

/// Defines a function with a path and any number of words behind it, which calls another one with
/// the path and the list of the words: those of the registers are put before those of the stack.
macro_rules! listed {
    ($(#[doc = $doc:literal] $name:ident: $with:path;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// The caller keeps the rules of the C library's function.
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    // The address to return to stands before the words of the stack.
                    "pop rax",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "push rax",
                    "call {with}",
                    "pop rcx",
                    "add rsp, 40",
                    "push rcx",
                    "ret",
                    with = sym $with,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "sub sp, sp, 80",
                    "stp x29, x30, [sp]",
                    "mov x29, sp",
                    "str x1, [sp, 24]",
                    "stp x2, x3, [sp, 32]",
                    "stp x4, x5, [sp, 48]",
                    "stp x6, x7, [sp, 64]",
                    "add x1, sp, 24",
                    "bl {with}",
                    "ldp x29, x30, [sp]",
                    "add sp, sp, 80",
                    "ret",
                    with = sym $with,
                );
            }
        )*
    };
}

listed! {
    #[doc = "execl(3)."] execl: programs::execv;
    #[doc = "execlp(3)."] execlp: programs::execvp;
    #[doc = "execle(3)."] execle: execle_of;
}

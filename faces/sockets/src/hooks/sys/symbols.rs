//! The functions of the loader themselves.

use crate::guard::Caller;
use crate::hooks::symbols::{self, Next};
use libc::{c_char, c_int, c_void};
use std::mem::transmute;

extern "C" fn before_dlsym(handle: *mut c_void, name: *const c_char) -> Next {
    type Function = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let to = symbols::dlsym();
    // SAFETY: the caller's text; the loader's function of this type.
    unsafe {
        let find = || transmute::<usize, Function>(to)(handle, name).addr();
        symbols::finds(handle, Caller::new(name), to, find)
    }
}

extern "C" fn before_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Next {
    type Function = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    let to = symbols::dlvsym();
    // SAFETY: the caller's text; the loader's function of this type.
    unsafe {
        let find = || transmute::<usize, Function>(to)(handle, name, version).addr();
        symbols::finds(handle, Caller::new(name), to, find)
    }
}

extern "C" fn before_dlopen(_: *const c_char, flags: c_int) -> Next {
    symbols::opens(flags)
}

/// Defines a function that calls another one, and goes on where it says, or returns its result.
macro_rules! found {
    ($(#[doc = $doc:literal] $name:ident: $before:ident;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// The caller keeps the rules of the loader's function.
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "sub rsp, 40",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "call {before}",
                    "mov rcx, rax",
                    "mov rax, rdx",
                    "mov rdi, [rsp]",
                    "mov rsi, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "add rsp, 40",
                    "test rcx, rcx",
                    "je 2f",
                    "jmp rcx",
                    "2:",
                    "ret",
                    before = sym $before,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, -48]!",
                    "mov x29, sp",
                    "stp x0, x1, [sp, 16]",
                    "str x2, [sp, 32]",
                    "bl {before}",
                    "mov x16, x0",
                    "mov x17, x1",
                    "ldp x0, x1, [sp, 16]",
                    "ldr x2, [sp, 32]",
                    "ldp x29, x30, [sp], 48",
                    "cbz x16, 2f",
                    "br x16",
                    "2:",
                    "mov x0, x17",
                    "ret",
                    before = sym $before,
                );
            }
        )*
    };
}

found! {
    #[doc = "dlsym(3)."] dlsym: before_dlsym;
    #[doc = "dlvsym(3)."] dlvsym: before_dlvsym;
    #[doc = "dlopen(3)."] dlopen: before_dlopen;
}

//! The copies themselves.

mod caller;

pub use caller::{put, Caller};

use super::{may_fail, FAULTS};
use crate::sys::action::{self, Context};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.weft_guard, \"ax\", @progbits",
    ".p2align 6",
    ".globl weft_guard_copy, weft_guard_end",
    ".hidden weft_guard_copy, weft_guard_end",
    ".type weft_guard_copy, @function",
    "weft_guard_copy:",
    "cmp rdx, 16",
    "jb 2f",
    "cmp rdx, 32",
    "ja 3f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "xor eax, eax",
    "ret",
    "3:",
    "cmp rdx, 2048",
    "ja 6f",
    // The last 32 bytes begin there.
    "lea rcx, [rdx - 32]",
    "xor eax, eax",
    "4:",
    "movups xmm0, [rsi + rax]",
    "movups xmm1, [rsi + rax + 16]",
    "movups [rdi + rax], xmm0",
    "movups [rdi + rax + 16], xmm1",
    "add rax, 32",
    "cmp rax, rcx",
    "jb 4b",
    "movups xmm0, [rsi + rcx]",
    "movups xmm1, [rsi + rcx + 16]",
    "movups [rdi + rcx], xmm0",
    "movups [rdi + rcx + 16], xmm1",
    "xor eax, eax",
    "ret",
    "6:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    "2:",
    "cmp rdx, 8",
    "jb 7f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    "7:",
    "cmp rdx, 4",
    "jb 8f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "8:",
    "test rdx, rdx",
    "je 9f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "add rsi, 1",
    "add rdi, 1",
    "sub rdx, 1",
    "jmp 8b",
    "9:",
    "xor eax, eax",
    "ret",
    "weft_guard_end:",
    "mov eax, 1",
    "ret",
    ".size weft_guard_copy, . - weft_guard_copy",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.weft_guard, \"ax\", %progbits",
    ".p2align 6",
    ".globl weft_guard_copy, weft_guard_end",
    ".hidden weft_guard_copy, weft_guard_end",
    ".type weft_guard_copy, %function",
    "weft_guard_copy:",
    "2:",
    "cmp x2, 32",
    "b.lo 3f",
    "ldp q0, q1, [x1], 32",
    "stp q0, q1, [x0], 32",
    "sub x2, x2, 32",
    "b 2b",
    "3:",
    "cmp x2, 8",
    "b.lo 4f",
    "ldr x3, [x1], 8",
    "str x3, [x0], 8",
    "sub x2, x2, 8",
    "b 3b",
    "4:",
    "cbz x2, 5f",
    "ldrb w3, [x1], 1",
    "strb w3, [x0], 1",
    "sub x2, x2, 1",
    "b 4b",
    "5:",
    "mov x0, 0",
    "ret",
    "weft_guard_end:",
    "mov x0, 1",
    "ret",
    ".size weft_guard_copy, . - weft_guard_copy",
    ".popsection",
);

extern "C" {
    /// Copies so many bytes, between areas that do not overlap. 0: all are copied.
    fn weft_guard_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    /// The end of that function, where it goes on after a fault.
    static weft_guard_end: u8;
}

/// Copies so many bytes. False: one of the addresses is none, and some bytes may be copied.
///
/// # Safety
/// The areas do not overlap. Each is this library's, with so many bytes, or a caller's.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's areas; faults make the function return.
    unsafe {
        if may_fail() {
            return copy_openly(to, from, len);
        }
        weft_guard_copy(to, from, len) == 0
    }
}

/// Copies while the signals of faults are not held back.
#[cold]
unsafe fn copy_openly(to: *mut u8, from: *const u8, len: usize) -> bool {
    let was = action::hold(libc::SIG_UNBLOCK, FAULTS);
    // SAFETY: the caller's areas; faults make the function return.
    let copied = unsafe { weft_guard_copy(to, from, len) == 0 };
    action::hold(libc::SIG_SETMASK, was);
    copied
}

/// Has a thread go on at the end of a copy, if the fault was there.
pub fn goes_on(context: &mut Context) -> bool {
    let (from, end) = (weft_guard_copy as *const () as usize, (&raw const weft_guard_end).addr());
    let place = context.place();
    let is_copy = (from..end).contains(place);
    if is_copy {
        *place = end;
    }
    is_copy
}

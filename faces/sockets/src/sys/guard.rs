//! Copies from and to addresses that a program gave, which may be addresses of nothing.
//!
//! The kernel answers such a call by EFAULT. So the copies are one function, of which every address
//! is known, and this library handles the signals of a fault: a fault within the function makes it
//! return. All others are the program's: its handlers are called as if it had set them itself, and
//! it reads back what it has set. A program that sets its handlers past this library and past the
//! C library dies of such an address, as it does by a function of the C library that reads it.
//!
//! A call of the kernel that copies (process_vm_readv) takes as long as a whole message by a ring.

use super::{real, vfork};
use libc::{c_int, c_void, sigaction as Action, siginfo_t, sigset_t, ucontext_t};
use std::cell::Cell;
use std::mem::zeroed;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
        if HOLDS.load(Ordering::Relaxed) != 0 && is_held() {
            return copy_openly(to, from, len);
        }
        weft_guard_copy(to, from, len) == 0
    }
}

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
pub fn has_faults(mask: u64) -> bool {
    SETS.iter().any(|one| mask >> (one.signal - 1) & 1 != 0)
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

/// A thread changes the signals that it holds back by this set, if it is there.
///
/// # Safety
/// Null, or the first word of a set of signals.
#[inline]
pub unsafe fn masks(set: *const u64) {
    if !set.is_null() {
        // SAFETY: the caller's.
        let set = unsafe { set.read_unaligned() };
        HELD.with(|held| held.set(0));
        if has_faults(set) {
            may_be_held();
        }
    }
}

/// Makes a call that waits while this thread holds other signals back, if a set of them is there:
/// so do the handlers that run meanwhile.
///
/// # Safety
/// Null, or an address of a caller.
#[inline]
pub unsafe fn waits_with<T>(mask: *const sigset_t, call: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's set, if it is there.
    let holds = unsafe { get(mask.cast::<u64>()) }.is_some_and(|mask| has_faults(*mask));
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
    // SAFETY: all-zero is a valid value; the set is written.
    unsafe {
        let mut now: sigset_t = zeroed();
        real::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
        SETS.iter().any(|one| libc::sigismember(&now, one.signal) == 1)
    }
}

/// As `copy`, while the signals of faults are not held back.
#[cold]
unsafe fn copy_openly(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: all-zero is a valid value; the sets are writable. The rest as in `copy`.
    unsafe {
        let (mut faults, mut was): (sigset_t, sigset_t) = (zeroed(), zeroed());
        SETS.iter().for_each(|one| _ = libc::sigaddset(&mut faults, one.signal));
        real::pthread_sigmask(libc::SIG_UNBLOCK, &faults, &mut was);
        let copied = weft_guard_copy(to, from, len) == 0;
        real::pthread_sigmask(libc::SIG_SETMASK, &was, std::ptr::null_mut());
        copied
    }
}

/// Writes a value to an address of a caller. False: it is none.
///
/// # Safety
/// The address is a caller's, of room for such a value.
pub unsafe fn write<T: Copy>(to: *mut T, value: T) -> bool {
    // SAFETY: the caller's address; a value of this size.
    unsafe { copy(to.cast(), (&raw const value).cast(), size_of::<T>()) }
}

/// The size of a page is at least this.
const PAGE: usize = 4096;

/// True if `n` values at an address of a caller can be read.
///
/// # Safety
/// The memory is a caller's.
#[inline]
pub unsafe fn is_readable<T>(at: *const T, n: usize) -> bool {
    let Some(len) = n.checked_mul(size_of::<T>()).filter(|&len| len <= isize::MAX as usize) else {
        return false;
    };
    let (mut byte, from) = (0u8, at.cast::<u8>());
    let mut can_read = |offset: usize| {
        // SAFETY: a byte of the caller's memory, or a fault.
        unsafe { copy(&mut byte, from.wrapping_add(offset), 1) }
    };
    if len == 0 || at.is_null() {
        return len == 0;
    }
    (0..len).step_by(PAGE).all(&mut can_read) && (len < 2 || can_read(len - 1))
}

/// Returns a value of a caller, if it is there.
///
/// # Safety
/// The memory is a caller's.
#[inline]
pub unsafe fn get<'a, T>(at: *const T) -> Option<&'a T> {
    // SAFETY: the caller's memory, which can be read.
    unsafe {
        if !is_readable(at, 1) {
            return None;
        }
        at.as_ref()
    }
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
        // SAFETY: the set has at least the bits of 64 signals.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read_unaligned() };
        self.mask.store(mask, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    fn load(&self) -> Action {
        // SAFETY: all-zero is a valid value; the set has at least the bits of 64 signals.
        unsafe {
            let mut action: Action = zeroed();
            action.sa_sigaction = self.handler.load(Ordering::Acquire);
            action.sa_flags = self.flags.load(Ordering::Relaxed);
            let mask = self.mask.load(Ordering::Relaxed);
            (&raw mut action.sa_mask).cast::<u64>().write_unaligned(mask);
            action
        }
    }

    /// Has this library's handler run in the place of the program's, as the program asked for.
    fn install(&self) -> bool {
        let mut action = self.load();
        if !super::signals::is_handler(action.sa_sigaction) {
            // On a stack of its own, if the program has one for handlers.
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        }
        action.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        action.sa_sigaction = own();
        // SAFETY: a valid action, whose handler does what the program's would.
        unsafe { real::sigaction(self.signal, &action, std::ptr::null_mut()) == 0 }
    }
}

static SETS: [Set; 2] = [Set::of(libc::SIGSEGV), Set::of(libc::SIGBUS)];
/// 1 once this library handles faults.
static IS_ON: AtomicU32 = AtomicU32::new(0);

fn own() -> usize {
    on_fault as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize
}

/// Returns the program's action of a signal of a fault, if this library handles it.
fn set_of(signal: c_int) -> Option<&'static Set> {
    let is_on = IS_ON.load(Ordering::Acquire) != 0;
    SETS.iter().find(|one| one.signal == signal).filter(|_| is_on)
}

/// Returns the action of a signal as the kernel has it.
fn action_of(signal: c_int) -> Option<Action> {
    // SAFETY: all-zero is a valid value; no action is set.
    unsafe {
        let mut action: Action = zeroed();
        (real::sigaction(signal, std::ptr::null(), &mut action) == 0).then_some(action)
    }
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
        if let Some(action) = action_of(one.signal).filter(|now| now.sa_sigaction != own()) {
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
///
/// # Safety
/// The caller's actions.
pub unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> Option<c_int> {
    let one = set_of(signal)?;
    let was = one.load();
    // SAFETY: the caller's actions.
    unsafe {
        let is_set = match new.as_ref() {
            None => true,
            // The child's table of handlers is its own, what is kept here its parent's.
            Some(new) if vfork::is_child() => real::sigaction(signal, new, old) == 0,
            Some(new) => {
                one.store(new);
                one.install()
            }
        };
        if is_set && !old.is_null() {
            *old = was;
        }
        Some(if is_set { 0 } else { -1 })
    }
}

/// The program has set an action past `sigaction`; returns the handler that it had before, as which
/// the caller got `was`.
pub fn changed(signal: c_int, was: usize) -> usize {
    let Some(one) = set_of(signal) else { return was };
    let before = one.handler.load(Ordering::Acquire);
    let action = action_of(signal).filter(|now| now.sa_sigaction != own());
    if let Some(action) = action.filter(|_| !vfork::is_child()) {
        one.store(&action);
        one.install();
    }
    match was == own() {
        true => before,
        false => was,
    }
}

/// The place where a thread goes on.
#[cfg(target_arch = "x86_64")]
unsafe fn place(context: *mut c_void) -> *mut usize {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel's context, of this type.
    unsafe { (&raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize]).cast() }
}

/// The same.
#[cfg(target_arch = "aarch64")]
unsafe fn place(context: *mut c_void) -> *mut usize {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel's context, of this type.
    unsafe { (&raw mut (*context).uc_mcontext.pc).cast() }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let (from, end) = (weft_guard_copy as *const () as usize, (&raw const weft_guard_end).addr());
    // SAFETY: the kernel's description and context.
    unsafe {
        let place = place(context);
        if (from..end).contains(&*place) && (*info).si_code > 0 {
            *place = end;
            return;
        }
    }
    let Some(one) = SETS.iter().find(|one| one.signal == signal) else { return };
    let action = one.load();
    // SAFETY: the kernel's description.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match action.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, is_sent),
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                one.handler.store(libc::SIG_DFL, Ordering::Release);
            }
            type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
            // SAFETY: the program's handler, called as the kernel calls one of either form.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            // The kernel holds this signal back meanwhile.
            may_be_held();
            begins_handler();
            handler(signal, info, context);
            ends_handler();
        }
    }
}

/// The signal ends the program, when the handler has returned: by the same fault, or by the same
/// signal.
#[cold]
fn die(signal: c_int, is_sent: bool) {
    // SAFETY: all-zero is the default action; no memory is passed.
    unsafe {
        let action: Action = zeroed();
        real::sigaction(signal, &action, std::ptr::null_mut());
        if is_sent {
            libc::raise(signal);
        }
    }
}

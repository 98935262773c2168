//! Actions and masks of signals.

use super::real;
use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t, ucontext_t};
use std::mem::zeroed;

/// A set of signals, as the kernel has it: a bit for each.
pub type Mask = u64;

/// Returns the bit of a signal.
pub const fn bit(signal: c_int) -> Mask {
    1 << (signal - 1)
}

/// Place of the descriptor in what the kernel says of a signal (F_SETSIG).
const DESCRIPTOR: usize = 24;

/// The description of a signal by the kernel.
#[repr(transparent)]
pub struct Info(siginfo_t);

impl Info {
    /// True if the kernel has sent the signal, and no process.
    pub fn is_of_kernel(&self) -> bool {
        self.0.si_code > 0
    }

    /// Returns the descriptor that has sent the signal, if one has.
    pub fn descriptor(&self) -> c_int {
        // SAFETY: long enough for what the kernel says of all kinds of signals.
        unsafe { (&raw const self.0).cast::<u8>().add(DESCRIPTOR).cast::<c_int>().read_unaligned() }
    }
}

/// The state of a thread that a signal has interrupted.
#[repr(transparent)]
pub struct Context(ucontext_t);

impl Context {
    /// Returns the place where the thread goes on.
    pub fn place(&mut self) -> &mut usize {
        #[cfg(target_arch = "x86_64")]
        let place: *mut usize = (&raw mut self.0.uc_mcontext.gregs[libc::REG_RIP as usize]).cast();
        #[cfg(target_arch = "aarch64")]
        let place: *mut usize = (&raw mut self.0.uc_mcontext.pc).cast();
        // SAFETY: a number of this size, within the object that the result borrows.
        unsafe { &mut *place }
    }
}

/// A function of this library that the kernel calls. The handler of a program that it calls may end
/// the thread (pthread_exit) or throw, which unwinds it.
pub type Handler = extern "C-unwind" fn(c_int, &Info, &mut Context);

/// An action of a signal.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The function, or SIG_DFL or SIG_IGN.
    pub function: usize,
    /// Its flags.
    pub flags: c_int,
    /// The signals that it holds back.
    pub mask: Mask,
}

impl Action {
    /// The action of the C library's form.
    pub fn of(action: &sigaction) -> Action {
        let (function, flags) = (action.sa_sigaction, action.sa_flags);
        Action { function, flags, mask: mask_of(&action.sa_mask) }
    }

    /// Returns it in the C library's form.
    pub fn as_sigaction(&self) -> sigaction {
        // SAFETY: all-zero is a valid value.
        let mut action: sigaction = unsafe { zeroed() };
        (action.sa_sigaction, action.sa_flags) = (self.function, self.flags);
        action.sa_mask = set_of(self.mask);
        action
    }

    /// Calls its function, which a program has set, as the kernel does.
    pub fn call(&self, signal: c_int, info: &Info, context: &mut Context) {
        // SAFETY: the program's handler, called as the kernel calls one of either form.
        let function = unsafe { std::mem::transmute::<usize, Handler>(self.function) };
        function(signal, info, context);
    }
}

fn mask_of(set: &sigset_t) -> Mask {
    // SAFETY: the first word of a set has all signals that the kernel knows.
    unsafe { std::ptr::from_ref(set).cast::<Mask>().read_unaligned() }
}

fn set_of(mask: Mask) -> sigset_t {
    // SAFETY: all-zero is an empty set, whose first word is written.
    unsafe {
        let mut set: sigset_t = zeroed();
        (&raw mut set).cast::<Mask>().write_unaligned(mask);
        set
    }
}

/// Makes a call of sigaction(2).
pub fn exchange(signal: c_int, new: Option<&sigaction>, old: Option<&mut sigaction>) -> c_int {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let old = old.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: a valid action, or none, and space for one, or none.
    unsafe { real::sigaction(signal, new, old) }
}

/// Returns the action of a signal that the kernel has.
pub fn get(signal: c_int) -> Option<Action> {
    // SAFETY: all-zero is a valid value.
    let mut action: sigaction = unsafe { zeroed() };
    (exchange(signal, None, Some(&mut action)) == 0).then(|| Action::of(&action))
}

/// Sets the action of a signal. False if the system refuses it.
pub fn set(signal: c_int, action: &Action) -> bool {
    exchange(signal, Some(&action.as_sigaction()), None) == 0
}

/// Changes the signals that this thread holds back. Returns those that it held back before.
pub fn hold(how: c_int, mask: Mask) -> Mask {
    let (new, mut old) = (set_of(mask), set_of(0));
    // SAFETY: a valid set, and space for one.
    unsafe { real::pthread_sigmask(how, &new, &mut old) };
    mask_of(&old)
}

/// Returns the signals that have come, and are held back.
pub fn pending() -> Mask {
    let mut set = set_of(0);
    // SAFETY: space for a set.
    unsafe { libc::sigpending(&mut set) };
    mask_of(&set)
}

/// Sends this thread a signal.
pub fn raise(signal: c_int) {
    // SAFETY: no memory is passed.
    unsafe { libc::raise(signal) };
}

/// Returns the address of a handler.
pub fn address(handler: Handler) -> usize {
    handler as *const c_void as usize
}

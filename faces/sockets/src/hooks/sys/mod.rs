//! The functions that programs call instead of those of the C library: each gives its arguments to
//! one of [`crate::hooks`], with the call of the C library's own.

/// Defines functions that stand before those of the C library.
macro_rules! hooks {
    ($(
        $(#[$meta:meta])+
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])+
            ///
            /// # Safety
            /// The caller keeps the rules of the C library's function.
            #[no_mangle]
            #[allow(unused_unsafe)]
            pub unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the caller keeps the rules of the function, whose addresses are used as
                // the C library's would use them.
                unsafe { $body }
            }
        )*
    };
}

mod data;
mod life;
mod number;
mod process;
mod programs;
mod rings;
mod signals;
mod symbols;
mod tipc;
mod variadic;
mod waits;

use crate::guard::Caller;
use crate::sys::action::Mask;
use libc::sigset_t;

/// Returns a set of signals, if it is there.
///
/// # Safety
/// The set is a caller's.
unsafe fn mask_at(set: *const sigset_t) -> Option<Mask> {
    // SAFETY: the first word of a set has all signals that the kernel knows.
    unsafe { Caller::new(set.cast::<Mask>()) }.get().copied()
}

extern "C" {
    /// Ends a program that overflows a buffer.
    fn __chk_fail() -> !;
}

/// Ends a program that is about to overflow a buffer.
fn chk_fail(overflows: bool) {
    if overflows {
        // SAFETY: takes nothing.
        unsafe { __chk_fail() }
    }
}

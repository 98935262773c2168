//! Texts of this process.

use super::{Env, Text};
use crate::guard::Caller;
use libc::c_char;

/// An empty name.
// SAFETY: a text that stays.
pub const EMPTY: Text = unsafe { Caller::new(c"".as_ptr()) };

/// The environment of this process.
pub fn environment() -> Env {
    extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: read as the C library's functions read it.
    unsafe { Caller::new(environ) }
}

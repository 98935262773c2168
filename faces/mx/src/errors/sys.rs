//! The symbols of handlers, and a handler of the program that is kept.

use super::Handler;
use crate::code::{self, Return};
use std::ffi::{c_char, CStr};
use std::sync::atomic::{AtomicPtr, Ordering};

extern "C" fn fatal(text: *const c_char, code: Return) -> Return {
    // SAFETY: handlers get texts.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    eprintln!("{text}: {}", code::text_of_return(code).to_string_lossy());
    std::process::exit(255)
}

extern "C" fn returns(_text: *const c_char, code: Return) -> Return {
    code
}

/// `MX_ERRORS_ARE_FATAL`: writes the error to the standard error, and ends the program.
#[no_mangle]
pub static MX_ERRORS_ARE_FATAL: Handler = fatal;
/// `MX_ERRORS_RETURN`: the function returns the error.
#[no_mangle]
pub static MX_ERRORS_RETURN: Handler = returns;

/// A handler that any thread may set, and use, also in a handler of signals.
pub struct Kept(AtomicPtr<()>);

impl Kept {
    /// Returns one without a handler.
    pub const fn none() -> Kept {
        Kept(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Sets the handler, or none.
    pub fn set(&self, handler: Option<Handler>) {
        let address = handler.map_or(std::ptr::null_mut(), |handler| handler as *mut ());
        self.0.store(address, Ordering::Release);
    }

    /// Returns the handler.
    pub fn get(&self) -> Option<Handler> {
        // SAFETY: `set` has stored a handler, or null, which is none.
        unsafe { std::mem::transmute::<*mut (), Option<Handler>>(self.0.load(Ordering::Acquire)) }
    }
}

/// Sets the handler of errors, and returns the one before. The only call before `mx_init` but that
/// itself.
#[no_mangle]
pub extern "C" fn mx_set_error_handler(handler: Option<Handler>) -> Handler {
    super::set_of_all(handler)
}

//! Handlers of errors. The predefined ones are data symbols, whose addresses programs read.

#[allow(unsafe_code)]
pub mod sys;

use crate::code::Return;
use std::ffi::{c_char, CStr};
use sys::{Kept, MX_ERRORS_ARE_FATAL, MX_ERRORS_RETURN};
use weft_ffi::mx as environment;
use weft_ffi::sys::lock::SEATS;

/// `mx_error_handler_t`: a text, and the code; returns the code that the function returns.
pub type Handler = extern "C" fn(*const c_char, Return) -> Return;

/// The handler that the program has set for all.
static OF_ALL: Kept = Kept::none();
/// The handlers of endpoints, by slot; none for that of all.
static OF_ENDPOINTS: [Kept; SEATS] = [const { Kept::none() }; SEATS];

/// Sets the handler of an endpoint, or none.
pub fn set_of_endpoint(slot: u8, handler: Option<Handler>) {
    OF_ENDPOINTS.get(usize::from(slot)).into_iter().for_each(|of| of.set(handler));
}

/// Sets the handler of all errors that no endpoint's handler gets; returns the one before.
pub fn set_of_all(handler: Option<Handler>) -> Handler {
    let before = of_all();
    OF_ALL.set(handler);
    before
}

/// Returns the handler of errors that no endpoint's handler gets.
fn of_all() -> Handler {
    OF_ALL.get().unwrap_or_else(|| match environment::errors_are_fatal() {
        true => MX_ERRORS_ARE_FATAL,
        false => MX_ERRORS_RETURN,
    })
}

/// Gives an error of a function to the handler; returns the code that the function returns.
#[cold]
pub fn raise(name: &CStr, slot: Option<u8>, code: Return) -> Return {
    let of = slot.and_then(|slot| OF_ENDPOINTS.get(usize::from(slot)));
    let handler = of.and_then(Kept::get).unwrap_or_else(of_all);
    handler(name.as_ptr(), code)
}

//! Handlers of errors. The predefined ones are data symbols, whose addresses programs read.

use crate::code::{self, Return};
use std::ffi::{c_char, CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_ffi::mx as environment;
use weft_ffi::sys::lock::SEATS;

/// `mx_error_handler_t`: a text, and the code; returns the code that the function returns.
pub type Handler = extern "C" fn(*const c_char, Return) -> Return;

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

/// Address of the handler that the program has set for all; 0 if it has not.
static OF_ALL: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the handlers of endpoints, by slot; 0 for that of all.
static OF_ENDPOINTS: [AtomicUsize; SEATS] = [const { AtomicUsize::new(0) }; SEATS];

/// Sets the handler of an endpoint; none with 0.
pub fn set_of_endpoint(slot: u8, handler: usize) {
    if let Some(of) = OF_ENDPOINTS.get(usize::from(slot)) {
        of.store(handler, Ordering::Release);
    }
}

/// Returns the handler at an address.
///
/// # Safety
/// The program gave it as one, or it is 0.
unsafe fn handler_at(address: usize) -> Option<Handler> {
    let pointer = std::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: promised by the caller; null is none.
    unsafe { std::mem::transmute::<*const (), Option<Handler>>(pointer) }
}

/// Returns the handler of errors that no endpoint's handler gets.
fn of_all() -> Handler {
    // SAFETY: `mx_set_error_handler` stored it.
    let set = unsafe { handler_at(OF_ALL.load(Ordering::Acquire)) };
    set.unwrap_or_else(|| if environment::errors_are_fatal() { fatal } else { returns })
}

/// Gives an error of a function to the handler; returns the code that the function returns.
#[cold]
pub fn raise(name: &CStr, slot: Option<u8>, code: Return) -> Return {
    let of = slot.and_then(|slot| OF_ENDPOINTS.get(usize::from(slot)));
    let address = of.map_or(0, |of| of.load(Ordering::Acquire));
    // SAFETY: the program gave it with the endpoint's parameters.
    let handler = unsafe { handler_at(address) }.unwrap_or_else(of_all);
    let text = CString::new(name.to_bytes()).unwrap_or_default();
    handler(text.as_ptr(), code)
}

/// Sets the handler of errors, and returns the one before. The only call before `mx_init` but that
/// itself.
#[no_mangle]
pub extern "C" fn mx_set_error_handler(handler: Option<Handler>) -> Handler {
    let before = of_all();
    let address = handler.map_or(0, |handler| (handler as *const ()).expose_provenance());
    OF_ALL.store(address, Ordering::Release);
    before
}

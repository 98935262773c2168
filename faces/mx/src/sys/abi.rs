//! The structures of `myriexpress.h`, and checks of pointers to them.

use super::errors;
use crate::address::Addr;
use crate::code::{self, Answer, Return, StatusCode};
use std::ffi::{c_char, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_ffi::handle;
use weft_ffi::sys::service::Until;
use weft_ffi::table::Key;

/// A handle of an endpoint or a request: never an address of anything.
pub type Handle = usize;
/// The kinds of handles.
pub(super) const ENDPOINT: handle::Kind = 0xb1;
const REQUEST: handle::Kind = 0xb2;

/// `mx_status_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// The result.
    pub code: StatusCode,
    /// The endpoint that sent the message; of a send, the one that gets it.
    pub source: Addr,
    /// The match bits.
    pub match_info: u64,
    /// Length of the message when it was sent.
    pub msg_length: u32,
    /// Bytes that were moved.
    pub xfer_length: u32,
    /// The program's context of the request.
    pub context: usize,
}

/// `mx_segment_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    /// The first byte.
    pub at: *mut u8,
    /// Bytes.
    pub len: u32,
}

/// `mx_param_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Param {
    /// The kind of parameter.
    pub key: u32,
    /// Its value.
    pub value: ParamValue,
}

/// The value of a parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ParamValue {
    /// A handler of errors.
    pub handler: usize,
    /// A number.
    pub number: u32,
    /// Bits and shift.
    pub bytes: [u8; 2],
}

/// True between `mx_init` and `mx_finalize`.
pub static READY: AtomicBool = AtomicBool::new(false);

/// Runs the body of a function. No panic unwinds into C; a failure goes to the handler of errors of
/// the endpoint, if one is named, or of the library.
#[inline]
pub fn call(name: &CStr, endpoint: Handle, body: impl FnOnce() -> Answer) -> Return {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => code::SUCCESS,
        Ok(Err(code)) => errors::raise(name, slot_of(endpoint), code),
        Err(_) => {
            // The panic may have come from the log.
            let _told = catch_unwind(|| {
                log::error!("libmyriexpress panicked: please report this with the lines above");
            });
            errors::raise(name, slot_of(endpoint), code::BAD_BAD_BAD)
        }
    }
}

/// Returns the slot that a handle of an endpoint names.
fn slot_of(endpoint: Handle) -> Option<u8> {
    handle::unpack(ENDPOINT, endpoint as u64).map(|(slot, _)| slot)
}

/// Returns the handle of an endpoint.
pub fn endpoint_handle(slot: u8, generation: u32) -> Handle {
    handle::pack(ENDPOINT, slot, Key { index: 0, generation }) as Handle
}

/// Returns the handle of a request.
#[inline]
pub fn request_handle(slot: u8, key: Key) -> Handle {
    handle::pack(REQUEST, slot, key) as Handle
}

/// Returns the slot and key of a request.
///
/// # Errors
/// `MX_BAD_REQUEST`: it is no handle of a request.
#[inline]
pub fn request_key(request: Handle) -> Answer<(u8, Key)> {
    handle::unpack(REQUEST, request as u64).ok_or(code::BAD_REQUEST)
}

/// Checks that the library is initialized.
///
/// # Errors
/// `MX_NOT_INITIALIZED`.
#[inline]
pub fn ready() -> Answer {
    match READY.load(Ordering::Acquire) {
        true => Ok(()),
        false => Err(code::NOT_INITIALIZED),
    }
}

/// Checks a place for a result.
///
/// # Errors
/// `wrong`: the pointer is null or misaligned.
#[inline]
pub fn place<T>(out: *mut T, wrong: Return) -> Answer<*mut T> {
    match out.is_null() || !out.is_aligned() {
        true => Err(wrong),
        false => Ok(out),
    }
}

/// Stores a result that the caller may not want: then the pointer is null.
///
/// # Safety
/// Another pointer names a place for a `T`.
#[inline]
pub unsafe fn offer<T>(out: *mut T, value: T) {
    if !out.is_null() && out.is_aligned() {
        // SAFETY: promised by the caller.
        unsafe { out.write(value) };
    }
}

/// Returns the end of a wait of so many milliseconds; 0 is without end.
pub fn until(ms: u32) -> Until {
    match ms {
        0 => Until::Never,
        ms => Until::In(Duration::from_millis(ms.into())),
    }
}

/// Reads a text.
///
/// # Errors
/// `MX_BAD_HOSTNAME_ARGS`: it is null, longer than names of hosts are, or not UTF-8.
///
/// # Safety
/// A pointer that is not null names bytes up to a 0.
pub unsafe fn text<'a>(at: *const c_char, max: usize) -> Answer<&'a str> {
    // SAFETY: promised by the caller.
    if at.is_null() || unsafe { libc::strnlen(at, max) } == max {
        return Err(code::BAD_HOSTNAME_ARGS);
    }
    // SAFETY: as before.
    let text = unsafe { CStr::from_ptr(at) }.to_str();
    text.map_err(|_| code::BAD_HOSTNAME_ARGS)
}

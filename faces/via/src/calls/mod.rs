//! The functions of `vipl.h` by their objects, without what C needs.
//!
//! Each checks its places, and its handles completely; the program promises the rest, as `vipl.h`
//! says.

pub mod connect;
pub mod data;
pub mod memory;
pub mod names;
pub mod nic;
pub mod queue;
pub mod vi;

use crate::code::{Answer, Code};
use crate::handle::{Handle, Kind};
use crate::open::{enter, Inside};
use std::ffi::CStr;
use weft_ffi::given::Text;
use weft_ffi::wall::guarded;

/// Longest text of a caller.
const TEXT_MAX: usize = 4096;

/// Runs the body of a function.
#[inline]
pub fn call(_name: &CStr, _handle: Handle, body: impl FnOnce() -> Answer) -> Code {
    match guarded("libvipl", body).unwrap_or(Err(Code::ErrorResource)) {
        Ok(()) => Code::Success,
        Err(code) => code,
    }
}

/// Enters a network interface by its own handle.
#[inline]
fn enter_nic(nic: Handle) -> Answer<Inside> {
    Ok(enter(Kind::Nic, nic)?.0)
}

/// Reads a text.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: it is null, too long, or not UTF-8.
fn read(text: Text<'_>) -> Answer<&str> {
    text.read(TEXT_MAX).ok_or(Code::InvalidParameter)
}

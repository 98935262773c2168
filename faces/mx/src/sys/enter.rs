//! The way into an endpoint: by its handle, or by an address that it made.

use super::abi::{ready, Handle, ENDPOINT};
use super::open::Open;
use crate::address::Addr;
use crate::code::{self, Answer};
use weft_ffi::handle;
use weft_ffi::sys::lock;

/// An endpoint, locked.
pub type Inside = lock::Inside<Open>;

/// Enters an endpoint.
///
/// # Errors
/// `MX_NOT_INITIALIZED`; `MX_BAD_ENDPOINT`: it is not open; `MX_BUSY`: this thread is inside a
/// function already, or the process is a child made by `fork`.
#[inline]
pub fn enter(endpoint: Handle) -> Answer<Inside> {
    ready()?;
    let (slot, key) = handle::unpack(ENDPOINT, endpoint as u64).ok_or(code::BAD_ENDPOINT)?;
    lock::enter_same(slot, key.generation)
}

/// Enters the endpoint of an address.
///
/// # Errors
/// Returns the errors of [`enter`].
pub fn enter_local(addr: Addr) -> Answer<Inside> {
    ready()?;
    let local = addr.local();
    let inside: Inside = lock::enter(local.slot)?;
    match inside.generation() as u16 == local.generation {
        true => Ok(inside),
        false => Err(code::BAD_ENDPOINT),
    }
}

//! The way into the library, and into an endpoint: by its handle, or by an address that it made.

use crate::address::Addr;
use crate::code::{self, Answer};
use crate::handle::{endpoint_parts, Handle};
use crate::open::Open;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_ffi::sys::lock;

/// An endpoint, locked.
pub type Inside = lock::Inside<Open>;

/// True between `mx_init` and `mx_finalize`.
static READY: AtomicBool = AtomicBool::new(false);

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

/// Notes if the library is initialized. True if it was.
pub fn set_ready(is_ready: bool) -> bool {
    READY.swap(is_ready, Ordering::AcqRel)
}

/// Enters an endpoint.
///
/// # Errors
/// `MX_NOT_INITIALIZED`; `MX_BAD_ENDPOINT`: it is not open; `MX_BUSY`: this thread is inside a
/// function already, or the process is a child made by `fork`.
#[inline]
pub fn enter(endpoint: Handle) -> Answer<Inside> {
    ready()?;
    let (slot, generation) = endpoint_parts(endpoint)?;
    lock::enter_same(slot, generation)
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

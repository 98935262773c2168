//! Handles of endpoints and requests: numbers, and never addresses of anything.

use crate::code::{self, Answer};
use weft_ffi::handle::{pack, unpack, Kind};
use weft_ffi::table::Key;

/// A handle of an endpoint or a request.
pub type Handle = usize;
/// The kinds of handles.
const ENDPOINT: Kind = 0xb1;
const REQUEST: Kind = 0xb2;

/// Returns the handle of an endpoint.
pub fn endpoint_handle(slot: u8, generation: u32) -> Handle {
    pack(ENDPOINT, slot, Key { index: 0, generation }) as Handle
}

/// Returns the slot and the generation of an endpoint.
///
/// # Errors
/// `MX_BAD_ENDPOINT`: it is no handle of an endpoint.
#[inline]
pub fn endpoint_parts(endpoint: Handle) -> Answer<(u8, u32)> {
    let (slot, key) = unpack(ENDPOINT, endpoint as u64).ok_or(code::BAD_ENDPOINT)?;
    Ok((slot, key.generation))
}

/// Returns the handle of a request.
#[inline]
pub fn request_handle(slot: u8, key: Key) -> Handle {
    pack(REQUEST, slot, key) as Handle
}

/// Returns the slot and the key of a request.
///
/// # Errors
/// `MX_BAD_REQUEST`: it is no handle of a request.
#[inline]
pub fn request_key(request: Handle) -> Answer<(u8, Key)> {
    unpack(REQUEST, request as u64).ok_or(code::BAD_REQUEST)
}

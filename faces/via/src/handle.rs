//! Handles of the objects of virtual interfaces.

use crate::code::{Answer, Code};
use crate::table::Key;

/// A handle of an object: a number, and never the address of anything.
pub type Handle = usize;

/// The kind of object that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A network interface.
    Nic = 0xa1,
    /// A virtual interface.
    Vi = 0xa2,
    /// A completion queue.
    Cq = 0xa3,
    /// A request for a connection.
    Conn = 0xa4,
    /// A protection tag.
    Tag = 0xa5,
}

/// Returns the handle of an object of a network interface.
pub fn pack(kind: Kind, nic: u8, key: Key) -> Handle {
    weft_ffi::handle::pack(kind as u8, nic, key) as Handle
}

/// Returns the network interface and the key in a handle of this kind.
#[inline]
pub fn unpack(kind: Kind, handle: Handle) -> Option<(u8, Key)> {
    weft_ffi::handle::unpack(kind as u8, handle as u64)
}

/// Returns the key in a handle of an object of the network interface that another handle names.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: one of the handles is of another kind, or the interfaces differ.
pub fn beside((kind, handle): (Kind, Handle), (other_kind, other): (Kind, Handle)) -> Answer<Key> {
    let (nic, key) = unpack(kind, handle).ok_or(Code::InvalidParameter)?;
    let same = unpack(other_kind, other).is_some_and(|(of, _)| of == nic);
    same.then_some(key).ok_or(Code::InvalidParameter)
}

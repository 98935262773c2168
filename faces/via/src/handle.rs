//! Handles of the objects of virtual interfaces.

use crate::table::Key;

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
pub fn pack(kind: Kind, nic: u8, key: Key) -> u64 {
    weft_ffi::handle::pack(kind as u8, nic, key)
}

/// Returns the network interface and the key in a handle of this kind.
#[inline]
pub fn unpack(kind: Kind, handle: u64) -> Option<(u8, Key)> {
    weft_ffi::handle::unpack(kind as u8, handle)
}

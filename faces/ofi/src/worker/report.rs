//! The completion of an operation, as it is reported.

use crate::abi::CqTaggedEntry;
use libc::c_void;

/// The direction of an operation, for queues and counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Send,
    Recv,
    Write,
    Read,
}

/// The completion of an operation on remote memory.
pub struct Report {
    pub context: *mut c_void,
    pub flags: u64,
    pub way: Direction,
    /// True if it is reported when it ends well.
    pub wanted: bool,
    pub buf: *mut u8,
    pub len: usize,
}

/// Returns the fields of a completion.
#[inline]
pub fn fields(
    op_context: *mut c_void,
    flags: u64,
    len: usize,
    buf: *mut u8,
    data: u64,
    tag: u64,
) -> CqTaggedEntry {
    CqTaggedEntry { op_context, flags, len, buf: buf.cast(), data, tag }
}

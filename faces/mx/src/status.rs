//! The status of a request or a message, as programs get it.

use crate::address::Addr;
use crate::code::StatusCode;

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

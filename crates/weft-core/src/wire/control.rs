//! Keeping a session alive and ending it.

use super::{FieldInfo, WireError, COMMON_LEN, HEADER_MAX};
use core::fmt;

/// Empty: takes a sequence number, so that the receiver must acknowledge. Keep-alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nop;

impl Nop {
    /// Header length in bytes, common part included.
    pub const LEN: usize = COMMON_LEN;
    pub(super) const FIELDS: &'static [FieldInfo] = &[];

    #[inline(always)]
    pub(super) fn write(&self, _out: &mut [u8; HEADER_MAX]) {}

    #[inline(always)]
    pub(super) fn check(_header: &[u8; COMMON_LEN]) -> Result<(), WireError> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn read(_header: &[u8; COMMON_LEN]) -> Nop {
        Nop
    }
}

impl fmt::Display for Nop {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Values of [`Bye::reason`]. Others are taken as [`CLOSED`](reason::CLOSED).
pub mod reason {
    /// The endpoint was closed.
    pub const CLOSED: u32 = 0;
    /// The sender gave up on the receiver, after too long a silence.
    pub const SILENT: u32 = 1;
    /// The sender found the receiver breaking the protocol.
    pub const PROTOCOL: u32 = 2;
    /// The sender's process has ended without a BYE: its agent sends this one.
    pub const GONE: u32 = 3;
    /// A packet was lost or overtaken on a network that both sides trust.
    pub const LOST: u32 = 4;
    /// The receiver is heard, but the sender's packets do not get through to it.
    pub const STUCK: u32 = 5;
    /// The receiver's messages fill the sender's room for messages that no receive takes.
    pub const FLOODED: u32 = 6;
}

packet! {
    /// The session ends: the sender has forgotten it.
    Bye, 32;
    pad 28..32;
    {
        /// One of [`reason`].
        reason / REASON: u32 = 24, "{}";
    }
}

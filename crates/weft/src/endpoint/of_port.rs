//! Calls of the port's clients that wait, and the way from a port to its endpoint.

use super::sys::borrowed::Blocking as _;
use super::Endpoint;
use crate::port::Port;
use std::ops::Range;
use weft_core::engine::types::AtomicCode;
use weft_core::{OpError, PeerId};

impl Port {
    /// Returns the endpoint.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint {
        Endpoint::of(&self.reactor)
    }

    /// Writes parts of `data` to a peer's region, each at `offset` plus its start in `data`.
    /// Returns when they are there.
    ///
    /// # Errors
    /// The peer failed, or refused since key, bounds or rights are wrong.
    pub fn put_parts(
        &self,
        to: PeerId,
        (key, offset): (u64, u64),
        data: &[u8],
        parts: &[Range<usize>],
    ) -> Result<(), OpError> {
        self.endpoint().put_parts(to, key, offset, data, parts)
    }

    /// Does an atomic operation on 8 bytes of a peer's region, makes progress until it is done, and
    /// returns the value before.
    ///
    /// # Errors
    /// Returns the errors of [`put_parts`](Port::put_parts).
    pub fn atomic_at(
        &self,
        at: PeerId,
        place: (u64, u64),
        code: AtomicCode,
        operands: (u64, u64),
    ) -> Result<u64, OpError> {
        self.endpoint().atomic_at(at, place, code, operands)
    }
}

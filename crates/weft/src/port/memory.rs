//! Memory that peers use, and atomic operations that a client serves.

use super::{AtomicRequest, Port};
use crate::endpoint::sys::kept::Kept;
use crate::endpoint::sys::lent::Blocking as _;
use crate::endpoint::{Denied, Regions};
use std::ops::Range;
use weft_core::engine::types::AtomicCode;
use weft_core::engine::Rights;
use weft_core::{OpError, PeerId};
use weft_link::shm::Block;
use weft_link::Bytes;

impl Port {
    /// Registers `len` bytes of new zeroed memory for remote use, and returns key, address and
    /// memory. The bytes keep their address, also after the end of the registration, until the
    /// owner frees the memory.
    pub fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        self.endpoint.register_kept(len, rights)
    }

    /// Refuses further remote use of a region, and keeps its memory.
    pub fn revoke(&self, key: u64) {
        self.endpoint.inner.borrow_mut().driver.intake.engine.regions_mut().unregister(key);
    }

    /// Calls `f` with the registered memory.
    pub fn with_regions<R>(&self, f: impl FnOnce(&mut Regions<'_>) -> R) -> R {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        f(&mut Regions::new(&core.engine, &mut core.regions))
    }

    /// Copies `data` to an offset in a region, as a put of a peer would.
    ///
    /// # Errors
    /// Key, bounds or rights forbid it, or the memory is not there any more.
    pub fn write_region(&self, key: u64, offset: u64, data: &[u8]) -> Result<(), Denied> {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        let need = Rights { read: false, write: true };
        let regions = Regions::new(&core.engine, &mut core.regions);
        let at = regions.check(key, offset, data.len() as u64, need)?;
        core.write_region(key, at, Bytes::from_slice(data))
    }

    /// Shares memory that is registered under this key with a peer, which maps it. False if the
    /// peer's link cannot.
    pub fn share(&self, peer: PeerId, key: u64, block: &Block) -> bool {
        self.endpoint.inner.borrow_mut().driver.share(peer, key, block)
    }

    /// Maps memory that a peer has shared.
    pub fn take_shared(&self, peer: PeerId) {
        self.endpoint.inner.borrow_mut().driver.take_shared(peer);
    }

    /// Forgets memory that a peer has shared under this key.
    pub fn forget_shared(&self, peer: PeerId, key: u64) {
        self.endpoint.inner.borrow_mut().driver.forget_shared(peer, key);
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
        self.endpoint.put_parts(to, key, offset, data, parts)
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
        self.endpoint.atomic_at(at, place, code, operands)
    }

    /// Passes peers' atomic operations on the words of a region to the client from now on
    /// ([`Client::asked`](super::Client::asked)).
    pub fn serve(&self, key: u64) {
        let ports = &mut self.endpoint.inner.borrow_mut().driver.intake.ports;
        ports.served.insert(key, self.number);
    }

    /// True if the client serves the words of a region.
    pub fn serves(&self, key: u64) -> bool {
        self.endpoint.inner.borrow().driver.intake.ports.served.get(&key) == Some(&self.number)
    }

    /// Ends [`serve`](Port::serve).
    pub fn end_serve(&self, key: u64) {
        self.endpoint.inner.borrow_mut().driver.intake.ports.served.remove(&key);
    }

    /// Answers an atomic operation with the value before, or refuses it.
    pub fn atomic_done(&self, request: &AtomicRequest, before: Option<u64>) {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        match before {
            Some(value) => core.engine.memory().handle_atomic_done(core.time.now, request, value),
            None => core.engine.memory().handle_atomic_refused(core.time.now, request),
        }
    }
}

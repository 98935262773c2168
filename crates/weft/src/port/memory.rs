//! Memory for peers, and atomic operations that a client serves.

use super::{AtomicRequest, Port};
use crate::endpoint::sys::kept::Kept;
use crate::endpoint::sys::lent::Waits as _;
use crate::endpoint::{Denied, Regions};
use std::ops::Range;
use weft_core::engine::types::AtomicCode;
use weft_core::engine::Rights;
use weft_core::{OpError, PeerId};
use weft_link::shm::Block;

impl Port {
    /// Registers `len` bytes of new memory, zeroed, for remote use: their key, their address, and
    /// the memory. They stay where they are, also when they are no longer registered, until the
    /// owner of the memory ends it.
    pub fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        self.endpoint.register_kept(len, rights)
    }

    /// Refuses further remote use of a region, whose memory stays.
    pub fn revoke(&self, key: u64) {
        self.endpoint.inner.borrow_mut().driver.intake.engine.unregister(key);
    }

    /// The registered memory.
    pub fn with_regions<R>(&self, f: impl FnOnce(&mut Regions<'_>) -> R) -> R {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        f(&mut Regions::new(&core.engine, &mut core.regions))
    }

    /// Copies `data` to a place in a region, as a peer might.
    ///
    /// # Errors
    /// Key, bounds or rights forbid it.
    pub fn write_region(&self, key: u64, offset: u64, data: &[u8]) -> Result<(), Denied> {
        let need = Rights { read: false, write: true };
        self.with_regions(|regions| {
            regions.bytes(key, offset, data.len(), need).map(|bytes| bytes.copy_from_slice(data))
        })
    }

    /// Gives a peer memory to map that is registered here under this key. False: its link cannot.
    pub fn share(&self, peer: PeerId, key: u64, block: &Block) -> bool {
        self.endpoint.inner.borrow_mut().driver.share(peer, key, block)
    }

    /// Takes memory that a peer has given.
    pub fn take_shared(&self, peer: PeerId) {
        self.endpoint.inner.borrow_mut().driver.take_shared(peer);
    }

    /// Forgets memory that a peer has given under this key.
    pub fn forget_shared(&self, peer: PeerId, key: u64) {
        self.endpoint.inner.borrow_mut().driver.forget_shared(peer, key);
    }

    /// Writes parts of `data` to a peer's region, each at `offset` and its own place; returns when
    /// they are there.
    ///
    /// # Errors
    /// The peer failed, or refused: key, bounds or rights.
    pub fn put_parts(
        &self,
        to: PeerId,
        (key, offset): (u64, u64),
        data: &[u8],
        parts: &[Range<usize>],
    ) -> Result<(), OpError> {
        self.endpoint.put_parts(to, key, offset, data, parts)
    }

    /// Does an atomic operation on 8 bytes of a peer's region, making progress until it is done;
    /// the value before.
    ///
    /// # Errors
    /// As [`put_parts`](Port::put_parts).
    pub fn atomic_at(
        &self,
        at: PeerId,
        place: (u64, u64),
        code: AtomicCode,
        operands: (u64, u64),
    ) -> Result<u64, OpError> {
        self.endpoint.atomic_at(at, place, code, operands)
    }

    /// From now on the client does the atomic operations of peers on the words of a region
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

    /// Answers an atomic operation: with the value before, or by a refusal.
    pub fn atomic_done(&self, request: &AtomicRequest, before: Option<u64>) {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        match before {
            Some(value) => core.engine.atomic_done(core.time.now, request, value),
            None => core.engine.atomic_refused(core.time.now, request),
        }
    }
}

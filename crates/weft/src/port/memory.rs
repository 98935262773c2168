//! Memory that peers use, and atomic operations that a client serves.

use super::{AtomicRequest, Port};
use crate::reactor::regions::{Denied, Regions};
use crate::reactor::sys::kept::Kept;
use weft_core::engine::Rights;
use weft_core::PeerId;
use weft_link::shm::Block;
use weft_link::Bytes;

impl Port {
    /// Registers `len` bytes of new zeroed memory for remote use, and returns key, address and
    /// memory. The bytes keep their address, also after the end of the registration, until the
    /// owner frees the memory.
    pub fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        self.reactor.register_kept(len, rights)
    }

    /// Refuses further remote use of a region, and keeps its memory.
    pub fn revoke(&self, key: u64) {
        self.reactor.engine_mut().regions_mut().unregister(key);
    }

    /// Calls `f` with the registered memory.
    pub fn with_regions<R>(&self, f: impl FnOnce(&mut Regions<'_>) -> R) -> R {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        f(&mut Regions::new(&receiver.engine, &mut receiver.regions))
    }

    /// Copies `data` to an offset in a region, as a put of a peer would.
    ///
    /// # Errors
    /// Key, bounds or rights forbid it, or the memory is not there any more.
    pub fn write_region(&self, key: u64, offset: u64, data: &[u8]) -> Result<(), Denied> {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        let need = Rights { read: false, write: true };
        let regions = Regions::new(&receiver.engine, &mut receiver.regions);
        let at = regions.check(key, offset, data.len() as u64, need)?;
        receiver.write_region(key, at, Bytes::from_slice(data))
    }

    /// Shares memory that is registered under this key with a peer, which maps it. False if the
    /// peer's link cannot.
    pub fn share(&self, peer: PeerId, key: u64, block: &Block) -> bool {
        self.reactor.borrow_mut().share(peer, key, block)
    }

    /// Maps memory that a peer has shared.
    pub fn take_shared(&self, peer: PeerId) {
        self.reactor.borrow_mut().take_shared(peer);
    }

    /// Forgets memory that a peer has shared under this key.
    pub fn forget_shared(&self, peer: PeerId, key: u64) {
        self.reactor.borrow_mut().forget_shared(peer, key);
    }

    /// Passes peers' atomic operations on the words of a region to the client from now on
    /// ([`Client::asked`](super::Client::asked)).
    pub fn serve(&self, key: u64) {
        let ports = &mut self.reactor.borrow_mut().receiver.ports;
        ports.served.insert(key, self.number);
    }

    /// True if the client serves the words of a region.
    pub fn serves(&self, key: u64) -> bool {
        self.reactor.borrow().receiver.ports.served.get(&key) == Some(&self.number)
    }

    /// Ends [`serve`](Port::serve).
    pub fn end_serve(&self, key: u64) {
        self.reactor.borrow_mut().receiver.ports.served.remove(&key);
    }

    /// Answers an atomic operation with the value before, or refuses it.
    pub fn atomic_done(&self, request: &AtomicRequest, before: Option<u64>) {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        match before {
            Some(value) => {
                receiver.engine.memory().handle_atomic_done(receiver.time.now, request, value)
            }
            None => receiver.engine.memory().handle_atomic_refused(receiver.time.now, request),
        }
    }
}

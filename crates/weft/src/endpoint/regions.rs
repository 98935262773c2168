//! Registered memory, for work on active messages as they arrive.

use super::intake::Intake;
use super::sys::Memory;
use std::collections::HashMap;
use weft_core::engine::types::AtomicRequest;
use weft_core::engine::Rights;
use weft_core::Engine;
use weft_link::Bytes;

/// Work on an active message as it arrives: see [`Endpoint::handle_at_once`].
///
/// [`Endpoint::handle_at_once`]: super::Endpoint::handle_at_once
pub(super) type AtOnce = Box<dyn FnMut(&mut Regions<'_>, u32, Vec<u8>) -> Option<Vec<u8>>>;

/// The reason why a peer may not use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No memory is registered under the key.
    Key,
    /// The region is shorter, or its rights forbid this use.
    Access,
    /// The memory is not there any more, or may not be written to.
    Unmapped,
}

/// The memory registered at an endpoint.
pub struct Regions<'a> {
    engine: &'a Engine,
    memory: &'a mut HashMap<u64, Memory>,
}

impl<'a> Regions<'a> {
    pub(crate) fn new(engine: &'a Engine, memory: &'a mut HashMap<u64, Memory>) -> Regions<'a> {
        Regions { engine, memory }
    }

    /// Checks that a peer may use `len` bytes at its `offset`, and returns their position in the
    /// region.
    ///
    /// # Errors
    /// The reason why the peer may not.
    pub fn check(&self, key: u64, offset: u64, len: u64, need: Rights) -> Result<u64, Denied> {
        match self.engine.regions().find(key, offset, len, need) {
            Some(at) => Ok(at),
            None if self.engine.regions().has(key) => Err(Denied::Access),
            None => Err(Denied::Key),
        }
    }

    /// Returns the bytes of a region at a peer's `offset`, if the peer may use them.
    ///
    /// # Errors
    /// The reason why the peer may not.
    pub fn bytes(
        &mut self,
        key: u64,
        offset: u64,
        len: usize,
        need: Rights,
    ) -> Result<&mut [u8], Denied> {
        let at = self.check(key, offset, len as u64, need)?;
        self.memory.get_mut(&key).and_then(|m| m.write(at, len)).ok_or(Denied::Key)
    }
}

impl Intake {
    /// Copies bytes to a region whose key, bounds and rights are checked.
    ///
    /// # Errors
    /// The region is not there.
    pub(crate) fn write_region(
        &mut self,
        key: u64,
        offset: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), Denied> {
        match self.regions.get_mut(&key).ok_or(Denied::Key)? {
            Memory::Vanishing(region) => {
                region.place(offset, bytes).then_some(()).ok_or(Denied::Unmapped)
            }
            memory => memory.place(offset, bytes).then_some(()).ok_or(Denied::Access),
        }
    }

    /// Does an atomic operation for a peer.
    pub(super) fn atomic(&mut self, a: &AtomicRequest) {
        match self.ports.ask(a) {
            None => {}
            Some(true) => return,
            Some(false) => return self.engine.memory().handle_atomic_refused(self.time.now, a),
        }
        let word = self.regions.get_mut(&a.key).and_then(|m| m.write(a.offset, 8));
        let Some(word) = word else {
            self.engine.memory().handle_atomic_refused(self.time.now, a);
            return;
        };
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        let old = u64::from_le_bytes(bytes);
        word.copy_from_slice(&a.code.apply(old, a.operand, a.compare).to_le_bytes());
        self.engine.memory().handle_atomic_done(self.time.now, a, old);
    }
}

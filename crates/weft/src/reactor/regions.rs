//! Registered memory, for work on active messages as they arrive.

use super::sys::Memory;
use std::collections::HashMap;
use weft_core::engine::Rights;
use weft_core::Engine;

/// Work on an active message as it arrives, before later packets are handled.
pub(crate) type AtOnce = Box<dyn FnMut(&mut Regions<'_>, u32, Vec<u8>) -> Option<Vec<u8>>>;

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

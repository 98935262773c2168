//! Registered memory that peers write to, and whose words they change.

use super::Receiver;
use crate::reactor::regions::Denied;
use crate::reactor::sys::Memory;
use weft_core::engine::types::AtomicRequest;
use weft_link::Bytes;

impl Receiver {
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
    pub(in crate::reactor) fn atomic(&mut self, a: &AtomicRequest) {
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

//! Operations of port clients on memory by its address.

use super::Port;
use crate::reactor::sys::Memory;
use crate::reactor::INJECTED_MAX;
use weft_core::{OpError, PeerId};

/// Most returned pointers that wait for `returned`; beyond it no more memory is borrowed.
const RETURNED_MAX: usize = 4096;
const _: () = assert!(RETURNED_MAX > INJECTED_MAX);

impl Port {
    /// Sends part of the caller's memory as [`gather`](Port::gather) sends part of shared memory;
    /// [`returned`](Port::returned) names `ptr` when the memory is free again.
    ///
    /// # Errors
    /// Returns the errors of [`gather`](Port::gather), and `Refused` also if thousands of pointers
    /// wait for `returned`.
    ///
    /// # Safety
    /// Until `returned` has named `ptr` as often as it was sent from, or no memory is
    /// [`borrowed`](Port::borrowed), or the endpoint is gone, `ptr..ptr+len` stays valid and
    /// unchanged.
    pub unsafe fn gather_at(
        &self,
        to: PeerId,
        number: u32,
        argument: u32,
        ptr: *const u8,
        len: usize,
    ) -> Result<(), OpError> {
        if self.reactor.borrow().receiver.ops.returned.len() >= RETURNED_MAX {
            return Err(OpError::Refused);
        }
        let tag = self.tag(number, argument);
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        let data = match len {
            0 => &[],
            // SAFETY: promised by the caller; it is not written meanwhile.
            _ => unsafe { std::slice::from_raw_parts(ptr, len) },
        };
        if self.send_borrowed(to, tag, data, || Ok(memory))? {
            let ops = &mut self.reactor.borrow_mut().receiver.ops;
            ops.returned.push_back(ptr as u64);
        }
        Ok(())
    }

    /// Writes to a peer's memory by its address, if the link can. False if nothing was written.
    ///
    /// # Safety
    /// The peer has allowed writes of `data.len()` bytes to this address, and has not withdrawn
    /// that.
    pub unsafe fn write_remote(&self, peer: PeerId, addr: u64, data: &[u8]) -> bool {
        self.reactor.borrow_mut().write_remote(peer, addr, data)
    }

    /// Adds to a word of memory that a peer shares, by its address in the peer, and returns the
    /// value before. `None` if it is not mapped here; then nothing was added.
    ///
    /// # Safety
    /// The peer has allowed additions to this word, and has not withdrawn that.
    pub unsafe fn add_remote(&self, peer: PeerId, addr: u64, n: u64) -> Option<u64> {
        self.reactor.borrow_mut().add_remote(peer, addr, n)
    }
}

//! Memory of the caller.

use super::wire::{tag, Kind};
use super::{Exported, Packets};
use crate::endpoint::sys::Memory;
use weft_core::engine::Rights;
use weft_core::{OpError, PeerId};

/// Memory given back that nobody has asked for, in number, before no more is borrowed.
const RETURNED_MAX: usize = 4096;

impl Packets {
    /// Lets peers copy to the caller's memory. `None`: no more keys.
    ///
    /// # Safety
    /// Until `unexport` of it has ended, `ptr..ptr+len` stays valid; peers write to it at any time.
    pub unsafe fn export_at(&self, ptr: *mut u8, len: usize) -> Option<Exported> {
        let key = weft_link::random_u64();
        // SAFETY: promised by the caller.
        let registered = unsafe { self.endpoint.register_at(key, ptr, len, Rights::ALL) };
        registered.then(|| self.note_export(key, ptr as u64, len as u64))
    }

    /// Where exported memory lies in this process, until the export has ended; peers write to it at
    /// any time.
    pub fn exported_at(&self, exported: Exported) -> Option<*mut u8> {
        self.with(|state| state.address_of(exported.key)).map(|addr| addr as *mut u8)
    }

    /// As [`try_gather`](Packets::try_gather), from memory of the caller, which
    /// [`returned`](Packets::returned) gives back.
    ///
    /// # Errors
    /// As [`try_gather`](Packets::try_gather); `Refused` also when thousands have been given back
    /// and not been asked for.
    ///
    /// # Safety
    /// Until `returned` has named `ptr` as often as it was sent from, or `flush` has returned, or
    /// the endpoint is gone, `ptr..ptr+len` stays valid and unchanged.
    pub unsafe fn try_gather_at(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        ptr: *const u8,
        len: usize,
    ) -> Result<(), OpError> {
        if self.endpoint.inner.borrow().driver.core.ops.returned.len() >= RETURNED_MAX {
            return Err(OpError::Refused);
        }
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        let name = tag(Kind::User, handler, argument);
        let free = match len {
            0 => self.lend(to, name, &[], || Ok(Memory::None))?,
            _ => {
                // SAFETY: promised by the caller; nobody else writes to it.
                let data = unsafe { std::slice::from_raw_parts(ptr, len) };
                self.lend(to, name, data, || Ok(memory))?
            }
        };
        if free {
            let ops = &mut self.endpoint.inner.borrow_mut().driver.core.ops;
            ops.returned.push_back(ptr as u64);
        }
        Ok(())
    }

    /// Memory that a packet was sent from by [`try_gather_at`](Packets::try_gather_at) and that is
    /// free again, in the order in which it became free. It neither waits nor makes progress.
    pub fn returned(&self) -> Option<*const u8> {
        let ops = &mut self.endpoint.inner.borrow_mut().driver.core.ops;
        ops.returned.pop_front().map(|address| address as *const u8)
    }
}

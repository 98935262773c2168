//! Memory of this endpoint that peers read and write.

use crate::endpoint::Endpoint;
use crate::memory::zeroed;
use crate::reactor::sys::vanishing::Vanishing;
use crate::reactor::sys::Memory;
use crate::reactor::Handle;
use weft_core::engine::Rights;

/// The registered memory of an endpoint, as [`Endpoint::regions`] gives it.
#[derive(Clone, Copy)]
pub struct Registration<'a> {
    reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the memory registered for remote use.
    #[inline]
    pub fn regions(&self) -> Registration<'_> {
        Registration { reactor: &self.reactor }
    }
}

impl Registration<'_> {
    /// Registers `len` bytes of new zeroed memory for remote use, and returns its key. `None` if no
    /// key is left, or this machine does not have so much memory.
    pub fn register(self, len: usize, rights: Rights) -> Option<u64> {
        let memory = zeroed(len)?;
        let reactor = &mut *self.reactor.borrow_mut();
        let random = reactor.receiver.random_for_key();
        let key = reactor.receiver.engine.regions_mut().register(len as u64, rights, random)?;
        reactor.receiver.regions.insert(key, Memory::Owned(memory));
        Some(key)
    }

    /// Lets peers write to the caller's memory under a key of its choice: puts only. If the caller
    /// unmaps some of it, or makes it read-only, puts to that are refused as
    /// [`OpError::Unmapped`](crate::OpError::Unmapped). False: the key is taken.
    ///
    /// # Safety
    /// Until `unregister` nothing else is mapped in the place of `ptr..ptr+len`. `call` returns
    /// another number than before, and never 0, after the memory may have been unmapped or made
    /// read-only. Where the system forbids `process_vm_writev(2)`, that never happens.
    pub unsafe fn register_vanishing(
        self,
        key: u64,
        (ptr, len): (*mut u8, usize),
        call: fn() -> u64,
    ) -> bool {
        let rights = Rights { read: false, write: true };
        let receiver = &mut self.reactor.borrow_mut().receiver;
        let taken = !receiver.engine.regions_mut().register_as(key, 0, len as u64, rights);
        if !taken {
            receiver.regions.insert(key, Memory::Vanishing(Vanishing::new(ptr, len, call)));
        }
        !taken
    }

    /// Lets peers use the caller's memory under a key of its choice; peers' offsets begin at
    /// `first`. False: the key is taken. With the region's
    /// address as `first`, peers name bytes by their addresses.
    ///
    /// # Safety
    /// Until `unregister`, each part of `ptr..ptr+len` that a peer names stays valid. It is read
    /// and written while the caller is in a call of this endpoint.
    pub unsafe fn register_from(
        self,
        key: u64,
        first: u64,
        ptr: *mut u8,
        len: usize,
        rights: Rights,
    ) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        let taken =
            !reactor.receiver.engine.regions_mut().register_as(key, first, len as u64, rights);
        if !taken {
            // SAFETY: promised by the caller.
            reactor.receiver.regions.insert(key, unsafe { Memory::raw(ptr, len) });
        }
        !taken
    }

    /// Ends remote use of a region and returns its memory.
    pub fn unregister(self, key: u64) -> Vec<u8> {
        let reactor = &mut *self.reactor.borrow_mut();
        reactor.receiver.engine.regions_mut().unregister(key);
        reactor.receiver.regions.remove(&key).map(Memory::into_vec).unwrap_or_default()
    }

    /// Reads a registered region of this endpoint.
    pub fn with<R>(self, key: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let reactor = &mut *self.reactor.borrow_mut();
        let memory = reactor.receiver.regions.get_mut(&key)?;
        let len = memory.len();
        memory.write(0, len).map(f)
    }
}

//! Access to memory of the caller and of peers.

use super::rcpy::Exports;
use super::wire::{name, Kind};
use super::{Exported, OpenError, Packets};
use weft::port::{Kept, Port};
use weft::{OpError, PeerId, SharedEndpoint};

/// Frees the memory of an export, of which no peer has the address, or which all peers have
/// forgotten.
pub(super) fn free(kept: Kept) {
    // SAFETY: the caller is `Export`, which frees only memory that is not exposed, or that all
    // peers have forgotten on request of `Exports::end`.
    unsafe { kept.free() }
}

/// Returns the memory of such an export.
pub(super) fn into_vec(kept: Kept) -> Vec<u8> {
    // SAFETY: as in `free`.
    unsafe { kept.into_vec() }
}

/// Writes to a page of a peer whose translation is known, if the link can.
pub(super) fn write_page(port: &Port, to: PeerId, addr: u64, data: &[u8]) -> bool {
    // SAFETY: the address is that of a translation that the peer has given and not taken back, and
    // `translate` has compared the length with the translation's.
    unsafe { port.write_remote(to, addr, data) }
}

/// Adds to a word of a peer's counter whose place is known, if it is mapped here.
pub(super) fn add(port: &Port, at: PeerId, addr: u64, n: u64) -> Option<u64> {
    // SAFETY: the address is in a page that the peer has shared for a counter, and not taken back:
    // the page of an ended counter is used for nothing else while it is mapped here.
    unsafe { port.add_remote(at, addr, n) }
}

/// Calls `f` with the packet interface of an endpoint, under its lock. `f` keeps no clone of that
/// interface, and gives it upcalls that are `Send` alone.
pub(super) fn locked<R>(
    shared: &SharedEndpoint,
    f: impl FnOnce(&Packets) -> R,
) -> Result<R, OpenError> {
    // SAFETY: only `shared.rs` calls this. Its closures keep nothing, and the upcalls that they set
    // are `Send` and get no clone of the interface. No other owner of the interface exists:
    // `SharedEndpoint` never hands out its endpoint.
    unsafe { shared.with_endpoint(|endpoint| Packets::new(endpoint).map(|packets| f(&packets))) }
}

impl Exports<'_> {
    /// Lets peers copy to the caller's memory. `None` if no key is left. Copies to parts that the
    /// caller has unmapped meanwhile, or made read-only, are refused as [`OpError::Unmapped`].
    ///
    /// # Safety
    /// Until the [`end`](Exports::end) of it has returned, peers write to `ptr..ptr+len` at any
    /// time, and nothing else is mapped there. `call` returns another number than before, and never
    /// 0, after the memory may have been unmapped or made read-only: that of the program's call, if
    /// it does so only between calls of this interface, and in upcalls. Where the system forbids
    /// `process_vm_writev(2)`, that never happens.
    pub unsafe fn make_at(
        self,
        (ptr, len): (*mut u8, usize),
        call: fn() -> u64,
    ) -> Option<Exported> {
        let key = weft_link::random_u64();
        // SAFETY: promised by the caller.
        let registered =
            unsafe { self.0.endpoint().regions().register_vanishing(key, (ptr, len), call) };
        registered.then(|| self.note_export(key, ptr as u64, len as u64))
    }

    /// Returns the address of exported memory in this process, until the export has ended. Peers
    /// write to it at any time.
    pub fn address(self, exported: Exported) -> Option<*mut u8> {
        self.0.with(|state| state.address_of(exported.key)).map(|addr| addr as *mut u8)
    }
}

impl Packets {
    /// Sends a packet as [`try_gather`](Packets::try_gather) does, from memory of the caller, which
    /// [`returned`](Packets::returned) gives back.
    ///
    /// # Errors
    /// Returns the errors of [`try_gather`](Packets::try_gather), and `Refused` also if thousands
    /// of pointers wait for `returned`.
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
        let (number, _) = name(Kind::User, handler, argument);
        // SAFETY: promised by the caller.
        unsafe { self.port.gather_at(to, number, argument, ptr, len) }?;
        self.note_lent(to);
        Ok(())
    }

    /// Returns memory that [`try_gather_at`](Packets::try_gather_at) sent from and that is free
    /// again, in the order in which it became free. The call neither waits nor makes progress.
    pub fn returned(&self) -> Option<*const u8> {
        self.port.returned()
    }
}

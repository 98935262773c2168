//! Memory of the caller.

use super::{Exported, Packets};
use weft_core::engine::Rights;

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
}

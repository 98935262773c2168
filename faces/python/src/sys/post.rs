//! Operations on exported memory.

use super::Export;
use weft::{Endpoint, OpId, PeerId, RecvArgs, Refused, SendArgs};
use weft_core::engine::types::Claimed;

/// The caller keeps the export until the operation has ended, or was taken back
/// ([`Posted::take_back`](weft::endpoint::Posted::take_back)).
impl Export {
    /// Posts a send of this memory. `None`: it has left.
    ///
    /// # Errors
    /// The peer failed, or too much is queued.
    pub fn post_send(&self, at: &Endpoint, args: SendArgs) -> Result<Option<OpId>, Refused> {
        // SAFETY: as above: `Pending` owns every operation and is dropped before its export. The
        // memory may change meanwhile, by the program: then the message has some old bytes and some
        // new, since the engine reads them as bytes alone.
        unsafe { at.posted().send(self.address(), args) }
    }

    /// Sends a copy of this memory.
    ///
    /// # Errors
    /// Returns the errors of [`post_send`](Self::post_send).
    pub fn inject(&self, at: &Endpoint, to: PeerId, tag: u64) -> Result<(), Refused> {
        if self.len() == 0 {
            return at.posted().inject(to, tag, &[], None, false);
        }
        // SAFETY: the object keeps as many bytes there while `self` lives.
        let bytes = unsafe { std::slice::from_raw_parts(self.address(), self.len()) };
        at.posted().inject(to, tag, bytes, None, false)
    }

    /// Posts a receive into this memory.
    ///
    /// # Errors
    /// The peer failed, or too many operations are under way.
    pub fn post_recv(&self, at: &Endpoint, args: RecvArgs) -> Result<OpId, Refused> {
        let args = RecvArgs { len: self.len() as u64, ..args };
        // SAFETY: as above.
        unsafe { at.posted().recv(self.address(), args) }
    }

    /// Posts the receive of a claimed message into this memory.
    ///
    /// # Errors
    /// Returns the errors of [`post_recv`](Self::post_recv).
    pub fn post_claimed(
        &self,
        at: &Endpoint,
        claimed: Claimed,
        context: u64,
    ) -> Result<OpId, Refused> {
        let len = self.len() as u64;
        let args =
            RecvArgs { source: None, tag: 0, ignore: 0, len, addr: 0, context, untagged: false };
        // SAFETY: as above.
        unsafe { at.posted().recv_claimed(claimed, self.address(), args) }
    }
}

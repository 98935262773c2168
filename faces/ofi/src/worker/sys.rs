//! Operations of the engine on borrowed memory. It was lent until the operation has ended, or the
//! operation's record keeps it as long.

use crate::memory::Borrowed;
use crate::region::Region;
use weft::endpoint::Posted;
use weft::Endpoint;
use weft_core::engine::types::{Claimed, RecvArgs, Refused, SendArgs};
use weft_core::matching::RecvSpec;
use weft_core::{OpId, PeerId};

/// Operations that are posted on the completion queue of an endpoint.
pub trait Post {
    /// Posts a send.
    fn send_from(self, from: Borrowed, args: SendArgs) -> Result<Option<OpId>, Refused>;
    /// Posts a receive.
    fn recv_into(self, to: Borrowed, args: RecvArgs) -> Result<OpId, Refused>;
    /// Posts the receive of a claimed message.
    fn claimed_into(self, to: Borrowed, what: Claimed, context: u32) -> Result<OpId, Refused>;
    /// Expects a message in place of a posted receive.
    fn expect_into(self, to: Borrowed, spec: RecvSpec) -> bool;
    /// Posts a put (`read` is false) or a get of remote memory at a key and offset.
    fn move_at(
        self,
        memory: Borrowed,
        read: bool,
        peer: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused>;
}

/// Returns the arguments of a receive from anybody.
#[inline]
pub fn any(context: u32) -> RecvArgs {
    RecvArgs {
        source: None,
        tag: 0,
        ignore: 0,
        len: 0,
        addr: 0,
        context: u64::from(context),
        untagged: false,
    }
}

impl Post for Posted<'_> {
    #[inline]
    fn send_from(self, from: Borrowed, args: SendArgs) -> Result<Option<OpId>, Refused> {
        let args = SendArgs { len: from.len() as u64, ..args };
        // SAFETY: the memory was lent.
        unsafe { self.send(from.start(), args) }
    }

    #[inline]
    fn recv_into(self, to: Borrowed, args: RecvArgs) -> Result<OpId, Refused> {
        // SAFETY: the memory was lent.
        unsafe { self.recv(to.start(), RecvArgs { len: to.len() as u64, ..args }) }
    }

    fn claimed_into(self, to: Borrowed, what: Claimed, context: u32) -> Result<OpId, Refused> {
        // SAFETY: the memory was lent.
        unsafe {
            self.recv_claimed(what, to.start(), RecvArgs { len: to.len() as u64, ..any(context) })
        }
    }

    #[inline]
    fn expect_into(self, to: Borrowed, spec: RecvSpec) -> bool {
        // SAFETY: the memory was lent.
        unsafe { self.expect(to.start(), to.len(), spec) }
    }

    fn move_at(
        self,
        memory: Borrowed,
        read: bool,
        peer: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        let (start, len) = (memory.start(), memory.len());
        // SAFETY: the memory was lent.
        match read {
            true => unsafe { self.get(start, len, peer, at, context) },
            false => unsafe { self.put(start, len, peer, at, context) },
        }
    }
}

/// Lets peers use a region. False: its key is taken.
pub fn expose(endpoint: &Endpoint, region: &Region) -> bool {
    let Region { key, first, memory, rights, .. } = *region;
    // SAFETY: the caller that registered the memory promised that it exists until it is closed.
    unsafe { endpoint.regions().register_from(key, first, memory.start(), memory.len(), rights) }
}

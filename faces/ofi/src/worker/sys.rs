//! Operations of the engine on borrowed memory. It was lent until the operation has ended, or the
//! operation's record keeps it as long.

use crate::memory::Borrowed;
use crate::region::Region;
use weft::Endpoint;
use weft_core::engine::types::{Claimed, RecvArgs, Refused, SendArgs};
use weft_core::matching::RecvSpec;
use weft_core::{OpId, PeerId};

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

/// Posts a send.
#[inline]
pub fn send(endpoint: &Endpoint, from: Borrowed, args: SendArgs) -> Result<Option<OpId>, Refused> {
    let args = SendArgs { len: from.len() as u64, ..args };
    // SAFETY: the memory was lent.
    unsafe { endpoint.posted().send(from.start(), args) }
}

/// Posts a receive.
#[inline]
pub fn recv(endpoint: &Endpoint, to: Borrowed, args: RecvArgs) -> Result<OpId, Refused> {
    let args = RecvArgs { len: to.len() as u64, ..args };
    // SAFETY: the memory was lent.
    unsafe { endpoint.posted().recv(to.start(), args) }
}

/// Posts the receive of a claimed message.
pub fn recv_claimed(
    endpoint: &Endpoint,
    to: Borrowed,
    claimed: Claimed,
    context: u32,
) -> Result<OpId, Refused> {
    let args = RecvArgs { len: to.len() as u64, ..any(context) };
    // SAFETY: the memory was lent.
    unsafe { endpoint.posted().recv_claimed(claimed, to.start(), args) }
}

/// Expects a message in place of a posted receive.
#[inline]
pub fn expect(endpoint: &Endpoint, to: Borrowed, spec: RecvSpec) -> bool {
    // SAFETY: the memory was lent.
    unsafe { endpoint.posted().expect(to.start(), to.len(), spec) }
}

/// Posts a get (`read`) or a put of remote memory at a key and offset.
pub fn transfer(
    endpoint: &Endpoint,
    memory: Borrowed,
    read: bool,
    (peer, at): (PeerId, (u64, u64)),
    context: u32,
) -> Result<OpId, Refused> {
    let (start, len, context) = (memory.start(), memory.len(), context.into());
    let posted = endpoint.posted();
    // SAFETY: the memory was lent.
    unsafe {
        match read {
            true => posted.get(start, len, peer, at, context),
            false => posted.put(start, len, peer, at, context),
        }
    }
}

/// Lets peers use a region. False: its key is taken.
pub fn expose(endpoint: &Endpoint, region: &Region) -> bool {
    let Region { key, first, memory, rights, .. } = *region;
    // SAFETY: the caller that registered the memory promised that it exists until it is closed.
    unsafe { endpoint.regions().register_from(key, first, memory.start(), memory.len(), rights) }
}

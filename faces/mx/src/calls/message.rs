//! Sends, receives, and looking for messages.

use super::{enter_to_match, give, look_for, Time};
use crate::address::Addr;
use crate::code::{self, Answer};
use crate::enter::{enter, Inside};
use crate::handle::Handle;
use crate::memory::{Memory, Segment};
use crate::open::request::{Kind, Request};
use crate::open::{Found, Sending};
use crate::params::{check_contexts, check_mask};
use crate::status::Status;
use weft_ffi::given::{List, Place};

/// Starts a send to an address with match bits; the flag is true if it completes when a receive has
/// matched it. Without a place for the request it is forgotten.
#[inline]
pub fn send(
    endpoint: Handle,
    list: List<'_, Segment>,
    (to, bits, is_sync): (Addr, u64, bool),
    context: usize,
    request: Place<'_, Handle>,
) -> Answer {
    let is_forgotten = request.is_null();
    if !is_forgotten {
        request.or(code::BAD_REQUEST)?;
    }
    let mut inside = enter(endpoint)?;
    let memory = Memory::of(list)?;
    let open = inside.open()?;
    let key = open.send(memory, &Sending { to, bits, is_sync, is_forgotten, context })?;
    key.into_iter().for_each(|key| _ = request.store(open.handle_of(key)));
    Ok(())
}

/// Starts a receive.
#[inline]
pub fn receive(
    endpoint: Handle,
    list: List<'_, Segment>,
    (bits, mask): (u64, u64),
    context: usize,
    request: Place<'_, Handle>,
) -> Answer {
    request.or(code::BAD_REQUEST)?;
    let mut inside = enter(endpoint)?;
    check_mask(bits, mask)?;
    check_contexts(mask, inside.open()?.contexts)?;
    let memory = Memory::of(list)?;
    let open = inside.open()?;
    let key = open.add(Request { mask, ..Request::new(Kind::Recv, bits, context, memory) })?;
    if let Err(why) = open.start_receive(key) {
        open.requests.remove(key);
        return Err(why);
    }
    request.store(open.handle_of(key));
    Ok(())
}

/// Finds the oldest message without a receive that matches.
fn find(inside: &mut Inside, (bits, mask): (u64, u64)) -> Answer<Option<Status>> {
    let open = inside.open()?;
    open.settle_expected();
    let found = open.probe_left(bits, mask).or_else(|| {
        let found = open.endpoint().probe(None, bits, !mask)?;
        let (source, len) = open.origin(found.source, found.data, found.len);
        Some(Found { source, bits: found.tag, len })
    });
    Ok(found.map(|found| {
        let len = u32::try_from(found.len).unwrap_or(u32::MAX);
        Status {
            code: code::STATUS_SUCCESS,
            source: open.key_check.address(found.source),
            match_info: found.bits,
            msg_length: len,
            xfer_length: len,
            context: 0,
        }
    }))
}

/// Waits for a message that no receive has taken.
pub fn probe(
    endpoint: Handle,
    matching: (u64, u64),
    time: Time,
    (status, result): (Place<'_, Status>, Place<'_, u32>),
) -> Answer {
    let mut inside = enter_to_match(endpoint, matching, result)?;
    let open = inside.open()?;
    open.settle_expected();
    // A thread that waits looks again after each round of another one.
    let waits = u32::from(time.is_some());
    open.waits.probers += waits;
    let found = look_for(&mut inside, time, |i| find(i, matching));
    inside.open()?.waits.probers -= waits;
    give(found?, status, result);
    Ok(())
}

//! The ends of requests: testing, waiting, looking, cancelling, forgetting.

use super::{enter_to_match, give, look_for, Time};
use crate::code::{self, Answer};
use crate::enter::{enter, ready, Inside};
use crate::handle::{request_key, Handle};
use crate::open::request::{Kind, Request};
use crate::status::Status;
use weft_ffi::given::Place;
use weft_ffi::sys::lock;
use weft_ffi::table::Key;

/// Enters an endpoint for a request.
///
/// # Errors
/// `MX_BAD_REQUEST`: it is none of the endpoint.
#[inline]
fn enter_for(endpoint: Handle, request: Handle) -> Answer<(Inside, Key)> {
    let mut inside = enter(endpoint)?;
    let (slot, key) = request_key(request)?;
    let open = inside.open()?;
    let is_it = open.local.slot == slot;
    let known = open.requests.get(key).is_some_and(|request| !request.is_forgotten);
    match is_it && known {
        true => Ok((inside, key)),
        false => Err(code::BAD_REQUEST),
    }
}

/// Reads a handle, and enters the endpoint.
///
/// # Errors
/// `MX_BAD_REQUEST`: the place is not there, or the request is none of the endpoint.
#[inline]
fn enter_at(endpoint: Handle, request: Place<'_, Handle>) -> Answer<(Inside, Key)> {
    enter_for(endpoint, request.read().ok_or(code::BAD_REQUEST)?)
}

/// Returns a request.
///
/// # Errors
/// `MX_BAD_REQUEST`: another thread has taken it meanwhile.
fn request_of(inside: &mut Inside, key: Key) -> Answer<&mut Request> {
    inside.open()?.requests.get_mut(key).ok_or(code::BAD_REQUEST)
}

/// Takes a request that has completed.
#[inline]
fn take(inside: &mut Inside, key: Key) -> Answer<Option<Status>> {
    let requests = &mut inside.open()?.requests;
    // Another thread may have taken or forgotten it meanwhile.
    let request = requests.get(key).filter(|of| !of.is_forgotten).ok_or(code::BAD_REQUEST)?;
    if !request.is_done {
        return Ok(None);
    }
    Ok(requests.take_status(key))
}

/// Waits for a request, stores its status when it has completed, and frees it.
#[inline(always)]
pub fn ended(
    endpoint: Handle,
    request: Place<'_, Handle>,
    time: Time,
    status: Place<'_, Status>,
    result: Place<'_, u32>,
) -> Answer {
    result.or(code::BAD_INFO_VAL)?;
    let (mut inside, key) = enter_at(endpoint, request)?;
    let mut ended = take(&mut inside, key)?;
    if ended.is_none() {
        ended = look_for(&mut inside, time, |i| take(i, key))?;
    }
    if ended.is_some() {
        request.store(0);
    }
    give(ended, status, result);
    Ok(())
}

/// Waits for a request whose match bits match, stores its status when it has completed, and frees
/// it.
pub fn any_ended(
    endpoint: Handle,
    matching: (u64, u64),
    time: Time,
    (status, result): (Place<'_, Status>, Place<'_, u32>),
) -> Answer {
    let mut inside = enter_to_match(endpoint, matching, result)?;
    let ended = look_for(&mut inside, time, |i| {
        let requests = &mut i.open()?.requests;
        let found = requests.done(matching.0, matching.1);
        Ok(found.and_then(|key| requests.take_status(key)))
    })?;
    give(ended, status, result);
    Ok(())
}

/// Waits until a request has completed, stores the handle of the oldest one, and leaves it.
pub fn peek(
    endpoint: Handle,
    time: Time,
    request: Place<'_, Handle>,
    result: Place<'_, u32>,
) -> Answer {
    result.or(code::BAD_INFO_VAL)?;
    request.or(code::BAD_REQUEST)?;
    let mut inside = enter(endpoint)?;
    let found = look_for(&mut inside, time, |i| {
        let open = i.open()?;
        Ok(open.requests.done(0, 0).map(|key| open.handle_of(key)))
    })?;
    give(found, request, result);
    Ok(())
}

/// Says if the memory of a send can be used again: it has completed, and keeps its handle.
pub fn buffered(endpoint: Handle, request: Place<'_, Handle>, result: Place<'_, u32>) -> Answer {
    result.or(code::BAD_INFO_VAL)?;
    let (mut inside, key) = enter_at(endpoint, request)?;
    look_for(&mut inside, None, |_| Ok(None::<()>))?;
    let of = request_of(&mut inside, key)?;
    if of.kind != Kind::Send {
        return Err(code::BAD_REQUEST);
    }
    result.store(of.is_done.into());
    Ok(())
}

/// Stores the program's context of a request.
pub fn context(request: Place<'_, Handle>, context: Place<'_, usize>) -> Answer {
    let request = request.read().ok_or(code::BAD_REQUEST)?;
    context.or(code::BAD_INFO_VAL)?;
    ready()?;
    let (slot, key) = request_key(request)?;
    let mut inside: Inside = lock::enter(slot).map_err(|why| match why {
        code::BAD_ENDPOINT => code::BAD_REQUEST,
        why => why,
    })?;
    context.store(request_of(&mut inside, key)?.status.context);
    Ok(())
}

/// Cancels a receive that has matched no message, or a request to connect without an answer. The
/// result is 1 if it did, and the request is gone.
pub fn cancel(endpoint: Handle, request: Place<'_, Handle>, result: Place<'_, u32>) -> Answer {
    result.or(code::BAD_INFO_VAL)?;
    let (mut inside, key) = enter_at(endpoint, request)?;
    // A whole round: the message may have come.
    inside.open()?.settle_expected();
    inside.progress()?;
    let of = request_of(&mut inside, key)?;
    if of.kind == Kind::Send {
        return Err(code::CANCEL_NOT_SUPPORTED);
    }
    let was_done = of.is_done;
    inside.open()?.stop(key, code::STATUS_CANCELLED);
    let of = request_of(&mut inside, key)?;
    let is_cancelled = !was_done && of.is_done && of.status.code == code::STATUS_CANCELLED;
    if is_cancelled {
        inside.open()?.requests.remove(key);
        request.store(0);
    }
    result.store(is_cancelled.into());
    Ok(())
}

/// Forgets a request: it goes on, and no call sees its end.
pub fn forget(endpoint: Handle, request: Place<'_, Handle>) -> Answer {
    let (mut inside, key) = enter_at(endpoint, request)?;
    // A thread that waits for it looks again.
    inside.open()?.changes += 1;
    let of = request_of(&mut inside, key)?;
    of.is_forgotten = true;
    if of.is_done {
        inside.open()?.requests.remove(key);
    }
    request.store(0);
    Ok(())
}

/// Sets the time after which a request ends, or with a null request those that begin later.
pub fn set_timeout(endpoint: Handle, request: Handle, ms: u32) -> Answer {
    if request == 0 {
        enter(endpoint)?.open()?.set_patience(ms);
        return Ok(());
    }
    let (mut inside, key) = enter_for(endpoint, request)?;
    inside.open()?.set_end(key, ms);
    Ok(())
}

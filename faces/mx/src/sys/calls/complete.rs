//! The ends of requests: testing, waiting, looking, cancelling, forgetting.

use crate::code::{self, Answer, Return};
use crate::params::{check_contexts, check_mask};
use crate::sys::abi::{call, offer, place, request_key, until, Handle, Status};
use crate::sys::enter::{enter, Inside};
use crate::sys::request::Kind;
use crate::sys::unexpected::run_handler;
use weft_ffi::table::Key;

/// Waits until `look` finds something. `None` if the time is over, or `mx_wakeup` was called.
pub(super) fn wait<R>(
    inside: &mut Inside,
    ms: u32,
    mut look: impl FnMut(&mut Inside) -> Answer<Option<R>>,
) -> Answer<Option<R>> {
    let wakeups = inside.open()?.wakeups;
    let found = inside.wait(until(ms), |i| {
        if let Some(found) = look(i)? {
            return Ok(Some(Some(found)));
        }
        Ok((i.open()?.wakeups != wakeups).then_some(None))
    });
    match found {
        Err(code::TIMEOUT) => Ok(None),
        found => found,
    }
}

/// Reads a handle, and enters the endpoint.
///
/// # Errors
/// `MX_BAD_REQUEST`: it is none of the endpoint.
///
/// # Safety
/// `request` is null, misaligned or has a handle.
#[inline]
unsafe fn enter_for(endpoint: Handle, request: *mut Handle) -> Answer<(Inside, Key)> {
    place(request, code::BAD_REQUEST)?;
    // SAFETY: promised by the caller.
    let handle = unsafe { request.read() };
    let mut inside = enter(endpoint)?;
    let (slot, key) = request_key(handle)?;
    let open = inside.open()?;
    let is_it = open.local.slot == slot;
    let known = open.requests.get(key).is_some_and(|request| !request.is_forgotten);
    match is_it && known {
        true => Ok((inside, key)),
        false => Err(code::BAD_REQUEST),
    }
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

/// Stores the end of a request, and frees its handle.
///
/// # Safety
/// All are null, misaligned or places.
#[inline]
unsafe fn give(ended: Option<Status>, request: *mut Handle, status: *mut Status, result: *mut u32) {
    // SAFETY: promised by the caller.
    unsafe {
        if let Some(ended) = ended {
            offer(status, ended);
            offer(request, 0);
        }
        offer(result, ended.is_some().into());
    }
}

/// Stores the status of a request that has completed, and frees it.
///
/// # Safety
/// `request` has a handle; `status` and `result` are null, misaligned or places.
#[no_mangle]
pub unsafe extern "C" fn mx_test(
    endpoint: Handle,
    request: *mut Handle,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_test", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        // SAFETY: promised by the caller.
        let (mut inside, key) = unsafe { enter_for(endpoint, request) }?;
        let mut ended = take(&mut inside, key)?;
        if ended.is_none() {
            inside.progress()?;
            run_handler(&mut inside)?;
            ended = take(&mut inside, key)?;
        }
        // SAFETY: promised by the caller.
        unsafe { give(ended, request, status, result) };
        Ok(())
    })
}

/// Waits for a request, stores its status when it has completed, and frees it. The result is 0 if
/// the time is over.
///
/// # Safety
/// The caller keeps the rules of `mx_test`.
#[no_mangle]
pub unsafe extern "C" fn mx_wait(
    endpoint: Handle,
    request: *mut Handle,
    ms: u32,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_wait", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        // SAFETY: promised by the caller.
        let (mut inside, key) = unsafe { enter_for(endpoint, request) }?;
        let mut ended = take(&mut inside, key)?;
        if ended.is_none() {
            ended = wait(&mut inside, ms, |i| {
                run_handler(i)?;
                take(i, key)
            })?;
        }
        // SAFETY: promised by the caller.
        unsafe { give(ended, request, status, result) };
        Ok(())
    })
}

/// Takes the oldest request that has completed and matches.
fn take_any(inside: &mut Inside, bits: u64, mask: u64) -> Answer<Option<Status>> {
    run_handler(inside)?;
    let requests = &mut inside.open()?.requests;
    let found = requests.done(bits, mask);
    Ok(found.and_then(|key| requests.take_status(key)))
}

/// Stores the status of a request that has completed and whose match bits match, and frees it.
///
/// # Safety
/// `status` and `result` are null, misaligned or places.
#[no_mangle]
pub unsafe extern "C" fn mx_test_any(
    endpoint: Handle,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_test_any", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        check_mask(bits, mask)?;
        let mut inside = enter(endpoint)?;
        check_contexts(mask, inside.open()?.contexts)?;
        inside.progress()?;
        let ended = take_any(&mut inside, bits, mask)?;
        // SAFETY: promised by the caller.
        unsafe { give(ended, std::ptr::null_mut(), status, result) };
        Ok(())
    })
}

/// Waits for a request whose match bits match, stores its status when it has completed, and frees
/// it. The result is 0 if the time is over.
///
/// # Safety
/// The caller keeps the rules of `mx_test_any`.
#[no_mangle]
pub unsafe extern "C" fn mx_wait_any(
    endpoint: Handle,
    ms: u32,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_wait_any", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        check_mask(bits, mask)?;
        let mut inside = enter(endpoint)?;
        check_contexts(mask, inside.open()?.contexts)?;
        let ended = wait(&mut inside, ms, |i| take_any(i, bits, mask))?;
        // SAFETY: promised by the caller.
        unsafe { give(ended, std::ptr::null_mut(), status, result) };
        Ok(())
    })
}

/// Returns the handle of the oldest request that has completed, and leaves it.
fn look(inside: &mut Inside) -> Answer<Option<Handle>> {
    run_handler(inside)?;
    let open = inside.open()?;
    Ok(open.requests.done(0, 0).map(|key| open.handle_of(key)))
}

/// Stores the handle of the oldest request that has completed, and leaves it.
///
/// # Safety
/// `request` and `result` are null, misaligned or places.
#[no_mangle]
pub unsafe extern "C" fn mx_ipeek(
    endpoint: Handle,
    request: *mut Handle,
    result: *mut u32,
) -> Return {
    call(c"mx_ipeek", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        place(request, code::BAD_REQUEST)?;
        let mut inside = enter(endpoint)?;
        inside.progress()?;
        let found = look(&mut inside)?;
        // SAFETY: promised by the caller.
        unsafe {
            found.into_iter().for_each(|found| offer(request, found));
            offer(result, found.is_some().into());
        }
        Ok(())
    })
}

/// Waits until a request has completed, stores the handle of the oldest one, and leaves it. The
/// result is 0 if the time is over.
///
/// # Safety
/// The caller keeps the rules of `mx_ipeek`.
#[no_mangle]
pub unsafe extern "C" fn mx_peek(
    endpoint: Handle,
    ms: u32,
    request: *mut Handle,
    result: *mut u32,
) -> Return {
    call(c"mx_peek", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        place(request, code::BAD_REQUEST)?;
        let mut inside = enter(endpoint)?;
        let found = wait(&mut inside, ms, look)?;
        // SAFETY: promised by the caller.
        unsafe {
            found.into_iter().for_each(|found| offer(request, found));
            offer(result, found.is_some().into());
        }
        Ok(())
    })
}

/// Says if the memory of a send can be used again: it has completed, and keeps its handle.
///
/// # Safety
/// `request` has a handle; `result` is null, misaligned or a place.
#[no_mangle]
pub unsafe extern "C" fn mx_ibuffered(
    endpoint: Handle,
    request: *mut Handle,
    result: *mut u32,
) -> Return {
    call(c"mx_ibuffered", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        // SAFETY: promised by the caller.
        let (mut inside, key) = unsafe { enter_for(endpoint, request) }?;
        inside.progress()?;
        run_handler(&mut inside)?;
        let of = inside.open()?.requests.get(key).filter(|request| request.kind == Kind::Send);
        let is_done = of.ok_or(code::BAD_REQUEST)?.is_done;
        // SAFETY: promised by the caller.
        unsafe { offer(result, is_done.into()) };
        Ok(())
    })
}

/// Stores the program's context of a request.
///
/// # Safety
/// `request` has a handle; `context` is null, misaligned or a place for a pointer.
#[no_mangle]
pub unsafe extern "C" fn mx_context(request: *mut Handle, context: *mut usize) -> Return {
    call(c"mx_context", 0, || {
        place(request, code::BAD_REQUEST)?;
        place(context, code::BAD_INFO_VAL)?;
        crate::sys::abi::ready()?;
        // SAFETY: promised by the caller.
        let (slot, key) = request_key(unsafe { request.read() })?;
        let mut inside: Inside = weft_ffi::sys::lock::enter(slot).map_err(|why| match why {
            code::BAD_ENDPOINT => code::BAD_REQUEST,
            why => why,
        })?;
        let of = inside.open()?.requests.get(key).ok_or(code::BAD_REQUEST)?;
        // SAFETY: promised by the caller.
        unsafe { offer(context, of.status.context) };
        Ok(())
    })
}

/// Cancels a receive that has matched no message, or a request to connect without an answer. The
/// result is 1 if it did, and the request is gone.
///
/// # Safety
/// The caller keeps the rules of `mx_ibuffered`.
#[no_mangle]
pub unsafe extern "C" fn mx_cancel(
    endpoint: Handle,
    request: *mut Handle,
    result: *mut u32,
) -> Return {
    call(c"mx_cancel", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        // SAFETY: promised by the caller.
        let (mut inside, key) = unsafe { enter_for(endpoint, request) }?;
        // A whole round: the message may have come.
        inside.open()?.settle_expected();
        inside.progress()?;
        let open = inside.open()?;
        let of = open.requests.get(key).ok_or(code::BAD_REQUEST)?;
        if of.kind == Kind::Send {
            return Err(code::CANCEL_NOT_SUPPORTED);
        }
        let was_done = of.is_done;
        open.stop(key, code::STATUS_CANCELLED);
        let of = open.requests.get(key).ok_or(code::BAD_REQUEST)?;
        let is_cancelled = !was_done && of.is_done && of.status.code == code::STATUS_CANCELLED;
        // SAFETY: promised by the caller.
        unsafe {
            if is_cancelled {
                open.requests.remove(key);
                offer(request, 0);
            }
            offer(result, is_cancelled.into());
        }
        Ok(())
    })
}

/// Forgets a request: it goes on, and no call sees its end.
///
/// # Safety
/// `request` is null, misaligned or has a handle.
#[no_mangle]
pub unsafe extern "C" fn mx_forget(endpoint: Handle, request: *mut Handle) -> Return {
    call(c"mx_forget", endpoint, || {
        // SAFETY: promised by the caller.
        let (mut inside, key) = unsafe { enter_for(endpoint, request) }?;
        let open = inside.open()?;
        // A thread that waits for it looks again.
        open.changes += 1;
        let of = open.requests.get_mut(key).ok_or(code::BAD_REQUEST)?;
        of.is_forgotten = true;
        if of.is_done {
            open.requests.remove(key);
        }
        // SAFETY: promised by the caller.
        unsafe { offer(request, 0) };
        Ok(())
    })
}

/// Sets the time after which a request ends, or with a null request those that begin later.
#[no_mangle]
pub extern "C" fn mx_set_request_timeout(endpoint: Handle, request: Handle, ms: u32) -> Return {
    call(c"mx_set_request_timeout", endpoint, || {
        let mut inside = enter(endpoint)?;
        let open = inside.open()?;
        if request == 0 {
            open.patience = ms;
            return Ok(());
        }
        let (slot, key) = request_key(request)?;
        let known = open.requests.get(key).is_some_and(|request| !request.is_forgotten);
        if slot != open.local.slot || !known {
            return Err(code::BAD_REQUEST);
        }
        open.set_end(key, ms);
        Ok(())
    })
}

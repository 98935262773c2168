//! Sends, receives, and looking for messages.

use crate::address::Addr;
use crate::code::{self, Answer, Return};
use crate::params::{check_contexts, check_mask};
use crate::sys::abi::{call, offer, place, Handle, Segment, Status};
use crate::sys::enter::{enter, Inside};
use crate::sys::memory::Memory;
use crate::sys::open::Sending;
use crate::sys::request::{Kind, Request};
use crate::sys::unexpected::{run_handler, Found};
use std::ffi::CStr;

/// Starts a send.
///
/// # Safety
/// The caller keeps the rules of `mx_isend`.
#[inline]
unsafe fn send(
    name: &CStr,
    (endpoint, list, count): (Handle, *const Segment, u32),
    sending: Sending,
    request: *mut Handle,
) -> Return {
    call(name, endpoint, || {
        if !request.is_aligned() {
            return Err(code::BAD_REQUEST);
        }
        let mut inside = enter(endpoint)?;
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::of(list, count) }?;
        let open = inside.open()?;
        // SAFETY: promised by the caller.
        let key = unsafe { open.send(memory, &sending) }?;
        // SAFETY: promised by the caller.
        unsafe { key.into_iter().for_each(|key| offer(request, open.handle_of(key))) };
        Ok(())
    })
}

/// Starts a send. Without a place for the request it is forgotten.
///
/// # Safety
/// `list` has `count` segments, whose memory is there until the request has completed; `request` is
/// null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn mx_isend(
    endpoint: Handle,
    list: *const Segment,
    count: u32,
    to: Addr,
    bits: u64,
    context: usize,
    request: *mut Handle,
) -> Return {
    let is_forgotten = request.is_null();
    let sending = Sending { to, bits, is_sync: false, is_forgotten, context };
    // SAFETY: promised by the caller.
    unsafe { send(c"mx_isend", (endpoint, list, count), sending, request) }
}

/// Starts a send that completes when a receive has matched it.
///
/// # Safety
/// The caller keeps the rules of `mx_isend`.
#[no_mangle]
pub unsafe extern "C" fn mx_issend(
    endpoint: Handle,
    list: *const Segment,
    count: u32,
    to: Addr,
    bits: u64,
    context: usize,
    request: *mut Handle,
) -> Return {
    let is_forgotten = request.is_null();
    let sending = Sending { to, bits, is_sync: true, is_forgotten, context };
    // SAFETY: promised by the caller.
    unsafe { send(c"mx_issend", (endpoint, list, count), sending, request) }
}

/// Starts a receive.
///
/// # Safety
/// `list` has `count` segments, whose memory is nobody else's until the request has completed;
/// `request` is null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn mx_irecv(
    endpoint: Handle,
    list: *const Segment,
    count: u32,
    bits: u64,
    mask: u64,
    context: usize,
    request: *mut Handle,
) -> Return {
    call(c"mx_irecv", endpoint, || {
        place(request, code::BAD_REQUEST)?;
        let mut inside = enter(endpoint)?;
        check_mask(bits, mask)?;
        check_contexts(mask, inside.open()?.contexts)?;
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::of(list, count) }?;
        let open = inside.open()?;
        let key = open.add(Request { mask, ..Request::new(Kind::Recv, bits, context, memory) })?;
        if let Err(why) = open.start_receive(key) {
            open.requests.remove(key);
            return Err(why);
        }
        // SAFETY: promised by the caller.
        unsafe { offer(request, open.handle_of(key)) };
        Ok(())
    })
}

/// Finds the oldest message without a receive that matches.
fn find(inside: &mut Inside, bits: u64, mask: u64) -> Answer<Option<Status>> {
    run_handler(inside)?;
    let open = inside.open()?;
    open.settle_expected();
    let found = open.unexpected.probe(bits, mask).or_else(|| {
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

/// Stores what was found.
///
/// # Safety
/// Both are null, misaligned or places.
unsafe fn give(found: Option<Status>, status: *mut Status, result: *mut u32) {
    // SAFETY: promised by the caller.
    unsafe {
        found.into_iter().for_each(|found| offer(status, found));
        offer(result, found.is_some().into());
    }
}

/// Looks for a message that no receive has taken.
///
/// # Safety
/// `status` and `result` are null, misaligned or places.
#[no_mangle]
pub unsafe extern "C" fn mx_iprobe(
    endpoint: Handle,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_iprobe", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        check_mask(bits, mask)?;
        let mut inside = enter(endpoint)?;
        check_contexts(mask, inside.open()?.contexts)?;
        inside.open()?.settle_expected();
        inside.progress()?;
        let found = find(&mut inside, bits, mask)?;
        // SAFETY: promised by the caller.
        unsafe { give(found, status, result) };
        Ok(())
    })
}

/// Waits for a message that no receive has taken.
///
/// # Safety
/// The caller keeps the rules of `mx_iprobe`.
#[no_mangle]
pub unsafe extern "C" fn mx_probe(
    endpoint: Handle,
    ms: u32,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> Return {
    call(c"mx_probe", endpoint, || {
        place(result, code::BAD_INFO_VAL)?;
        check_mask(bits, mask)?;
        let mut inside = enter(endpoint)?;
        check_contexts(mask, inside.open()?.contexts)?;
        inside.open()?.probers += 1;
        let found = super::complete::wait(&mut inside, ms, |i| find(i, bits, mask));
        inside.open()?.probers -= 1;
        // SAFETY: promised by the caller.
        unsafe { give(found?, status, result) };
        Ok(())
    })
}

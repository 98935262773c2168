//! Messages with tags, of any length: sends, receives, probes.

use super::receive::room;
use super::request::{Memory, WeftRequest, WeftStatus};
use super::{bytes, enter, is_object, job_of, object_of, store, Fault, Head, WEFT_OK};
use crate::job::WeftJob;
use std::ffi::{c_int, c_void};
use weft::{PeerId, SendArgs};
use weft_core::engine::types::Claimed;
use weft_core::matching::RecvSpec;

/// A message that a matched probe took: `struct weft_message`.
pub struct WeftMessage {
    head: Head,
    claimed: Claimed,
}

is_object!(WeftMessage, "message", b"weft msg");

/// Returns the messages that a receive or a probe accepts.
fn spec(job: &WeftJob, rank: c_int, tag: u32, ignore: u32) -> Result<RecvSpec, Fault> {
    let source = job.source(rank)?;
    Ok(RecvSpec { source, tag: tag.into(), ignore: ignore.into() })
}

/// Sends a message; the memory is free when this returns.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is readable.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_send(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, data) = unsafe { (job_of(job)?, bytes(data.cast(), len)?) };
        job.may_wait()?;
        job.explained(job.endpoint().send_blocking(job.peer(rank)?, tag.into(), data))?;
        Ok(WEFT_OK)
    })
}

/// Receives a message into `len` bytes of memory and stores its status, if that is not null.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is writable, `status` is null or points to memory
/// for a status.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_recv(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    ignore: u32,
    data: *mut c_void,
    len: usize,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        // SAFETY: promised by the caller.
        let request = unsafe { start_recv(job, spec(job, rank, tag, ignore)?, data, len) }?;
        request.finish(job, status)
    })
}

/// Starts a receive.
///
/// # Safety
/// `data..data + len` is writable, and nobody else uses it until the request has ended.
unsafe fn start_recv(
    job: &WeftJob,
    spec: RecvSpec,
    data: *mut c_void,
    len: usize,
) -> Result<Box<WeftRequest>, Fault> {
    // SAFETY: promised by the caller.
    unsafe { room(data.cast(), len) }?;
    let memory = Memory { at: data.cast(), len };
    let request = WeftRequest::recv(job, spec.source.is_none(), memory);
    // SAFETY: promised by the caller; the request outlives the operation.
    unsafe { request.post_recv(job, spec) }?;
    Ok(request)
}

/// Starts a send.
///
/// # Safety
/// `data..data + len` is readable and does not change until the request has ended.
unsafe fn start_send(
    job: &WeftJob,
    to: PeerId,
    (tag, sync): (u32, bool),
    data: *const c_void,
    len: usize,
) -> Result<Box<WeftRequest>, Fault> {
    // SAFETY: promised by the caller.
    unsafe { bytes(data.cast(), len) }?;
    let request = WeftRequest::send(job);
    let args = SendArgs { sync, ..SendArgs::new(to, tag.into(), len as u64) };
    // SAFETY: promised by the caller; the request outlives the operation.
    unsafe { request.post_send(job, data.cast(), args) }?;
    Ok(request)
}

/// Starts a send and stores its request. With `sync` it ends when the message has matched a
/// receive.
///
/// # Safety
/// The caller keeps the rules of [`weft_msg_isend`].
unsafe fn begin_send(
    job: *mut WeftJob,
    rank: c_int,
    (tag, sync): (u32, bool),
    (data, len): (*const c_void, usize),
    request: *mut *mut WeftRequest,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        // SAFETY: promised by the caller.
        unsafe {
            store(request, std::ptr::null_mut())?;
            let started = start_send(job, job.peer(rank)?, (tag, sync), data, len)?;
            store(request, Box::into_raw(started))?;
        }
        Ok(WEFT_OK)
    })
}

/// Starts a send and stores its request: the memory is free when the request has ended.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is readable and does not change until the request
/// has ended; `request` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_isend(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    data: *const c_void,
    len: usize,
    request: *mut *mut WeftRequest,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin_send(job, rank, (tag, false), (data, len), request) }
}

/// Starts a send and stores its request, which ends only when the message has matched a receive.
///
/// # Safety
/// The caller keeps the rules of `weft_msg_isend`.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_issend(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    data: *const c_void,
    len: usize,
    request: *mut *mut WeftRequest,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin_send(job, rank, (tag, true), (data, len), request) }
}

/// Starts a receive and stores its request.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is writable and nobody else uses it until the
/// request has ended; `request` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_irecv(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    ignore: u32,
    data: *mut c_void,
    len: usize,
    request: *mut *mut WeftRequest,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        // SAFETY: promised by the caller.
        unsafe {
            store(request, std::ptr::null_mut())?;
            let started = start_recv(job, spec(job, rank, tag, ignore)?, data, len)?;
            store(request, Box::into_raw(started))?;
        }
        Ok(WEFT_OK)
    })
}

/// Probes for a message without receiving it: returns 1 and stores its status, or returns 0 after a
/// round of progress.
///
/// # Safety
/// `job` is a living handle, `status` is null or points to memory for a status.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_probe(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    ignore: u32,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        let RecvSpec { source, tag, ignore } = spec(job, rank, tag, ignore)?;
        let look = || job.endpoint().probe(source, tag, ignore);
        let found = look().or_else(|| {
            job.packets.poll();
            look()
        });
        let Some(found) = found else { return job.not_failed(source).map(|()| 0) };
        let said = WeftStatus::of(job, found.source, found.tag, found.len as usize);
        // SAFETY: promised by the caller.
        unsafe { said.store(status) }?;
        Ok(1)
    })
}

/// Probes for a message as `weft_msg_probe` does, and claims the message that it found: only
/// `weft_msg_take` or `weft_msg_itake` receives it.
///
/// # Safety
/// The caller keeps the rules of `weft_msg_probe`; `message` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_claim(
    job: *mut WeftJob,
    rank: c_int,
    tag: u32,
    ignore: u32,
    message: *mut *mut WeftMessage,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        // SAFETY: promised by the caller.
        unsafe { store(message, std::ptr::null_mut()) }?;
        let RecvSpec { source, tag, ignore } = spec(job, rank, tag, ignore)?;
        let look = || job.endpoint().posted().claim(source, tag, ignore);
        let found = look().or_else(|| {
            job.packets.poll();
            look()
        });
        let Some((claimed, found)) = found else { return job.not_failed(source).map(|()| 0) };
        let said = WeftStatus::of(job, found.source, found.tag, found.len as usize);
        let taken = WeftMessage { head: Head::new::<WeftMessage>(job), claimed };
        // SAFETY: promised by the caller.
        unsafe {
            said.store(status)?;
            store(message, Box::into_raw(Box::new(taken)))?;
        }
        Ok(1)
    })
}

/// Starts to receive a claimed message, and ends its handle.
///
/// # Safety
/// `message` is a living handle of a living job; the memory as of `weft_msg_irecv`.
unsafe fn take<'a>(
    message: *mut WeftMessage,
    data: *mut c_void,
    len: usize,
) -> Result<(&'a WeftJob, Box<WeftRequest>), Fault> {
    // SAFETY: promised by the caller.
    let (of, job) = unsafe { object_of(message.cast_const()) }?;
    // SAFETY: promised by the caller.
    unsafe { room(data.cast(), len) }?;
    let request = WeftRequest::recv(job, false, Memory { at: data.cast(), len });
    // SAFETY: promised by the caller; the request outlives the operation.
    unsafe { request.post_claimed(job, of.claimed) }?;
    drop(of);
    // SAFETY: made by `Box::into_raw`, and checked to be alive.
    drop(unsafe { Box::from_raw(message) });
    Ok((job, request))
}

/// Receives a claimed message, and ends its handle.
///
/// # Safety
/// `message` is a living handle, `data..data + len` is writable, `status` is null or points to
/// memory for a status.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_take(
    message: *mut WeftMessage,
    data: *mut c_void,
    len: usize,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        unsafe { object_of(message.cast_const()) }?.1.may_wait()?;
        // SAFETY: promised by the caller.
        let (job, request) = unsafe { take(message, data, len) }?;
        request.finish(job, status)
    })
}

/// Starts to receive a claimed message, and ends its handle.
///
/// # Safety
/// `message` is a living handle; memory and `request` as of `weft_msg_irecv`.
#[no_mangle]
pub unsafe extern "C" fn weft_msg_itake(
    message: *mut WeftMessage,
    data: *mut c_void,
    len: usize,
    request: *mut *mut WeftRequest,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        unsafe {
            store(request, std::ptr::null_mut())?;
            let (_, started) = take(message, data, len)?;
            store(request, Box::into_raw(started))?;
        }
        Ok(WEFT_OK)
    })
}

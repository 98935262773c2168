//! Descriptors: posting, and their ends.

use crate::code::{Answer, Code};
use crate::handle::Kind;
use crate::state::{Direction, Notify};
use crate::sys::abi::{call, number, store, Handle, WorkHandler};
use crate::sys::lock::enter;
use std::ffi::{c_ulong, c_void};

/// Posts a descriptor to the send queue.
#[no_mangle]
pub extern "C" fn VipPostSend(vi: Handle, descriptor: *mut c_void, memory: u32) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        inside.open()?.with(|state, port| state.post_send(port, key, number(descriptor), memory))
    })
}

/// Posts a descriptor to the receive queue.
#[no_mangle]
pub extern "C" fn VipPostRecv(vi: Handle, descriptor: *mut c_void, memory: u32) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        inside.open()?.with(|state, _| state.post_recv(key, number(descriptor), memory))
    })
}

/// Stores the first descriptor of a queue and returns its code, where it is complete.
///
/// # Safety
/// `out` is a place for a pointer.
unsafe fn give(out: *mut *mut c_void, (at, failed): (u64, bool)) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { store(out, std::ptr::with_exposed_provenance_mut(at as usize)) }?;
    match failed {
        true => Err(Code::DescriptorError),
        false => Ok(()),
    }
}

/// Takes the first descriptor of a queue, if it is complete.
///
/// # Safety
/// `out` is null, misaligned or a place for a pointer.
unsafe fn done(vi: Handle, direction: Direction, out: *mut *mut c_void) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { store(out, std::ptr::null_mut()) }?;
    let (mut inside, key) = enter(Kind::Vi, number(vi))?;
    let mut taken = inside.open()?.state().take_done(key, direction)?;
    if taken.is_none() {
        inside.progress()?;
        taken = inside.open()?.state().take_done(key, direction)?;
    }
    // SAFETY: promised by the caller.
    unsafe { give(out, taken.ok_or(Code::NotDone)?) }
}

/// Waits until the first descriptor of a queue is complete, and takes it.
///
/// # Safety
/// The caller keeps the rules of [`done`].
unsafe fn wait(vi: Handle, direction: Direction, time: c_ulong, out: *mut *mut c_void) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { store(out, std::ptr::null_mut()) }?;
    let (mut inside, key) = enter(Kind::Vi, number(vi))?;
    let mut taken = inside.open()?.state().take_waited(key, direction)?;
    if taken.is_none() && direction == Direction::Recv {
        taken = inside.in_place(|open| open.await_message(key))?.flatten();
    }
    if taken.is_none() {
        let time = crate::sys::abi::time(time);
        taken = Some(inside.wait(time, |i| i.open()?.state().take_done(key, direction))?);
    }
    // SAFETY: promised by the caller.
    unsafe { give(out, taken.ok_or(Code::NotDone)?) }
}

/// Lets a handler wait for the next complete descriptor.
fn notify(
    vi: Handle,
    direction: Direction,
    context: *mut c_void,
    handler: Option<WorkHandler>,
) -> Answer {
    let handler = handler.ok_or(Code::InvalidParameter)?;
    let handler = (handler as *const ()).expose_provenance();
    let (mut inside, key) = enter(Kind::Vi, number(vi))?;
    let notify = Notify { handler, context: context.expose_provenance() };
    inside.open()?.state().notify(key, direction, notify)?;
    // The thread that calls it is there for the next message, too.
    inside.call_thread();
    Ok(())
}

/// Takes the first descriptor of the send queue, if it is complete.
///
/// # Safety
/// `descriptor` is null, misaligned or a place for a pointer.
#[no_mangle]
pub unsafe extern "C" fn VipSendDone(vi: Handle, descriptor: *mut *mut c_void) -> Code {
    // SAFETY: promised by the caller.
    call(|| unsafe { done(vi, Direction::Send, descriptor) })
}

/// Takes the first descriptor of the receive queue, if it is complete.
///
/// # Safety
/// The caller keeps the rules of `VipSendDone`.
#[no_mangle]
pub unsafe extern "C" fn VipRecvDone(vi: Handle, descriptor: *mut *mut c_void) -> Code {
    // SAFETY: promised by the caller.
    call(|| unsafe { done(vi, Direction::Recv, descriptor) })
}

/// Waits until the first descriptor of the send queue is complete, and takes it.
///
/// # Safety
/// The caller keeps the rules of `VipSendDone`.
#[no_mangle]
pub unsafe extern "C" fn VipSendWait(
    vi: Handle,
    time: c_ulong,
    descriptor: *mut *mut c_void,
) -> Code {
    // SAFETY: promised by the caller.
    call(|| unsafe { wait(vi, Direction::Send, time, descriptor) })
}

/// Waits until the first descriptor of the receive queue is complete, and takes it.
///
/// # Safety
/// The caller keeps the rules of `VipSendDone`.
#[no_mangle]
pub unsafe extern "C" fn VipRecvWait(
    vi: Handle,
    time: c_ulong,
    descriptor: *mut *mut c_void,
) -> Code {
    // SAFETY: promised by the caller.
    call(|| unsafe { wait(vi, Direction::Recv, time, descriptor) })
}

/// Lets a handler wait for the next complete descriptor of the send queue.
#[no_mangle]
pub extern "C" fn VipSendNotify(
    vi: Handle,
    context: *mut c_void,
    handler: Option<WorkHandler>,
) -> Code {
    call(|| notify(vi, Direction::Send, context, handler))
}

/// Lets a handler wait for the next complete descriptor of the receive queue.
#[no_mangle]
pub extern "C" fn VipRecvNotify(
    vi: Handle,
    context: *mut c_void,
    handler: Option<WorkHandler>,
) -> Code {
    call(|| notify(vi, Direction::Recv, context, handler))
}

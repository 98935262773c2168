//! Completion queues.

use crate::code::{Answer, Code};
use crate::handle::Kind;
use crate::state::{Direction, Notify};
use crate::sys::abi::{call, handle, number, place, store, Boolean, Handle, QueueHandler};
use crate::sys::lock::{enter, Inside};
use crate::table::Key;
use std::ffi::{c_ulong, c_void};

/// Makes a completion queue.
///
/// # Safety
/// `queue` is null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn VipCreateCQ(nic: Handle, entries: c_ulong, queue: *mut Handle) -> Code {
    call(|| {
        place(queue)?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let mut state = inside.open()?.state();
        let key = state.create_queue(entries)?;
        // SAFETY: promised by the caller.
        unsafe { store(queue, handle(state.handle_of(Kind::Cq, key))) }
    })
}

/// Ends a completion queue that no virtual interface uses.
#[no_mangle]
pub extern "C" fn VipDestroyCQ(queue: Handle) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Cq, number(queue))?;
        inside.open()?.with(|state, _| state.destroy_queue(key))
    })
}

/// Changes the number of entries of a completion queue.
#[no_mangle]
pub extern "C" fn VipResizeCQ(queue: Handle, entries: c_ulong) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Cq, number(queue))?;
        inside.open()?.with(|state, _| state.resize_queue(key, entries))
    })
}

/// Stores an entry.
///
/// # Safety
/// Both are places for their values.
unsafe fn give(
    inside: &mut Inside,
    (key, direction): (Key, Direction),
    vi: *mut Handle,
    received: *mut Boolean,
) -> Answer {
    let of = inside.open()?.state().handle_of(Kind::Vi, key);
    // SAFETY: promised by the caller.
    unsafe {
        store(vi, handle(of))?;
        store(received, (direction == Direction::Recv).into())
    }
}

/// Takes the first entry of a completion queue.
///
/// # Safety
/// Both are null, misaligned or places for their values.
#[no_mangle]
pub unsafe extern "C" fn VipCQDone(queue: Handle, vi: *mut Handle, received: *mut Boolean) -> Code {
    call(|| {
        place(vi)?;
        place(received)?;
        let (mut inside, key) = enter(Kind::Cq, number(queue))?;
        let mut entry = inside.open()?.state().take_entry(key)?;
        if entry.is_none() {
            inside.progress()?;
            entry = inside.open()?.state().take_entry(key)?;
        }
        // SAFETY: promised by the caller.
        unsafe { give(&mut inside, entry.ok_or(Code::NotDone)?, vi, received) }
    })
}

/// Waits for an entry of a completion queue, and takes it.
///
/// # Safety
/// The caller keeps the rules of `VipCQDone`.
#[no_mangle]
pub unsafe extern "C" fn VipCQWait(
    queue: Handle,
    time: c_ulong,
    vi: *mut Handle,
    received: *mut Boolean,
) -> Code {
    call(|| {
        place(vi)?;
        place(received)?;
        let (mut inside, key) = enter(Kind::Cq, number(queue))?;
        let entry =
            inside.wait(crate::sys::abi::time(time), |i| i.open()?.state().take_entry(key))?;
        // SAFETY: promised by the caller.
        unsafe { give(&mut inside, entry, vi, received) }
    })
}

/// Lets a handler wait for the next entry of a completion queue.
#[no_mangle]
pub extern "C" fn VipCQNotify(
    queue: Handle,
    context: *mut c_void,
    handler: Option<QueueHandler>,
) -> Code {
    call(|| {
        let handler = handler.ok_or(Code::InvalidParameter)?;
        let handler = (handler as *const ()).expose_provenance();
        let (mut inside, key) = enter(Kind::Cq, number(queue))?;
        let notify = Notify { handler, context: context.expose_provenance() };
        inside.open()?.state().notify_queue(key, notify)?;
        inside.call_thread();
        Ok(())
    })
}

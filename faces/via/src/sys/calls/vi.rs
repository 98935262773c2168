//! Virtual interfaces, and protection tags.

use crate::code::{level, Answer, Code, Phase};
use crate::handle::{unpack, Kind};
use crate::state::{check_level, State, ViAttributes, TRANSFER_MAX};
use crate::sys::abi::{self, call, given, handle, number, offer, place, store, Boolean, Handle};
use crate::sys::lock::enter;
use crate::table::Key;

/// Checks attributes that a program gives.
///
/// # Errors
/// The code of the one that is wrong.
fn check(state: &State, of: &abi::ViAttributes) -> Answer<ViAttributes> {
    let level = check_level(of.level)?;
    if !(1..=TRANSFER_MAX).contains(&of.max) {
        return Err(Code::InvalidMtu);
    }
    if !of.qos.is_null() {
        return Err(Code::InvalidQos);
    }
    let tag = state.tag(number(of.tag))?;
    let (write, read) = (of.write != 0, of.read != 0);
    if read && level == level::UNRELIABLE {
        return Err(Code::InvalidRdmaRead);
    }
    Ok(ViAttributes { level, max: of.max, tag, write, read })
}

/// Returns the key in the handle of a completion queue of the same network interface; null is
/// none.
fn queue(nic: Handle, queue: Handle) -> Answer<Option<Key>> {
    if queue.is_null() {
        return Ok(None);
    }
    let (of, key) = unpack(Kind::Cq, number(queue)).ok_or(Code::InvalidParameter)?;
    let same = unpack(Kind::Nic, number(nic)).is_some_and(|(nic, _)| nic == of);
    same.then_some(Some(key)).ok_or(Code::InvalidParameter)
}

/// Makes a virtual interface.
///
/// # Safety
/// `attributes` is null, misaligned or names them; `vi` is null, misaligned or a place for a
/// handle.
#[no_mangle]
pub unsafe extern "C" fn VipCreateVi(
    nic: Handle,
    attributes: *const abi::ViAttributes,
    send_queue: Handle,
    recv_queue: Handle,
    vi: *mut Handle,
) -> Code {
    call(|| {
        place(vi)?;
        // SAFETY: promised by the caller.
        let given = unsafe { given(attributes) }?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let queues = [queue(nic, send_queue)?, queue(nic, recv_queue)?];
        let mut state = inside.open()?.state();
        let attributes = check(&state, given)?;
        let key = state.create_vi(attributes, queues)?;
        // SAFETY: promised by the caller.
        unsafe { store(vi, handle(state.handle_of(Kind::Vi, key))) }
    })
}

/// Ends a virtual interface that is not connected and whose queues are empty.
#[no_mangle]
pub extern "C" fn VipDestroyVi(vi: Handle) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let open = inside.open()?;
        open.state().destroy_vi(key)?;
        open.go_for(key);
        Ok(())
    })
}

/// Changes the attributes of an idle virtual interface.
///
/// # Safety
/// `attributes` is null, misaligned or names them.
#[no_mangle]
pub unsafe extern "C" fn VipSetViAttributes(
    vi: Handle,
    attributes: *const abi::ViAttributes,
) -> Code {
    call(|| {
        // SAFETY: promised by the caller.
        let given = unsafe { given(attributes) }?;
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let mut state = inside.open()?.state();
        let phase = state.vis.get(key).ok_or(Code::InvalidParameter)?.phase;
        if phase != Phase::Idle {
            return Err(Code::InvalidState);
        }
        let attributes = check(&state, given)?;
        state.vis.get_mut(key).into_iter().for_each(|vi| vi.attributes = attributes);
        Ok(())
    })
}

/// Returns attributes as a program gets them.
fn given_back(state: &State, of: &ViAttributes) -> abi::ViAttributes {
    abi::ViAttributes {
        level: of.level,
        max: of.max,
        qos: std::ptr::null_mut(),
        tag: handle(of.tag.map_or(0, |tag| state.handle_of(Kind::Tag, tag))),
        write: of.write.into(),
        read: of.read.into(),
    }
}

/// Stores state and attributes of a virtual interface, and true for each empty queue; a pointer
/// that is null is not wanted.
///
/// # Safety
/// Each pointer is null, misaligned or a place for its value.
#[no_mangle]
pub unsafe extern "C" fn VipQueryVi(
    vi: Handle,
    phase: *mut Phase,
    attributes: *mut abi::ViAttributes,
    send_empty: *mut Boolean,
    recv_empty: *mut Boolean,
) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        // The state may have changed by a message that waits.
        inside.progress()?;
        let state = inside.open()?.state();
        let of = state.vis.get(key).ok_or(Code::InvalidParameter)?;
        // SAFETY: promised by the caller.
        unsafe {
            offer(phase, of.phase)?;
            offer(attributes, given_back(&state, &of.attributes))?;
            offer(send_empty, of.send.is_empty().into())?;
            offer(recv_empty, of.recv.is_empty().into())
        }
    })
}

/// Makes a protection tag.
///
/// # Safety
/// `tag` is null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn VipCreatePtag(nic: Handle, tag: *mut Handle) -> Code {
    call(|| {
        place(tag)?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let mut state = inside.open()?.state();
        let key = state.create_tag()?;
        // SAFETY: promised by the caller.
        unsafe { store(tag, handle(state.handle_of(Kind::Tag, key))) }
    })
}

/// Ends a protection tag that is not in use.
#[no_mangle]
pub extern "C" fn VipDestroyPtag(nic: Handle, tag: Handle) -> Code {
    call(|| {
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let (of, key) = unpack(Kind::Tag, number(tag)).ok_or(Code::InvalidParameter)?;
        let same = unpack(Kind::Nic, number(nic)).is_some_and(|(nic, _)| nic == of);
        if !same {
            return Err(Code::InvalidParameter);
        }
        inside.open()?.with(|state, _| state.destroy_tag(key))
    })
}

//! Registered memory.

use crate::code::{Answer, Code};
use crate::handle::Kind;
use crate::state::State;
use crate::sys::abi::{call, given, handle, number, place, store, Handle, MemAttributes};
use crate::sys::lock::enter;
use crate::sys::region::Attributes;
use std::ffi::{c_ulong, c_void};
use weft::memory::is_mapped;

fn check(state: &State, of: &MemAttributes) -> Answer<Attributes> {
    let tag = state.tag(number(of.tag))?;
    Ok(Attributes { tag, write: of.write != 0, read: of.read != 0 })
}

/// Registers memory.
///
/// # Safety
/// `attributes` is null, misaligned or names them, and `memory` is null, misaligned or a place for
/// a handle. Until `VipDeregisterMem`, or the interface is closed, `start..start + len` is memory
/// of the process, and writable where anything is received or written to it.
#[no_mangle]
pub unsafe extern "C" fn VipRegisterMem(
    nic: Handle,
    start: *mut c_void,
    len: c_ulong,
    attributes: *const MemAttributes,
    memory: *mut u32,
) -> Code {
    call(|| {
        place(memory)?;
        // SAFETY: promised by the caller.
        let given = unsafe { given(attributes) }?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let (start, len) = (start.cast::<u8>(), len as usize);
        if start.is_null() || len == 0 || !is_mapped(start.cast(), len) {
            return Err(Code::InvalidParameter);
        }
        let open = inside.open()?;
        let mut state = open.state();
        let attributes = check(&state, given)?;
        let secret = state.secret(attributes.tag);
        // SAFETY: promised by the caller.
        let added = unsafe { state.regions.add(start, len, attributes) };
        let added = added.ok_or(Code::ErrorResource)?;
        if !state.regions.set(&open.port, added, attributes, secret) {
            state.regions.remove(&open.port, added);
            return Err(Code::ErrorResource);
        }
        // SAFETY: promised by the caller.
        unsafe { store(memory, added) }
    })
}

/// Ends the registration of memory.
#[no_mangle]
pub extern "C" fn VipDeregisterMem(nic: Handle, start: *mut c_void, memory: u32) -> Code {
    call(|| {
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        inside.open()?.with(|state, port| state.deregister(port, number(start), memory))
    })
}

/// Changes the attributes of registered memory.
///
/// # Safety
/// `attributes` is null, misaligned or names them.
#[no_mangle]
pub unsafe extern "C" fn VipSetMemAttributes(
    nic: Handle,
    start: *mut c_void,
    memory: u32,
    attributes: *const MemAttributes,
) -> Code {
    call(|| {
        // SAFETY: promised by the caller.
        let given = unsafe { given(attributes) }?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let open = inside.open()?;
        let mut state = open.state();
        let attributes = check(&state, given)?;
        state.set_memory(&open.port, (number(start), memory), attributes)
    })
}

/// Stores the attributes of registered memory.
///
/// # Safety
/// `attributes` is null, misaligned or a place for them.
#[no_mangle]
pub unsafe extern "C" fn VipQueryMem(
    nic: Handle,
    start: *mut c_void,
    memory: u32,
    attributes: *mut MemAttributes,
) -> Code {
    call(|| {
        place(attributes)?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let state = inside.open()?.state();
        let region = state.regions.get(memory).filter(|region| region.start() == number(start));
        let of = region.ok_or(Code::InvalidParameter)?.attributes;
        let tag = handle(of.tag.map_or(0, |tag| state.handle_of(Kind::Tag, tag)));
        let of = MemAttributes { tag, write: of.write.into(), read: of.read.into() };
        // SAFETY: promised by the caller.
        unsafe { store(attributes, of) }
    })
}

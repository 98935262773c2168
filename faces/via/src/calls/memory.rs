//! Registered memory.

use super::enter_nic;
use crate::code::{Answer, Code};
use crate::handle::{Handle, Kind};
use crate::raw::MemAttributes;
use crate::region::{Attributes, Memory};
use crate::state::State;
use weft_ffi::given::Place;

/// Checks attributes that a program gives.
fn check(state: &State, of: &MemAttributes) -> Answer<Attributes> {
    let tag = state.tags.find(of.tag)?;
    Ok(Attributes { tag, write: of.write != 0, read: of.read != 0 })
}

/// Registers memory.
pub fn register(
    nic: Handle,
    bytes: Memory,
    attributes: Place<'_, MemAttributes>,
    memory: Place<'_, u32>,
) -> Answer {
    memory.or(Code::InvalidParameter)?;
    let given = attributes.read().ok_or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    if !bytes.is_there() {
        return Err(Code::InvalidParameter);
    }
    let open = inside.open()?;
    let mut state = open.state();
    let attributes = check(&state, &given)?;
    let secret = state.tags.secret(attributes.tag);
    let added = state.regions.add(bytes, attributes).ok_or(Code::ErrorResource)?;
    if !state.regions.set(&open.port, added, attributes, secret) {
        state.regions.remove(&open.port, added);
        return Err(Code::ErrorResource);
    }
    memory.store(added);
    Ok(())
}

/// Ends the registration of memory.
pub fn deregister(nic: Handle, start: usize, memory: u32) -> Answer {
    let mut inside = enter_nic(nic)?;
    inside.open()?.with(|state, port| state.deregister(port, start as u64, memory))
}

/// Changes the attributes of registered memory.
pub fn set(nic: Handle, start: usize, memory: u32, attributes: Place<'_, MemAttributes>) -> Answer {
    let given = attributes.read().ok_or(Code::InvalidParameter)?;
    enter_nic(nic)?.open()?.with(|state, port| {
        let attributes = check(state, &given)?;
        state.set_memory(port, (start as u64, memory), attributes)
    })
}

/// Stores the attributes of registered memory.
pub fn query(
    nic: Handle,
    start: usize,
    memory: u32,
    attributes: Place<'_, MemAttributes>,
) -> Answer {
    attributes.or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let state = inside.open()?.state();
    let region = state.regions.get(memory).filter(|region| region.start() == start as u64);
    let of = region.ok_or(Code::InvalidParameter)?.attributes;
    let tag = of.tag.map_or(0, |tag| state.handle_of(Kind::Tag, tag));
    attributes.store(MemAttributes { tag, write: of.write.into(), read: of.read.into() });
    Ok(())
}

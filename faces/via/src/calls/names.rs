//! The name service, and the search for hosts.

use super::{enter_nic, read};
use crate::code::{Answer, Code};
use crate::handle::Handle;
use crate::raw::{AutodiscoveryList, RawAddress};
use std::ffi::c_ulong;
use std::net::Ipv4Addr;
use std::path::Path;
use weft_ffi::given::{store_text, List, Place, Text};
use weft_ffi::hosts::Service;

/// `VIP_SMI_AUTODISCOVERY`.
const AUTODISCOVERY: c_ulong = 1;

/// Opens the name service: `info` is null, or the path of a file in the form of hosts(5).
pub fn init(nic: Handle, info: Text<'_>) -> Answer {
    let file = match info.is_null() {
        true => None,
        false => Some(Path::new(read(info)?)),
    };
    let mut inside = enter_nic(nic)?;
    let service = Service::open(file).ok_or(Code::ErrorNameService)?;
    inside.open()?.state().names = Some(service);
    Ok(())
}

/// Returns the open service, and the address of the network interface; gives the lock back, since
/// the system's resolver may take long.
fn service(nic: Handle) -> Answer<(Service, Ipv4Addr)> {
    let mut inside = enter_nic(nic)?;
    let state = inside.open()?.state();
    let names = state.names.clone().ok_or(Code::ErrorNameService)?;
    Ok((names, state.host))
}

/// Stores an address of a host, without a discriminator.
pub fn by_name(nic: Handle, name: Text<'_>, out: RawAddress<'_>, index: c_ulong) -> Answer {
    if out.is_null() {
        return Err(Code::InvalidParameter);
    }
    let name = read(name)?;
    let (names, own) = service(nic)?;
    let all = names.addresses(name, own);
    out.offer(*all.get(index as usize).ok_or(Code::ErrorNameService)?, &[]);
    Ok(())
}

/// Stores the name of a host, with its final 0, and its length without that.
pub fn by_address(
    nic: Handle,
    at: RawAddress<'_>,
    name: List<'_, u8>,
    len: Place<'_, c_ulong>,
) -> Answer {
    len.or(Code::InvalidParameter)?;
    let (names, own) = service(nic)?;
    let found = names.name(at.read(own)?.host).ok_or(Code::ErrorNameService)?;
    len.store(found.len() as c_ulong);
    if !name.is_there() || name.count() <= found.len() {
        return Err(Code::ErrorResource);
    }
    store_text(&found, name);
    Ok(())
}

/// Closes the name service.
pub fn shut_down(nic: Handle) -> Answer {
    let mut inside = enter_nic(nic)?;
    let was = inside.open()?.state().names.take();
    was.map(drop).ok_or(Code::ErrorNameService)
}

/// Searches for hosts: those that the program's file of names has, and this one.
pub fn search(nic: Handle, kind: c_ulong, info: Place<'_, AutodiscoveryList<'_>>) -> Answer {
    if kind != AUTODISCOVERY {
        enter_nic(nic)?;
        return Err(Code::NotSupported);
    }
    info.or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let state = inside.open()?.state();
    let others = state.names.iter().flat_map(Service::hosts).filter(|of| *of != state.host);
    let all: Vec<Ipv4Addr> = std::iter::once(state.host).chain(others).collect();
    AutodiscoveryList::answer(info, &all)
}

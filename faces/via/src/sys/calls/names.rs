//! The name service, and the search for hosts.

use crate::code::{Answer, Code};
use crate::handle::Kind;
use crate::sys::abi::{address, call, given, number, offer_address, place, store, text};
use crate::sys::abi::{AutodiscoveryList, Handle, RawAddress};
use crate::sys::lock::enter;
use std::ffi::{c_char, c_ulong, c_void};
use std::net::Ipv4Addr;
use std::path::Path;
use weft_ffi::hosts::Service;

/// `VIP_SMI_AUTODISCOVERY`.
const AUTODISCOVERY: c_ulong = 1;

/// Opens the name service: `info` is null, or the path of a file in the form of hosts(5).
///
/// # Safety
/// `info` is null or a text.
#[no_mangle]
pub unsafe extern "C" fn VipNSInit(nic: Handle, info: *const c_void) -> Code {
    call(|| {
        let file = match info.is_null() {
            true => None,
            // SAFETY: promised by the caller.
            false => Some(Path::new(unsafe { text(info.cast()) }?)),
        };
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let service = Service::open(file).ok_or(Code::ErrorNameService)?;
        inside.open()?.state().names = Some(service);
        Ok(())
    })
}

/// Returns the open service, and the address of the network interface; gives the lock back, since
/// the system's resolver may take long.
fn service(nic: Handle) -> Answer<(Service, Ipv4Addr)> {
    let (mut inside, _) = enter(Kind::Nic, number(nic))?;
    let state = inside.open()?.state();
    let names = state.names.clone().ok_or(Code::ErrorNameService)?;
    Ok((names, state.host))
}

/// Stores an address of a host, without a discriminator.
///
/// # Safety
/// `name` is null or a text; `out` is null or has room for an address.
#[no_mangle]
pub unsafe extern "C" fn VipNSGetHostByName(
    nic: Handle,
    name: *const c_char,
    out: *mut RawAddress,
    index: c_ulong,
) -> Code {
    call(|| {
        if out.is_null() {
            return Err(Code::InvalidParameter);
        }
        // SAFETY: promised by the caller.
        let name = unsafe { text(name) }?;
        let (names, own) = service(nic)?;
        let all = names.addresses(name, own);
        let host = all.get(index as usize).ok_or(Code::ErrorNameService)?;
        // SAFETY: promised by the caller.
        unsafe { offer_address(out, *host, &[]) };
        Ok(())
    })
}

/// Stores the name of a host, with its final 0, and its length without that.
///
/// # Safety
/// `at` is null or an address; `len` is null, misaligned or the length of the room at `name`.
#[no_mangle]
pub unsafe extern "C" fn VipNSGetHostByAddr(
    nic: Handle,
    at: *const RawAddress,
    name: *mut c_char,
    len: *mut c_ulong,
) -> Code {
    call(|| {
        // SAFETY: promised by the caller.
        let room = *unsafe { given(len) }? as usize;
        let (names, own) = service(nic)?;
        // SAFETY: promised by the caller.
        let at = unsafe { address(at, own) }?;
        let found = names.name(at.host).ok_or(Code::ErrorNameService)?;
        // SAFETY: promised by the caller.
        unsafe { store(len, found.len() as c_ulong) }?;
        if name.is_null() || room <= found.len() {
            return Err(Code::ErrorResource);
        }
        // SAFETY: as many bytes have room.
        unsafe {
            std::ptr::copy_nonoverlapping(found.as_ptr().cast(), name, found.len());
            name.add(found.len()).write(0);
        }
        Ok(())
    })
}

/// Closes the name service.
#[no_mangle]
pub extern "C" fn VipNSShutdown(nic: Handle) -> Code {
    call(|| {
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let open = inside.open()?;
        let was = open.state().names.take();
        was.map(drop).ok_or(Code::ErrorNameService)
    })
}

/// Searches for hosts: those that the program's file of names has, and this one.
///
/// # Safety
/// `info` is null, misaligned or a list, whose places are as many as it says, each null or with
/// room for an address.
#[no_mangle]
pub unsafe extern "C" fn VipQuerySystemManagementInfo(
    nic: Handle,
    kind: c_ulong,
    info: *mut c_void,
) -> Code {
    call(|| {
        if kind != AUTODISCOVERY {
            enter(Kind::Nic, number(nic))?;
            return Err(Code::NotSupported);
        }
        let list = place(info.cast::<AutodiscoveryList>())?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let state = inside.open()?.state();
        let others = state.names.iter().flat_map(Service::hosts).filter(|of| *of != state.host);
        let all: Vec<Ipv4Addr> = std::iter::once(state.host).chain(others).collect();
        // SAFETY: promised by the caller.
        unsafe {
            let places = if (*list).addresses.is_null() { 0 } else { (*list).count as usize };
            for (i, host) in all.iter().enumerate().take(places) {
                offer_address(*(*list).addresses.add(i), *host, &[]);
            }
            (*list).count = if places == 0 { all.len() } else { all.len().min(places) } as c_ulong;
        }
        Ok(())
    })
}

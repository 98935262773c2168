//! `struct fi_info`: reading the caller's structure, building the provider's.

use crate::abi::*;
use crate::info::{self, Parts};
use crate::name;
use crate::offer::{Hints, Offer, NAMES};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// # Safety
/// `s` is null or a string.
unsafe fn text(s: *const c_char) -> Option<String> {
    // SAFETY: promised by the caller.
    (!s.is_null()).then(|| unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned())
}

/// Reads a caller's hints; `None` if there are none.
///
/// # Safety
/// `info` is null or points to a whole structure of the caller's.
pub unsafe fn read(info: *const Info) -> Option<Hints> {
    // SAFETY: promised by the caller, here and for the structures it points to.
    let parts = unsafe {
        let info = info.as_ref()?;
        let (fabric, domain) = (info.fabric_attr.as_ref(), info.domain_attr.as_ref());
        Parts {
            info,
            ep: info.ep_attr.as_ref(),
            tx: info.tx_attr.as_ref(),
            rx: info.rx_attr.as_ref(),
            domain,
            names: [
                fabric.and_then(|fabric| text(fabric.prov_name)),
                fabric.and_then(|fabric| text(fabric.name)),
                domain.and_then(|domain| text(domain.name)),
            ],
        }
    };
    Some(info::hints(parts))
}

/// Allocates zeroed memory, which `free` releases.
fn zeroed(size: usize) -> Result<*mut u8, c_int> {
    // SAFETY: allocates; checked for null.
    let memory = unsafe { libc::calloc(1, size) };
    if memory.is_null() {
        return Err(err::ENOMEM);
    }
    Ok(memory.cast())
}

/// Copies a value to memory that `free` releases, in place of zeroes of `size` bytes or more.
fn copied<T>(value: T, size: usize) -> Result<*mut T, c_int> {
    let memory = zeroed(size.max(size_of::<T>()))?.cast::<T>();
    // SAFETY: there is room for the value, and memory from the system is aligned for all types.
    unsafe { memory.write(value) };
    Ok(memory)
}

fn copy_of(text: &str) -> Result<*mut c_char, c_int> {
    let memory = zeroed(text.len() + 1)?;
    // SAFETY: there is room for the text and the zero behind it.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), memory, text.len()) };
    Ok(memory.cast())
}

/// Builds the structure for an offer. libfabric frees it, and everything it points to.
pub fn build(offer: &Offer, api_version: u32) -> Result<*mut Info, c_int> {
    let fabric = FabricAttr {
        fabric: std::ptr::null_mut(),
        name: copy_of(NAMES[1])?,
        // libfabric's core fills it in.
        prov_name: std::ptr::null_mut(),
        prov_version: version(0, 1),
        api_version,
    };
    let none = std::ptr::null_mut();
    let info = Info {
        next: std::ptr::null_mut(),
        caps: offer.caps,
        mode: 0,
        addr_format: ADDR_WEFT,
        src_addrlen: name::LEN,
        dest_addrlen: 0,
        src_addr: zeroed(name::LEN)?.cast(),
        dest_addr: none,
        handle: std::ptr::null_mut(),
        tx_attr: copied(info::tx(offer), 0)?,
        rx_attr: copied(info::rx(offer), 0)?,
        ep_attr: copied(info::ep(), 0)?,
        domain_attr: copied(info::domain(offer, copy_of(NAMES[2])?), DOMAIN_ATTR_SIZE)?,
        fabric_attr: copied(fabric, 0)?,
        nic: none,
    };
    copied(info, 0)
}

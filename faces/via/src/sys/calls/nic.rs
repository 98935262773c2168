//! Network interfaces: opening, closing, attributes, errors.

use crate::address::{DISCRIMINATOR_MAX, HOST_LEN};
use crate::code::{level, Answer, Code};
use crate::descriptor::SEGMENTS_MAX;
use crate::handle::Kind;
use crate::names;
use crate::state::{DESCRIPTORS_MAX, ENTRIES_MAX, QUEUES_MAX, TAGS_MAX, TRANSFER_MAX, VIS_MAX};
use crate::sys::abi::{call, handle, number, place, store, text, NicAttributes};
use crate::sys::abi::{ErrorHandler, Handle};
use crate::sys::lock::{self, enter, OnError, Parts};
use crate::sys::region::REGIONS_MAX;
use std::ffi::{c_char, c_ulong, c_void};
use weft_ffi::endpoint;

/// Version of the interface, in the upper byte its major number.
const VERSION: c_ulong = 0x100;

fn parts(name: &str) -> Answer<Parts> {
    endpoint::start_log();
    let device = names::device(name).ok_or(Code::InvalidParameter)?;
    let (endpoint, key) = endpoint::open(device.host, "via", |_, _| {}).map_err(|why| {
        log::error!("VipOpenNic: {why}");
        Code::ErrorResource
    })?;
    Ok(Parts { endpoint, key, name: name.to_owned(), device })
}

/// Opens a network interface.
///
/// # Safety
/// `name` is null or a text; `nic` is null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn VipOpenNic(name: *const c_char, nic: *mut Handle) -> Code {
    call(|| {
        place(nic)?;
        // SAFETY: promised by the caller.
        let name = unsafe { text(name) }?;
        let opened = lock::open(|| parts(name))?;
        // SAFETY: promised by the caller.
        unsafe { store(nic, handle(opened)) }
    })
}

/// Closes a network interface, with all its objects.
#[no_mangle]
pub extern "C" fn VipCloseNic(nic: Handle) -> Code {
    call(|| lock::close(number(nic)))
}

/// Stores the attributes of a network interface.
///
/// # Safety
/// `attributes` is null, misaligned or a place for them.
#[no_mangle]
pub unsafe extern "C" fn VipQueryNic(nic: Handle, attributes: *mut NicAttributes) -> Code {
    call(|| {
        place(attributes)?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let open = inside.open()?;
        let mut name = [0; 64];
        for (to, from) in name.iter_mut().zip(open.name.bytes().take(63)) {
            *to = from as c_char;
        }
        let mtu = open.endpoint().link_caps().iter().map(|caps| caps.mtu).max().unwrap_or(0);
        let of = NicAttributes {
            name,
            hardware_version: 1,
            provider_version: VERSION,
            address_len: HOST_LEN as u16,
            address: open.address.as_ptr(),
            thread_safe: 1,
            discriminator_max: DISCRIMINATOR_MAX as u16,
            register_bytes_max: isize::MAX as c_ulong,
            register_regions_max: REGIONS_MAX as c_ulong,
            register_block_max: isize::MAX as c_ulong,
            vi_max: VIS_MAX as c_ulong,
            descriptors_max: DESCRIPTORS_MAX as c_ulong,
            segments_max: SEGMENTS_MAX.into(),
            cq_max: QUEUES_MAX as c_ulong,
            cq_entries_max: ENTRIES_MAX,
            transfer_max: TRANSFER_MAX,
            mtu: mtu.into(),
            tags_max: TAGS_MAX as c_ulong,
            levels: level::ALL,
            read_levels: level::DELIVERY | level::RECEPTION,
        };
        // SAFETY: promised by the caller.
        unsafe { store(attributes, of) }
    })
}

/// Sets the handler of asynchronous errors; null is the default one, which logs them.
#[no_mangle]
pub extern "C" fn VipErrorCallback(
    nic: Handle,
    context: *mut c_void,
    handler: Option<ErrorHandler>,
) -> Code {
    call(|| {
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let handler = handler.map_or(0, |handler| (handler as *const ()).expose_provenance());
        inside.open()?.on_error = OnError { handler, context: context.expose_provenance() };
        Ok(())
    })
}

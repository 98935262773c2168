//! Network interfaces: opening, closing, attributes, errors.

use super::{enter_nic, read};
use crate::address::{DISCRIMINATOR_MAX, HOST_LEN};
use crate::code::{level, Answer, Code};
use crate::descriptor::SEGMENTS_MAX;
use crate::handle::Handle;
use crate::names;
use crate::open::{self, OnError, Parts};
use crate::raw::{ErrorHandler, NicAttributes};
use crate::region::REGIONS_MAX;
use crate::state::{DESCRIPTORS_MAX, ENTRIES_MAX, QUEUES_MAX, TAGS_MAX, TRANSFER_MAX, VIS_MAX};
use std::ffi::{c_char, c_ulong};
use weft_ffi::endpoint;
use weft_ffi::given::{Place, Text};

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
pub fn open(name: Text<'_>, nic: Place<'_, Handle>) -> Answer {
    nic.or(Code::InvalidParameter)?;
    let name = read(name)?;
    nic.store(open::open(|| parts(name))?);
    Ok(())
}

/// Stores the attributes of a network interface.
pub fn query(nic: Handle, attributes: Place<'_, NicAttributes>) -> Answer {
    attributes.or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let open = inside.open()?;
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(open.name.bytes().take(63)) {
        *to = from as c_char;
    }
    let mtu = open.endpoint().link_caps().iter().map(|caps| caps.mtu).max().unwrap_or(0);
    attributes.store(NicAttributes {
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
    });
    Ok(())
}

/// Sets the handler of asynchronous errors; none is the default one, which logs them.
pub fn on_error(nic: Handle, context: usize, handler: Option<ErrorHandler>) -> Answer {
    enter_nic(nic)?.open()?.on_error = OnError { handler, context };
    Ok(())
}

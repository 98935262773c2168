//! The structures of `vipl.h`, and times as programs give them.

#[allow(unsafe_code)]
mod sys;

pub use sys::{AutodiscoveryList, RawAddress};

use crate::code::{Answer, Code, Fault, Resource};
use crate::handle::Handle;
use std::ffi::{c_char, c_int, c_ulong};
use std::time::{Duration, Instant};
use weft_ffi::sys::service::Until;

/// `VIP_BOOLEAN`.
pub type Boolean = c_int;

/// `VIP_VI_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ViAttributes {
    /// Level of reliability.
    pub level: u16,
    /// Maximum transfer size.
    pub max: c_ulong,
    /// Quality of service: none is defined.
    pub qos: usize,
    /// Protection tag.
    pub tag: Handle,
    /// True if the other side may write.
    pub write: Boolean,
    /// True if the other side may read.
    pub read: Boolean,
}

/// `VIP_MEM_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemAttributes {
    /// Protection tag.
    pub tag: Handle,
    /// True if the other side may write.
    pub write: Boolean,
    /// True if the other side may read.
    pub read: Boolean,
}

/// `VIP_NIC_ATTRIBUTES`. More than 15 fields: the binary interface fixes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NicAttributes {
    /// Name, as it was opened.
    pub name: [c_char; 64],
    /// Version of the device.
    pub hardware_version: c_ulong,
    /// Version of this library.
    pub provider_version: c_ulong,
    /// Bytes of a host's address.
    pub address_len: u16,
    /// The address.
    pub address: *const u8,
    /// True if several threads may call.
    pub thread_safe: Boolean,
    /// Longest discriminator.
    pub discriminator_max: u16,
    /// Most registered bytes.
    pub register_bytes_max: c_ulong,
    /// Most regions.
    pub register_regions_max: c_ulong,
    /// Most bytes of a region.
    pub register_block_max: c_ulong,
    /// Most virtual interfaces.
    pub vi_max: c_ulong,
    /// Most descriptors in a queue.
    pub descriptors_max: c_ulong,
    /// Most segments of a descriptor.
    pub segments_max: c_ulong,
    /// Most completion queues.
    pub cq_max: c_ulong,
    /// Most entries of a completion queue.
    pub cq_entries_max: c_ulong,
    /// Longest message.
    pub transfer_max: c_ulong,
    /// Longest packet.
    pub mtu: c_ulong,
    /// Most protection tags.
    pub tags_max: c_ulong,
    /// Levels of reliability.
    pub levels: u16,
    /// Levels of reliability at which memory of the other side can be read.
    pub read_levels: u16,
}

/// `VIP_ERROR_DESCRIPTOR`.
#[repr(C)]
pub struct ErrorDescriptor {
    /// The network interface.
    pub nic: Handle,
    /// The virtual interface, or null.
    pub vi: Handle,
    /// The completion queue, or null.
    pub queue: Handle,
    /// The descriptor, or null.
    pub descriptor: usize,
    /// The operation, as in a status.
    pub operation: c_ulong,
    /// The kind of object.
    pub resource: Resource,
    /// The error.
    pub fault: Fault,
}

/// A handler of complete descriptors: context, network interface, virtual interface, descriptor.
pub type WorkHandler = extern "C" fn(usize, Handle, Handle, usize);
/// A handler of entries of a completion queue: context, network interface, virtual interface, and
/// true for the receive queue.
pub type QueueHandler = extern "C" fn(usize, Handle, Handle, Boolean);
/// A handler of asynchronous errors: context, and the error.
pub type ErrorHandler = extern "C" fn(usize, *mut ErrorDescriptor);

/// `VIP_INFINITE`; a caller may also give the highest number that there is.
const INFINITE: [c_ulong; 2] = [0xffff_ffff, c_ulong::MAX];

/// Returns the end of a time in milliseconds; none if it is infinite.
pub fn until(ms: c_ulong) -> Option<Instant> {
    if INFINITE.contains(&ms) {
        return None;
    }
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Returns the end of a wait that has not begun before, in `ms` milliseconds; see [`until`] for a
/// wait that has begun.
pub fn time(ms: c_ulong) -> Until {
    match INFINITE.contains(&ms) {
        true => Until::Never,
        false => Until::In(Duration::from_millis(ms)),
    }
}

/// Returns the end of a time in milliseconds, for a call that takes no time of 0; none if it is
/// infinite.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`.
pub fn until_some(ms: c_ulong) -> Answer<Option<Instant>> {
    match ms {
        0 => Err(Code::InvalidParameter),
        ms => Ok(until(ms)),
    }
}

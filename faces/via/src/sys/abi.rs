//! The structures of `vipl.h`, and checks of pointers to them.

use crate::address::{NetAddress, DISCRIMINATOR_MAX, HOST_LEN};
use crate::code::{Answer, Code, Fault, Resource};
use std::ffi::{c_char, c_int, c_ulong, c_void, CStr};
use std::net::Ipv4Addr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};
use weft_ffi::sys::service::Until;

/// A handle of an object: never a pointer to anything.
pub type Handle = *mut c_void;
/// `VIP_BOOLEAN`.
pub type Boolean = c_int;

/// `VIP_NET_ADDRESS`: bytes of the host and of the discriminator follow each other from `bytes`
/// on.
#[repr(C)]
pub struct RawAddress {
    /// Bytes of the host's address.
    pub host_len: u16,
    /// Bytes of the discriminator.
    pub discriminator_len: u16,
    /// The first byte.
    pub bytes: [u8; 1],
}

/// `VIP_VI_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ViAttributes {
    /// Level of reliability.
    pub level: u16,
    /// Maximum transfer size.
    pub max: c_ulong,
    /// Quality of service: none is defined.
    pub qos: *mut c_void,
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
    pub descriptor: *mut c_void,
    /// The operation, as in a status.
    pub operation: c_ulong,
    /// The kind of object.
    pub resource: Resource,
    /// The error.
    pub fault: Fault,
}

/// `VIP_AUTODISCOVERY_LIST`.
#[repr(C)]
pub struct AutodiscoveryList {
    /// Steps that the search goes.
    pub hops: c_ulong,
    /// Places for addresses.
    pub addresses: *mut *mut RawAddress,
    /// Number of places; afterwards, of addresses.
    pub count: c_ulong,
}

/// A handler of complete descriptors: context, network interface, virtual interface, descriptor.
pub type WorkHandler = unsafe extern "C" fn(*mut c_void, Handle, Handle, *mut c_void);
/// A handler of entries of a completion queue: as above, and true for the receive queue.
pub type QueueHandler = unsafe extern "C" fn(*mut c_void, Handle, Handle, Boolean);
/// A handler of asynchronous errors.
pub type ErrorHandler = unsafe extern "C" fn(*mut c_void, *mut ErrorDescriptor);

/// Runs the body of a function. No panic unwinds into C.
#[inline]
pub fn call(body: impl FnOnce() -> Answer) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Success,
        Ok(Err(code)) => code,
        Err(_) => {
            // The panic may have come from the log.
            let _told = catch_unwind(|| {
                log::error!("libvipl panicked: please report this with the lines above");
            });
            Code::ErrorResource
        }
    }
}

/// Returns a handle as a number.
#[inline]
pub fn number(handle: Handle) -> u64 {
    handle.addr() as u64
}

/// Returns a number as a handle.
#[inline]
pub fn handle(number: u64) -> Handle {
    std::ptr::without_provenance_mut(number as usize)
}

/// Returns a structure of the caller.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: the pointer is null or misaligned.
///
/// # Safety
/// Any other pointer names a structure.
#[inline]
pub unsafe fn given<'a, T>(at: *const T) -> Answer<&'a T> {
    if at.is_null() || !at.is_aligned() {
        return Err(Code::InvalidParameter);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { &*at })
}

/// Checks a place for a result.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: the pointer is null or misaligned.
#[inline]
pub fn place<T>(out: *mut T) -> Answer<*mut T> {
    match out.is_null() || !out.is_aligned() {
        true => Err(Code::InvalidParameter),
        false => Ok(out),
    }
}

/// Stores a result.
///
/// # Errors
/// Returns the errors of [`place`].
///
/// # Safety
/// A pointer that passes names a place for a `T`.
#[inline]
pub unsafe fn store<T>(out: *mut T, value: T) -> Answer {
    // SAFETY: promised by the caller.
    unsafe { place(out)?.write(value) };
    Ok(())
}

/// Stores a result that the caller may not want: then the pointer is null.
///
/// # Errors
/// Returns the errors of [`place`], for a pointer that is not null.
///
/// # Safety
/// The caller keeps the rules of [`store`].
pub unsafe fn offer<T>(out: *mut T, value: T) -> Answer {
    match out.is_null() {
        true => Ok(()),
        // SAFETY: promised by the caller.
        false => unsafe { store(out, value) },
    }
}

/// Reads an address. One without a host is of `own`.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: it is null, or its lengths are wrong.
///
/// # Safety
/// A pointer that is not null names an address with its bytes.
pub unsafe fn address(at: *const RawAddress, own: Ipv4Addr) -> Answer<NetAddress> {
    if at.is_null() {
        return Err(Code::InvalidParameter);
    }
    // SAFETY: promised by the caller; callers put addresses into memory of any alignment.
    let (host_len, len) = unsafe {
        let field = |offset: usize| at.cast::<u8>().add(offset).cast::<u16>().read_unaligned();
        (usize::from(field(0)), usize::from(field(2)))
    };
    if (host_len != HOST_LEN && host_len != 0) || len > DISCRIMINATOR_MAX {
        return Err(Code::InvalidParameter);
    }
    // SAFETY: as before.
    let bytes =
        unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(BYTES_AT), host_len + len) };
    let (host, discriminator) = bytes.split_at(host_len);
    let host = <[u8; HOST_LEN]>::try_from(host).map_or(own, Ipv4Addr::from);
    NetAddress::new(host, discriminator).ok_or(Code::InvalidParameter)
}

/// Offset of the bytes of an address.
const BYTES_AT: usize = std::mem::offset_of!(RawAddress, bytes);

/// Stores an address.
///
/// # Safety
/// A pointer that is not null names enough memory.
pub unsafe fn offer_address(out: *mut RawAddress, host: Ipv4Addr, discriminator: &[u8]) {
    if out.is_null() {
        return;
    }
    let bytes = [&host.octets()[..], discriminator].concat();
    // SAFETY: promised by the caller.
    unsafe {
        let field = |offset: usize| out.cast::<u8>().add(offset).cast::<u16>();
        field(0).write_unaligned(HOST_LEN as u16);
        field(2).write_unaligned(discriminator.len() as u16);
        let to = out.cast::<u8>().add(BYTES_AT);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
    }
}

/// Longest text of a caller.
const TEXT_MAX: usize = 4096;

/// Reads a text.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: it is null, too long, or not UTF-8.
///
/// # Safety
/// A pointer that is not null names bytes up to a 0.
pub unsafe fn text<'a>(at: *const c_char) -> Answer<&'a str> {
    // SAFETY: promised by the caller.
    if at.is_null() || unsafe { libc::strnlen(at, TEXT_MAX) } == TEXT_MAX {
        return Err(Code::InvalidParameter);
    }
    // SAFETY: as before.
    let text = unsafe { CStr::from_ptr(at) }.to_str();
    text.map_err(|_| Code::InvalidParameter)
}

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

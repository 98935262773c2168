//! Packets: upcalls, sending, keeping.

use super::{
    bytes, enter, free, is_object, job_of, object, object_of, outside, store, Fault, Head,
};
use super::{WEFT_OK, WEFT_TOO_LONG, WEFT_TOO_MANY};
use crate::job::WeftJob;
use std::ffi::{c_int, c_void};
use weft_packets::{KeptPacket, Packet, SendBuffer};

/// A packet: `struct weft_packet`.
pub struct WeftPacket {
    head: Head,
    source: c_int,
    argument: u32,
    data: *const u8,
    len: usize,
    /// In an upcall: an `Option<Packet<'_>>` of the frame that called it.
    current: *mut c_void,
    kept: Option<KeptPacket>,
}

is_object!(WeftPacket, "packet", b"weft pkt");

/// An upcall of the program: job, packet, and the context that was set with it.
pub type WeftUpcall = unsafe extern "C" fn(*mut WeftJob, *mut WeftPacket, *mut c_void);

/// Sets `upcall`, which is called with each packet for handler `number` from now on, with
/// `context`.
///
/// # Safety
/// `job` is a living handle; `upcall` may be called with `context` until the job is finished, and
/// returns.
#[no_mangle]
pub unsafe extern "C" fn weft_handle(
    job: *mut WeftJob,
    number: u16,
    upcall: Option<WeftUpcall>,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let owner = unsafe { job_of(job) }?;
        let upcall = upcall.ok_or_else(|| Fault::argument("upcall is null"))?;
        owner.packets.handle(number, move |_, packet| {
            // SAFETY: upcalls run in calls with a living handle, and this one is its.
            let Ok(owner) = (unsafe { job_of(job) }) else { return };
            owner.depth.set(owner.depth.get() + 1);
            call(owner, job, packet, upcall, context);
            owner.depth.set(owner.depth.get() - 1);
        });
        Ok(WEFT_OK)
    })
}

fn call(
    owner: &WeftJob,
    job: *mut WeftJob,
    packet: Packet<'_>,
    upcall: WeftUpcall,
    context: *mut c_void,
) {
    let (source, argument) = (owner.rank_of(packet.source()), packet.argument());
    let (data, len) = (packet.data().as_ptr(), packet.data().len());
    let mut current = Some(packet);
    let mut handle = WeftPacket {
        head: Head::new::<WeftPacket>(job),
        source,
        argument,
        data,
        len,
        current: (&raw mut current).cast(),
        kept: None,
    };
    // SAFETY: promised when the upcall was set; `handle` lives until it returns.
    outside(|| unsafe { upcall(job, &raw mut handle, context) });
}

/// Returns the rank that sent a packet (of a multicast, the root); -1 if it belongs to another job.
///
/// # Safety
/// `packet` is that of a running upcall, or a kept one.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_source(packet: *const WeftPacket) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| Ok(unsafe { object(packet) }?.source))
}

/// Returns the sender's argument; 0 if `packet` is no packet.
///
/// # Safety
/// The caller keeps the rules of `weft_packet_source`.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_argument(packet: *const WeftPacket) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { object(packet) }.map_or(0, |packet| packet.argument)
}

/// Returns the sender's bytes, and stores their number in `len` unless that is null; returns null
/// if `packet` is no packet.
///
/// # Safety
/// The caller keeps the rules of `weft_packet_source`; `len` is null or points to memory for a
/// number. The bytes are valid until the upcall returns or the kept packet is released.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_data(
    packet: *const WeftPacket,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: promised by the caller.
    let Ok(packet) = (unsafe { object(packet) }) else { return std::ptr::null() };
    if !len.is_null() {
        // SAFETY: promised by the caller; misaligned is not stored to.
        let _ = unsafe { store(len, packet.len) };
    }
    packet.data.cast()
}

/// Keeps the packet of a running upcall after the upcall and stores its handle, to be released
/// later.
///
/// # Safety
/// `packet` is that of a running upcall; `kept` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_keep(
    packet: *mut WeftPacket,
    kept: *mut *mut WeftPacket,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (of, _) = unsafe { object_of(packet.cast_const()) }?;
        // SAFETY: as before.
        unsafe { store(kept, std::ptr::null_mut()) }?;
        if of.current.is_null() {
            return Err(Fault::argument("packet is kept already"));
        }
        // SAFETY: set by `call`, whose frame lives while the upcall runs, in this thread.
        let current = unsafe { &mut *of.current.cast::<Option<Packet<'_>>>() };
        let taken = current.take().ok_or_else(|| Fault::argument("packet is kept already"))?;
        let keeping = match taken.keep() {
            Ok(keeping) => keeping,
            Err((error, back)) => {
                *current = Some(back);
                return Err(Fault(WEFT_TOO_MANY, error.to_string()));
            }
        };
        let handle = WeftPacket {
            head: Head::new::<WeftPacket>(of.head.job::<WeftJob>()),
            source: of.source,
            argument: of.argument,
            data: keeping.data().as_ptr(),
            len: of.len,
            current: std::ptr::null_mut(),
            kept: Some(keeping),
        };
        // SAFETY: as before.
        unsafe { store(kept, Box::into_raw(Box::new(handle))) }?;
        Ok(WEFT_OK)
    })
}

/// Releases a kept packet: its memory, and its sender's credit.
///
/// # Safety
/// `kept` was stored by `weft_packet_keep` and not released, and its job is not finished.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_release(kept: *mut WeftPacket) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let of = unsafe { object(kept.cast_const()) }?;
        if of.kept.is_none() {
            return Err(Fault::argument("packet was not kept"));
        }
        // SAFETY: promised by the caller.
        unsafe { free(kept) }
    })
}

/// Returns the longest packet to a rank, in bytes.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_max(job: *const WeftJob, rank: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        let max = job.packets.packet_max(job.peer(rank)?);
        Ok(c_int::try_from(max).unwrap_or(c_int::MAX))
    })
}

pub(super) fn check_len(job: &WeftJob, peer: weft::PeerId, len: usize) -> Result<(), Fault> {
    match job.packets.packet_max(peer) {
        max if len <= max => Ok(()),
        max => Err(Fault(WEFT_TOO_LONG, format!("{len} bytes; a packet has at most {max}"))),
    }
}

/// Sends a packet to a handler of a rank; the memory is free when this returns. Waits while there
/// is no room; in an upcall it returns WEFT_BUSY instead.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is readable.
#[no_mangle]
pub unsafe extern "C" fn weft_send(
    job: *mut WeftJob,
    rank: c_int,
    handler: u16,
    argument: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, data) = unsafe { (job_of(job)?, bytes(data.cast(), len)?) };
        let peer = job.peer(rank)?;
        check_len(job, peer, len)?;
        match job.depth.get() {
            0 => job.explained(job.packets.send(peer, handler, argument, data))?,
            _ => job.explained(job.packets.try_send(peer, handler, argument, data))?,
        }
        Ok(WEFT_OK)
    })
}

/// Sends a packet as `weft_send` does, but never waits.
///
/// # Safety
/// The caller keeps the rules of `weft_send`.
#[no_mangle]
pub unsafe extern "C" fn weft_try_send(
    job: *mut WeftJob,
    rank: c_int,
    handler: u16,
    argument: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, data) = unsafe { (job_of(job)?, bytes(data.cast(), len)?) };
        let peer = job.peer(rank)?;
        check_len(job, peer, len)?;
        job.explained(job.packets.try_send(peer, handler, argument, data))?;
        Ok(WEFT_OK)
    })
}

/// Memory for a packet: `struct weft_buffer`.
pub struct WeftBuffer {
    head: Head,
    buffer: Option<SendBuffer>,
}

is_object!(WeftBuffer, "buffer", b"weft buf");

/// Allocates memory for a packet of `len` bytes; stores its handle, and the address for the bytes.
///
/// # Safety
/// `job` is a living handle; `buffer` and `data` point to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_buffer_alloc(
    job: *mut WeftJob,
    len: usize,
    buffer: *mut *mut WeftBuffer,
    data: *mut *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        if len > weft_core::engine::ACTIVE_MAX as usize {
            return Err(Fault(WEFT_TOO_LONG, format!("{len} bytes: longer than any packet")));
        }
        let mut made = job.packets.alloc(len);
        // SAFETY: promised by the caller. The bytes stay where they are while the buffer moves.
        unsafe { store(data, made.as_mut_ptr().cast()) }?;
        let handle =
            Box::new(WeftBuffer { head: Head::new::<WeftBuffer>(job), buffer: Some(made) });
        // SAFETY: promised by the caller.
        unsafe { store(buffer, Box::into_raw(handle)) }?;
        Ok(WEFT_OK)
    })
}

/// Sends a packet that was written to a buffer. The buffer is no longer valid, unless this returns
/// WEFT_ARGUMENT or WEFT_THREAD.
///
/// # Safety
/// `job` is a living handle, `buffer` was stored by `weft_buffer_alloc` and neither sent nor freed.
#[no_mangle]
pub unsafe extern "C" fn weft_buffer_send(
    job: *mut WeftJob,
    rank: c_int,
    handler: u16,
    argument: u32,
    buffer: *mut WeftBuffer,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, _) = unsafe { (job_of(job)?, object(buffer.cast_const())?) };
        let peer = job.peer(rank)?;
        // SAFETY: made by `Box::into_raw`, and checked to be alive.
        let mut buffer = unsafe { Box::from_raw(buffer) };
        let Some(buffer) = buffer.buffer.take() else { return Ok(WEFT_OK) };
        check_len(job, peer, buffer.len())?;
        job.explained(job.packets.send_buffer(peer, handler, argument, buffer))?;
        Ok(WEFT_OK)
    })
}

/// Frees a buffer that is not sent.
///
/// # Safety
/// The caller keeps the rules of `weft_buffer_send`.
#[no_mangle]
pub unsafe extern "C" fn weft_buffer_free(buffer: *mut WeftBuffer) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| unsafe { free(buffer) })
}

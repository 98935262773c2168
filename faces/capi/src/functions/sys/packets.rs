//! Packets, multicast groups, counters, and memory that ranks copy to.

use super::functions;
use crate::fault::Fault;
use crate::functions::group::{self, WeftGroup};
use crate::functions::packet::{self, WeftBuffer, WeftPacket};
use crate::functions::{counter, export};
use crate::job::sys::{free, job_of, object_of};
use crate::job::WeftJob;
use crate::object::sys::object;
use crate::sys::{bytes, Given, Out};
use std::ffi::{c_int, c_void};
use weft_packets::{Packet, Packets};

/// An upcall of the program: job, packet, and the context that was set with it.
pub type WeftUpcall = unsafe extern "C" fn(*mut WeftJob, *mut WeftPacket<'_>, *mut c_void);

/// Returns the sender's argument; 0 if `packet` is no packet.
///
/// # Safety
/// The caller keeps the rules of `weft_packet_source`.
#[no_mangle]
pub unsafe extern "C" fn weft_packet_argument(packet: *const WeftPacket<'_>) -> u32 {
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
    packet: *const WeftPacket<'_>,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: promised by the caller.
    let Ok(packet) = (unsafe { object(packet) }) else { return std::ptr::null() };
    // SAFETY: promised by the caller; misaligned is not stored to.
    let place = unsafe { Out::optional(len) };
    place.iter().flatten().for_each(|len| len.store(packet.len));
    packet.data.cast()
}

functions! { enter:
    fn weft_handle(
        job: *mut WeftJob, number: u16, upcall: Option<WeftUpcall>, context: *mut c_void,
    ) -> c_int {
        let owner = job_of(job)?;
        let upcall = upcall.ok_or_else(|| Fault::argument("upcall is null"))?;
        let deliver = move |_: &Packets, packet: Packet<'_>| {
            // Upcalls run in calls with a living handle, and this one is its.
            let Ok(owner) = job_of(job) else { return };
            packet::deliver(owner, packet, |handle| upcall(job, handle, context));
        };
        owner.packets.handle(number, deliver);
        Ok(())
    }

    fn weft_packet_source(packet: *const WeftPacket<'_>) -> c_int {
        Ok(object(packet)?.source)
    }

    fn weft_packet_keep(packet: *mut WeftPacket<'_>, kept: *mut *mut WeftPacket<'_>) -> c_int {
        let (packet, job) = object_of(packet.cast_const())?;
        let kept = Out::handle(kept)?;
        packet::keep(&packet, job).map(|packet| kept.give(packet))
    }

    fn weft_packet_release(kept: *mut WeftPacket<'_>) -> c_int {
        packet::is_kept(object(kept.cast_const())?)?;
        free(kept)
    }

    fn weft_packet_max(job: *const WeftJob, rank: c_int) -> c_int {
        packet::max(job_of(job)?, rank)
    }

    fn weft_send(
        job: *mut WeftJob, rank: c_int, handler: u16, argument: u32, data: *const c_void,
        len: usize,
    ) -> c_int {
        let (job, data) = (job_of(job)?, bytes(data, len)?);
        packet::send(job, rank, (handler, argument), data.as_slice(), job.depth.get() == 0)
    }

    fn weft_try_send(
        job: *mut WeftJob, rank: c_int, handler: u16, argument: u32, data: *const c_void,
        len: usize,
    ) -> c_int {
        let (job, data) = (job_of(job)?, bytes(data, len)?);
        packet::send(job, rank, (handler, argument), data.as_slice(), false)
    }

    fn weft_send_from(
        job: *mut WeftJob, rank: c_int, handler: u16, argument: u32, data: *const c_void,
        len: usize,
    ) -> c_int {
        packet::send_from(job_of(job)?, rank, (handler, argument), &bytes(data, len)?)
    }

    fn weft_returned(job: *mut WeftJob, data: *mut *const c_void) -> c_int {
        let (job, data) = (job_of(job)?, Out::new(data)?);
        Ok(packet::returned(job).map(|found| data.store(found.cast())).is_some())
    }

    fn weft_flush(job: *mut WeftJob) -> c_int {
        packet::flush(job_of(job)?)
    }

    fn weft_mailbox(job: *mut WeftJob, number: u16) -> c_int {
        job_of(job)?.packets.mailbox(number);
        Ok(())
    }

    fn weft_receive(
        job: *mut WeftJob, rank: c_int, number: u16, data: *mut c_void, len: usize,
        source: *mut c_int, argument: *mut u32, got: *mut usize,
    ) -> c_int {
        let (job, mut data) = (job_of(job)?, bytes(data, len)?);
        let (source, argument) = (Out::optional(source)?, Out::optional(argument)?);
        let got = Out::optional(got)?;
        let received = packet::receive(job, rank, number, data.as_mut_slice())?;
        source.iter().for_each(|source| source.store(job.rank_of(received.source)));
        argument.iter().for_each(|argument| argument.store(received.argument));
        got.iter().for_each(|got| got.store(received.len));
        Ok(())
    }

    fn weft_buffer_alloc(
        job: *mut WeftJob, len: usize, buffer: *mut *mut WeftBuffer, data: *mut *mut c_void,
    ) -> c_int {
        let (job, buffer, data) = (job_of(job)?, Out::new(buffer)?, Out::new(data)?);
        packet::buffer_alloc(job, len, &data).map(|made| buffer.give(made))
    }

    fn weft_buffer_send(
        job: *mut WeftJob, rank: c_int, handler: u16, argument: u32, buffer: *mut WeftBuffer,
    ) -> c_int {
        let (job, _) = (job_of(job)?, object(buffer.cast_const())?);
        let peer = job.peer(rank)?;
        let mut buffer = Box::from_raw(buffer);
        packet::buffer_send(job, peer, (handler, argument), &mut buffer)
    }

    fn weft_buffer_free(buffer: *mut WeftBuffer) -> c_int {
        free(buffer)
    }

    fn weft_group_make(
        job: *mut WeftJob, id: u16, ranks: *const c_int, count: usize,
        group: *mut *mut WeftGroup,
    ) -> c_int {
        let (job, group) = (job_of(job)?, Out::new(group)?);
        group::make(job, id, Given::new(ranks), count).map(|made| group.give(made))
    }

    fn weft_group_free(group: *mut WeftGroup) -> c_int {
        free(group)
    }

    fn weft_group_packet_max(group: *const WeftGroup) -> c_int {
        Ok(object_of(group)?.0.packet_max())
    }

    fn weft_group_slow(group: *const WeftGroup, ranks: *mut c_int, count: usize) -> c_int {
        let (group, job) = object_of(group)?;
        group.slow(job, Given::new(ranks), count)
    }

    fn weft_group_expect(group: *mut WeftGroup, rank: c_int) -> c_int {
        let (group, job) = object_of(group.cast_const())?;
        group.expect(job, rank)
    }

    fn weft_group_unexpect(group: *mut WeftGroup, rank: c_int) -> c_int {
        let (group, job) = object_of(group.cast_const())?;
        group.unexpect(job, rank)
    }

    fn weft_group_failed(group: *const WeftGroup) -> c_int {
        let (group, job) = object_of(group)?;
        group.failed(job)
    }

    fn weft_forwarded_by(group: *const WeftGroup, tree: c_int) -> c_int {
        let (group, job) = object_of(group)?;
        group.forwarded_by(job, tree)
    }

    fn weft_multicast(
        group: *mut WeftGroup, tree: c_int, handler: u16, argument: u32, data: *const c_void,
        len: usize,
    ) -> c_int {
        let ((group, job), data) = (object_of(group.cast_const())?, bytes(data, len)?);
        group.multicast(job, tree, (handler, argument), data.as_slice())
    }

    fn weft_counter(job: *mut WeftJob, value: u64, key: *mut u64) -> c_int {
        let (job, key) = (job_of(job)?, Out::new(key)?);
        counter::make(job, value).map(|made| key.store(made))
    }

    fn weft_counter_value(job: *const WeftJob, key: u64, value: *mut u64) -> c_int {
        let (job, value) = (job_of(job)?, Out::new(value)?);
        counter::value(job, key).map(|found| value.store(found))
    }

    fn weft_counter_end(job: *mut WeftJob, key: u64) -> c_int {
        counter::end(job_of(job)?, key)
    }

    fn weft_fetch_add(job: *mut WeftJob, rank: c_int, key: u64, n: u64, old: *mut u64) -> c_int {
        let (job, old) = (job_of(job)?, Out::optional(old)?);
        let before = counter::fetch_add(job, rank, key, n)?;
        old.iter().for_each(|old| old.store(before));
        Ok(())
    }

    fn weft_export(job: *mut WeftJob, memory: *mut c_void, len: usize, key: *mut u64) -> c_int {
        let (job, key) = (job_of(job)?, Out::new(key)?);
        export::make(job, Given::new(memory.cast()), len).map(|made| key.store(made))
    }

    fn weft_export_new(
        job: *mut WeftJob, len: usize, memory: *mut *mut c_void, key: *mut u64,
    ) -> c_int {
        let (job, memory, place) = (job_of(job)?, Out::new(memory)?, Out::new(key)?);
        let (start, key) = export::make_new(job, len)?;
        memory.store(start);
        place.store(key);
        Ok(())
    }

    fn weft_unexport(job: *mut WeftJob, key: u64) -> c_int {
        export::end(job_of(job)?, key)
    }

    fn weft_rcpy(
        job: *mut WeftJob, rank: c_int, key: u64, offset: u64, data: *const c_void, len: usize,
    ) -> c_int {
        let (job, data) = (job_of(job)?, bytes(data, len)?);
        export::rcpy(job, rank, (key, offset), data.as_slice())
    }
}

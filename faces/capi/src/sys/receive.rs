//! Packets without upcalls.

use super::{enter, job_of, mapped, store, Fault, WEFT_OK, WEFT_TOO_LONG, WEFT_UPCALL};
use crate::job::{WeftJob, WEFT_ANY};
use std::ffi::{c_int, c_void};
use weft::OpError;
use weft_packets::Received;

/// Returns the caller's memory.
///
/// # Safety
/// `data..data + len` is writable, and nobody else uses it for `'a`.
pub(super) unsafe fn room<'a>(data: *mut u8, len: usize) -> Result<&'a mut [u8], Fault> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Fault::argument("data is null")),
        _ => {
            mapped::check_len(data.cast(), len)?;
            // SAFETY: promised by the caller; a slice is never longer than `isize::MAX`.
            Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
        }
    }
}

/// Queues packets for handler `number` for `weft_receive` from now on, instead of an upcall.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_mailbox(job: *mut WeftJob, number: u16) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        unsafe { job_of(job) }?.packets.mailbox(number);
        Ok(WEFT_OK)
    })
}

/// Receives the next packet for a mailbox, of a rank or of `WEFT_ANY`, into `len` bytes of memory;
/// stores its sender, the sender's argument and its length. Makes progress while it waits.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is writable; `source`, `argument` and `got` are
/// null, or point to memory for a number.
#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn weft_receive(
    job: *mut WeftJob,
    rank: c_int,
    number: u16,
    data: *mut c_void,
    len: usize,
    source: *mut c_int,
    argument: *mut u32,
    got: *mut usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, into) = unsafe { (job_of(job)?, room(data.cast(), len)?) };
        if job.depth.get() > 0 {
            return Err(Fault(WEFT_UPCALL, "weft_receive waits: not in an upcall".into()));
        }
        let from = if rank == WEFT_ANY { None } else { Some(job.peer(rank)?) };
        let received = match job.packets.receive(from, number, into) {
            Err(OpError::Truncated { sent }) => {
                let text = format!("a packet of {sent} bytes, and room for {len}: it is lost");
                return Err(Fault(WEFT_TOO_LONG, text));
            }
            other => job.explained(other)?,
        };
        let Received { source: peer, argument: said, len } = received;
        // SAFETY: promised by the caller; null is not stored to.
        unsafe {
            if !source.is_null() {
                store(source, job.rank_of(peer))?;
            }
            if !argument.is_null() {
                store(argument, said)?;
            }
            if !got.is_null() {
                store(got, len)?;
            }
        }
        Ok(WEFT_OK)
    })
}

//! Packets sent straight from the program's memory.

use super::packet::check_len;
use super::{bytes, enter, job_of, store, Fault, WEFT_OK, WEFT_TOO_MANY};
use crate::job::WeftJob;
use std::ffi::{c_int, c_void};
use weft::port::Awaits;
use weft::OpError;

/// Sends a packet from the program's memory, without a copy: the memory is lent until
/// `weft_returned` returns it or `weft_flush` returns.
///
/// # Safety
/// `job` is a living handle; `data..data + len` is readable and not changed until it is returned.
#[no_mangle]
pub unsafe extern "C" fn weft_send_from(
    job: *mut WeftJob,
    rank: c_int,
    handler: u16,
    argument: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, _) = unsafe { (job_of(job)?, bytes(data.cast(), len)?) };
        let peer = job.peer(rank)?;
        check_len(job, peer, len)?;
        loop {
            // SAFETY: promised by the caller.
            let sent =
                unsafe { job.packets.try_gather_at(peer, handler, argument, data.cast(), len) };
            match sent {
                Ok(()) => return Ok(WEFT_OK),
                Err(OpError::Busy) if job.depth.get() == 0 => {
                    job.endpoint().waiting().wait_for(Awaits::Room(Some(peer)));
                }
                Err(OpError::Refused) => {
                    let why = "many returned addresses wait: call weft_returned or weft_flush";
                    return Err(Fault(WEFT_TOO_MANY, why.into()));
                }
                Err(error) => return job.explained(Err(error)),
            }
        }
    })
}

/// Stores the address of memory that `weft_send_from` has sent and that is free again, and returns
/// 1; returns 0 if there is none, after one round of progress.
///
/// # Safety
/// `job` is a living handle; `data` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_returned(job: *mut WeftJob, data: *mut *const c_void) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        let found = job.packets.returned().or_else(|| {
            // During an upcall no progress is made.
            let _ = job.depth.get() == 0 && job.packets.poll();
            job.packets.returned()
        });
        let Some(found) = found else { return Ok(0) };
        // SAFETY: promised by the caller.
        unsafe { store(data, found.cast()) }?;
        Ok(1)
    })
}

/// Waits until all memory that packets were sent from is free again.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_flush(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        job.explained(job.packets.flush())?;
        Ok(WEFT_OK)
    })
}

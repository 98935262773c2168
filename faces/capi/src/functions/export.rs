//! Memory that ranks copy to.

use crate::entry::call;
use crate::fault::{Fault, WEFT_TOO_MANY};
use crate::job::WeftJob;
use crate::sys::Given;
use std::ffi::{c_int, c_void};
use weft_packets::Exported;

/// Lets ranks that have the key copy to memory of this process until [`end`] has returned; returns
/// the key.
///
/// # Errors
/// The memory is null, empty or not mapped; `WEFT_TOO_MANY`: no key is left.
pub(crate) fn make(job: &WeftJob, memory: Given<u8>, len: usize) -> Result<u64, Fault> {
    if len == 0 {
        return Err(Fault::argument("len is 0"));
    }
    let memory = memory.values("memory", len)?;
    memory.check_mapped()?;
    let made = memory.export(&job.packets, call);
    made.map(|made| made.key).ok_or_else(|| Fault(WEFT_TOO_MANY, "no more keys".into()))
}

/// Allocates zeroed memory for copies by ranks that have the key; ranks of this host map it. It
/// exists until [`end`] returns. Returns its address and the key.
///
/// # Errors
/// The length is out of bounds; `WEFT_TOO_MANY`: no memory or no key is left.
pub(crate) fn make_new(job: &WeftJob, len: usize) -> Result<(*mut c_void, u64), Fault> {
    if len == 0 || len > isize::MAX as usize {
        return Err(Fault::argument("len out of bounds"));
    }
    let made = job.packets.exports().make(len).ok_or_else(|| {
        Fault(WEFT_TOO_MANY, format!("no memory of {len} bytes is left here, or no more keys"))
    })?;
    let start = job.packets.exports().address(made).unwrap_or(std::ptr::null_mut());
    Ok((start.cast(), made.key))
}

/// Ends an export: when this returns, no rank writes to the memory any more.
///
/// # Errors
/// An upcall runs, or there is no export with this key, and nothing is ended.
pub(crate) fn end(job: &WeftJob, key: u64) -> Result<(), Fault> {
    job.may_wait()?;
    if !job.packets.exports().has(key) {
        return Err(Fault::argument("nothing is exported under this key"));
    }
    job.packets.exports().end_blocking(Exported { key, len: 0 });
    Ok(())
}

/// Copies bytes to `offset` of the memory that a rank exported under a key: they have arrived when
/// this returns.
///
/// # Errors
/// An upcall runs, the rank has failed, or it refuses the key, the bounds, or its memory.
pub(crate) fn rcpy(
    job: &WeftJob,
    rank: c_int,
    (key, offset): (u64, u64),
    data: &[u8],
) -> Result<(), Fault> {
    job.may_wait()?;
    let peer = job.peer(rank)?;
    job.explained(job.packets.rcpy(peer, key, offset, data))
}

//! Counters that ranks add to.

use crate::fault::{Fault, WEFT_BUSY, WEFT_TOO_MANY};
use crate::job::WeftJob;
use std::ffi::c_int;
use weft_packets::Counter;

fn unknown(key: u64) -> Fault {
    Fault::argument(format!("this rank has no counter {key:#x}"))
}

/// Makes a counter here, and returns its key.
///
/// # Errors
/// `WEFT_TOO_MANY`: no key is left.
pub(crate) fn make(job: &WeftJob, value: u64) -> Result<u64, Fault> {
    let made = job.packets.counter(value);
    made.map(|made| made.key).ok_or_else(|| Fault(WEFT_TOO_MANY, "no more keys".into()))
}

/// Returns the value of a counter that was made here.
///
/// # Errors
/// There is none with this key.
pub(crate) fn value(job: &WeftJob, key: u64) -> Result<u64, Fault> {
    job.packets.counter_value(Counter { key }).ok_or_else(|| unknown(key))
}

/// Ends a counter that was made here: later additions of ranks are refused, and an agent that kept
/// it has room for another.
///
/// # Errors
/// There is none with this key; `WEFT_BUSY`: try again after progress.
pub(crate) fn end(job: &WeftJob, key: u64) -> Result<(), Fault> {
    if !job.packets.counts(Counter { key }) {
        return Err(unknown(key));
    }
    match job.packets.end_counter(Counter { key }) {
        true => Ok(()),
        false => Err(Fault(WEFT_BUSY, "the agent is busy".into())),
    }
}

/// Adds `n` to a counter at a rank, and returns the value before.
///
/// # Errors
/// An upcall runs, the rank has failed, or has no such counter.
pub(crate) fn fetch_add(job: &WeftJob, rank: c_int, key: u64, n: u64) -> Result<u64, Fault> {
    job.may_wait()?;
    let peer = job.peer(rank)?;
    job.explained(job.packets.fetch_add_blocking(peer, Counter { key }, n))
}

//! Messages with tags, of any length: sends, receives, probes.

use super::request::{WeftRequest, WeftStatus};
use super::wait;
use crate::fault::Fault;
use crate::job::WeftJob;
use crate::object::{is_object, Head};
use crate::sys::{Borrowed, Out};
use std::ffi::c_int;
use std::rc::Rc;
use weft::SendArgs;
use weft_core::engine::types::{Claimed, Probed};
use weft_core::matching::RecvSpec;

/// A message that a matched probe took: `struct weft_message`.
pub struct WeftMessage {
    head: Head,
    claimed: Claimed,
}

is_object!(WeftMessage, "message", b"weft msg");

/// The messages that a receive or a probe accepts: rank, tag, bits of the tag to ignore.
pub(crate) type Wanted = (c_int, u32, u32);

fn spec(job: &WeftJob, (rank, tag, ignore): Wanted) -> Result<RecvSpec, Fault> {
    let source = job.source(rank)?;
    Ok(RecvSpec { source, tag: tag.into(), ignore: ignore.into() })
}

/// Sends a message; the memory is free when this returns.
///
/// # Errors
/// An upcall runs, there is no such rank, or it has failed.
#[inline]
pub(crate) fn send(job: &WeftJob, rank: c_int, tag: u32, data: &[u8]) -> Result<(), Fault> {
    job.may_wait()?;
    job.explained(job.endpoint().send_blocking(job.peer(rank)?, tag.into(), data))
}

/// Receives a message into memory of the program, and stores its status.
///
/// # Errors
/// An upcall runs, there is no such rank, or it has failed; `WEFT_TOO_LONG`: the first part of the
/// message is there.
#[inline]
pub(crate) fn recv(
    job: &WeftJob,
    wanted: Wanted,
    data: Borrowed<u8>,
    status: Option<Out<WeftStatus>>,
) -> Result<(), Fault> {
    job.may_wait()?;
    wait::finish(&*start_recv(job, wanted, data)?, job, status)
}

/// Starts a receive into memory of the program.
///
/// # Errors
/// There is no such rank, it has failed, or too many operations are under way.
#[inline]
pub(crate) fn start_recv(
    job: &WeftJob,
    wanted: Wanted,
    data: Borrowed<u8>,
) -> Result<Rc<WeftRequest>, Fault> {
    let spec = spec(job, wanted)?;
    let request = WeftRequest::recv(job, spec.source.is_none(), data);
    request.post_recv(job, spec)?;
    Ok(request)
}

/// Starts a send from memory of the program. With `sync` it ends when the message has matched a
/// receive.
///
/// # Errors
/// There is no such rank, it has failed, or too many operations are under way.
#[inline]
pub(crate) fn start_send(
    job: &WeftJob,
    rank: c_int,
    (tag, sync): (u32, bool),
    data: &Borrowed<u8>,
) -> Result<Rc<WeftRequest>, Fault> {
    let args = SendArgs::new(job.peer(rank)?, tag.into(), data.len() as u64);
    let request = WeftRequest::send(job);
    request.post_send(job, data, SendArgs { sync, ..args })?;
    Ok(request)
}

/// Looks for a message, and once more after a round of progress.
fn found<T>(job: &WeftJob, look: impl Fn() -> Option<T>) -> Option<T> {
    look().or_else(|| {
        job.packets.poll();
        look()
    })
}

fn status_of(job: &WeftJob, found: Probed) -> WeftStatus {
    WeftStatus::of(job, found.source, found.tag, found.len as usize)
}

/// Probes for a message without receiving it, and stores its status. False if there is none after a
/// round of progress.
///
/// # Errors
/// There is no such rank, or it has failed, and will send nothing more.
pub(crate) fn probe(
    job: &WeftJob,
    wanted: Wanted,
    status: Option<Out<WeftStatus>>,
) -> Result<bool, Fault> {
    let RecvSpec { source, tag, ignore } = spec(job, wanted)?;
    let found = found(job, || job.endpoint().probe(source, tag, ignore));
    let Some(found) = found else { return job.not_failed(source).map(|()| false) };
    status.iter().for_each(|status| status.store(status_of(job, found)));
    Ok(true)
}

/// Probes for a message as [`probe`] does, and claims the message that it found: only [`take`]
/// receives it.
///
/// # Errors
/// Returns the errors of [`probe`].
pub(crate) fn claim(
    job: &WeftJob,
    wanted: Wanted,
    status: Option<Out<WeftStatus>>,
) -> Result<Option<Box<WeftMessage>>, Fault> {
    let RecvSpec { source, tag, ignore } = spec(job, wanted)?;
    let found = found(job, || job.endpoint().posted().claim(source, tag, ignore));
    let Some((claimed, found)) = found else { return job.not_failed(source).map(|()| None) };
    status.iter().for_each(|status| status.store(status_of(job, found)));
    Ok(Some(Box::new(WeftMessage { head: Head::new::<WeftMessage>(job), claimed })))
}

/// Starts to receive a claimed message, whose handle then ends.
///
/// # Errors
/// Too many operations are under way.
pub(crate) fn take(
    message: &WeftMessage,
    job: &WeftJob,
    data: Borrowed<u8>,
) -> Result<Rc<WeftRequest>, Fault> {
    let request = WeftRequest::recv(job, false, data);
    request.post_claimed(job, message.claimed)?;
    Ok(request)
}

//! Descriptors: posting, and their ends.

use crate::code::{Answer, Code};
use crate::handle::{Handle, Kind};
use crate::open::enter;
use crate::raw::{time, WorkHandler};
use crate::state::{Direction, Notify};
use std::ffi::c_ulong;
use weft_ffi::given::Place;

/// A place for the address of a descriptor.
pub type Out<'a> = Place<'a, usize>;

/// Posts a descriptor to the send queue.
#[inline]
pub fn post_send(vi: Handle, descriptor: usize, memory: u32) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    inside.open()?.with(|state, port| state.post_send(port, key, descriptor as u64, memory))
}

/// Posts a descriptor to the receive queue.
#[inline]
pub fn post_recv(vi: Handle, descriptor: usize, memory: u32) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    inside.open()?.with(|state, _| state.post_recv(key, descriptor as u64, memory))
}

/// Stores the first descriptor of a queue and returns its code, where it is complete.
fn give(out: Out<'_>, (at, failed): (u64, bool)) -> Answer {
    out.store(at as usize);
    match failed {
        true => Err(Code::DescriptorError),
        false => Ok(()),
    }
}

/// Takes the first descriptor of a queue, if it is complete.
#[inline]
pub fn done(vi: Handle, direction: Direction, out: Out<'_>) -> Answer {
    out.or(Code::InvalidParameter)?.store(0);
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let mut taken = inside.open()?.state().take_done(key, direction)?;
    if taken.is_none() {
        inside.progress()?;
        taken = inside.open()?.state().take_done(key, direction)?;
    }
    give(out, taken.ok_or(Code::NotDone)?)
}

/// Waits until the first descriptor of a queue is complete, and takes it.
#[inline]
pub fn wait(vi: Handle, direction: Direction, ms: c_ulong, out: Out<'_>) -> Answer {
    out.or(Code::InvalidParameter)?.store(0);
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let mut taken = inside.open()?.state().take_waited(key, direction)?;
    if taken.is_none() && direction == Direction::Recv {
        taken = inside.in_place(|open| open.await_message(key))?.flatten();
    }
    if taken.is_none() {
        taken = Some(inside.wait(time(ms), |i| i.open()?.state().take_done(key, direction))?);
    }
    give(out, taken.ok_or(Code::NotDone)?)
}

/// Lets a handler wait for the next complete descriptor.
pub fn notify(
    vi: Handle,
    direction: Direction,
    context: usize,
    handler: Option<WorkHandler>,
) -> Answer {
    let notify = Notify { handler: handler.ok_or(Code::InvalidParameter)?, context };
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    inside.open()?.state().notify(key, direction, notify)?;
    // The thread that calls it is there for the next message, too.
    inside.call_thread();
    Ok(())
}

//! Completion queues.

use super::enter_nic;
use crate::code::{Answer, Code};
use crate::handle::{Handle, Kind};
use crate::open::enter;
use crate::raw::{time, Boolean, QueueHandler};
use crate::state::{Direction, Notify};
use std::ffi::c_ulong;
use weft_ffi::given::Place;

/// Makes a completion queue.
pub fn create(nic: Handle, entries: c_ulong, queue: Place<'_, Handle>) -> Answer {
    queue.or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let mut state = inside.open()?.state();
    let key = state.queues.create(entries)?;
    queue.store(state.handle_of(Kind::Cq, key));
    Ok(())
}

/// Ends a completion queue that no virtual interface uses.
pub fn destroy(queue: Handle) -> Answer {
    let (mut inside, key) = enter(Kind::Cq, queue)?;
    inside.open()?.with(|state, _| state.destroy_queue(key))
}

/// Changes the number of entries of a completion queue.
pub fn resize(queue: Handle, entries: c_ulong) -> Answer {
    let (mut inside, key) = enter(Kind::Cq, queue)?;
    inside.open()?.with(|state, _| state.queues.resize(key, entries))
}

/// Takes the first entry of a completion queue, and stores it. The call waits for it if a time is
/// given.
pub fn take(
    queue: Handle,
    ms: Option<c_ulong>,
    vi: Place<'_, Handle>,
    received: Place<'_, Boolean>,
) -> Answer {
    vi.or(Code::InvalidParameter)?;
    received.or(Code::InvalidParameter)?;
    let (mut inside, key) = enter(Kind::Cq, queue)?;
    let (of, direction) = match ms {
        Some(ms) => inside.wait(time(ms), |i| i.open()?.state().queues.take(key))?,
        None => {
            let mut entry = inside.open()?.state().queues.take(key)?;
            if entry.is_none() {
                inside.progress()?;
                entry = inside.open()?.state().queues.take(key)?;
            }
            entry.ok_or(Code::NotDone)?
        }
    };
    vi.store(inside.open()?.state().handle_of(Kind::Vi, of));
    received.store((direction == Direction::Recv).into());
    Ok(())
}

/// Lets a handler wait for the next entry of a completion queue.
pub fn notify(queue: Handle, context: usize, handler: Option<QueueHandler>) -> Answer {
    let notify = Notify { handler: handler.ok_or(Code::InvalidParameter)?, context };
    let (mut inside, key) = enter(Kind::Cq, queue)?;
    inside.open()?.state().notify_queue(key, notify)?;
    inside.call_thread();
    Ok(())
}

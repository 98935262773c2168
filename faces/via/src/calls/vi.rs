//! Virtual interfaces, and protection tags.

use super::enter_nic;
use crate::code::{level, Answer, Code, Phase};
use crate::handle::{beside, Handle, Kind};
use crate::open::enter;
use crate::raw::{self, Boolean};
use crate::state::{check_level, State, ViAttributes, TRANSFER_MAX};
use crate::table::Key;
use weft_ffi::given::Place;

/// Checks attributes that a program gives.
///
/// # Errors
/// The code of the one that is wrong.
fn check(state: &State, of: &raw::ViAttributes) -> Answer<ViAttributes> {
    let level = check_level(of.level)?;
    if !(1..=TRANSFER_MAX).contains(&of.max) {
        return Err(Code::InvalidMtu);
    }
    if of.qos != 0 {
        return Err(Code::InvalidQos);
    }
    let tag = state.tags.find(of.tag)?;
    let (write, read) = (of.write != 0, of.read != 0);
    if read && level == level::UNRELIABLE {
        return Err(Code::InvalidRdmaRead);
    }
    Ok(ViAttributes { level, max: of.max, tag, write, read })
}

/// Returns the key in the handle of a completion queue of the same network interface; null is
/// none.
fn queue(nic: Handle, queue: Handle) -> Answer<Option<Key>> {
    match queue {
        0 => Ok(None),
        queue => beside((Kind::Cq, queue), (Kind::Nic, nic)).map(Some),
    }
}

/// Makes a virtual interface; the handles are those of the completion queues of sends and receives.
pub fn create(
    nic: Handle,
    attributes: Place<'_, raw::ViAttributes>,
    [send_queue, recv_queue]: [Handle; 2],
    vi: Place<'_, Handle>,
) -> Answer {
    vi.or(Code::InvalidParameter)?;
    let given = attributes.read().ok_or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let queues = [queue(nic, send_queue)?, queue(nic, recv_queue)?];
    let mut state = inside.open()?.state();
    let attributes = check(&state, &given)?;
    let key = state.create_vi(attributes, queues)?;
    vi.store(state.handle_of(Kind::Vi, key));
    Ok(())
}

/// Ends a virtual interface that is not connected and whose queues are empty.
pub fn destroy(vi: Handle) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let open = inside.open()?;
    open.state().destroy_vi(key)?;
    open.go_for(key);
    Ok(())
}

/// Changes the attributes of an idle virtual interface.
pub fn set(vi: Handle, attributes: Place<'_, raw::ViAttributes>) -> Answer {
    let given = attributes.read().ok_or(Code::InvalidParameter)?;
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let mut state = inside.open()?.state();
    let phase = state.vis.get(key).ok_or(Code::InvalidParameter)?.phase;
    if phase != Phase::Idle {
        return Err(Code::InvalidState);
    }
    let attributes = check(&state, &given)?;
    state.vis.get_mut(key).into_iter().for_each(|vi| vi.attributes = attributes);
    Ok(())
}

/// Returns attributes as a program gets them.
fn given_back(state: &State, of: &ViAttributes) -> raw::ViAttributes {
    raw::ViAttributes {
        level: of.level,
        max: of.max,
        qos: 0,
        tag: of.tag.map_or(0, |tag| state.handle_of(Kind::Tag, tag)),
        write: of.write.into(),
        read: of.read.into(),
    }
}

/// Stores state and attributes of a virtual interface, and true for each empty queue, of sends and
/// receives; a place that is null is not wanted.
pub fn query(
    vi: Handle,
    phase: Place<'_, Phase>,
    attributes: Place<'_, raw::ViAttributes>,
    [send_empty, recv_empty]: [Place<'_, Boolean>; 2],
) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    // The state may have changed by a message that waits.
    inside.progress()?;
    let state = inside.open()?.state();
    let of = state.vis.get(key).ok_or(Code::InvalidParameter)?;
    let wrong = Code::InvalidParameter;
    phase.offer(of.phase, wrong)?;
    attributes.offer(given_back(&state, &of.attributes), wrong)?;
    send_empty.offer(of.send.is_empty().into(), wrong)?;
    recv_empty.offer(of.recv.is_empty().into(), wrong)
}

/// Makes a protection tag.
pub fn create_tag(nic: Handle, tag: Place<'_, Handle>) -> Answer {
    tag.or(Code::InvalidParameter)?;
    let mut inside = enter_nic(nic)?;
    let mut state = inside.open()?.state();
    let key = state.tags.create()?;
    tag.store(state.handle_of(Kind::Tag, key));
    Ok(())
}

/// Ends a protection tag that is not in use.
pub fn destroy_tag(nic: Handle, tag: Handle) -> Answer {
    let mut inside = enter_nic(nic)?;
    let key = beside((Kind::Tag, tag), (Kind::Nic, nic))?;
    inside.open()?.with(|state, _| state.destroy_tag(key))
}

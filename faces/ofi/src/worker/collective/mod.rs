//! Collective operations: the groups of an endpoint, their operations in progress, and the messages
//! of their members.

mod group;

use super::complete::failure_of;
use super::report::{Direction, Report};
use super::requests::QUEUED_MAX;
use super::state::State;
use super::Worker;
use crate::abi::{cap, err, Fid, EVENT_JOIN_COMPLETE};
use crate::addresses::text_of;
use crate::atomic::{is_valid, Datatype, Form, Operator};
use crate::call::Answer;
use crate::collective::{Kind, Message, Place, Step, Work, LONGEST};
use crate::memory::{Borrowed, Elements};
use crate::slab::Slab;
use group::{Ended, Group, Running, RUNNING};
use libc::{c_int, c_void};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use weft::{Endpoint, OpError, PeerId};

/// Active messages between members of a group: the argument is the number of the operation.
const COLLECTIVE: u32 = 0x6f_6606;

/// Most messages that are kept for groups that this endpoint has not joined yet.
const EARLY: usize = 1 << 14;

/// A message of a member: its peer, the number of the operation, the bytes.
type Said = (PeerId, u32, Vec<u8>);

/// A collective operation as a caller describes it.
pub struct CollectiveCall {
    pub kind: Kind,
    /// Number of the group.
    pub group: u64,
    /// The member that gives, in the address vector; of operations that have one.
    pub root: u64,
    /// The elements that the member gives.
    pub from: Elements,
    /// Memory for the result.
    pub to: Elements,
    /// libfabric's numbers of the type and, if values are combined, of the operator.
    pub numbers: (c_int, Option<c_int>),
    pub context: *mut c_void,
}

/// The end of an operation of a group, as it is reported.
pub enum End {
    /// The group is joined: an event of this object.
    Join { fid: *mut Fid, context: *mut c_void },
    /// A completion.
    Report(Report),
}

/// The groups of an endpoint.
#[derive(Default)]
pub struct Collectives {
    groups: Slab<Group>,
    /// Numbers of groups by what all their members call them.
    by_id: HashMap<u64, u32>,
    /// Groups that were made of the same members.
    made: HashMap<u64, u32>,
    heard: Rc<RefCell<Vec<Said>>>,
    /// Messages for groups that are not joined yet.
    early: Vec<Said>,
    /// Messages that wait for room in the endpoint.
    owed: VecDeque<Said>,
}

impl Collectives {
    pub fn new(endpoint: &Endpoint) -> Collectives {
        let all = Collectives::default();
        let heard = all.heard.clone();
        endpoint.active().handle(COLLECTIVE, move |_, message| {
            heard.borrow_mut().push((message.source, message.argument, message.data));
        });
        all
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.heard.borrow().is_empty() || !self.owed.is_empty()
    }

    /// Returns true if everything for other members has left.
    pub fn is_quiet(&self) -> bool {
        self.owed.is_empty()
    }

    /// Sends messages that wait, as long as there is room.
    fn pay(&mut self, endpoint: &Endpoint) {
        while let Some((peer, number, bytes)) = self.owed.front() {
            if endpoint.peer(*peer).queued() > QUEUED_MAX {
                return;
            }
            match endpoint.active().send(*peer, COLLECTIVE, *number, bytes) {
                Err(OpError::Busy) => return,
                // A peer that is gone needs no message.
                _ => self.owed.pop_front(),
            };
        }
    }
}

/// Returns what all members call a group of these endpoints: the number of earlier ones of the same
/// members is part of it, since all join in the same order.
fn id_of(members: impl Iterator<Item = u64>, made: &mut HashMap<u64, u32>) -> u64 {
    // FNV-1a over words, which is the same everywhere.
    let mix = |sum: u64, word: u64| {
        word.to_le_bytes()
            .iter()
            .fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    let of_members = members.fold(0xcbf2_9ce4_8422_2325, mix);
    let count = made.entry(of_members).or_default();
    *count += 1;
    mix(of_members, u64::from(*count))
}

/// Returns the way in which values of these types are combined; `None` for operations without one.
///
/// # Errors
/// `FI_EOPNOTSUPP`: there is no such type or operator.
pub fn combination(
    (datatype, operator): (c_int, Option<c_int>),
) -> Result<(Datatype, Option<(Datatype, Operator)>), c_int> {
    let datatype = Datatype::from_number(i64::from(datatype)).ok_or(err::EOPNOTSUPP)?;
    let Some(operator) = operator else { return Ok((datatype, None)) };
    let operator = Operator::from_number(i64::from(operator)).ok_or(err::EOPNOTSUPP)?;
    let combines = operator.number() <= Operator::BitXor.number();
    match combines && is_valid(Form::Fetch, datatype, operator) {
        true => Ok((datatype, Some((datatype, operator)))),
        false => Err(err::EOPNOTSUPP),
    }
}

impl Worker {
    /// Makes a group of these members of the address vector, of which this endpoint is one; returns
    /// its number.
    pub fn group(&self, members: Vec<u64>) -> Result<u32, c_int> {
        let state = &mut *self.state.borrow_mut();
        if state.bound.events.upgrade().is_none() {
            return Err(err::ENOEQ);
        }
        let own = self.endpoint.address().endpoint;
        let endpoints = {
            let vector = state.bound.vector.as_ref().ok_or(err::ENOAV)?.vector.borrow();
            let endpoint = |&number| vector.endpoint(number);
            members.iter().map(endpoint).collect::<Option<Vec<_>>>().ok_or(err::EINVAL)?
        };
        let me = endpoints.iter().position(|&one| one == own).ok_or(err::EINVAL)?;
        let place = Place { me, members: members.len() };
        let mut peer = |member: usize| self.peer(state, members[member]);
        let above = place.above().map(&mut peer).transpose()?;
        let below = place.below().map(|span| Ok((span.start, peer(span.start)?)));
        let below = below.collect::<Result<Vec<_>, c_int>>()?;
        let all = &mut state.collectives;
        let id = id_of(endpoints.iter().map(|one| one.0), &mut all.made);
        let group = Group::new(id, members, place, (above, below));
        let at = all.groups.keep(group).ok_or(err::ENOMEM)?;
        all.by_id.insert(id, at);
        Ok(at)
    }

    /// Joins a group: waits, without blocking, until all members do.
    pub fn join(&self, at: u32, fid: *mut Fid, context: *mut c_void) {
        let state = &mut *self.state.borrow_mut();
        let work = Work { kind: Kind::Barrier, root: 0, block: 0, combine: None };
        self.start(state, at, (work, Vec::new(), Borrowed::NONE), End::Join { fid, context });
        let early = std::mem::take(&mut state.collectives.early);
        early.into_iter().for_each(|said| self.told(state, said));
        state.collectives.pay(&self.endpoint);
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// `FI_EBUSY`: operations of it are in progress.
    pub fn leave_group(&self, at: u32) -> Result<(), c_int> {
        let all = &mut self.state.borrow_mut().collectives;
        if all.groups.get(at).is_some_and(|group| !group.running.is_empty()) {
            return Err(err::EBUSY);
        }
        if let Some(group) = all.groups.take(at) {
            all.by_id.remove(&group.id);
        }
        Ok(())
    }

    /// Returns the number of a group's members.
    pub fn members(&self, group: u64) -> Result<usize, c_int> {
        let at = u32::try_from(group).map_err(|_| err::EINVAL)?;
        let state = self.state.borrow();
        state.collectives.groups.get(at).map(|group| group.place.members).ok_or(err::EINVAL)
    }

    /// Starts a collective operation.
    pub fn collective(&self, call: &CollectiveCall) -> Answer {
        let state = &mut *self.state.borrow_mut();
        let at = u32::try_from(call.group).map_err(|_| err::EINVAL)?;
        let group = state.collectives.groups.get(at).ok_or(err::EINVAL)?;
        if group.running.len() >= RUNNING {
            return Err(self.busy());
        }
        let (work, own, to) = describe(call, group)?;
        let (flags, len) = (cap::COLLECTIVE, to.len());
        let (wanted, buf) = (state.bound.tx.is_some(), to.start());
        let way = Direction::Send;
        let report = Report { context: call.context, flags, way, wanted, buf, len };
        self.start(state, at, (work, own, to), End::Report(report));
        state.collectives.pay(&self.endpoint);
        Ok(0)
    }

    /// Starts an operation of a group, which fails at once if a neighbour is gone.
    fn start(
        &self,
        state: &mut State,
        at: u32,
        (work, own, to): (Work, Vec<u8>, Borrowed),
        end: End,
    ) {
        let Some(group) = state.collectives.groups.get_mut(at) else { return };
        let mut running = Running::new(group, (work, own, to), end);
        if let Some((error, text)) = group.failed.clone() {
            return self.finish(state, running, Err((error, text)));
        }
        let (watched, gone): (Vec<PeerId>, Vec<PeerId>) =
            group.neighbours().partition(|&peer| self.endpoint.peer(peer).expect());
        running.watched = watched;
        group.running.push_back(running);
        match gone.first() {
            Some(&peer) => self.lose_neighbour(state, at, peer),
            None => self.advance(state, at),
        }
    }

    /// Does what can be done in a group, and reports operations that ended.
    fn advance(&self, state: &mut State, at: u32) {
        let all = &mut state.collectives;
        let Some(group) = all.groups.get_mut(at) else { return };
        let mut ended = Vec::new();
        let differs = group.advance(&mut all.owed, &mut ended);
        for running in ended {
            self.finish(state, running, Ok(()));
        }
        if differs {
            let me = state.collectives.groups.get(at).map_or(0, |group| group.place.me);
            let text = "members of the group call other operations, or give other lengths".into();
            self.fail_group(state, at, me, (err::EINVAL, text), None);
        }
    }

    /// Reports the end of an operation.
    fn finish(&self, state: &State, running: Running, result: Ended) {
        running.watched.iter().for_each(|&peer| self.endpoint.peer(peer).unexpect());
        match (running.end, result) {
            (End::Report(report), Ok(())) => self.tell(state, report, None),
            (End::Report(report), Err((error, text))) => {
                self.report_failure(state, &report, error, text);
            }
            (End::Join { fid, context }, result) => {
                let Some(events) = state.bound.events.upgrade() else { return };
                match result {
                    Ok(()) => events.add(EVENT_JOIN_COMPLETE, fid, context, 0),
                    Err((error, text)) => {
                        log::warn!("a collective group is not joined: {text}");
                        events.fail(fid, context, 0, error);
                    }
                }
            }
        }
    }

    /// Handles messages of members, and sends waiting ones.
    #[cold]
    pub(super) fn hear_members(&self, state: &mut State) {
        let heard = std::mem::take(&mut *state.collectives.heard.borrow_mut());
        heard.into_iter().for_each(|said| self.told(state, said));
        state.collectives.pay(&self.endpoint);
    }

    fn told(&self, state: &mut State, said: Said) {
        let all = &mut state.collectives;
        let Some(message) = Message::decode(&said.2) else {
            return log::warn!("{}: no message of a group", self.endpoint.peer(said.0).describe());
        };
        let Some(&at) = all.by_id.get(&message.group) else {
            // A member that has not seen this one join gives no bytes yet.
            if message.part.is_empty() && all.early.len() < EARLY {
                all.early.push(said);
            }
            return;
        };
        let Some(group) = all.groups.get_mut(at) else { return };
        let (peer, number) = (said.0, said.1);
        if message.step == Step::Failed {
            let Some(&of) = group.members.get(message.whole) else { return };
            let name = state.bound.vector.as_ref();
            let name = name.and_then(|vector| vector.vector.borrow().name(of).map(text_of));
            let name = name.unwrap_or_default();
            let text = format!("member {} of the group, {name}, has failed", message.whole);
            return self.fail_group(state, at, message.whole, (err::ECONNRESET, text), Some(peer));
        }
        if group.arrive(peer, number, &message) {
            self.advance(state, at);
        } else {
            log::warn!("{}: not a message for this group", self.endpoint.peer(peer).describe());
        }
    }

    /// Ends the operations of groups whose neighbours failed.
    #[cold]
    pub(super) fn lose_neighbours(&self, state: &mut State) {
        for at in state.collectives.groups.numbers(|group| !group.running.is_empty()) {
            let Some(group) = state.collectives.groups.get(at) else { continue };
            let gone = |&peer: &PeerId| self.endpoint.peer(peer).failure().is_some();
            let gone = group.neighbours().find(gone);
            gone.into_iter().for_each(|peer| self.lose_neighbour(state, at, peer));
        }
    }

    fn lose_neighbour(&self, state: &mut State, at: u32, peer: PeerId) {
        let Some(failure) = self.endpoint.peer(peer).failure() else { return };
        let member = state.collectives.groups.get(at).and_then(|group| group.member(peer));
        let text = self.text_of(OpError::Peer { peer, failure });
        self.fail_group(state, at, member.unwrap_or(0), (failure_of(failure), text), Some(peer));
    }

    /// Fails a group: its operations end, and the neighbours are told, without the one from which
    /// the failure is known.
    fn fail_group(
        &self,
        state: &mut State,
        at: u32,
        member: usize,
        why: (c_int, String),
        from: Option<PeerId>,
    ) {
        let all = &mut state.collectives;
        let Some(group) = all.groups.get_mut(at).filter(|group| group.failed.is_none()) else {
            return;
        };
        group.failed = Some(why.clone());
        let message = Message { group: group.id, step: Step::Failed, whole: member, part: &[] };
        let message = message.encode();
        let others = group.neighbours().filter(|&peer| Some(peer) != from);
        all.owed.extend(others.map(|peer| (peer, 0, message.clone())));
        let running = std::mem::take(&mut group.running);
        // The caller may end now, without another look.
        all.pay(&self.endpoint);
        running.into_iter().for_each(|one| self.finish(state, one, Err(why.clone())));
    }
}

/// Returns the work of a call, the bytes that this member gives, and the memory for its result.
fn describe(call: &CollectiveCall, group: &Group) -> Result<(Work, Vec<u8>, Borrowed), c_int> {
    let Place { me, members } = group.place;
    if call.kind == Kind::Barrier {
        let work = Work { kind: call.kind, root: 0, block: 0, combine: None };
        return Ok((work, Vec::new(), Borrowed::NONE));
    }
    let (datatype, combine) = combination(call.numbers)?;
    let root = match call.kind.has_root() {
        true => group.members.iter().position(|&one| one == call.root).ok_or(err::EINVAL)?,
        false => 0,
    };
    let memory = |elements: Elements| elements.memory(datatype.size()).ok_or(err::EMSGSIZE);
    let (from, to) = (memory(call.from)?, memory(call.to)?);
    let gives = !call.kind.has_root() || me == root;
    let from = if gives { from } else { Borrowed::NONE };
    let to = if call.kind == Kind::Broadcast && gives { Borrowed::NONE } else { to };
    let block = match call.kind {
        Kind::AllGather => to.len() / members,
        Kind::Broadcast if gives => from.len(),
        _ => to.len(),
    };
    if block.checked_mul(members).is_none_or(|all| all > LONGEST) {
        return Err(err::EMSGSIZE);
    }
    if [from, to].iter().any(|memory| memory.is_null() && memory.len() > 0) {
        return Err(err::EINVAL);
    }
    if ![from, to].iter().all(|memory| memory.seems_mapped()) {
        return Err(err::EFAULT);
    }
    Ok((Work { kind: call.kind, root, block, combine }, from.bytes().to_vec(), to))
}

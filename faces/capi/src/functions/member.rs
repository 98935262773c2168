//! Memberships of groups of names: members that see each other come and go, and send to each other.

use super::names::{payload, spec_of, time, WeftNames, WEFT_NAMES_MESSAGES};
use super::owner::{put, WeftOwner};
use super::progress::limit;
use crate::fault::Fault;
use crate::object::{is_object, Head};
use crate::sys::{Given, Out};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use weft::names::{
    BindingId, GroupMember, GroupNotice, GroupOptions, HostId, Kind, Life, Name, To,
};

/// To one of the members with an instance, by turns.
pub const WEFT_TO_ONE: c_int = 1;
/// To all members with an instance.
pub const WEFT_TO_EACH: c_int = 2;
/// To all other members.
pub const WEFT_TO_ALL: c_int = 3;
/// An event: a member is there.
pub const WEFT_MEMBER_JOINED: c_int = 1;
/// An event: a member is gone.
pub const WEFT_MEMBER_LEFT: c_int = 2;
/// An event: all members that there were have been told.
pub const WEFT_MEMBER_ALL: c_int = 3;
/// An event: a message.
pub const WEFT_MEMBER_MESSAGE: c_int = 4;
/// An event: all receivers of a message have it, or are gone.
pub const WEFT_MEMBER_SETTLED: c_int = 5;
/// An event: a message did not reach a receiver.
pub const WEFT_MEMBER_RETURNED: c_int = 6;
/// An event: a member takes no messages.
pub const WEFT_MEMBER_SLOW: c_int = 7;
/// An event: a member took no messages for so long that it was put out.
pub const WEFT_MEMBER_PUT_OUT: c_int = 8;

/// A member, for messages to it: `struct weft_member_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftMemberId {
    host: u64,
    claim: u64,
    life: [u64; 2],
}

/// An event: `struct weft_member_event`.
#[repr(C)]
pub struct WeftMemberEvent {
    kind: c_int,
    sent_to: c_int,
    number: u64,
    id: WeftMemberId,
    owner: WeftOwner,
    waited_us: i64,
    cause: [c_char; 160],
    data: *const c_void,
    len: usize,
}

/// A membership: `struct weft_member`.
pub struct WeftMember {
    head: Head,
    member: RefCell<GroupMember>,
    here: u64,
    /// The members that are there.
    known: RefCell<BTreeMap<BindingId, WeftOwner>>,
    /// The message of the last event.
    message: RefCell<Vec<u8>>,
}

is_object!(WeftMember, "the member", b"weftmemb");

impl WeftMemberId {
    fn of(id: BindingId) -> WeftMemberId {
        let life = [id.life.incarnation, id.life.nonce];
        WeftMemberId { host: id.host.0, claim: id.claim, life }
    }

    fn id(self) -> BindingId {
        let [incarnation, nonce] = self.life;
        let life = Life { incarnation, nonce };
        BindingId { host: HostId(self.host), life, claim: self.claim }
    }
}

impl WeftMemberEvent {
    fn new(kind: c_int) -> WeftMemberEvent {
        WeftMemberEvent {
            kind,
            sent_to: 0,
            number: 0,
            id: WeftMemberId { host: 0, claim: 0, life: [0; 2] },
            owner: WeftOwner::NONE,
            waited_us: 0,
            cause: [0; 160],
            data: std::ptr::null(),
            len: 0,
        }
    }

    /// Adds the cause.
    fn because(mut self, cause: &str) -> WeftMemberEvent {
        put(cause, &mut self.cause);
        self
    }
}

/// Makes this program a member of a group, on a connection of its own. Others are informed of it
/// when it takes no messages for `slow_us`, and end its membership after `put_out_us`.
///
/// # Errors
/// Flags or address are wrong, or the agent refuses or has ended.
pub(crate) fn join(
    names: &WeftNames,
    (name, address, flags): (&Name, Option<&str>, c_int),
    (slow_us, put_out_us): (i64, i64),
) -> Result<Box<WeftMember>, Fault> {
    if flags & WEFT_NAMES_MESSAGES != 0 {
        return Err(Fault::argument("a member takes messages without WEFT_NAMES_MESSAGES"));
    }
    let spec = spec_of(name, address, flags)?;
    let mut options = GroupOptions { evict_after: limit(put_out_us), ..Default::default() };
    options.slow_after = limit(slow_us).unwrap_or(options.slow_after);
    let names = names.names.borrow();
    Ok(Box::new(WeftMember {
        head: Head::apart::<WeftMember>(),
        member: RefCell::new(names.join(&spec, &options)?),
        here: names.host().0,
        known: RefCell::default(),
        message: RefCell::default(),
    }))
}

/// Returns the members with the given instances that a message goes to.
///
/// # Errors
/// The kind of choice is unknown, or the first instance is above the last.
pub(crate) fn receivers(to: c_int, first: u32, last: u32) -> Result<To, Fault> {
    match to {
        WEFT_TO_ALL => Ok(To::All),
        WEFT_TO_ONE | WEFT_TO_EACH if first > last => {
            Err(Fault::argument("the first instance is above the last"))
        }
        WEFT_TO_ONE => Ok(To::One(first..=last)),
        WEFT_TO_EACH => Ok(To::Each(first..=last)),
        _ => Err(Fault::argument("to is WEFT_TO_ONE, WEFT_TO_EACH or WEFT_TO_ALL")),
    }
}

/// Returns the one member that a message goes to.
///
/// # Errors
/// The id is null or misaligned.
pub(crate) fn receiver(id: Given<WeftMemberId>) -> Result<To, Fault> {
    Ok(To::Member(id.values("id", 1)?.as_slice()[0].id()))
}

impl WeftMember {
    /// Returns an event about a member.
    fn about(&self, kind: c_int, id: BindingId) -> WeftMemberEvent {
        let (host, here) = (id.host.0, c_int::from(id.host.0 == self.here));
        let unknown = || WeftOwner::of_host(host, here);
        let owner = self.known.borrow().get(&id).copied().unwrap_or_else(unknown);
        WeftMemberEvent { id: WeftMemberId::of(id), owner, ..WeftMemberEvent::new(kind) }
    }

    /// Returns an event for the program. `None`: it is of a kind that this interface lacks.
    fn told(&self, notice: GroupNotice) -> Option<WeftMemberEvent> {
        Some(match notice {
            GroupNotice::Joined(binding) => {
                let owner = WeftOwner::of(&binding, self.here);
                self.known.borrow_mut().insert(binding.id, owner);
                self.about(WEFT_MEMBER_JOINED, binding.id)
            }
            GroupNotice::Left(id, gone) => {
                let event = self.about(WEFT_MEMBER_LEFT, id).because(&gone.to_string());
                self.known.borrow_mut().remove(&id);
                event
            }
            GroupNotice::SnapshotEnd => WeftMemberEvent::new(WEFT_MEMBER_ALL),
            GroupNotice::Message { from, kind, payload } => {
                let sent_to = match kind {
                    Kind::Unicast | Kind::Anycast => WEFT_TO_ONE,
                    Kind::Multicast => WEFT_TO_EACH,
                    Kind::Broadcast => WEFT_TO_ALL,
                };
                let mut message = self.message.borrow_mut();
                *message = payload;
                let (data, len) = (message.as_ptr().cast(), message.len());
                WeftMemberEvent { sent_to, data, len, ..self.about(WEFT_MEMBER_MESSAGE, from) }
            }
            GroupNotice::Settled(number) => {
                WeftMemberEvent { number, ..WeftMemberEvent::new(WEFT_MEMBER_SETTLED) }
            }
            GroupNotice::Returned(number, id, gone) => {
                let event = self.about(WEFT_MEMBER_RETURNED, id).because(&gone.to_string());
                WeftMemberEvent { number, ..event }
            }
            GroupNotice::Slow(id, since) => {
                let waited_us = since.as_micros() as i64;
                WeftMemberEvent { waited_us, ..self.about(WEFT_MEMBER_SLOW, id) }
            }
            GroupNotice::Evicted(id) => self.about(WEFT_MEMBER_PUT_OUT, id),
            _ => return None,
        })
    }

    /// Takes the next event, and waits for it. False if none came in time. The message is valid
    /// until the next call with this membership.
    ///
    /// # Errors
    /// Others have ended the membership, or the agent has ended.
    pub(crate) fn next(
        &self,
        timeout_us: i64,
        event: &Out<WeftMemberEvent>,
    ) -> Result<bool, Fault> {
        event.store(WeftMemberEvent::new(0));
        let found = self.member.borrow_mut().next(time(timeout_us))?;
        let Some(told) = found.and_then(|notice| self.told(notice)) else { return Ok(false) };
        event.store(told);
        Ok(true)
    }

    /// Sends a message to members, and stores its number.
    ///
    /// # Errors
    /// The message is too long, or members do not take it in time.
    pub(crate) fn send(
        &self,
        to: To,
        (data, len): (Given<u8>, usize),
        timeout_us: i64,
        number: Option<Out<u64>>,
    ) -> Result<(), Fault> {
        let payload = payload(data, len)?;
        let sent = self.member.borrow_mut().send(to, payload.as_slice(), time(timeout_us))?;
        number.iter().for_each(|number| number.store(sent));
        Ok(())
    }

    /// Waits until all receivers of all messages of this member have them, or are gone.
    ///
    /// # Errors
    /// The time is over, others have ended the membership, or the agent has ended.
    pub(crate) fn flush(&self, timeout_us: i64) -> Result<(), Fault> {
        Ok(self.member.borrow_mut().flush(time(timeout_us))?)
    }

    /// Returns a descriptor that is readable when [`next`](Self::next) may have something.
    pub(crate) fn fd(&self) -> c_int {
        self.member.borrow().wait_fd().as_raw_fd()
    }
}

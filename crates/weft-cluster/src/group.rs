//! A program's membership of a group, as its agent keeps it: the bytes of messages, their parts on
//! the way between agents, and what the program is told.
//!
//! The order, the credit and the acknowledgements are those of [`weft_names::groups`]. Like it this
//! does no I/O and reads no clock. The program says which messages it has taken, so the credit of
//! the others is that of the program, not of the socket between it and its agent.

mod events;
mod incoming;
mod outgoing;

use crate::local::MAIL_MAX;
use events::Events;
use incoming::Incoming;
use outgoing::{Outgoing, Waiting};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use weft_core::Instant;
use weft_names::directory::Gone;
use weft_names::groups::{GroupConfig, GroupEnd, GroupEvent, GroupHead, Kind, SendError, Take};
use weft_names::wire::{Reader, WireError, Writer};
use weft_names::{Binding, BindingId, Life, NameEvent, Notice};

/// Longest part of a message.
const PART: usize = 1200;
/// Bytes before the part: the receiver's and the sender's claims, the part, and the core's head.
const HEAD: usize = 52 + GroupHead::LEN;
/// Messages that a member may have sent to another that has not taken them.
pub const WINDOW: u32 = 16;
/// Bytes of messages under way from a member; one message always finds room.
pub const OUT_BYTES: usize = 1 << 21;
/// Bytes of messages that came and were not taken. One message more finds room, of one member at a
/// time, if it is the next of its sender: later ones may take all of this room.
pub const IN_BYTES: usize = 1 << 21;
/// Events that wait for the program. From here on it sends nothing, and hears of no changes.
const EVENTS_MAX: usize = 256;
/// Messages that the program has and has not said to have taken.
pub const GIVEN_MAX: usize = 64;

/// The receivers of a message to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// One member.
    Member(BindingId),
    /// One of the members that have one of these instances: by turns, past those without credit.
    One(RangeInclusive<u32>),
    /// All members that have one of these instances.
    Each(RangeInclusive<u32>),
    /// All other members.
    All,
}

/// An event of a group, for a member's program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupNotice {
    /// A member is there.
    Joined(Binding),
    /// A member is gone.
    Left(BindingId, Gone),
    /// The members that were there when this one joined have all been told.
    SnapshotEnd,
    /// A message.
    Message {
        /// The member that sent it.
        from: BindingId,
        /// The way in which it chose its receivers.
        kind: Kind,
        /// The message.
        payload: Vec<u8>,
    },
    /// All receivers of a message of this member have it, or are gone.
    Settled(u64),
    /// A message of this member did not reach a receiver, which is gone.
    Returned(u64, BindingId, Gone),
    /// A member has not taken its messages for a while.
    Slow(BindingId, Duration),
    /// A member took no messages for so long that it was evicted.
    Evicted(BindingId),
}

/// A datagram to the agent of a member, or to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDatagram {
    /// The member.
    pub to: BindingId,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The head of a datagram between the agents of two members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Number of the receiver's claim.
    pub to: u64,
    /// The life in which it is numbered.
    pub to_life: Life,
    /// Number of the sender's claim.
    pub from: u64,
    /// The life in which that is numbered.
    pub from_life: Life,
    parts: u8,
    part: u8,
    head: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Decodes a datagram.
    ///
    /// # Errors
    /// The bytes are no datagram of a group.
    pub fn parse(bytes: &'a [u8]) -> Result<Part<'a>, WireError> {
        let mut from = Reader(bytes);
        let (to, to_life) = (from.value()?, from.value()?);
        let (sender, from_life) = (from.value()?, from.value()?);
        let (parts, part) = (from.value()?, from.value()?);
        from.pad(2)?;
        let head = from.bytes(GroupHead::LEN)?;
        let one = Part { to, to_life, from: sender, from_life, parts, part, head, bytes: from.0 };
        one.check()
    }

    fn check(self) -> Result<Part<'a>, WireError> {
        let is_last = u16::from(self.part) + 1 == u16::from(self.parts);
        let fits = match is_last {
            true => self.bytes.len() <= PART,
            false => self.bytes.len() == PART,
        };
        let is_message = self.parts > 0 && self.part < self.parts && fits;
        let is_bare = self.parts == 0 && self.part == 0 && self.bytes.is_empty();
        let is_short = usize::from(self.parts) <= MAIL_MAX.div_ceil(PART);
        match is_short && (is_message || is_bare) {
            true => Ok(self),
            false => Err(WireError::Value { name: "part" }),
        }
    }
}

/// The outcome of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The message is under way, with this number.
    Sent(u64),
    /// The message waits; [`Membership::poll_sent`] tells the outcome.
    Waits,
    /// The message is not sent.
    Refused(NotSent),
}

/// The reason why a message to a group is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The core's reason.
    Group(SendError),
    /// The message is longer than a message may be.
    Long,
    /// Another one waits.
    Second,
    /// Earlier ones are under way, or the program does not read its events.
    Full,
}

/// A membership of a group.
#[derive(Debug)]
pub struct Membership {
    group: GroupEnd,
    incoming: Incoming,
    outgoing: Outgoing,
    events: Events,
    /// The program was told the end of its first snapshot.
    is_told_all: bool,
    evicted: VecDeque<BindingId>,
}

/// Returns the settings of a membership.
pub fn config(slow_after: Duration, evict_after: Option<Duration>) -> GroupConfig {
    GroupConfig { window: WINDOW, slow_after, evict_after, ..GroupConfig::default() }
}

impl Membership {
    /// Makes the membership of a claim in the group of a type.
    pub fn new(kind: u32, me: BindingId, config: GroupConfig) -> Membership {
        Membership {
            group: GroupEnd::new(kind, me, config),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            events: Events::default(),
            is_told_all: false,
            evicted: VecDeque::new(),
        }
    }

    /// Returns this member's claim.
    pub fn me(&self) -> BindingId {
        self.group.me()
    }

    /// Returns the other members.
    pub fn members(&self) -> impl Iterator<Item = &Binding> {
        self.group.members()
    }

    /// Returns the bytes of messages that came and were not taken.
    pub fn held_bytes(&self) -> usize {
        self.incoming.bytes
    }

    /// Returns the number of parts that found no room.
    pub fn dropped(&self) -> u64 {
        self.incoming.dropped
    }

    /// True if it takes another event of the directory now.
    pub fn has_room(&self) -> bool {
        self.events.has_room()
    }

    /// Takes an event of the subscription to the group's type.
    pub fn on_name(&mut self, now: Instant, event: NameEvent) {
        match event.notice {
            Notice::Published(binding) => self.group.member_joined(now, binding),
            Notice::Withdrawn(binding, gone) => self.group.member_gone(binding.id, gone),
            // After events that were missed another snapshot ends; the program is told of one.
            Notice::SnapshotEnd if !self.is_told_all => {
                self.is_told_all = true;
                self.settle(now);
                self.events.tell(GroupNotice::SnapshotEnd);
            }
            _ => {}
        }
        self.settle(now);
    }

    /// Sends a message, or has it wait for credit for a time.
    pub fn send(&mut self, now: Instant, to: To, payload: Vec<u8>, wait: Duration) -> Sending {
        if payload.len() > MAIL_MAX {
            return Sending::Refused(NotSent::Long);
        }
        if self.outgoing.waiting.is_some() {
            return Sending::Refused(NotSent::Second);
        }
        let payload: Arc<[u8]> = payload.into();
        match self.try_send(now, &to, &payload) {
            Ok(number) => Sending::Sent(number),
            Err(NotSent::Group(SendError::Busy { .. }) | NotSent::Full) if !wait.is_zero() => {
                self.outgoing.waiting = Some(Waiting { to, payload, end: now + wait });
                Sending::Waits
            }
            Err(why) => Sending::Refused(why),
        }
    }

    fn try_send(&mut self, now: Instant, to: &To, payload: &Arc<[u8]>) -> Result<u64, NotSent> {
        if !self.outgoing.has_room(payload.len()) || !self.has_room() {
            return Err(NotSent::Full);
        }
        let number = self.outgoing.next();
        let sent = match to {
            To::Member(id) => self.group.unicast(now, *id, number),
            To::One(instances) => self.group.anycast(now, instances.clone(), number),
            To::Each(instances) => self.group.multicast(now, instances.clone(), number),
            To::All => self.group.broadcast(now, number),
        };
        sent.map_err(NotSent::Group)?;
        Ok(self.outgoing.keep(payload))
    }

    /// Notes that the program has taken so many messages.
    pub fn took(&mut self, now: Instant, count: u32) {
        for _ in 0..count {
            let Some((from, number)) = self.incoming.taken() else { break };
            if let Some(from) = from {
                self.group.taken(from, number);
            }
        }
        self.settle(now);
    }

    /// Takes a datagram of a member.
    pub fn receive(&mut self, now: Instant, from: BindingId, part: &Part<'_>) {
        // A member could make events without end by what it says of itself. Messages that are
        // dropped go again.
        if self.events.is_flooded() {
            self.incoming.dropped += 1;
            return;
        }
        let payload = match self.group.wants(from, part.head) {
            Some(wanted) if part.parts > 0 => {
                match self.incoming.collect(now, from, wanted, part) {
                    Some(payload) => Some(payload),
                    None => return,
                }
            }
            // A message without a part is none.
            Some(_) => return,
            None => None,
        };
        let taken = self.group.handle_message(now, from, part.head);
        match (taken, payload) {
            (Take::Keep(number), Some(payload)) => self.incoming.keep(from, number, payload),
            // The payload was of no use.
            (_, Some(_)) => self.incoming.refuse(from),
            _ => {}
        }
        self.settle(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.group.handle_timeout(now);
        if self.outgoing.waiting.as_ref().is_some_and(|w| w.end <= now) {
            if let Some(waiting) = self.outgoing.waiting.take() {
                // The last try names the member.
                let sent = self.try_send(now, &waiting.to, &waiting.payload);
                self.outgoing.sent = Some(sent);
            }
        }
        self.settle(now);
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.outgoing.waiting.as_ref().map(|w| w.end);
        self.group.next_timeout().into_iter().chain(waiting).min()
    }

    /// Takes the outcome of the message that waited.
    pub fn poll_sent(&mut self) -> Option<Result<u64, NotSent>> {
        self.outgoing.sent.take()
    }

    /// Takes a member that is to be evicted.
    pub fn poll_evicted(&mut self) -> Option<BindingId> {
        self.evicted.pop_front()
    }

    /// Takes a datagram to be sent.
    pub fn poll_transmit(&mut self) -> Vec<GroupDatagram> {
        let Some(t) = self.group.poll_transmit() else { return Vec::new() };
        let me = self.me();
        let datagram = |parts: usize, part: usize, bytes: &[u8]| {
            let mut to = Writer(Vec::with_capacity(HEAD + bytes.len()));
            to.value(&t.to.claim);
            to.value(&t.to.life);
            to.value(&me.claim);
            to.value(&me.life);
            to.bytes(&[parts as u8, part as u8, 0, 0]);
            to.bytes(&t.head);
            to.bytes(bytes);
            GroupDatagram { to: t.to, bytes: to.0 }
        };
        let Some(number) = t.payload else { return vec![datagram(0, 0, &[])] };
        // A message that came back meanwhile is not sent again.
        let Some(payload) = self.outgoing.under_way.get(&number) else { return Vec::new() };
        let parts = payload.len().div_ceil(PART).max(1);
        let at = |part: usize| part * PART..((part + 1) * PART).min(payload.len());
        (0..parts).map(|part| datagram(parts, part, &payload[at(part)])).collect()
    }

    /// True if there is something to be sent.
    pub fn has_transmit(&self) -> bool {
        self.group.has_transmit()
    }

    /// Takes the next event for the program, with its number from 1. A message waits while the
    /// program has as many as it may have.
    pub fn poll_event(&mut self) -> Option<(u64, GroupNotice)> {
        let is_message = matches!(self.events.first(), Some(GroupNotice::Message { .. }));
        if is_message && self.incoming.given() >= GIVEN_MAX {
            return None;
        }
        let (seq, event, number) = self.events.take()?;
        if let GroupNotice::Message { from, payload, .. } = &event {
            self.incoming.give(*from, number, payload.len());
        }
        Some((seq, event))
    }

    fn on_event(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::Joined(binding) => self.events.tell(GroupNotice::Joined(binding)),
            GroupEvent::Left(id, gone) => {
                self.incoming.forget(id);
                self.events.tell(GroupNotice::Left(id, gone));
            }
            GroupEvent::Deliver { from, number, kind } => {
                if let Some(payload) = self.incoming.deliver(from, number) {
                    let message = GroupNotice::Message { from, kind, payload };
                    self.events.deliver(message, number);
                }
            }
            GroupEvent::Done { payload } => {
                self.outgoing.settled(payload);
                self.events.tell(GroupNotice::Settled(payload));
            }
            GroupEvent::Returned { payload, to, gone } => {
                self.events.tell(GroupNotice::Returned(payload, to, gone));
            }
            GroupEvent::Slow { member, since } => {
                self.events.tell(GroupNotice::Slow(member, since))
            }
            GroupEvent::Evicted { member } => {
                self.evicted.push_back(member);
                self.events.tell(GroupNotice::Evicted(member));
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.group.poll_event() {
            self.on_event(event);
        }
        let Some(waiting) = self.outgoing.waiting.take() else { return };
        match self.try_send(now, &waiting.to, &waiting.payload) {
            Err(NotSent::Group(SendError::Busy { .. }) | NotSent::Full) => {
                self.outgoing.waiting = Some(waiting);
            }
            outcome => self.outgoing.sent = Some(outcome),
        }
    }
}

impl std::fmt::Display for NotSent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotSent::Group(why) => write!(f, "{why}"),
            NotSent::Long => write!(f, "a message to a group has at most {MAIL_MAX} bytes"),
            NotSent::Second => f.write_str("an earlier message still waits for its receivers"),
            NotSent::Full => f.write_str(
                "earlier messages are under way, or this program does not take the events of the \
                 group",
            ),
        }
    }
}

fn put_id(to: &mut Writer, id: &BindingId) {
    to.value(&id.host);
    to.value(&id.life);
    to.value(&id.claim);
}

fn id(from: &mut Reader<'_>) -> Result<BindingId, WireError> {
    Ok(BindingId { host: from.value()?, life: from.value()?, claim: from.value()? })
}

fn range(from: &mut Reader<'_>) -> Result<RangeInclusive<u32>, WireError> {
    let (lower, upper) = (from.value()?, from.value()?);
    match lower <= upper {
        true => Ok(lower..=upper),
        false => Err(WireError::Value { name: "upper" }),
    }
}

impl To {
    pub(crate) fn put(&self, to: &mut Writer) {
        let (code, range) = match self {
            To::Member(id) => {
                to.value(&1u8);
                return put_id(to, id);
            }
            To::One(range) => (2u8, Some(range)),
            To::Each(range) => (3, Some(range)),
            To::All => (4, None),
        };
        to.value(&code);
        if let Some(range) = range {
            to.value(range.start());
            to.value(range.end());
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<To, WireError> {
        Ok(match from.value::<u8>()? {
            1 => To::Member(id(from)?),
            2 => To::One(range(from)?),
            3 => To::Each(range(from)?),
            4 => To::All,
            _ => return Err(WireError::Value { name: "to" }),
        })
    }
}

const KINDS: [Kind; 4] = [Kind::Unicast, Kind::Anycast, Kind::Multicast, Kind::Broadcast];

impl GroupNotice {
    pub(crate) fn put(&self, to: &mut Writer) {
        use crate::local::{put_binding, put_bytes, put_gone};
        match self {
            GroupNotice::Joined(binding) => {
                to.value(&1u8);
                put_binding(to, binding);
            }
            GroupNotice::Left(id, gone) => {
                to.value(&2u8);
                put_id(to, id);
                put_gone(to, gone);
            }
            GroupNotice::SnapshotEnd => to.value(&3u8),
            GroupNotice::Message { from, kind, payload } => {
                to.value(&4u8);
                put_id(to, from);
                to.value(&(*kind as u8));
                put_bytes(to, payload);
            }
            GroupNotice::Settled(number) => {
                to.value(&5u8);
                to.value(number);
            }
            GroupNotice::Returned(number, id, gone) => {
                to.value(&6u8);
                to.value(number);
                put_id(to, id);
                put_gone(to, gone);
            }
            GroupNotice::Slow(id, since) => {
                to.value(&7u8);
                put_id(to, id);
                to.value(&(since.as_millis() as u64));
            }
            GroupNotice::Evicted(id) => {
                to.value(&8u8);
                put_id(to, id);
            }
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<GroupNotice, WireError> {
        use crate::local::{binding, bytes, gone};
        Ok(match from.value::<u8>()? {
            1 => GroupNotice::Joined(binding(from)?),
            2 => GroupNotice::Left(id(from)?, gone(from)?),
            3 => GroupNotice::SnapshotEnd,
            4 => {
                let (from_id, code) = (id(from)?, from.value::<u8>()?);
                let kind = KINDS.get(usize::from(code)).copied();
                let kind = kind.ok_or(WireError::Value { name: "kind" })?;
                GroupNotice::Message { from: from_id, kind, payload: bytes(from)?.to_vec() }
            }
            5 => GroupNotice::Settled(from.value()?),
            6 => GroupNotice::Returned(from.value()?, id(from)?, gone(from)?),
            7 => GroupNotice::Slow(id(from)?, Duration::from_millis(from.value()?)),
            8 => GroupNotice::Evicted(id(from)?),
            _ => return Err(WireError::Value { name: "notice" }),
        })
    }
}

/// Returns one of each kind of receivers and of events, for tests.
pub(crate) fn examples(binding: &Binding) -> (Vec<To>, Vec<GroupNotice>) {
    let (id, payload) = (binding.id, b"hello".to_vec());
    let receivers = vec![To::Member(id), To::One(1..=2), To::Each(3..=3), To::All];
    let notices = vec![
        GroupNotice::Joined(binding.clone()),
        GroupNotice::Left(id, Gone::Killed { signal: 9 }),
        GroupNotice::SnapshotEnd,
        GroupNotice::Message { from: id, kind: Kind::Multicast, payload },
        GroupNotice::Settled(1),
        GroupNotice::Returned(1, id, Gone::CutOff),
        GroupNotice::Slow(id, Duration::from_millis(7)),
        GroupNotice::Evicted(id),
    ];
    (receivers, notices)
}

#[cfg(test)]
mod tests;

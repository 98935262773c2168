//! Groups: members that send to one, any, some or all of each other.
//!
//! A [`GroupEnd`] is one member's end. The directory says who is a member: those that claimed the
//! group's type with `Claim::group`. Between each two members run numbered messages, and every
//! mode of sending takes its number there, so a member gets the messages of another in the order
//! in which they were sent, whatever their modes (TIPC's rule). An order that all members
//! agree on for messages of several senders is a matter of the layer above.
//!
//! A receiver grants credit as its program takes messages. A member without credit stops those who
//! send to it; it is named, and after a time, if the sender wants that, evicted.
//!
//! Messages of a group are numbers here: the driver keeps the bytes, and is told when it may drop
//! them.

use crate::directory::{Binding, Gone};
use crate::id::BindingId;
use crate::wire::{Reader, WireError, Writer};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;
use weft_core::Instant;

/// The way in which a message chose its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One member.
    Unicast,
    /// One of those that have an instance: by turns, past members without credit.
    Anycast,
    /// All that have an instance.
    Multicast,
    /// All others.
    Broadcast,
}

/// Codes of [`GroupHead::kind`] that carry no message.
mod code {
    pub const ACK: u8 = 5;
    pub const ASK: u8 = 6;
    pub const BYE: u8 = 7;
}

layout! {
    /// Head of a message between members, 40 bytes.
    GroupHead {
        /// 1 to 4: the way in which the message chose its receivers; 5: an acknowledgement; 6: asks
        /// for one; 7: its sender has put the receiver out.
        kind: u8,
        /// 1: the version of this format.
        version: u8,
        /// Zero.
        pad: u16,
        /// Type of the group.
        group: u32,
        /// Number of the message between the two members, from 1; 0 if there is none.
        number: u64,
        /// All messages of the receiver up to this number have come.
        ack: u64,
        /// The receiver may send messages up to this number.
        credit: u64,
        /// Number of what the sender keeps of the receiver: greater each time it begins anew.
        record: u32,
        /// The record of the receiver that the sender heard last; 0: none.
        heard: u32,
    } pad 0
}

impl GroupHead {
    /// Length in bytes.
    pub const LEN: usize = 40;

    fn check(self) -> Result<GroupHead, WireError> {
        let is_message = (1..code::ACK).contains(&self.kind);
        match () {
            () if self.version != 1 => Err(WireError::Version { found: self.version }),
            () if self.pad != 0 => Err(WireError::Reserved),
            () if self.kind == 0 || self.kind > code::BYE => {
                Err(WireError::Type { found: self.kind })
            }
            () if is_message != (self.number > 0) => Err(WireError::Value { name: "number" }),
            () if self.record == 0 => Err(WireError::Value { name: "record" }),
            () => Ok(self),
        }
    }

    fn kind(&self) -> Option<Kind> {
        [Kind::Unicast, Kind::Anycast, Kind::Multicast, Kind::Broadcast]
            .get(usize::from(self.kind).wrapping_sub(1))
            .copied()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.value(self);
        to.0
    }
}

/// Settings of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Messages that a member may have sent to another that has not taken them.
    pub window: u32,
    /// Time after which an unacknowledged message is sent again, at first; it doubles.
    pub resend: Duration,
    /// The longest such time.
    pub resend_max: Duration,
    /// Time without credit after which a member is named as slow.
    pub slow_after: Duration,
    /// Time without credit after which a member is evicted; `None`: never.
    pub evict_after: Option<Duration>,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            window: 64,
            resend: Duration::from_millis(50),
            resend_max: Duration::from_secs(1),
            slow_after: Duration::from_secs(1),
            evict_after: None,
        }
    }
}

/// The reason why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No member has the instance.
    Nobody,
    /// A member has no credit: try again later. An anycast says it if all have none.
    Busy {
        /// The member.
        slow: BindingId,
    },
}

impl core::fmt::Display for SendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SendError::Nobody => f.write_str("no member of the group has this instance"),
            SendError::Busy { slow } => {
                write!(f, "member {} of host {} does not keep up", slow.claim, slow.host)
            }
        }
    }
}

impl core::error::Error for SendError {}

/// A message to be sent to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTransmit {
    /// The member.
    pub to: BindingId,
    /// Its head.
    pub head: Vec<u8>,
    /// The message that follows, if any.
    pub payload: Option<u64>,
}

/// An event of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// A member is there.
    Joined(Binding),
    /// A member is gone.
    Left(BindingId, Gone),
    /// The next message of a member is to be taken.
    Deliver {
        /// The member.
        from: BindingId,
        /// Number of the message, as the driver kept it.
        number: u64,
        /// The way in which it chose its receivers.
        kind: Kind,
    },
    /// All receivers of a message have it, or are gone: the driver may drop it.
    Done {
        /// The message.
        payload: u64,
    },
    /// A message did not come to a receiver, which is gone.
    Returned {
        /// The message.
        payload: u64,
        /// The receiver.
        to: BindingId,
        /// The cause of its end.
        gone: Gone,
    },
    /// A member has had no credit for a while.
    Slow {
        /// The member.
        member: BindingId,
        /// The time without credit.
        since: Duration,
    },
    /// A member had no credit for too long, and is no member for this one any more. The driver
    /// tells its host: `Node::evict`.
    Evicted {
        /// The member.
        member: BindingId,
    },
}

/// The effect of a message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The driver keeps its bytes under this number until it is delivered.
    Keep(u64),
    /// The driver drops its bytes.
    Drop,
}

/// A message whose bytes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The sender's record in which it is numbered.
    pub record: u32,
    /// Its number.
    pub number: u64,
    /// True if it is the next one of its sender: what was sent later waits for it.
    pub is_next: bool,
}

#[derive(Debug)]
struct Outgoing {
    number: u64,
    payload: u64,
    kind: Kind,
}

/// The state that is kept for another member.
#[derive(Debug)]
struct Member {
    binding: Binding,
    /// Messages sent and not acknowledged.
    out: VecDeque<Outgoing>,
    /// Number of the last message sent to it.
    sent: u64,
    /// The member may get messages up to this number.
    limit: u64,
    resend: Instant,
    /// Times that the oldest message was sent again.
    tries: u32,
    /// Number of this record, and that of the member's record of this one; 0: not heard yet.
    record: u32,
    theirs: u32,
    /// Since this time there was no credit.
    stuck: Option<Instant>,
    is_named: bool,
    /// All messages up to here have come, and up to there were taken by the program.
    received: u64,
    taken: u64,
    /// Messages after a gap.
    ahead: BTreeMap<u64, Kind>,
    /// The credit that it was told last.
    told: u64,
}

/// One member's end of a group.
#[derive(Debug)]
pub struct GroupEnd {
    kind: u32,
    me: BindingId,
    config: GroupConfig,
    members: BTreeMap<BindingId, Member>,
    /// Members that were evicted: they do not come back under the same claim.
    banned: BTreeSet<BindingId>,
    /// Receivers that a message still has.
    open: BTreeMap<u64, usize>,
    turn: usize,
    records: u32,
    out: VecDeque<GroupTransmit>,
    events: VecDeque<GroupEvent>,
}

impl GroupEnd {
    /// Makes the end of a member, whose claim is `me`, of the group of a type.
    pub fn new(kind: u32, me: BindingId, config: GroupConfig) -> GroupEnd {
        GroupEnd {
            kind,
            me,
            config,
            members: BTreeMap::new(),
            banned: BTreeSet::new(),
            open: BTreeMap::new(),
            turn: 0,
            records: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes a member from the directory.
    pub fn member_joined(&mut self, now: Instant, binding: Binding) {
        let id = binding.id;
        let is_other = id != self.me && !self.banned.contains(&id);
        if !is_other || !binding.name.group || self.members.contains_key(&id) {
            return;
        }
        self.begin(now, binding, 0);
    }

    /// Begins the record of a member, whose own record of this one has a number.
    fn begin(&mut self, now: Instant, binding: Binding, theirs: u32) {
        let window = u64::from(self.config.window);
        self.records += 1;
        let member = Member {
            binding: binding.clone(),
            out: VecDeque::new(),
            sent: 0,
            limit: window,
            resend: now,
            tries: 0,
            record: self.records,
            theirs,
            stuck: None,
            is_named: false,
            received: 0,
            taken: 0,
            ahead: BTreeMap::new(),
            told: window,
        };
        self.members.insert(binding.id, member);
        self.events.push_back(GroupEvent::Joined(binding));
    }

    /// Takes the end of a member from the directory. Messages that it has not acknowledged come
    /// back.
    pub fn member_gone(&mut self, id: BindingId, gone: Gone) {
        self.banned.remove(&id);
        self.remove(id, gone);
    }

    fn remove(&mut self, id: BindingId, gone: Gone) {
        let Some(member) = self.members.remove(&id) else { return };
        for Outgoing { payload, .. } in member.out {
            self.events.push_back(GroupEvent::Returned { payload, to: id, gone });
            self.done(payload);
        }
        self.events.push_back(GroupEvent::Left(id, gone));
    }

    fn done(&mut self, payload: u64) {
        let Some(left) = self.open.get_mut(&payload) else { return };
        *left -= 1;
        if *left == 0 {
            self.open.remove(&payload);
            self.events.push_back(GroupEvent::Done { payload });
        }
    }

    /// Returns the other members.
    pub fn members(&self) -> impl Iterator<Item = &Binding> {
        self.members.values().map(|m| &m.binding)
    }

    /// Sends a message to one member. `payload` names it to the driver, and is used once.
    pub fn unicast(&mut self, now: Instant, to: BindingId, payload: u64) -> Result<(), SendError> {
        let to: Vec<BindingId> = self.members.get(&to).map(|_| to).into_iter().collect();
        self.send(now, to, Kind::Unicast, payload)
    }

    /// Sends a message to one of the members that have one of these instances.
    pub fn anycast(
        &mut self,
        now: Instant,
        instances: RangeInclusive<u32>,
        payload: u64,
    ) -> Result<(), SendError> {
        let all = self.having(&instances);
        let open = |id: &&BindingId| self.members.get(*id).is_some_and(Member::has_credit);
        let with_credit: Vec<BindingId> = all.iter().filter(open).copied().collect();
        let choice = if with_credit.is_empty() { all } else { with_credit };
        self.turn = self.turn.wrapping_add(1);
        let chosen = choice.get(self.turn % choice.len().max(1)).copied();
        self.send(now, chosen.into_iter().collect(), Kind::Anycast, payload)
    }

    /// Sends a message to all members that have one of these instances.
    pub fn multicast(
        &mut self,
        now: Instant,
        instances: RangeInclusive<u32>,
        payload: u64,
    ) -> Result<(), SendError> {
        let to = self.having(&instances);
        self.send(now, to, Kind::Multicast, payload)
    }

    /// Sends a message to all other members.
    pub fn broadcast(&mut self, now: Instant, payload: u64) -> Result<(), SendError> {
        let to = self.members.keys().copied().collect();
        self.send(now, to, Kind::Broadcast, payload)
    }

    fn having(&self, instances: &RangeInclusive<u32>) -> Vec<BindingId> {
        let (first, last) = (*instances.start(), *instances.end());
        let has = |b: &&Binding| b.name.lower <= last && first <= b.name.upper;
        self.members().filter(has).map(|b| b.id).collect()
    }

    fn send(
        &mut self,
        now: Instant,
        to: Vec<BindingId>,
        kind: Kind,
        payload: u64,
    ) -> Result<(), SendError> {
        if to.is_empty() {
            return Err(SendError::Nobody);
        }
        // All of them get it, or none: otherwise a second try would come twice to some.
        let mut slow = None;
        for id in &to {
            let Some(member) = self.members.get_mut(id).filter(|m| !m.has_credit()) else {
                continue;
            };
            member.stuck.get_or_insert(now);
            slow = slow.or(Some(*id));
        }
        if let Some(slow) = slow {
            return Err(SendError::Busy { slow });
        }
        self.open.insert(payload, to.len());
        for id in to {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.sent += 1;
            if member.out.is_empty() {
                (member.resend, member.tries) = (now + self.config.resend, 0);
            }
            let number = member.sent;
            member.out.push_back(Outgoing { number, payload, kind });
            let head = member.head(self.kind, kind as u8 + 1, number, self.config.window);
            self.out.push_back(GroupTransmit { to: id, head, payload: Some(payload) });
        }
        Ok(())
    }

    /// Takes the head of a message from a member.
    pub fn handle_message(&mut self, now: Instant, from: BindingId, head: &[u8]) -> Take {
        let Ok(head) = Reader(head).value::<GroupHead>() else { return Take::Drop };
        if head.group != self.kind {
            return Take::Drop;
        }
        match (head.kind, self.banned.contains(&from)) {
            (code::BYE, is_banned) => {
                if !is_banned && self.members.contains_key(&from) {
                    // The sender takes nothing of this member any more: nothing here waits for it
                    // either.
                    self.banned.insert(from);
                    self.remove(from, Gone::Evicted { by: from.host });
                }
                return Take::Drop;
            }
            (_, true) => {
                self.say_bye(from);
                return Take::Drop;
            }
            (_, false) => {}
        }
        if !self.same_records(now, from, &head) {
            return Take::Drop;
        }
        let Some(member) = self.members.get_mut(&from) else { return Take::Drop };
        if head.ack > member.sent {
            return Take::Drop;
        }
        let mut acknowledged = Vec::new();
        while member.out.front().is_some_and(|m| m.number <= head.ack) {
            acknowledged.extend(member.out.pop_front().map(|m| m.payload));
            (member.resend, member.tries) = (now + self.config.resend, 0);
        }
        let window = u64::from(self.config.window);
        if head.credit.min(head.ack + window) > member.limit {
            // No more than this side wants to keep.
            member.limit = head.credit.min(head.ack + window);
            member.stuck = None;
            member.is_named = false;
        }
        let mut take = Take::Drop;
        if head.kind == code::ASK {
            self.acknowledge(from);
        } else if let Some(kind) = head.kind() {
            take = self.on_message(from, head.number, kind);
        }
        acknowledged.into_iter().for_each(|payload| self.done(payload));
        take
    }

    /// Tells a member that it was evicted by this one.
    fn say_bye(&mut self, to: BindingId) {
        self.records += 1;
        let (kind, group, record) = (code::BYE, self.kind, self.records);
        let (number, ack, credit, heard) = (0, 0, 0, 0);
        let head =
            GroupHead { kind, version: 1, pad: 0, group, number, ack, credit, record, heard };
        self.out.push_back(GroupTransmit { to, head: head.bytes(), payload: None });
    }

    /// Returns true if both sides mean the same two records. A member that this one lost from sight
    /// for a while, or that lost this one, begins anew; so does the other side then.
    fn same_records(&mut self, now: Instant, from: BindingId, head: &GroupHead) -> bool {
        let Some(member) = self.members.get_mut(&from) else { return false };
        if head.record < member.theirs {
            return false;
        }
        let is_heard = head.heard == member.record;
        if head.record > member.theirs && member.theirs > 0 {
            if !is_heard {
                // The sender has forgotten what this record is about.
                let binding = member.binding.clone();
                self.remove(from, Gone::Missing);
                self.begin(now, binding, head.record);
                self.acknowledge(from);
                return false;
            }
            (member.received, member.taken) = (0, 0);
            member.ahead.clear();
        }
        if !is_heard && head.heard != 0 {
            // The message was sent to an earlier record: the sender learns of this record.
            self.acknowledge(from);
            return false;
        }
        member.theirs = head.record;
        true
    }

    /// Returns the message behind a head if its bytes are wanted. [`GroupEnd::handle_message`] gets
    /// the heads of all.
    pub fn wants(&self, from: BindingId, head: &[u8]) -> Option<Wanted> {
        let head = Reader(head).value::<GroupHead>().ok()?;
        let member = self.members.get(&from)?;
        head.kind().filter(|_| head.group == self.kind)?;
        let is_current = head.record == member.theirs;
        let (received, taken) = if is_current { (member.received, member.taken) } else { (0, 0) };
        let last = taken + u64::from(self.config.window);
        let is_new = head.number > received && head.number <= last;
        let is_new = is_new && !(is_current && member.ahead.contains_key(&head.number));
        let (record, number) = (head.record, head.number);
        is_new.then_some(Wanted { record, number, is_next: number == received + 1 })
    }

    /// True if there is a message to be sent.
    pub fn has_transmit(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns this member's claim.
    pub fn me(&self) -> BindingId {
        self.me
    }

    fn on_message(&mut self, from: BindingId, number: u64, kind: Kind) -> Take {
        let window = u64::from(self.config.window);
        let Some(member) = self.members.get_mut(&from) else { return Take::Drop };
        let is_new = number > member.received && !member.ahead.contains_key(&number);
        // Beyond what it was granted a member keeps its message itself.
        let take = match is_new && number <= member.taken + window {
            true => Take::Keep(number),
            false => Take::Drop,
        };
        if take != Take::Drop {
            member.ahead.insert(number, kind);
            while let Some(kind) = member.ahead.remove(&(member.received + 1)) {
                member.received += 1;
                let number = member.received;
                self.events.push_back(GroupEvent::Deliver { from, number, kind });
            }
        }
        self.acknowledge(from);
        take
    }

    /// Notes that the program has taken a message: the sender gets credit.
    pub fn taken(&mut self, from: BindingId, number: u64) {
        let quarter = u64::from(self.config.window / 4).max(1);
        let Some(member) = self.members.get_mut(&from) else { return };
        if number != member.taken + 1 || number > member.received {
            return;
        }
        member.taken = number;
        if number + u64::from(self.config.window) >= member.told + quarter {
            self.acknowledge(from);
        }
    }

    fn acknowledge(&mut self, to: BindingId) {
        let Some(member) = self.members.get_mut(&to) else { return };
        let head = member.head(self.kind, code::ACK, 0, self.config.window);
        self.out.push_back(GroupTransmit { to, head, payload: None });
    }

    /// Retransmits what was not acknowledged, and names or evicts slow members.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut out = Vec::new();
        for (id, member) in self.members.iter_mut() {
            let GroupConfig { slow_after, evict_after, window, .. } = self.config;
            if member.waits() && now >= member.resend {
                member.tries = (member.tries + 1).min(16);
                let pause = self.config.resend * (1 << member.tries);
                member.resend = now + pause.min(self.config.resend_max);
                // The oldest fills the gap; acknowledgements bring out the rest.
                let oldest = member.out.front().map(|m| (m.number, m.payload, m.kind));
                let (code, number, payload) = match oldest {
                    Some((number, payload, kind)) => (kind as u8 + 1, number, Some(payload)),
                    None => (code::ASK, 0, None),
                };
                let head = member.head(self.kind, code, number, window);
                self.out.push_back(GroupTransmit { to: *id, head, payload });
            }
            let Some(since) = member.stuck.map(|at| now.since(at)) else { continue };
            if since >= slow_after && !member.is_named {
                member.is_named = true;
                self.events.push_back(GroupEvent::Slow { member: *id, since });
            }
            if evict_after.is_some_and(|limit| since >= limit) {
                out.push(*id);
            }
        }
        for member in out {
            self.banned.insert(member);
            self.say_bye(member);
            self.events.push_back(GroupEvent::Evicted { member });
            self.remove(member, Gone::Evicted { by: self.me.host });
        }
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        let GroupConfig { slow_after, evict_after, .. } = self.config;
        let of = |member: &Member| {
            let resend = member.waits().then_some(member.resend);
            let slow = member.stuck.filter(|_| !member.is_named).map(|at| at + slow_after);
            let out = member.stuck.and_then(|at| Some(at + evict_after?));
            [resend, slow, out].into_iter().flatten().min()
        };
        self.members.values().filter_map(of).min()
    }

    /// Takes a message to be sent.
    pub fn poll_transmit(&mut self) -> Option<GroupTransmit> {
        self.out.pop_front()
    }

    /// Takes an event.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }
}

impl Member {
    fn has_credit(&self) -> bool {
        self.sent < self.limit
    }

    /// Returns true if the sender waits for something: an acknowledgement, or credit.
    fn waits(&self) -> bool {
        !self.out.is_empty() || self.stuck.is_some()
    }

    fn head(&mut self, group: u32, kind: u8, number: u64, window: u32) -> Vec<u8> {
        let (ack, credit) = (self.received, self.taken + u64::from(window));
        self.told = credit;
        let (record, heard) = (self.record, self.theirs);
        GroupHead { kind, version: 1, pad: 0, group, number, ack, credit, record, heard }.bytes()
    }
}

#[cfg(test)]
mod tests;

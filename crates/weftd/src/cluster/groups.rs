//! Memberships of the programs of this host in groups.

use super::callers::CallerId;
use super::tipc::is_port;
use super::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use weft_cluster::group::{self, Membership, NotSent, Part, Sending, To};
use weft_cluster::local::Say;
use weft_cluster::name::kind_of;
use weft_cluster::names::groups::{GroupConfig, SendError};
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{BindingId, Claim, Filter, Mode, NameEvent, Notice, SubscriptionId};
use weft_cluster::session::class;
use weft_cluster::share;
use weft_core::Instant;

/// Memberships of one user on this host, which bounds the memory of their messages.
const OF_USER: usize = 64;
/// Longest time for which a message waits for credit.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A membership of a program.
struct Held {
    membership: Membership,
    caller: CallerId,
    user: u32,
    alias: String,
    subscription: SubscriptionId,
    /// The request whose message waits for credit.
    asked: Option<u32>,
}

/// The memberships of this host, by their claims.
#[derive(Default)]
pub struct Groups {
    table: BTreeMap<u64, Held>,
    /// The claim of each number in the directory.
    of_number: BTreeMap<u64, u64>,
    of_subscription: BTreeMap<SubscriptionId, u64>,
    /// Memberships with something to do.
    busy: BTreeSet<u64>,
    /// Memberships whose programs did not read all.
    stalled: BTreeSet<u64>,
    pub malformed: u64,
}

impl Groups {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.table.values().filter_map(|h| h.membership.next_timeout()).min()
    }

    /// True if no membership has something to do that its program does not hold up.
    pub fn is_idle(&self) -> bool {
        self.busy.is_empty()
    }

    /// Returns the parts of messages that found no room.
    pub fn dropped(&self) -> u64 {
        self.table.values().map(|h| h.membership.dropped()).sum()
    }

    /// Notes that a subscription has something to read. Returns false if it is of no group.
    pub fn on_readable(&mut self, id: SubscriptionId) -> bool {
        let claim = self.of_subscription.get(&id);
        self.busy.extend(claim);
        claim.is_some()
    }

    /// Returns the membership of a claim.
    pub fn membership(&mut self, claim: u64) -> Option<&mut Membership> {
        self.table.get_mut(&claim).map(|held| &mut held.membership)
    }

    /// A membership has something to do.
    pub fn is_busy(&mut self, claim: u64) {
        if self.table.contains_key(&claim) {
            self.busy.insert(claim);
        }
    }

    /// Returns the subscription of a claim that has ended.
    pub fn remove(&mut self, claim: u64) -> Option<SubscriptionId> {
        let held = self.table.remove(&claim)?;
        self.of_number.remove(&held.membership.me().claim);
        self.of_subscription.remove(&held.subscription);
        self.busy.remove(&claim);
        Some(held.subscription)
    }

    /// Removes the memberships of a connection that has ended.
    pub fn remove_caller(&mut self, caller: CallerId) {
        let of_caller = self.table.iter().filter(|(_, h)| h.caller == caller);
        let claims: Vec<u64> = of_caller.map(|(claim, _)| *claim).collect();
        for claim in claims {
            self.remove(claim);
        }
    }
}

impl Cluster {
    /// Claims a name for a program that becomes a member of the group of its type.
    pub(super) fn join_group(
        &mut self,
        now: Instant,
        id: CallerId,
        serial: u32,
        name: Claim,
        (slow_ms, evict_ms): (u64, u64),
    ) -> Option<Say> {
        let user = self.owner_of(id)?.user;
        if share::count(user, self.groups.table.values().map(|h| h.user)) >= OF_USER {
            let why = format!("the user is a member of {OF_USER} groups here: leave some");
            return Some(Say::Refused(why));
        }
        let evict = (evict_ms > 0).then(|| Duration::from_millis(evict_ms));
        let config = group::config(Duration::from_millis(slow_ms), evict);
        self.claim_for(now, id, serial, name.group(), false, Some(config))
    }

    /// Begins the membership of a claim that holds. Its owner sees the members that it may see.
    pub(super) fn begin_group(&mut self, now: Instant, claim: u64, config: GroupConfig) {
        let Some(caller) = self.claims.get(&claim).map(|c| c.caller) else { return };
        let Some(owner) = self.owner_of(caller) else { return };
        let Some(number) = self.node.number_of(ClaimId(claim)) else { return };
        let me = self.node.me();
        let id = BindingId { host: me.host, life: me.life, claim: number };
        let (directory, _) = self.node.directory();
        let own = directory.origin(me.host).and_then(|o| o.bindings().find(|b| b.id == id));
        let Some((kind, alias)) = own.map(|b| (b.name.kind, b.name.alias.clone())) else { return };
        let (lower, upper, mode, timeout) = (0, u32::MAX, Mode::Each, None);
        let filter = Filter { kind, lower, upper, mode, timeout };
        let subscription = match self.node.subscribe(now, owner, filter) {
            Ok(subscription) => subscription,
            Err(why) => {
                log::warn!("cluster {}: {owner} sees no group: {why}", self.options.name);
                return;
            }
        };
        let membership = Membership::new(kind, id, config);
        let held = Held { membership, caller, user: owner.user, alias, subscription, asked: None };
        self.groups.table.insert(claim, held);
        self.groups.of_number.insert(number, claim);
        self.groups.of_subscription.insert(subscription, claim);
        self.groups.busy.insert(claim);
    }

    /// Ends what a claim had as a member of a group.
    pub(super) fn end_group(&mut self, claim: u64) {
        if let Some(subscription) = self.groups.remove(claim) {
            self.node.unsubscribe(subscription);
        }
    }

    fn group_of(&mut self, id: CallerId, claim: u64) -> Option<&mut Held> {
        let held = self.groups.table.get_mut(&claim).filter(|h| h.caller == id)?;
        self.groups.busy.insert(claim);
        Some(held)
    }

    /// Sends a message of a program to members of its group.
    pub(super) fn cast(
        &mut self,
        now: Instant,
        (id, serial): (CallerId, u32),
        claim: u64,
        to: To,
        wait_ms: u64,
        payload: Vec<u8>,
    ) -> Option<Say> {
        let Some(held) = self.group_of(id, claim) else {
            return Some(Say::Refused("this program is no member of the group".into()));
        };
        let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
        match held.membership.send(now, to, payload, wait) {
            Sending::Sent(number) => Some(Say::Done(number)),
            Sending::Waits => {
                held.asked = Some(serial);
                None
            }
            Sending::Refused(why) => Some(Say::Refused(self.refusal(&why))),
        }
    }

    fn refusal(&self, why: &NotSent) -> String {
        match why {
            NotSent::Group(SendError::Busy { slow }) => {
                let (directory, _) = self.node.directory();
                let origin = directory.origin(slow.host);
                let owner = origin.and_then(|o| o.bindings().find(|b| b.id == *slow));
                let owner = owner.map_or(String::new(), |b| format!(", {},", b.name.owner));
                let host = self.name_of(slow.host);
                format!("the member of host {host}{owner} takes no messages")
            }
            other => other.to_string(),
        }
    }

    /// Notes that a program has taken messages of its group.
    pub(super) fn took(&mut self, now: Instant, id: CallerId, claim: u64, count: u32) {
        if let Some(held) = self.group_of(id, claim) {
            held.membership.took(now, count);
        }
    }

    /// Takes a message of a member of another host.
    pub(super) fn on_group_message(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let sender = self.node.members().iter().find(|m| m.record.address == from);
        let Some(host) = sender.map(|m| m.record.host) else { return };
        match Part::parse(bytes) {
            Ok(part) => {
                let (life, claim) = (part.from_life, part.from);
                self.give_part(now, BindingId { host, life, claim }, &part);
            }
            Err(_) => self.groups.malformed += 1,
        }
    }

    fn give_part(&mut self, now: Instant, from: BindingId, part: &Part<'_>) {
        let claim = self.groups.of_number.get(&part.to).copied();
        let Some(claim) = claim.filter(|_| part.to_life == self.node.me().life) else { return };
        if let Some(held) = self.groups.table.get_mut(&claim) {
            held.membership.receive(now, from, part);
            self.groups.busy.insert(claim);
        }
    }

    /// Does what is due.
    pub(super) fn groups_in_time(&mut self, now: Instant) {
        let stalled = std::mem::take(&mut self.groups.stalled);
        self.groups.busy.extend(stalled);
        for (claim, held) in &mut self.groups.table {
            if held.membership.next_timeout().is_some_and(|at| at <= now) {
                held.membership.handle_timeout(now);
                self.groups.busy.insert(*claim);
            }
        }
    }

    /// Sends what memberships have to be sent, and tells their programs.
    pub(super) fn work_groups(&mut self, now: Instant) {
        while let Some(claim) = self.groups.busy.pop_first() {
            self.read_names(now, claim);
            self.send_parts(now, claim);
            if self.send_member(now, claim) {
                self.groups.stalled.insert(claim);
            }
        }
    }

    /// Takes the members that came and went from the directory.
    fn read_names(&mut self, now: Instant, claim: u64) {
        let Some(held) = self.groups.table.get_mut(&claim) else { return };
        while held.membership.has_room() {
            let Some(event) = self.node.read(held.subscription) else { return };
            if is_of_group(&event, &held.alias) {
                held.membership.on_name(now, event);
            }
        }
    }

    fn send_parts(&mut self, now: Instant, claim: u64) {
        loop {
            let Some(held) = self.groups.table.get_mut(&claim) else { return };
            if !held.membership.has_transmit() {
                break;
            }
            let from = held.membership.me();
            for datagram in held.membership.poll_transmit() {
                if datagram.to.host == from.host {
                    if let Ok(part) = Part::parse(&datagram.bytes) {
                        self.give_part(now, from, &part);
                    }
                } else if let Some(member) = self.node.members().get(datagram.to.host) {
                    let to = member.record.address;
                    self.sessions.send(now, to, class::GROUP, &datagram.bytes);
                }
            }
        }
    }

    /// Tells a program what its membership has for it. Returns true if it did not take all.
    fn send_member(&mut self, now: Instant, claim: u64) -> bool {
        let Some(held) = self.groups.table.get_mut(&claim) else { return false };
        if is_port(held.caller) {
            while let Some(member) = held.membership.poll_evicted() {
                self.node.evict(now, member, held.user);
            }
            let caller = held.caller;
            return self.tell_port(now, claim, caller);
        }
        if let Some(sent) = held.membership.poll_sent() {
            let (serial, caller) = (held.asked.take(), held.caller);
            let say = sent.map_or_else(|why| Say::Refused(self.refusal(&why)), Say::Done);
            if let (Some(serial), Some(caller)) = (serial, self.callers.get_mut(caller)) {
                caller.say(serial, &say);
            }
        }
        let Some(held) = self.groups.table.get_mut(&claim) else { return false };
        while let Some(member) = held.membership.poll_evicted() {
            self.node.evict(now, member, held.user);
        }
        let Some(caller) = self.callers.get_mut(held.caller) else { return false };
        while caller.has_room() {
            match held.membership.poll_event() {
                Some((seq, notice)) => caller.say(0, &Say::Group(claim, seq, notice)),
                None => return false,
            }
        }
        true
    }
}

/// Returns true if an event of the directory is one of a group. Two words of one type are two
/// groups.
fn is_of_group(event: &NameEvent, alias: &str) -> bool {
    match &event.notice {
        Notice::Published(b) | Notice::Withdrawn(b, _) => {
            let word = |alias: &str| kind_of(alias) == b.name.kind;
            b.name.group && (b.name.alias == alias || !word(&b.name.alias) || !word(alias))
        }
        _ => true,
    }
}

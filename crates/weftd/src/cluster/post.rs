//! Messages of programs to names.

use super::callers::CallerId;
use super::Cluster;
use std::collections::BTreeMap;
use weft_cluster::local::{Say, MAIL_MAX};
use weft_cluster::mail::{Outcome, Post, Receiver};
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{BindingId, HostId, Life, Owner, Pick};
use weft_core::Instant;

/// Requests of one connection whose messages are under way.
const OF_CALLER: usize = 64;

/// The name that a message goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub kind: u32,
    pub lower: u32,
    pub upper: u32,
}

/// A message that a program sent, until all its receivers have it or not.
struct Sent {
    caller: CallerId,
    serial: u32,
    left: usize,
    failed: Option<Outcome>,
    /// A message to one owner goes to another one, once, if the first has vanished or takes none.
    again: Option<(Address, Vec<u8>)>,
    first: BindingId,
}

/// The messages of the programs of this host.
pub struct Mail {
    post: Post,
    sent: BTreeMap<u64, Sent>,
    next: u64,
    /// Messages to one owner of several instances, which take turns.
    turn: u64,
    /// The request that each message under way belongs to.
    request_of: BTreeMap<u64, u64>,
    /// The claim of each name of this host that holds.
    held: BTreeMap<u64, u64>,
}

impl Mail {
    pub fn new() -> Mail {
        Mail {
            post: Post::new(weft_link::random_u64()),
            sent: BTreeMap::new(),
            next: 0,
            turn: 0,
            request_of: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.post.next_timeout()
    }
}

impl Cluster {
    /// Notes that a claim holds, so that messages find its program.
    pub(super) fn note_held(&mut self, now: Instant, claim: u64) {
        let joins = self.claims.get_mut(&claim).and_then(|c| c.joins.take());
        if let Some(config) = joins {
            self.begin_group(now, claim, config);
        }
        if let Some(number) = self.node.number_of(ClaimId(claim)) {
            self.mail.held.insert(number, claim);
        }
        if self.mail.held.len() > 2 * self.claims.len() + 64 {
            let claims = &self.claims;
            self.mail.held.retain(|_, claim| claims.contains_key(claim));
        }
    }

    /// Sends a message of a program. The answer comes when its outcome is known.
    pub(super) fn post(
        &mut self,
        now: Instant,
        id: CallerId,
        serial: u32,
        name: Address,
        all: bool,
        payload: Vec<u8>,
    ) -> Vec<Say> {
        let refused = |why: &str| vec![Say::Refused(why.to_string())];
        let Some(owner) = self.callers.get_mut(id).map(|c| c.owner) else { return Vec::new() };
        if payload.len() > MAIL_MAX {
            return refused("the message is too long");
        }
        if self.mail.sent.values().filter(|s| s.caller == id).count() >= OF_CALLER {
            return refused("too many messages of this program are under way");
        }
        let to: Vec<BindingId> = match all {
            true => self.owners(owner.user, name).collect(),
            false => self.next_owner(owner.user, name).into_iter().collect(),
        };
        let Some(first) = to.first().copied() else {
            return refused("nobody has the name");
        };
        self.mail.next += 1;
        let request = self.mail.next;
        let again = (!all).then(|| (name, payload.clone()));
        let left = to.len();
        let sent = Sent { caller: id, serial, left, failed: None, again, first };
        self.mail.sent.insert(request, sent);
        for id in to {
            self.carry(now, request, id, owner, payload.clone());
        }
        Vec::new()
    }

    /// Returns the claims of a name that a user sees.
    fn owners(&self, user: u32, name: Address) -> impl Iterator<Item = BindingId> + '_ {
        let (directory, policy) = self.node.directory();
        directory.all(policy, user, name.kind, name.lower, name.upper).map(|b| b.id)
    }

    /// Returns the claim of a name whose turn it is.
    fn next_owner(&mut self, user: u32, name: Address) -> Option<BindingId> {
        if name.lower == name.upper {
            return self.node.look_up(user, name.kind, name.lower, Pick::Turn).map(|b| b.id);
        }
        let count = self.owners(user, name).count().max(1) as u64;
        self.mail.turn += 1;
        let turn = (self.mail.turn % count) as usize;
        self.owners(user, name).nth(turn)
    }

    /// Sends a message to one claim.
    fn carry(&mut self, now: Instant, request: u64, to: BindingId, from: Owner, payload: Vec<u8>) {
        let me = self.node.me().host;
        if to.host == me {
            let outcome = self.deliver(to.claim, to.life, me, from, payload);
            return self.on_outcome(now, request, outcome);
        }
        let agent = self.node.members().get(to.host).map(|m| m.record.address);
        let BindingId { life, claim, .. } = to;
        let number = agent.and_then(|agent| {
            self.mail.post.send(now, Receiver { agent, life, claim }, from, payload)
        });
        match number {
            Some(number) => drop(self.mail.request_of.insert(number, request)),
            None => self.on_outcome(now, request, Outcome::Overload),
        }
    }

    /// Gives a message to the program that has a claim of this host.
    fn deliver(
        &mut self,
        claim: u64,
        life: Life,
        host: HostId,
        from: Owner,
        payload: Vec<u8>,
    ) -> Outcome {
        let id = self.mail.held.get(&claim).copied().filter(|_| life == self.node.me().life);
        let claimed = id.and_then(|id| self.claims.get(&id));
        if claimed.is_some_and(|c| !c.takes_mail) {
            return Outcome::Deaf;
        }
        let caller = claimed.map(|c| c.caller);
        match (id, caller.and_then(|caller| self.callers.get_mut(caller))) {
            (Some(id), Some(caller)) if caller.has_room() => {
                caller.say(0, &Say::Mail(id, host, from, payload));
                Outcome::Delivered
            }
            (Some(_), Some(_)) => Outcome::Overload,
            _ => Outcome::Vanished,
        }
    }

    /// Takes a message of another agent.
    pub(super) fn on_mail(&mut self, now: Instant, from: std::net::SocketAddr, bytes: &[u8]) {
        let sender = self.node.members().iter().find(|m| m.record.address == from);
        let Some(host) = sender.map(|m| m.record.host) else { return };
        // Taken out, since the delivery needs the rest.
        let mut post = std::mem::replace(&mut self.mail.post, Post::new(0));
        post.receive(now, from, bytes, |claim, life, owner, payload| {
            self.deliver(claim, life, host, owner, payload)
        });
        self.mail.post = post;
        self.settle_mail(now);
    }

    /// Returns messages to a host that is gone.
    pub(super) fn mail_to_gone(&mut self, now: Instant, host: HostId) {
        if let Some(agent) = self.node.members().get(host).map(|m| m.record.address) {
            self.mail.post.host_gone(agent);
            self.settle_mail(now);
        }
    }

    /// Sends messages again that are due.
    pub(super) fn mail_in_time(&mut self, now: Instant) {
        if self.mail.post.next_timeout().is_some_and(|at| at <= now) {
            self.mail.post.handle_timeout(now);
            self.settle_mail(now);
        }
    }

    /// Sends what is to be sent.
    pub(super) fn send_mail(&mut self, now: Instant) {
        use weft_cluster::session::class;
        while let Some((to, bytes)) = self.mail.post.poll_transmit() {
            self.sessions.send(now, to, class::MAIL, &bytes);
        }
    }

    fn settle_mail(&mut self, now: Instant) {
        while let Some((number, outcome)) = self.mail.post.poll_outcome() {
            if let Some(request) = self.mail.request_of.remove(&number) {
                self.on_outcome(now, request, outcome);
            }
        }
    }

    /// Notes the outcome of a message; the last one answers the program.
    fn on_outcome(&mut self, now: Instant, request: u64, outcome: Outcome) {
        let Some(sent) = self.mail.sent.get_mut(&request) else { return };
        let owner = self.callers.get_mut(sent.caller).map(|c| c.owner);
        let (again, first) = (sent.again.take(), sent.first);
        if let (Outcome::Vanished | Outcome::Deaf, Some((name, payload)), Some(owner)) =
            (outcome, again, owner)
        {
            let other = self.next_owner(owner.user, name);
            if let Some(other) = other.filter(|id| *id != first) {
                return self.carry(now, request, other, owner, payload);
            }
        }
        let Some(sent) = self.mail.sent.get_mut(&request) else { return };
        sent.left -= 1;
        if outcome != Outcome::Delivered {
            sent.failed = Some(outcome);
        }
        if sent.left > 0 {
            return;
        }
        let Some(sent) = self.mail.sent.remove(&request) else { return };
        let say = match sent.failed {
            None => Say::Done(0),
            Some(outcome) => Say::Refused(outcome.text().into()),
        };
        if let Some(caller) = self.callers.get_mut(sent.caller) {
            caller.say(sent.serial, &say);
        }
    }
}

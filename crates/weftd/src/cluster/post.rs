//! Messages of programs to names.

use super::callers::CallerId;
use super::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weft_cluster::local::{Say, MAIL_MAX};
use weft_cluster::mail::{Letter, Outcome, Post, Receiver};
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{BindingId, HostId, Life, Node, Owner, Pick};
use weft_cluster::tree::{Above, TreeMail, Trees, Verdict};
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
    failed: Option<Verdict>,
    /// A message to one owner goes to another one, once, if the first has vanished or takes none.
    again: Option<(Address, Vec<u8>)>,
    first: BindingId,
}

/// The messages of the programs of this host.
pub struct Mail {
    post: Post,
    trees: Trees,
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
            trees: Trees::default(),
            sent: BTreeMap::new(),
            next: 0,
            turn: 0,
            request_of: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Returns how many messages went to other agents.
    pub fn begun(&self) -> u64 {
        self.post.begun
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.post.next_timeout()
    }
}

/// Returns the agent of a host that is there.
pub(super) fn agent_of(node: &Node, host: HostId) -> Option<(SocketAddr, Life)> {
    let member = node.members().get(host).filter(|m| m.is_up())?;
    Some((member.record.address, member.record.life))
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
        // All owners of other hosts are reached by one tree.
        let me = self.node.me().host;
        let is_near = |id: &BindingId| !all || id.host == me;
        let below: BTreeSet<HostId> =
            to.iter().filter(|id| !is_near(id)).map(|id| id.host).collect();
        let near: Vec<BindingId> = to.iter().filter(|id| is_near(id)).copied().collect();
        let left = near.len() + usize::from(!below.is_empty());
        let sent = Sent { caller: id, serial, left, failed: None, again, first };
        self.mail.sent.insert(request, sent);
        for id in near {
            self.carry(now, request, id, owner, payload.clone());
        }
        if !below.is_empty() {
            let me = self.node.me();
            let Address { kind, lower, upper } = name;
            let (id, below) = ((me.host, me.life, request), below.into_iter().collect());
            let mail = TreeMail { id, kind, lower, upper, below, payload };
            self.plant(now, mail, owner, Above::Request(request), Verdict::DELIVERED);
        }
        Vec::new()
    }

    /// Passes a message on to the hosts below this one.
    fn plant(&mut self, now: Instant, mail: TreeMail, from: Owner, above: Above, own: Verdict) {
        let Cluster { mail: Mail { post, trees, .. }, node, .. } = self;
        trees.begin(now, post, (mail, from), above, own, |host| agent_of(node, host));
        self.end_mail(now);
    }

    /// Takes a message to all owners of a name from the agent above.
    fn on_tree(&mut self, now: Instant, from: SocketAddr, letter: &Letter) -> Option<Outcome> {
        let me = self.node.me();
        let (host, life) = (me.host, me.life);
        let mail = match TreeMail::parse(&letter.payload) {
            Ok(mail) if letter.life == life => mail,
            _ => return Some(Outcome::Vanished),
        };
        let above = Above::Agent(from, letter.id);
        if self.mail.trees.knows(mail.id, above) {
            return None;
        }
        let TreeMail { kind, lower, upper, .. } = mail;
        let owners = self.owners(letter.from.user, Address { kind, lower, upper });
        let own: Vec<BindingId> = owners.filter(|id| id.host == host).collect();
        let gone = Verdict { outcome: Outcome::Vanished, host };
        let mut verdict = if own.is_empty() { gone } else { Verdict::DELIVERED };
        for id in own {
            let payload = mail.payload.clone();
            let outcome = self.deliver(id.claim, life, mail.id.0, letter.from, payload);
            if outcome != Outcome::Delivered {
                verdict = Verdict { outcome, host };
            }
        }
        self.plant(now, mail, letter.from, above, verdict);
        None
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
            return self.on_outcome(now, request, Verdict { outcome, host: me });
        }
        let agent = agent_of(&self.node, to.host).map(|(agent, _)| agent);
        let BindingId { life, claim, .. } = to;
        let number = agent.and_then(|agent| {
            self.mail.post.send(now, Receiver { agent, life, claim }, from, payload)
        });
        match number {
            Some(number) => drop(self.mail.request_of.insert(number, request)),
            None => {
                let overload = Verdict { outcome: Outcome::Overload, host: to.host };
                self.on_outcome(now, request, overload);
            }
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
        if let Some(letter) = self.mail.post.receive(now, from, bytes) {
            let outcome = match letter.claim {
                0 => self.on_tree(now, from, &letter),
                claim => {
                    let payload = letter.payload.clone();
                    Some(self.deliver(claim, letter.life, host, letter.from, payload))
                }
            };
            match outcome {
                Some(outcome) => {
                    let verdict = Verdict { outcome, host: HostId(0) };
                    self.mail.post.answer(from, letter.id, verdict);
                }
                None => self.mail.post.hold(from, &letter),
            }
        }
        self.end_mail(now);
    }

    /// Returns messages to a host that is gone.
    pub(super) fn mail_to_gone(&mut self, now: Instant, host: HostId) {
        if let Some(agent) = self.node.members().get(host).map(|m| m.record.address) {
            self.mail.post.host_gone(agent);
            self.end_mail(now);
        }
    }

    /// Sends messages again that are due.
    pub(super) fn mail_in_time(&mut self, now: Instant) {
        if self.mail.post.next_timeout().is_some_and(|at| at <= now) {
            self.mail.post.handle_timeout(now);
            self.end_mail(now);
        }
    }

    /// Sends what is to be sent.
    pub(super) fn send_mail(&mut self, now: Instant) {
        use weft_cluster::session::class;
        while let Some((to, bytes)) = self.mail.post.poll_transmit() {
            self.sessions.send(now, to, class::MAIL, &bytes);
        }
    }

    fn end_mail(&mut self, now: Instant) {
        loop {
            let Cluster { mail: Mail { post, trees, .. }, node, .. } = self;
            if let Some((number, verdict)) = post.poll_outcome() {
                let find = |host| agent_of(node, host);
                if !trees.on_outcome(now, post, number, verdict, find) {
                    if let Some(request) = self.mail.request_of.remove(&number) {
                        self.on_outcome(now, request, verdict);
                    }
                }
            } else if let Some((above, verdict)) = trees.poll_verdict() {
                match above {
                    Above::Agent(agent, id) => post.answer(agent, id, verdict),
                    Above::Request(request) => self.on_outcome(now, request, verdict),
                }
            } else {
                return;
            }
        }
    }

    /// Notes the outcome of a message; the last one answers the program.
    fn on_outcome(&mut self, now: Instant, request: u64, verdict: Verdict) {
        let Some(sent) = self.mail.sent.get_mut(&request) else { return };
        let owner = self.callers.get_mut(sent.caller).map(|c| c.owner);
        let (again, first) = (sent.again.take(), sent.first);
        if let (Outcome::Vanished | Outcome::Deaf, Some((name, payload)), Some(owner)) =
            (verdict.outcome, again, owner)
        {
            let other = self.next_owner(owner.user, name);
            if let Some(other) = other.filter(|id| *id != first) {
                return self.carry(now, request, other, owner, payload);
            }
        }
        let Some(sent) = self.mail.sent.get_mut(&request) else { return };
        sent.left -= 1;
        if verdict.outcome != Outcome::Delivered {
            sent.failed = Some(verdict);
        }
        if sent.left > 0 {
            return;
        }
        let Some(sent) = self.mail.sent.remove(&request) else { return };
        let say = match sent.failed {
            None => Say::Done(0),
            Some(Verdict { outcome, host: HostId(0) }) => Say::Refused(outcome.text().into()),
            Some(Verdict { outcome, host }) => {
                Say::Refused(format!("{} (host {})", outcome.text(), self.name_of(host)))
            }
        };
        if let Some(caller) = self.callers.get_mut(sent.caller) {
            caller.say(sent.serial, &say);
        }
    }
}

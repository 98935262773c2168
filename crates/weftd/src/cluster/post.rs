//! Messages of programs to names.

use super::callers::CallerId;
use super::{Cluster, NOBODY};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use weft_cluster::local::{Say, MAIL_MAX};
use weft_cluster::mail::{self, Letter, Outcome, Post, Receiver};
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{BindingId, HostId, Life, Node, Owner, Pick};
use weft_cluster::taken::{End, Mark, Open, Unread, ENDS_MAX, OPEN_MAX};
use weft_cluster::tree::{Above, Arrival, TreeMail, Trees, Verdict};
use weft_cluster::Name;
use weft_core::Instant;

/// Requests of one connection whose messages are under way.
const OF_CALLER: usize = 64;
/// Time after which ends of messages go again to an agent that did not take them.
const OWED_AGAIN: Duration = Duration::from_millis(100);

/// A message that a program sent, until all its receivers have it or not.
struct Sent {
    caller: CallerId,
    serial: u32,
    left: usize,
    to_all: bool,
    failed: Option<Verdict>,
    /// A message to one owner goes to another one, once, if the first has vanished or takes none.
    again: Option<(Name, Vec<u8>)>,
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
    /// Messages of programs of this host whose owners may not have read them.
    open: Open,
    /// Messages that programs of this host have not read.
    unread: Unread,
    /// Ends of messages that the agents of their senders do not know.
    owed: BTreeMap<HostId, Vec<End>>,
    /// Ends that are under way, by message.
    owed_of: BTreeMap<u64, (HostId, Vec<End>)>,
    owed_at: Option<Instant>,
}

impl Mail {
    pub fn new() -> Mail {
        Mail {
            post: Post::new(weft_link::random_u64()),
            trees: Trees::default(),
            sent: BTreeMap::new(),
            // Numbers of an agent that starts again are others.
            next: weft_link::random_u64() >> 1,
            turn: 0,
            request_of: BTreeMap::new(),
            held: BTreeMap::new(),
            open: Open::default(),
            unread: Unread::default(),
            owed: BTreeMap::new(),
            owed_of: BTreeMap::new(),
            owed_at: None,
        }
    }

    /// Returns how many messages went to other agents.
    pub fn begun(&self) -> u64 {
        self.post.begun
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.post.next_timeout().into_iter().chain(self.owed_at).min()
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
        name: Name,
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
        if !self.mail.open.has_room(id) {
            let why = format!("{OPEN_MAX} messages of this program wait to be read");
            return refused(&why);
        }
        let to: Vec<BindingId> = match all {
            true => self.owners(owner.user, &name).collect(),
            false => self.next_owner(owner.user, &name).into_iter().collect(),
        };
        let Some(first) = to.first().copied() else {
            return refused("nobody has the name");
        };
        self.mail.next += 1;
        let request = self.mail.next;
        let again = (!all).then(|| (name.clone(), payload.clone()));
        // All owners of other hosts are reached by one tree.
        let me = self.node.me().host;
        let is_near = |id: &BindingId| !all || id.host == me;
        let below: BTreeSet<HostId> =
            to.iter().filter(|id| !is_near(id)).map(|id| id.host).collect();
        let near: Vec<BindingId> = to.iter().filter(|id| is_near(id)).copied().collect();
        let left = near.len() + usize::from(!below.is_empty());
        let sent = Sent { caller: id, serial, left, to_all: all, failed: None, again, first };
        self.mail.sent.insert(request, sent);
        for id in near {
            self.carry(now, request, id, owner, payload.clone());
        }
        if !below.is_empty() {
            let me = self.node.me();
            let Name { kind, lower, upper, alias } = name;
            let mark = Mark { is_tree: true, number: request };
            below.iter().for_each(|host| self.mail.open.begin(id, request, *host, mark));
            let (id, below) = ((me.host, me.life, request), below.into_iter().collect());
            let floor = self.mail.trees.floor(id);
            let mail = TreeMail { id, floor, kind, lower, upper, alias, below, payload };
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
        match self.mail.trees.arrive(&mail, above) {
            Arrival::New => {}
            Arrival::Known => return None,
            Arrival::Full => return Some(Outcome::Overload),
        }
        let TreeMail { kind, lower, upper, .. } = mail;
        let name = Name { kind, lower, upper, alias: mail.alias.clone() };
        let owners = self.owners(letter.from.user, &name);
        let own: Vec<BindingId> = owners.filter(|id| id.host == host).collect();
        let gone = Verdict { outcome: Outcome::Vanished, host };
        let mut verdict = if own.is_empty() { gone } else { Verdict::DELIVERED };
        let (sender, mark) = (mail.id.0, Mark { is_tree: true, number: mail.id.2 });
        for id in own {
            let (to, payload) = ((id.claim, life), mail.payload.clone());
            let outcome = self.deliver(to, (sender, mark), letter.from, payload);
            if outcome != Outcome::Delivered {
                verdict = Verdict { outcome, host };
            }
        }
        self.mail.unread.given_to_all(sender, mark);
        self.send_ends(now);
        self.plant(now, mail, letter.from, above, verdict);
        None
    }

    /// Returns the claims of a name that a user sees.
    fn owners<'a>(&'a self, user: u32, name: &'a Name) -> impl Iterator<Item = BindingId> + 'a {
        let (directory, policy) = self.node.directory();
        let all = directory.all(policy, user, name.kind, name.lower, name.upper);
        // Two words may have one hash, which is their type.
        all.filter(|b| name.has(&b.name)).map(|b| b.id)
    }

    /// Returns the claim of a name whose turn it is.
    fn next_owner(&mut self, user: u32, name: &Name) -> Option<BindingId> {
        if name.lower == name.upper {
            let found = self.node.look_up(user, name.kind, name.lower, Pick::Turn);
            match found.map(|b| (b.id, name.has(&b.name))) {
                None => return None,
                Some((id, true)) => return Some(id),
                Some((_, false)) => {}
            }
        }
        let count = self.owners(user, name).count().max(1) as u64;
        self.mail.turn += 1;
        let turn = (self.mail.turn % count) as usize;
        self.owners(user, name).nth(turn)
    }

    /// Sends a message to one claim.
    fn carry(&mut self, now: Instant, request: u64, to: BindingId, from: Owner, payload: Vec<u8>) {
        let me = self.node.me().host;
        let sent = self.mail.sent.get(&request);
        let Some((caller, is_tree)) = sent.map(|s| (s.caller, s.to_all)) else { return };
        if to.host == me {
            let mark = Mark { is_tree, number: request };
            let outcome = self.deliver((to.claim, to.life), (me, mark), from, payload);
            if outcome == Outcome::Delivered {
                self.mail.open.begin(caller, request, me, mark);
            }
            return self.on_outcome(now, request, Verdict { outcome, host: me });
        }
        let agent = agent_of(&self.node, to.host).map(|(agent, _)| agent);
        let BindingId { life, claim, .. } = to;
        let number = agent.and_then(|agent| {
            self.mail.post.send(now, Receiver { agent, life, claim }, from, payload)
        });
        match number {
            Some(number) => {
                let mark = Mark { is_tree: false, number };
                self.mail.open.begin(caller, request, to.host, mark);
                self.mail.request_of.insert(number, request);
            }
            None => {
                let overload = Verdict { outcome: Outcome::Overload, host: to.host };
                self.on_outcome(now, request, overload);
            }
        }
    }

    /// Gives a message to the program that has a claim of this host.
    fn deliver(
        &mut self,
        (claim, life): (u64, Life),
        (host, mark): (HostId, Mark),
        from: Owner,
        payload: Vec<u8>,
    ) -> Outcome {
        let id = self.mail.held.get(&claim).copied().filter(|_| life == self.node.me().life);
        let claimed = id.and_then(|id| self.claims.get(&id));
        if claimed.is_some_and(|c| !c.takes_mail) {
            return Outcome::Deaf;
        }
        let Some((id, program)) = id.zip(claimed.map(|c| c.caller)) else {
            return Outcome::Vanished;
        };
        let Some(caller) = self.callers.get_mut(program) else { return Outcome::Vanished };
        // Long messages of one user may wait in its connection; those of others still go there.
        let (user, reads) = (caller.owner.user, caller.has_room());
        let is_read = reads || self.callers.reads(user);
        if !is_read || !self.mail.unread.has_room(program, from.user) {
            return Outcome::Overload;
        }
        self.mail.unread.give(program, (host, from.user), mark, payload.len());
        if let Some(caller) = self.callers.get_mut(program) {
            caller.say(0, &Say::Mail(id, host, from, payload));
        }
        Outcome::Delivered
    }

    /// Takes a message of another agent.
    pub(super) fn on_mail(&mut self, now: Instant, from: std::net::SocketAddr, bytes: &[u8]) {
        let sender = self.node.members().iter().find(|m| m.record.address == from);
        let Some(host) = sender.map(|m| m.record.host) else { return };
        if let Some(letter) = self.mail.post.receive(now, from, bytes) {
            let outcome = match letter.claim {
                mail::PASS_ON => self.on_tree(now, from, &letter),
                mail::ENDS => Some(self.on_ends(host, &letter.payload)),
                claim => {
                    let (mark, payload) =
                        (Mark { is_tree: false, number: letter.id }, letter.payload.clone());
                    Some(self.deliver((claim, letter.life), (host, mark), letter.from, payload))
                }
            };
            match outcome {
                Some(outcome) => {
                    let verdict = Verdict { outcome, host: HostId(0) };
                    self.mail.post.answer(now, from, letter.id, verdict);
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
        self.mail.owed.remove(&host);
        for (program, request) in self.mail.open.host_gone(host) {
            self.returned(program, request, Verdict { outcome: Outcome::Silent, host });
        }
    }

    /// Sends messages again that are due.
    pub(super) fn mail_in_time(&mut self, now: Instant) {
        if self.mail.post.next_timeout().is_some_and(|at| at <= now) {
            self.mail.post.handle_timeout(now);
            self.end_mail(now);
        }
        if self.mail.owed_at.is_some_and(|at| at <= now) {
            self.mail.owed_at = None;
            self.send_ends(now);
        }
    }

    /// Notes that a program has taken messages to its names.
    pub(super) fn took_mail(&mut self, now: Instant, program: CallerId, count: u32) {
        self.mail.unread.took(program, count);
        self.send_ends(now);
    }

    /// Returns the messages that a program that has ended did not take.
    pub(super) fn mail_of_ended(&mut self, now: Instant, program: CallerId) {
        self.mail.open.ended(program);
        self.mail.unread.ended(program);
        self.send_ends(now);
    }

    /// Tells the agents of senders the ends of their messages.
    fn send_ends(&mut self, now: Instant) {
        let me = self.node.me().host;
        while let Some((host, end)) = self.mail.unread.poll_end() {
            match host == me {
                true => self.on_end(me, end),
                false => self.mail.owed.entry(host).or_default().push(end),
            }
        }
        let (node, Mail { post, owed, owed_of, owed_at, .. }) = (&self.node, &mut self.mail);
        let from = Owner { user: NOBODY, ..Owner::default() };
        owed.retain(|host, ends| {
            // An agent that is gone has nobody to tell them to.
            let Some((agent, life)) = agent_of(node, *host) else { return false };
            while !ends.is_empty() {
                let part: Vec<End> = ends[..ends.len().min(ENDS_MAX)].to_vec();
                let to = Receiver { agent, life, claim: mail::ENDS };
                let Some(number) = post.begin(now, to, from, End::encode(&part)) else {
                    *owed_at = Some(now + OWED_AGAIN);
                    return true;
                };
                ends.drain(..part.len());
                owed_of.insert(number, (*host, part));
            }
            false
        });
    }

    /// Takes the ends of messages that another agent tells.
    fn on_ends(&mut self, host: HostId, bytes: &[u8]) -> Outcome {
        match End::parse(bytes) {
            Ok(ends) => {
                ends.into_iter().for_each(|end| self.on_end(host, end));
                Outcome::Delivered
            }
            Err(_) => {
                self.mail.post.malformed += 1;
                Outcome::Vanished
            }
        }
    }

    fn on_end(&mut self, host: HostId, end: End) {
        if let Some((program, request)) = self.mail.open.on_end(host, end) {
            self.returned(program, request, Verdict { outcome: end.outcome, host });
        }
    }

    /// Tells a program that a message came back after it was sent.
    fn returned(&mut self, program: CallerId, request: u64, verdict: Verdict) {
        if let Some(sent) = self.mail.sent.get_mut(&request) {
            // The answer to the request will say so.
            sent.failed = Some(verdict);
            return;
        }
        self.mail.open.forget(request);
        let why = self.reason(verdict);
        if let Some(caller) = self.callers.get_mut(program) {
            caller.say(0, &Say::Returned(request, why));
        }
    }

    fn reason(&self, Verdict { outcome, host }: Verdict) -> String {
        match host {
            HostId(0) => outcome.text().into(),
            host => format!("{} (host {})", outcome.text(), self.name_of(host)),
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
                if let Some((host, ends)) = self.mail.owed_of.remove(&number) {
                    if verdict.outcome != Outcome::Delivered {
                        self.mail.owed.entry(host).or_default().extend(ends);
                        self.mail.owed_at = Some(now + OWED_AGAIN);
                    }
                    continue;
                }
                let find = |host| agent_of(node, host);
                if !trees.on_outcome(now, post, number, verdict, find) {
                    if let Some(request) = self.mail.request_of.remove(&number) {
                        self.on_outcome(now, request, verdict);
                    }
                }
            } else if let Some((above, verdict)) = trees.poll_verdict() {
                match above {
                    Above::Agent(agent, id) => post.answer(now, agent, id, verdict),
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
            let other = self.next_owner(owner.user, &name);
            if let Some(other) = other.filter(|id| *id != first) {
                self.mail.open.forget(request);
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
        let is_there = self.callers.get_mut(sent.caller).is_some();
        if sent.failed.is_some() || !is_there {
            self.mail.open.forget(request);
        }
        let say = match sent.failed {
            None => Say::Done(request),
            Some(verdict) => Say::Refused(self.reason(verdict)),
        };
        if let Some(caller) = self.callers.get_mut(sent.caller) {
            caller.say(sent.serial, &say);
        }
    }
}

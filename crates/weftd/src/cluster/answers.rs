//! Answers to the programs of this host.

use super::callers::CallerId;
use super::{Claimed, Cluster, NOBODY};
use std::collections::BTreeSet;
use std::time::Duration;
use weft_cluster::local::{Host, Request, Say, VERSION};
use weft_cluster::names::directory::Gone;
use weft_cluster::names::groups::GroupConfig;
use weft_cluster::names::node::{ClaimId, Standing};
use weft_cluster::names::{Binding, Claim, ClaimError, Filter, Policy, SubscriptionId};
use weft_cluster::Name;
use weft_core::Instant;

/// Names, or hosts, in one answer.
const PAGE: usize = 256;

impl Cluster {
    /// Reads requests of programs, answers them, and follows their ends.
    pub(super) fn attend(&mut self, now: Instant) {
        let (requests, ended) = self.callers.serve(now);
        for (id, serial, request) in requests {
            let is_hello = matches!(request, Request::Hello(_));
            if let Request::Took(0, count) = request {
                // A program that has ended may have said so last.
                self.took_mail(now, id, count);
                continue;
            }
            let Some(caller) = self.callers.get_mut(id) else { continue };
            if caller.is_greeted == is_hello {
                // The first request, and no other, is the greeting.
                self.callers.dismiss(id);
                continue;
            }
            let says = self.answer(now, id, serial, request);
            if let Some(caller) = self.callers.get_mut(id) {
                says.iter().for_each(|say| caller.say(serial, say));
            }
            // Events that the request caused go after its answer.
            self.flush(now);
        }
        for (owner, gone) in ended {
            self.node.owner_ended(now, owner, gone);
            self.claims.retain(|_, c| c.caller != owner.serial);
            self.groups.remove_caller(owner.serial);
            self.mail_of_ended(now, owner.serial);
            self.ranks.remove_caller(owner.serial);
            self.subscriptions.retain(|_, id| *id != owner.serial);
        }
        self.send_watchers();
    }

    /// Returns the answer to a request; none: it comes later.
    fn answer(&mut self, now: Instant, id: CallerId, serial: u32, request: Request) -> Vec<Say> {
        let user = self.callers.get_mut(id).map_or(NOBODY, |caller| caller.owner.user);
        if request.is_large() && !self.callers.reads(user) {
            let why = format!("programs of user {user} do not read what the agent answers them");
            return vec![Say::Refused(why)];
        }
        match request {
            Request::Hello(version) => vec![self.greet(id, version)],
            Request::Claim(name, _) if name.group => {
                vec![Say::Refused("a member of a group joins it".into())]
            }
            Request::Claim(name, takes_mail) => {
                self.claim_for(now, id, serial, name, takes_mail, None).into_iter().collect()
            }
            Request::Join(name, slow_ms, evict_ms) => {
                let times = (slow_ms, evict_ms);
                self.join_group(now, id, serial, name, times).into_iter().collect()
            }
            Request::Cast { claim, to, wait_ms, payload } => {
                self.cast(now, (id, serial), claim, to, wait_ms, payload).into_iter().collect()
            }
            Request::Took(claim, count) => {
                self.took(now, id, claim, count);
                Vec::new()
            }
            Request::Withdraw(claim) => {
                let is_own = self.claims.get(&claim).is_some_and(|c| c.caller == id);
                if is_own {
                    self.claims.remove(&claim);
                    self.end_group(claim);
                    self.node.withdraw(now, ClaimId(claim));
                }
                vec![Say::Done(claim)]
            }
            Request::Watch { kind, lower, upper, mode, timeout_ms } => {
                let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
                let filter = Filter { kind, lower, upper, mode, timeout };
                vec![self.watch(now, id, filter)]
            }
            Request::Unwatch(number) => {
                let subscription = SubscriptionId(number);
                if self.subscriptions.get(&subscription) == Some(&id) {
                    self.subscriptions.remove(&subscription);
                    self.node.unsubscribe(subscription);
                }
                vec![Say::Done(number)]
            }
            Request::List(first, last) => self.list(id, first, last),
            Request::Hosts => self.hosts(now),
            Request::WatchHosts => {
                if let Some(caller) = self.callers.get_mut(id) {
                    caller.watches_hosts = true;
                }
                vec![Say::Done(0)]
            }
            Request::Report => {
                let mut text = String::new();
                self.report(&mut |name, value| text.push_str(&format!("{name} {value}\n")));
                vec![Say::Text(text)]
            }
            Request::Show => vec![self.show_rank(id)],
            Request::Ranks => self.gather(now, id, serial).into_iter().collect(),
            Request::Mail { kind, lower, upper, alias, all, payload } => {
                self.post(now, id, serial, Name { kind, lower, upper, alias }, all, payload)
            }
        }
    }

    fn greet(&mut self, id: CallerId, version: u32) -> Say {
        if version != VERSION {
            self.callers.dismiss(id);
            return Say::Refused(format!(
                "the agent speaks version {VERSION} of names, and the program {version}"
            ));
        }
        if let Some(caller) = self.callers.get_mut(id) {
            caller.is_greeted = true;
        }
        let me = self.node.me();
        Say::Welcome(self.options.name.clone(), me.host, me.life)
    }

    pub(super) fn claim_for(
        &mut self,
        now: Instant,
        id: CallerId,
        serial: u32,
        name: Claim,
        takes_mail: bool,
        joins: Option<GroupConfig>,
    ) -> Option<Say> {
        let owner = self.owner_of(id)?;
        // No rule gives a program the types by which agents tell each other about themselves.
        if name.kind < Policy::RESERVED {
            return Some(Say::Refused(ClaimError::Reserved.to_string()));
        }
        match self.node.claim(now, Claim { owner, ..name }) {
            Ok((ClaimId(claim), Standing::Held)) => {
                self.claims.insert(claim, Claimed { caller: id, asked: None, takes_mail, joins });
                self.note_held(now, claim);
                Some(Say::Done(claim))
            }
            Ok((ClaimId(claim), Standing::Pending)) => {
                let asked = Some(serial);
                self.claims.insert(claim, Claimed { caller: id, asked, takes_mail, joins });
                None
            }
            Err(ClaimError::Taken { holder, owner }) => {
                let holder = self.name_of(holder);
                Some(Say::Refused(format!("{owner} on host {holder} has the name")))
            }
            Err(why) => Some(Say::Refused(why.to_string())),
        }
    }

    /// Answers a claim that was being decided.
    pub(super) fn decided(&mut self, now: Instant, claim: u64, outcome: Result<(), String>) {
        let Some(claimed) = self.claims.get_mut(&claim) else { return };
        let (id, Some(serial)) = (claimed.caller, claimed.asked.take()) else { return };
        let say = match outcome {
            Ok(()) => {
                self.note_held(now, claim);
                Say::Done(claim)
            }
            Err(why) => {
                self.claims.remove(&claim);
                Say::Refused(why)
            }
        };
        if let Some(caller) = self.callers.get_mut(id) {
            caller.say(serial, &say);
        }
    }

    /// Tells a program that others ended its claim.
    pub(super) fn lost(&mut self, claim: u64, gone: Gone) {
        let Some(claimed) = self.claims.remove(&claim) else { return };
        self.end_group(claim);
        let cause = gone.text(|host| self.name_of(host));
        if let Some(caller) = self.callers.get_mut(claimed.caller) {
            log::info!("cluster {}: claim {claim} of {}: {cause}", self.options.name, caller.owner);
            caller.say(0, &Say::Lost(claim, gone));
        }
    }

    fn watch(&mut self, now: Instant, id: CallerId, filter: Filter) -> Say {
        let Some(caller) = self.callers.get_mut(id) else { return Say::Done(0) };
        match self.node.subscribe(now, caller.owner, filter) {
            Ok(subscription) => {
                // The snapshot can be read at once.
                caller.readable.insert(subscription.0);
                self.subscriptions.insert(subscription, id);
                Say::Done(subscription.0)
            }
            Err(why) => Say::Refused(why.to_string()),
        }
    }

    /// Passes events on to programs that read them. Those of others wait in their subscriptions,
    /// which are bounded.
    pub(super) fn send_watchers(&mut self) {
        let (node, subscriptions) = (&mut self.node, &mut self.subscriptions);
        for (_, caller) in self.callers.iter_mut().filter(|(_, c)| !c.readable.is_empty()) {
            while caller.has_room() {
                let Some(number) = caller.readable.first().copied() else { break };
                let id = SubscriptionId(number);
                match node.read(id) {
                    Some(event) => caller.say(0, &Say::Name(number, event)),
                    None => {
                        caller.readable.remove(&number);
                    }
                }
            }
        }
        // A subscription whose time was over is gone.
        if subscriptions.len() != node.subscriptions().len() {
            subscriptions.retain(|id, _| node.subscriptions().has(*id));
        }
    }

    fn list(&mut self, id: CallerId, first: u32, last: u32) -> Vec<Say> {
        let Some(user) = self.callers.get_mut(id).map(|c| c.owner.user) else { return Vec::new() };
        let (directory, policy) = self.node.directory();
        let kinds: BTreeSet<u32> =
            directory.types().filter(|k| (first..=last).contains(k)).collect();
        let of = |kind| directory.all(policy, user, kind, 0, u32::MAX);
        let all: Vec<Binding> = kinds.into_iter().flat_map(of).cloned().collect();
        let mut says: Vec<Say> =
            all.chunks(PAGE).map(|page| Say::Names(true, page.to_vec())).collect();
        says.push(Say::Names(false, Vec::new()));
        says
    }

    fn hosts(&mut self, now: Instant) -> Vec<Say> {
        let records: Vec<_> =
            self.node.members().iter().map(|m| (m.record, m.is_up(), m.since)).collect();
        let mut hosts = Vec::with_capacity(records.len());
        let (me, first) = (self.node.me().host, self.sessions.key_ids()[0]);
        for (record, is_up, since) in records {
            let is_me = record.host == me;
            let key = match is_me {
                true => Some(first),
                false => self.sessions.key_of(record.address).filter(|_| is_up),
            };
            // Names of a host that is gone, or is not heard, are kept for its return and hidden.
            let is_shown = is_up && (is_me || !self.is_cut_off);
            let origin = self.node.directory().0.origin(record.host).filter(|_| is_shown);
            let is_program = |b: &&Binding| b.name.kind >= Policy::RESERVED;
            let names = origin.map_or(0, |o| o.bindings().filter(is_program).count());
            let link = self.node.links().get(record.host);
            let round_trip = link.and_then(|l| l.round_trip).unwrap_or_default();
            hosts.push(Host {
                host: record.host,
                life: record.life,
                is_up,
                step: record.number,
                agent: record.agent,
                address: record.address,
                cause: record.cause,
                since_ms: now.since(since).as_millis() as u64,
                round_trip_ns: round_trip.as_nanos() as u64,
                probes: link.map_or(0, |l| l.probes),
                answers: link.map_or(0, |l| l.answers),
                key: key.unwrap_or(0),
                names: names as u32,
                name: self.name_of(record.host),
            });
        }
        let mut says: Vec<Say> =
            hosts.chunks(PAGE).map(|page| Say::Hosts(true, page.to_vec())).collect();
        says.push(Say::Hosts(false, Vec::new()));
        says
    }
}

//! Claims of this host's processes.

use super::{Event, Node, Timer};
use crate::directory::unique::{Question, Verdict};
use crate::directory::{Claim, ClaimError, Gone, NameChange, Scope};
use crate::id::{BindingId, HostId, Owner};
use crate::share::has_share;
use crate::wire::{verdict, Answer, Ask, Evict, Message, ALIAS_MAX, NONE};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weft_core::Instant;

/// Number of a claim on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The claim holds.
    Held,
    /// The arbiter of the name is being asked; an event tells the outcome.
    Pending,
}

#[derive(Debug)]
enum State {
    Held { claim: u64, stamp: u64 },
    Pending { asked: Option<HostId>, deadline: Instant },
}

#[derive(Debug)]
struct Own {
    name: Claim,
    state: State,
}

/// The claims of a host.
#[derive(Debug, Default)]
pub(super) struct Claims {
    table: BTreeMap<u64, Own>,
    next: u64,
}

impl Node {
    /// Claims a name for a process of this host.
    pub fn claim(&mut self, now: Instant, name: Claim) -> Result<(ClaimId, Standing), ClaimError> {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        if let Err(error) = self.check_claim(&name) {
            self.stats.claims_refused += 1;
            return Err(error);
        }
        self.names.claims.next += 1;
        let id = self.names.claims.next;
        // A name that no other host sees concerns no other host.
        let must_ask = name.unique && name.scope == Scope::Cluster;
        let deadline = now + self.config.claim_wait;
        let state = State::Pending { asked: None, deadline };
        self.names.claims.table.insert(id, Own { name, state });
        match must_ask {
            true => self.ask(now, id),
            false => self.hold(now, id),
        }
        self.tidy(now);
        match self.names.claims.table.get(&id).map(|own| &own.state) {
            Some(State::Held { .. }) => Ok((ClaimId(id), Standing::Held)),
            _ => Ok((ClaimId(id), Standing::Pending)),
        }
    }

    fn check_claim(&self, name: &Claim) -> Result<(), ClaimError> {
        let Claim { owner, kind, lower, upper, alias, .. } = name;
        let all = &self.names.claims.table;
        let users = all.values().map(|own| own.name.owner.user);
        let own = self.names.policy.count(owner.user, users);
        let (per_user, per_host) = (self.config.claims_per_user, self.config.claims_per_host);
        match () {
            () if self.is_over => Err(ClaimError::Ended),
            () if lower > upper => Err(ClaimError::EmptyRange),
            () if alias.len() > ALIAS_MAX || alias.chars().any(char::is_control) => {
                Err(ClaimError::Alias)
            }
            () if !self.names.policy.may_claim(owner.user, *kind) => Err(ClaimError::Forbidden),
            () if own >= per_user => Err(ClaimError::TooMany { bound: per_user }),
            () if !has_share(own, all.len(), per_host) => {
                Err(ClaimError::TooMany { bound: per_host })
            }
            () => match self.names.directory.rival(name, None, u64::MAX) {
                Some(rival) => {
                    Err(ClaimError::Taken { holder: rival.id.host, owner: rival.name.owner })
                }
                None => Ok(()),
            },
        }
    }

    /// Withdraws a claim.
    pub fn withdraw(&mut self, now: Instant, id: ClaimId) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        self.end_claim(now, id.0, Gone::Withdrawn);
        self.tidy(now);
    }

    /// Ends all that a process of this host has, because its kernel says that it has ended.
    pub fn owner_ended(&mut self, now: Instant, owner: Owner, gone: Gone) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        let of_owner = |(id, own): (&u64, &Own)| (own.name.owner == owner).then_some(*id);
        let ids: Vec<u64> = self.names.claims.table.iter().filter_map(of_owner).collect();
        ids.into_iter().for_each(|id| self.end_claim(now, id, gone));
        self.names.subscriptions.remove_owner(owner);
        self.tidy(now);
    }

    /// Evicts a slow member of a group: asks its host to end its claim.
    pub fn evict(&mut self, now: Instant, member: BindingId, user: u32) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        let evict = Evict { claim: member.claim, claim_life: member.life, user, items: NONE };
        match member.host == self.me.host {
            true => self.on_evict(now, member.host, &evict),
            false => self.send_host(member.host, &Message::Evict(evict)),
        }
        self.tidy(now);
    }

    /// Returns the state of a claim; `None`: it has ended.
    pub fn standing(&self, id: ClaimId) -> Option<Standing> {
        self.names.claims.table.get(&id.0).map(|own| match own.state {
            State::Held { .. } => Standing::Held,
            State::Pending { .. } => Standing::Pending,
        })
    }

    /// Returns the number of a claim in the directory, if it holds.
    pub fn number_of(&self, id: ClaimId) -> Option<u64> {
        self.names.claims.table.get(&id.0).and_then(|own| match own.state {
            State::Held { claim, .. } => Some(claim),
            State::Pending { .. } => None,
        })
    }

    fn end_claim(&mut self, now: Instant, id: u64, gone: Gone) {
        self.timers.disarm(Timer::Ask(id));
        let Some(own) = self.names.claims.table.remove(&id) else { return };
        if let State::Held { claim, .. } = own.state {
            let change = self.names.directory.withdraw(claim, gone);
            self.publish_change(now, change);
        }
    }

    fn publish_change(&mut self, now: Instant, change: Option<crate::wire::Change>) {
        if let Some(change) = change {
            let head = self.names.directory.head(self.me.host, self.me.life);
            self.note(now, self.me.host);
            self.broadcast_ops(head, &[change]);
        }
    }

    /// Makes a claim hold: publishes the name.
    fn hold(&mut self, now: Instant, id: u64) {
        let stamp = self.names.directory.next_stamp();
        let Some(own) = self.names.claims.table.get_mut(&id) else { return };
        let (claim, change) = self.names.directory.publish(own.name.clone(), stamp);
        own.state = State::Held { claim, stamp };
        self.publish_change(now, change);
    }

    /// Returns the arbiter of a type, hosts that went lately included.
    fn arbiter_of(&self, now: Instant, kind: u32) -> Option<HostId> {
        self.members.ring().arbiter(kind.into(), self.names.arbiter.ghosts(now))
    }

    /// Decides about a unique name as its arbiter.
    pub(super) fn judge(&mut self, now: Instant, question: Question) -> Verdict {
        if self.is_cut_off || self.arbiter_of(now, question.kind) != Some(self.me.host) {
            return Verdict::Later;
        }
        let is_up = self.members.get(question.host).is_some_and(|m| m.is_up());
        self.names.judge(now, question, is_up, self.config.settle() * 2)
    }

    /// Asks the arbiter of a pending claim, and sets the time to ask again.
    fn ask(&mut self, now: Instant, id: u64) {
        let Some(own) = self.names.claims.table.get(&id) else { return };
        let Claim { kind, lower, upper, .. } = own.name;
        let arbiter = self.members.ring().arbiter(kind.into(), core::iter::empty());
        self.timers.arm(Timer::Ask(id), now + self.config.tolerance / 15);
        if let Some(Own { state: State::Pending { asked, .. }, .. }) =
            self.names.claims.table.get_mut(&id)
        {
            *asked = arbiter;
        }
        let me = self.me.host;
        match arbiter {
            Some(host) if host == me => {
                let question = Question { host, claim: id, kind, lower, upper };
                let verdict = self.judge(now, question);
                self.on_verdict(now, id, verdict);
            }
            Some(host) => {
                let ask = Ask { claim: id, kind, lower, upper, items: NONE };
                self.send_host(host, &Message::Ask(ask));
            }
            None => {}
        }
    }

    /// Asks again, or gives a pending claim up.
    pub(super) fn on_ask_timer(&mut self, now: Instant, id: u64) {
        let Some(own) = self.names.claims.table.get(&id) else { return };
        let State::Pending { asked, deadline } = own.state else { return };
        if now >= deadline {
            self.names.claims.table.remove(&id);
            return self.event(Event::Undecided { claim: ClaimId(id), arbiter: asked });
        }
        self.ask(now, id);
    }

    pub(super) fn on_answer(&mut self, now: Instant, answer: &Answer<'_>) {
        let verdict = match answer.verdict {
            verdict::GRANTED => Verdict::Granted,
            verdict::TAKEN => Verdict::Taken(answer.holder),
            verdict::LATER => Verdict::Later,
            _ => {
                self.stats.malformed += 1;
                return;
            }
        };
        self.on_verdict(now, answer.claim, verdict);
    }

    fn on_verdict(&mut self, now: Instant, id: u64, verdict: Verdict) {
        let Some(own) = self.names.claims.table.get(&id) else { return };
        if !matches!(own.state, State::Pending { .. }) {
            return;
        }
        // The name may have come meanwhile from an owner whom the arbiter does not know.
        let rival = self.names.directory.rival(&own.name, None, u64::MAX).map(|b| b.id.host);
        let refused = match verdict {
            Verdict::Later => return,
            Verdict::Granted => rival,
            Verdict::Taken(holder) => Some(holder),
        };
        self.timers.disarm(Timer::Ask(id));
        let claim = ClaimId(id);
        match refused {
            Some(holder) => {
                self.names.claims.table.remove(&id);
                self.stats.claims_refused += 1;
                self.event(Event::Refused { claim, holder });
            }
            None => {
                self.hold(now, id);
                self.event(Event::Claimed(claim));
            }
        }
    }

    /// Ends claims of this host that an older one of another host excludes.
    pub(super) fn contest(&mut self, now: Instant, change: &NameChange) {
        let NameChange::Published(binding) = change else { return };
        if binding.id.host == self.me.host || self.is_over {
            return;
        }
        let (host, life) = (self.me.host, self.me.life);
        let other = &binding.name;
        let loses = |own: &Own| match own.state {
            State::Held { claim, stamp } if own.name.scope == Scope::Cluster => {
                let excludes = own.name.unique || other.unique;
                let overlaps = own.name.kind == other.kind
                    && own.name.lower <= other.upper
                    && other.lower <= own.name.upper;
                let id = Some(BindingId { host, life, claim });
                let rival = || self.names.directory.rival(&own.name, id, stamp);
                excludes && overlaps && rival().is_some()
            }
            _ => false,
        };
        let lost: Vec<u64> = self
            .names
            .claims
            .table
            .iter()
            .filter(|(_, own)| loses(own))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            let gone = Gone::Conflict { winner: binding.id.host };
            self.stats.conflicts_lost += 1;
            self.end_claim(now, id, gone);
            self.event(Event::ClaimLost { claim: ClaimId(id), gone });
        }
    }

    /// Ends the claim of a slow member of a group, if a user of the same group asks.
    pub(super) fn on_evict(&mut self, now: Instant, by: HostId, evict: &Evict<'_>) {
        if evict.claim_life != self.me.life {
            return;
        }
        let is_it =
            |own: &Own| matches!(own.state, State::Held { claim, .. } if claim == evict.claim);
        let found = self.names.claims.table.iter().find(|(_, own)| own.name.group && is_it(own));
        // A user ends what is its own, as by a signal; root ends all.
        let may_end = |own: &Own| evict.user == 0 || own.name.owner.user == evict.user;
        let found = found.filter(|(_, own)| may_end(own));
        let Some((id, kind)) = found.map(|(id, own)| (*id, own.name.kind)) else { return };
        let all = self.names.directory.all(&self.names.policy, evict.user, kind, 0, u32::MAX);
        let of_user = |b: &crate::directory::Binding| b.name.owner.user == evict.user;
        let is_member = all.filter(|b| b.name.group && b.id.host == by).any(of_user);
        if is_member {
            let gone = Gone::Evicted { by };
            self.end_claim(now, id, gone);
            self.event(Event::ClaimLost { claim: ClaimId(id), gone });
        }
    }
}

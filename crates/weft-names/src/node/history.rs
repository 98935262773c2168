//! Hosts that come and go: records are adopted, told, and passed on.

use super::{Event, Node, Timer};
use crate::directory::{Gone, NameChange};
use crate::id::{HostId, Life};
use crate::membership::{Cause, Merge, Record};
use crate::wire::{Join, List, Members as MembersMessage, Message, Suspect, NONE};
use alloc::vec::Vec;
use core::net::SocketAddr;
use weft_core::Instant;

/// Watchers of a silent host that are asked about it.
const ASKED_MAX: usize = 6;
/// Addresses tried at a time while no other host is known.
const SEEK_ALONE: usize = 3;

/// The part of the ring that a host watches.
#[derive(Debug)]
pub(super) struct Domain {
    /// Hosts have come or gone since it was last followed.
    is_changed: bool,
    /// Size of the ring when this host last told all that it is there.
    announced: usize,
}

impl Default for Domain {
    fn default() -> Domain {
        Domain { is_changed: false, announced: 1 }
    }
}

impl Domain {
    /// True, once, if the ring has twice as many hosts as when this host last told all.
    fn has_doubled(&mut self, hosts: usize) -> bool {
        let has_doubled = hosts >= 2 * self.announced;
        if has_doubled {
            self.announced = hosts;
        }
        has_doubled
    }
}

/// The search for agents of the cluster.
#[derive(Debug, Default)]
pub(super) struct Seeker {
    /// Addresses at which agents may be found.
    addresses: Vec<SocketAddr>,
    turn: usize,
}

impl Seeker {
    /// Adds addresses.
    pub fn add(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.addresses.extend(addresses);
        self.addresses.sort();
        self.addresses.dedup();
    }

    /// True if it has no address.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns a number that is another each time: hosts are tried and asked in turn.
    fn turn(&mut self) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.turn
    }
}

impl Node {
    /// Takes a record into the table, and tells it. `hold`: see `Members::merge`.
    pub(super) fn adopt(&mut self, now: Instant, record: Record, hold: Option<Instant>) -> bool {
        let host = record.host;
        match self.members.merge(now, record, hold) {
            Merge::Old => return false,
            Merge::Full => {
                self.stats.strangers += 1;
                return false;
            }
            Merge::News => {}
        }
        let held = self.members.get(host).and_then(|m| m.held());
        match held {
            Some(at) => self.timers.arm(Timer::Hold(host), at),
            None => self.timers.disarm(Timer::Hold(host)),
        }
        self.note(now, host);
        self.settle(now, host);
        true
    }

    /// Updates the digest for a host.
    pub(super) fn note(&mut self, now: Instant, host: HostId) {
        let Some(member) = self.members.get(host) else { return };
        let head = self.names.directory.head(host, member.record.life);
        self.exchange.note(now, &member.record, head);
    }

    /// Tells what may be told of a host, and follows it: ring, names, claims.
    pub(super) fn settle(&mut self, now: Instant, host: HostId) {
        let Some(shift) = self.members.settle(now, host) else { return };
        shift.events.into_iter().for_each(|event| self.event(Event::Member(event)));
        let Some(record) = self.members.get(host).map(|m| m.record) else { return };
        let settled = now + self.config.settle();
        if shift.was_up && !shift.is_up {
            self.names.arbiter.departed(now, host, settled);
        }
        if !shift.was_up && shift.is_up && record.number > 1 && host != self.me.host {
            self.names.arbiter.unsettle(settled);
        }
        self.domain.is_changed |= shift.was_up != shift.is_up;
        let shown = shift.is_up && !self.is_cut_off;
        self.names.directory.expect(host, record.life, shown);
        self.names.directory.set_shown(host, shown, Gone::Host(shift.cause));
        self.note(now, host);
    }

    /// Takes a record of this host that others have.
    pub(super) fn about_me(&mut self, now: Instant, record: Record) {
        if record.life == self.me.life {
            if record.address != self.me.address && record.address < self.me.address {
                // Two running copies of one agent: the one with the lesser address stays.
                return self.superseded(record);
            }
            if record.number <= self.me.number {
                return;
            }
            if record.number >= Record::NUMBER_MAX - 2 {
                let incarnation = self.me.life.incarnation + 1;
                return self.relive(now, Life { incarnation, ..self.me.life });
            }
            // The number after it that says that this host is there.
            let number = record.number + 1 + record.number % 2;
            self.stats.refuted += u64::from(!record.is_up());
            self.me = Record { number, cause: Cause::Returned, ..self.me };
            let me = self.me;
            self.adopt(now, me, None);
            self.names.arbiter.unsettle(now + self.config.settle());
            self.broadcast_record(me);
        } else if record.life > self.me.life {
            if self.is_admitted {
                return self.superseded(record);
            }
            let incarnation = (record.life.incarnation + 1).min(Life::INCARNATION_MAX);
            self.relive(now, Life { incarnation, ..self.me.life });
        }
    }

    fn superseded(&mut self, by: Record) {
        self.event(Event::Superseded { by: by.life, address: by.address });
        self.end();
    }

    /// Begins a later life.
    fn relive(&mut self, now: Instant, life: Life) {
        self.me = Record { life, number: 1, cause: Cause::Started, ..self.me };
        let me = self.me;
        self.names.directory.relive(life);
        self.adopt(now, me, None);
        self.broadcast_record(me);
    }

    /// Sends a record to all hosts.
    pub(super) fn broadcast_record(&mut self, record: Record) {
        let items = [record];
        self.broadcast(&Message::Members(MembersMessage { items: List::Items(&items) }));
    }

    /// Ends the history of a life of a host, for all; the host itself is told, in case it is there.
    pub(super) fn declare(&mut self, now: Instant, host: HostId, cause: Cause) {
        let there = |m: &&crate::membership::Member| m.is_up() && m.record.is_up();
        let Some(member) = self.members.get(host).filter(there) else { return };
        if host == self.me.host {
            return;
        }
        let number = member.record.number + 1;
        let record = Record { number, cause, ..member.record };
        self.adopt(now, record, None);
        self.broadcast_record(record);
        let items = [record];
        let message = Message::Members(MembersMessage { items: List::Items(&items) });
        self.send(record.address, 0, &message);
    }

    /// Does what is due about a watched host, and probes others with it that are due soon.
    pub(super) fn on_watch(&mut self, now: Instant, host: HostId) {
        if self.follow(now, host) {
            self.probe_along(now);
        }
    }

    /// Probes the hosts that are due for it soon, and tries addresses if that is due before the
    /// next probes: it costs no wake-up of its own then.
    pub(super) fn probe_along(&mut self, now: Instant) {
        for host in self.watch.take_along(now, &self.config) {
            self.follow(now, host);
        }
        if self.timers.is_due(Timer::Seek, now + self.config.probe_every()) {
            self.on_seek(now);
        }
    }

    /// Probes a watched host, asks others about it, or declares it lost. Returns true if it was
    /// probed.
    fn follow(&mut self, now: Instant, host: HostId) -> bool {
        let mesh = self.config.mesh_max;
        let watchers = self.members.ring().watchers(host, mesh);
        let rank = watchers.iter().position(|w| *w == self.me.host).unwrap_or(watchers.len());
        let due = self.watch.due(now, host, rank, &self.config);
        let life = self.members.get(host).map(|m| m.record.life);
        let (Some((due, next)), Some(life)) = (due, life) else { return false };
        self.timers.arm(Timer::Watch(host), next);
        if let Some(serial) = due.probe {
            self.stats.probes_sent += 1;
            let digest = self.exchange.digest.total();
            let probe = crate::wire::Probe { serial, digest, items: NONE };
            self.send_host(host, &Message::Probe(probe));
        }
        self.stats.suspected += u64::from(due.suspect);
        if due.ask {
            let question = Suspect { suspect: host, suspect_life: life, items: NONE };
            let me = self.me.host;
            let others: Vec<HostId> =
                watchers.iter().copied().filter(|w| *w != me && *w != host).collect();
            // Each time others: those on the other side of a partition cannot answer.
            let skip = self.seeker.turn() % others.len().max(1);
            let chosen = others.iter().cycle().skip(skip).take(ASKED_MAX.min(others.len()));
            let chosen: Vec<HostId> = chosen.copied().collect();
            for watcher in chosen {
                self.send_host(watcher, &Message::Suspect(question.clone()));
            }
        }
        if due.lost {
            if self.watch.is_deaf(now, &self.config) {
                self.set_cut_off(now, true);
            } else {
                self.stats.declared_lost += 1;
                let by = self.me.host;
                self.declare(now, host, Cause::Lost { by });
            }
        }
        due.probe.is_some()
    }

    /// Hides the names of others while this host hears nobody.
    pub(super) fn set_cut_off(&mut self, now: Instant, is_cut_off: bool) {
        if self.is_cut_off == is_cut_off {
            return;
        }
        self.is_cut_off = is_cut_off;
        if !is_cut_off {
            self.watch.restart(now);
            self.names.arbiter.unsettle(now + self.config.settle());
        }
        self.event(if is_cut_off { Event::CutOff } else { Event::Back });
        let others: Vec<(HostId, bool)> =
            self.members.iter().map(|m| (m.record.host, m.is_up())).collect();
        for (host, is_up) in others {
            self.names.directory.set_shown(host, is_up && !is_cut_off, Gone::CutOff);
        }
    }

    /// Tries addresses where a member may be: those given that no member has, and lost hosts.
    pub(super) fn on_seek(&mut self, now: Instant) {
        self.timers.arm(Timer::Seek, now + self.config.tolerance);
        let mut candidates: Vec<SocketAddr> = Vec::new();
        let (mut known, mut lost) = (Vec::new(), Vec::new());
        for member in self.members.iter() {
            let Record { address, cause, .. } = member.record;
            match (member.is_up(), cause) {
                (true, _) => known.push(address),
                (_, Cause::Lost { .. } | Cause::Ended { .. }) => lost.push(address),
                _ => {}
            }
        }
        known.sort();
        let is_free = |a: &&SocketAddr| known.binary_search(a).is_err();
        candidates.extend(self.seeker.addresses.iter().filter(is_free));
        candidates.extend(lost);
        let is_alone = self.members.ring().len() < 2 || self.is_cut_off;
        if is_alone {
            candidates.extend(known.iter().filter(|a| **a != self.me.address));
        }
        let count = if is_alone { SEEK_ALONE } else { 1 };
        for _ in 0..count.min(candidates.len()) {
            let to = candidates[self.seeker.turn() % candidates.len()];
            self.send_join(to);
        }
    }

    fn send_join(&mut self, to: SocketAddr) {
        let items = [self.me];
        let digest = self.exchange.digest.total();
        self.send(to, 0, &Message::Join(Join { digest, items: List::Items(&items) }));
    }

    /// Forgets hosts that have gone long ago; from half of that time on others are not told of
    /// them, so that nobody brings them back.
    pub(super) fn on_forget(&mut self, now: Instant) {
        let forget = self.config.forget;
        self.timers.arm(Timer::Forget, now + forget / 8);
        let gone = self.members.iter().filter(|m| !m.is_up() && !m.record.is_up());
        let ages: Vec<_> = gone.map(|m| (m.record.host, now.since(m.since))).collect();
        for (host, age) in ages {
            if age >= forget {
                self.members.forget(host);
                self.names.directory.forget(host, Gone::Missing);
            }
            if age >= forget / 2 {
                self.exchange.digest.leave_out(host);
            }
        }
    }

    /// Ends a call: follows the ring, contests claims, tells subscribers.
    pub(super) fn tidy(&mut self, now: Instant) {
        if self.domain.is_changed && !self.is_over {
            self.domain.is_changed = false;
            let me = self.me.host;
            let watched = self.members.ring().watched(me, self.config.mesh_max);
            let before: Vec<HostId> = self.watch.iter().map(|(host, _)| host).collect();
            let members = &self.members;
            let is_there = |host| members.get(host).is_some_and(|m| m.is_up());
            let added = self.watch.set(now, &watched, is_there, &self.config);
            added.into_iter().for_each(|host| self.timers.arm(Timer::Watch(host), now));
            for host in before {
                if self.watch.get(host).is_none() {
                    self.timers.disarm(Timer::Watch(host));
                }
            }
            // A host that joins knows few at first: it says again that it is there.
            if self.is_admitted && self.domain.has_doubled(self.members.ring().len()) {
                self.broadcast_record(self.me);
            }
        }
        for change in self.names.directory.take_changes() {
            self.contest(now, &change);
            self.names.release(&change);
            self.tell(&change);
        }
        // Claims that were contested changed the directory again.
        for change in self.names.directory.take_changes() {
            self.tell(&change);
        }
    }

    /// Tells subscribers of a change.
    fn tell(&mut self, change: &NameChange) {
        for id in self.names.tell(change, self.config.queue_max) {
            self.event(Event::Readable(id));
        }
    }
}

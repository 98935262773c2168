//! Messages come in.

use super::returns::are_returns;
use super::{Event, Node};
use crate::id::HostId;
use crate::membership::Record;
use crate::wire::{
    self, parse, Answer, Head, Join, List, Members, Message, Ops, Pulse, Vouch, Welcome, WireError,
    NONE,
};
use core::net::SocketAddr;
use weft_core::Instant;

impl Node {
    /// Takes a message that came from an address. The driver has checked that a member of the
    /// cluster sent it; a message that makes no sense is counted and dropped all the same.
    pub fn handle_message(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        if self.is_over {
            return;
        }
        let (head, message) = match parse(bytes) {
            Ok(parsed) => parsed,
            Err(WireError::Version { found }) => {
                self.stats.wrong_version += 1;
                // One event tells it; a flood of messages does not make a flood of events.
                let event = Event::OtherVersion { from, version: found };
                if self.outbox.last_event() != Some(&event) {
                    self.event(event);
                }
                return;
            }
            Err(_) => {
                self.stats.malformed += 1;
                return;
            }
        };
        if head.host == self.me.host && head.life == self.me.life && from == self.me.address {
            return;
        }
        self.stats.messages_received += 1;
        if self.is_stale(&head, from) {
            if let Message::Join(join) = &message {
                self.on_join(now, &head, from, join);
                self.tidy(now);
            }
            return;
        }
        self.route(now, &head, from, &message);
        if head.relay > 0 && !self.is_over {
            self.relay(&head, &message);
        }
        self.tidy(now);
    }

    /// Returns true if the message is from an earlier life of a host, or one that has ended.
    fn is_stale(&mut self, head: &Head, from: SocketAddr) -> bool {
        if head.host == self.me.host {
            return head.life <= self.me.life;
        }
        let Some(member) = self.members.get(head.host) else { return false };
        let record = member.record;
        let stale = head.life < record.life;
        if stale {
            self.stats.stale += 1;
            // The sender learns that it was replaced; one message for one.
            let digest = self.exchange.digest.total();
            let items = [self.me, record];
            let welcome = Welcome { digest, items: List::Items(&items) };
            self.send(from, 0, &Message::Welcome(welcome));
        }
        stale
    }

    /// Notes that a host answers.
    fn hear(&mut self, now: Instant, head: &Head) {
        if self.is_cut_off && self.is_current(head) {
            self.set_cut_off(now, false);
        }
    }

    /// Returns true if the sender is the life of the host that is known.
    fn is_current(&self, head: &Head) -> bool {
        self.members.get(head.host).is_some_and(|m| m.record.life == head.life)
    }

    fn route(&mut self, now: Instant, head: &Head, from: SocketAddr, message: &Message<'_>) {
        match message {
            Message::Join(join) => self.on_join(now, head, from, join),
            Message::Welcome(welcome) => self.on_welcome(now, head, welcome),
            Message::Probe(probe) => {
                let digest = self.exchange.digest.total();
                let pulse = Pulse { serial: probe.serial, digest, items: NONE };
                self.send(from, 0, &Message::Pulse(pulse));
                self.on_digest(now, head, from, probe.digest);
                if self.is_current(head) {
                    let first = self.me.host < head.host;
                    if let Some(next) = self.watch.probed(now, head.host, first, &self.config) {
                        self.timers.arm(super::Timer::Watch(head.host), next);
                        self.hear(now, head);
                    }
                }
                self.probe_along(now);
            }
            Message::Pulse(pulse) => {
                let is_current = self.is_current(head);
                let first = self.me.host < head.host;
                let (watch, config) = (&mut self.watch, &self.config);
                let answered = || watch.answered(now, head.host, pulse.serial, first, config);
                if let Some(next) = is_current.then(answered).flatten() {
                    self.timers.arm(super::Timer::Watch(head.host), next);
                    self.hear(now, head);
                }
                self.on_digest(now, head, from, pulse.digest);
            }
            Message::Members(members) => self.on_members(now, members),
            Message::Ops(ops) => self.on_ops(now, head.host, ops),
            Message::Sync(sync) => self.on_sync(head.host, sync.items),
            Message::Summary(summary) => self.on_summary(now, head.host, summary),
            Message::Want(want) => self.on_want(head.host, want.items),
            Message::Snapshot(part) => self.on_snapshot(now, head.host, part),
            Message::Suspect(question) => {
                let current = self.members.get(question.suspect).map(|m| m.record.life);
                let is_heard = self.watch.has_heard(now, question.suspect, &self.config);
                if is_heard && current == Some(question.suspect_life) {
                    let wire::Suspect { suspect, suspect_life, .. } = *question;
                    let vouch = Vouch { suspect, suspect_life, items: NONE };
                    self.send(from, 0, &Message::Vouch(vouch));
                }
            }
            Message::Vouch(vouch) => {
                let current = self.members.get(vouch.suspect).map(|m| m.record.life);
                if current == Some(vouch.suspect_life) {
                    self.stats.vouched += 1;
                    self.watch.vouched(now, vouch.suspect, &self.config);
                }
            }
            Message::Ask(ask) => self.on_ask(now, head.host, from, ask),
            Message::Answer(answer) => self.on_answer(now, answer),
            Message::Evict(evict) => self.on_evict(now, head.host, evict),
        }
    }

    /// Compares digests; a host that is held for lost, or unknown, and writes all the same is asked
    /// to speak for itself.
    fn on_digest(&mut self, now: Instant, head: &Head, from: SocketAddr, digest: u64) {
        match self.members.get(head.host).map(|m| m.record) {
            None => self.greet(from),
            Some(record) if !record.is_up() => self.welcome(head.host, from),
            Some(_) => self.compare(now, head.host, digest, false),
        }
    }

    fn greet(&mut self, to: SocketAddr) {
        let items = [self.me];
        let digest = self.exchange.digest.total();
        self.send(to, 0, &Message::Join(Join { digest, items: List::Items(&items) }));
    }

    fn welcome(&mut self, host: HostId, to: SocketAddr) {
        let known = self.members.get(host).map(|m| m.record).filter(|r| r.host != self.me.host);
        let mut items = [self.me; 2];
        let len = match known {
            Some(record) => {
                items[1] = record;
                2
            }
            None => 1,
        };
        // A copy of this host asks: it learns who has the number.
        let digest = self.exchange.digest.total();
        let welcome = Welcome { digest, items: List::Items(&items[..len]) };
        self.send(to, 0, &Message::Welcome(welcome));
    }

    fn on_join(&mut self, now: Instant, head: &Head, from: SocketAddr, join: &Join<'_>) {
        let mut items = join.items.iter();
        let (Some(record), None) = (items.next(), items.next()) else {
            self.stats.malformed += 1;
            return;
        };
        if record.host != head.host {
            self.stats.malformed += 1;
            return;
        }
        self.learn(now, record, None);
        if self.is_over {
            return;
        }
        self.welcome(record.host, from);
        if record.host != self.me.host {
            self.compare(now, record.host, join.digest, true);
        }
    }

    fn on_welcome(&mut self, now: Instant, head: &Head, welcome: &Welcome<'_>) {
        let hold = now + self.config.tolerance;
        let life = self.me.life;
        for record in welcome.items.iter() {
            self.learn(now, record, Some(hold));
            if self.is_over {
                return;
            }
        }
        if head.host == self.me.host || self.me.life != life {
            // The cluster knows a later life of this host: it has begun one above, and asks again.
            self.timers.arm(super::Timer::Seek, now);
            return;
        }
        self.hear(now, head);
        if !self.is_admitted {
            self.is_admitted = true;
            self.names.arbiter.unsettle(now + self.config.settle());
        }
        self.tell_if_lost(head.host, welcome);
        self.compare(now, head.host, welcome.digest, true);
    }

    /// Tells a host what is known of it here, if that is more than it says: it was held for lost.
    fn tell_if_lost(&mut self, host: HostId, welcome: &Welcome<'_>) {
        let Some(known) = self.members.get(host).map(|m| m.record) else { return };
        let own = welcome.items.iter().find(|r| r.host == host);
        if own.is_some_and(|own| own.order() < known.order()) {
            let items = [known];
            self.send_host(host, &Message::Members(Members { items: List::Items(&items) }));
        }
    }

    fn on_members(&mut self, now: Instant, members: &Members<'_>) {
        for record in members.items.iter() {
            self.learn_fresh(now, record);
            if self.is_over {
                return;
            }
        }
    }

    /// Takes a record that was sent as news: a loss that a watcher declares is told at once. If
    /// this host hears the lost one, it waits for the host's own word.
    fn learn_fresh(&mut self, now: Instant, record: Record) {
        let is_heard = self.watch.has_heard(now, record.host, &self.config);
        let hold = (is_heard && matches!(record.cause, crate::membership::Cause::Lost { .. }))
            .then(|| now + self.config.tolerance / 2);
        self.learn(now, record, hold);
    }

    /// Passes a message on to the hosts behind this one on the ring.
    fn relay(&mut self, head: &Head, message: &Message<'_>) {
        if !matches!(message, Message::Members(_) | Message::Ops(_)) {
            return;
        }
        // A sender covers no more than a domain.
        let count = usize::from(head.relay).min(self.config.mesh_max.max(self.watch.len()));
        let mut to = self.members.ring().next(self.me.host, count);
        to.retain(|host| *host != head.host);
        match message {
            Message::Members(members) if are_returns(members) => self.keep_returns(&to, members),
            _ => {
                for host in to {
                    self.stats.relayed += 1;
                    self.send_host(host, message);
                }
            }
        }
    }

    /// Answers a question about a unique name.
    fn on_ask(&mut self, now: Instant, host: HostId, from: SocketAddr, ask: &wire::Ask<'_>) {
        let question = crate::directory::unique::Question {
            host,
            claim: ask.claim,
            kind: ask.kind,
            lower: ask.lower,
            upper: ask.upper,
        };
        let (verdict, holder) = match self.judge(now, question) {
            crate::directory::unique::Verdict::Granted => (wire::verdict::GRANTED, HostId(0)),
            crate::directory::unique::Verdict::Taken(holder) => (wire::verdict::TAKEN, holder),
            crate::directory::unique::Verdict::Later => (wire::verdict::LATER, HostId(0)),
        };
        let answer = Answer { claim: ask.claim, holder, verdict, items: NONE };
        self.send(from, 0, &Message::Answer(answer));
    }

    /// Sends changes of this host's names to all.
    pub(super) fn broadcast_ops(&mut self, first: u64, changes: &[wire::Change]) {
        let (origin, origin_life) = (self.me.host, self.me.life);
        let items = List::Items(changes);
        self.broadcast(&Message::Ops(Ops { origin, origin_life, first, items }));
    }
}

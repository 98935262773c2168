//! The driver: owns engine, links and clock, and moves bytes between them.

use super::absence::Absence;
use super::intake::Intake;
use super::paths::Paths;
use super::polling::{Polling, CLOCK_ROUNDS, POLL_INTERVAL};
use super::waits::Waits;
use crate::clock::Clock;
use std::collections::{BTreeMap, HashMap};
use std::task::Waker;
use weft_core::engine::types::Event;
use weft_core::{Config, EndpointId, Instant, PeerId};
use weft_launch::ends::Ends;
use weft_link::copied::Origin;
use weft_link::{Address, Link};

/// Packets taken from a link before the next link is polled.
pub(super) const RECV_BUDGET: usize = 256;
/// Packets taken from a network before acknowledgements and requests go out: one GSO train.
pub(super) const TRAIN_BUDGET: usize = 64;

pub(crate) struct Driver {
    /// The process that opened it; only that process uses the links.
    pub(super) origin: Origin,
    /// Dropped first: peers may copy to memory of operations until their connections have ended.
    pub links: Vec<Box<dyn Link>>,
    pub intake: Intake,
    pub identity: Identity,
    pub known: Known,
    pub(super) paths: Paths,
    pub(super) polling: Polling,
    pub(super) coalesced: Coalesced,
    pub sleepers: BTreeMap<(Instant, u64), Waker>,
    /// Absences of a program that makes no progress for long, or does nothing else.
    pub(super) absence: Absence,
    pub(super) waits: Waits,
}

/// The address of this endpoint.
pub(crate) struct Identity {
    pub address: Address,
    /// Its bytes, the payload of HELLO.
    pub encoded: Vec<u8>,
}

/// Names and addresses of peers, for connections and messages to people.
#[derive(Default)]
pub(crate) struct Known {
    pub addresses: Vec<Option<Address>>,
    /// Names of peers for messages to people.
    pub names: HashMap<PeerId, String>,
    /// The last path to peers that no path reaches any more, for messages about failures.
    pub lost: HashMap<PeerId, String>,
    /// More about the failures of peers: how a process ended, why a peer refused.
    pub how: HashMap<PeerId, String>,
    /// The ends of the ranks of this process's job, if its launcher tells them.
    pub ends: Option<Ends>,
}

/// Messages that wait to leave with others.
pub(super) struct Coalesced {
    /// True if packets were left to the next round, which must come before any sleep.
    pub deferred_round: bool,
    /// Time until which messages wait for later ones.
    pub coalesce_until: Instant,
}

impl Driver {
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: Vec<Box<dyn Link>>) -> Driver {
        let mut address = Address { endpoint: id, rank: config.rank, ..Address::default() };
        links.iter().for_each(|link| link.advertise(&mut address));
        let now = clock.now();
        Driver {
            origin: Origin::here(),
            polling: Polling::new(now, links.len(), clock.is_virtual()),
            paths: Paths::new(links.len()),
            intake: Intake::new(config, id, clock, &links),
            links,
            identity: Identity { encoded: address.encode(), address },
            known: Known::default(),
            coalesced: Coalesced { deferred_round: false, coalesce_until: now },
            sleepers: BTreeMap::new(),
            absence: Absence::new(now),
            waits: Waits::default(),
        }
    }

    /// Does everything possible now: receive, act, send. True if anything happened. At most
    /// `budget` packets are taken from each link inside the host.
    #[inline]
    pub fn progress(&mut self, budget: usize) -> bool {
        self.leave_if_copied();
        self.polling.rounds += 1;
        self.polling.polls = self.polling.polls.wrapping_add(1);
        let (mut did, mut rare) =
            (std::mem::take(&mut self.absence.unreported), self.polling.exact);
        let ready_links = self.polling.ready_links.take().filter(|_| !self.polling.exact);
        let before_sleep = std::mem::take(&mut self.polling.before_sleep);
        self.intake.time.fresh = false;
        self.intake.outcome.ended = false;
        let timed = rare || self.polling.rounds >= CLOCK_ROUNDS;
        if timed {
            self.polling.rounds = 0;
            self.intake.tick();
            self.choose_close();
            if self.intake.time.now >= self.polling.poll_all_at || ready_links.is_some() {
                self.polling.poll_all_at = self.intake.time.now + self.polling.poll_interval;
                self.polling.poll_interval = (self.polling.poll_interval * 2).min(POLL_INTERVAL[1]);
                did |= !rare && self.check_wait(self.intake.time.now);
                rare = true;
            }
        }
        let mut more = false;
        for i in 0..self.links.len() {
            // HELLOs of new peers can wait; polling a network costs a system call.
            let look = match ready_links {
                Some(ready) => i >= 64 || ready >> i & 1 != 0,
                None => {
                    rare || self.is_polled(i)
                        && (self.intake.arriving.caps[i].polled || !before_sleep)
                }
            };
            if look {
                self.intake.arriving.link = i;
                let budget =
                    if self.intake.arriving.caps[i].network { TRAIN_BUDGET } else { budget };
                let found = self.links[i].recv(budget, &mut self.intake) > 0;
                if found && !self.is_polled(i) {
                    self.polling.poll_interval = POLL_INTERVAL[0];
                }
                self.polling.quiet[i] =
                    if found { 0 } else { self.polling.quiet[i].saturating_add(1) };
                more |= found;
            }
        }
        did |= more;
        self.absence.round_at = self.intake.time.now;
        if timed {
            did |= self.on_time(more);
        }
        // A round that was put off ends here; held packets may leave when their link has reported
        // room.
        let told = self.coalesced.deferred_round || did && self.intake.engine.output().held();
        if rare || told || self.intake.has_work() {
            did |= self.finish_round(rare);
        }
        did
    }

    /// Ends a round: acts and sends, or leaves it to the next round.
    #[inline]
    pub(super) fn finish_round(&mut self, rare: bool) -> bool {
        self.coalesced.deferred_round = !rare && self.may_defer();
        self.coalesced.deferred_round || {
            self.intake.freshen();
            self.flush()
        }
    }

    /// True if the remaining work can wait for the next round: an operation that the program waits
    /// for has ended, nothing waits for the rest, and the rest was not put off before.
    #[inline]
    fn may_defer(&self) -> bool {
        self.intake.outcome.ended && !self.coalesced.deferred_round && !self.intake.has_urgent()
    }

    /// Does due work. Timeouts may be deferred while `more` packets have arrived.
    fn on_time(&mut self, more: bool) -> bool {
        let mut did = false;
        if self.intake.engine.next_timeout().is_some_and(|at| at <= self.intake.time.now) {
            if self.absence.defers_timeout(more) {
                self.polling.rounds = CLOCK_ROUNDS;
            } else {
                self.intake.engine.handle_timeout(self.intake.time.now);
                did = true;
            }
        }
        self.intake.ops.shrink_on();
        if !self.sleepers.is_empty() {
            did |= self.wake_sleepers();
        }
        did |= self.ask_due();
        did |= self.intake.ports.note_due(self.intake.time.now);
        did
    }

    /// Prepares the round after a sleep: it reads the clock and polls the links in `ready`, a bit
    /// each.
    pub fn refresh(&mut self, ready: u64) {
        self.polling.ready_links = Some(ready);
        self.polling.rounds = CLOCK_ROUNDS;
    }

    /// Handles the engine's events and sends its packets. True if anything happened.
    pub fn flush(&mut self) -> bool {
        self.leave_if_copied();
        let mut did = false;
        self.intake.engine.links().handle_unblocked();
        did |= self.handle_all_events();
        // One part of a large copy at a time: between parts, the peer's packets are handled and its
        // awaited packets leave, so that both sides copy.
        if let Some(copy) = self.intake.due.copies.pop_front() {
            did = true;
            self.event(copy);
            self.handle_all_events();
        }
        did
    }

    fn handle_all_events(&mut self) -> bool {
        let mut did = false;
        loop {
            let acted = self.act();
            did |= acted | self.transmit();
            if !acted {
                return did;
            }
        }
    }

    fn act(&mut self) -> bool {
        let mut did = false;
        for i in 0..self.links.len() {
            while let Some(event) = self.links[i].poll_event() {
                did = true;
                self.link_event(i, event);
            }
        }
        while let Some((peer, link, address)) = self.intake.due.connects.pop() {
            did = true;
            self.route_back(peer, &address, link);
        }
        while let Some((peer, link, answer)) = self.intake.due.hellos.pop() {
            self.on_hello(peer, link, answer);
        }
        self.take_lengths();
        while let Some((endpoint, link)) = self.intake.due.rejects.pop() {
            self.links[link].reject(endpoint);
        }
        while let Some(request) = self.intake.due.atomics.pop_front() {
            did = true;
            self.intake.atomic(&request);
        }
        while let Some(event) = self.intake.next_event() {
            did = true;
            match event {
                Event::DirectRead(_) | Event::DirectWrite(_) => {
                    self.intake.due.copies.push_back(event)
                }
                _ => self.event(event),
            }
        }
        did
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::DirectRead(d) => self.read_part(&d),
            Event::DirectWrite(d) => self.write_part(&d),
            Event::PeerFailed(peer, failure) => {
                self.report_failure(peer, failure);
                self.unroute(peer);
                self.intake.forget(peer);
                self.intake.outcome.failed.push((peer, failure));
                self.intake.ports.failed(peer, failure);
            }
            Event::PeerSlow(peer, waited) => self.log_silent(peer, waited),
            Event::PeerFull(peer, messages, bytes) => self.report_full(peer, messages, bytes),
            Event::PeerSilent(peer) => self.on_silent(peer),
            Event::PeerStalled(peer, times) => self.on_stalled(peer, times),
            Event::PeerStuck { peer, since, bulk, len, heard } => {
                self.on_stuck(peer, since, (bulk, len), heard)
            }
            other => self.intake.event(other),
        }
    }
}

//! Rounds of progress: receive, act, send.

use super::polling::{CLOCK_ROUNDS, POLL_INTERVAL};
use super::{Reactor, TRAIN_BUDGET};
use weft_core::engine::types::Event;

impl Reactor {
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
        self.receiver.time.fresh = false;
        self.receiver.outcome.ended = false;
        let timed = rare || self.polling.rounds >= CLOCK_ROUNDS;
        if timed {
            self.polling.rounds = 0;
            self.receiver.tick();
            if self.polling.stale {
                self.choose_close();
            }
            if self.receiver.time.now >= self.polling.poll_all_at || ready_links.is_some() {
                self.polling.poll_all_at = self.receiver.time.now + self.polling.poll_interval;
                self.polling.poll_interval = (self.polling.poll_interval * 2).min(POLL_INTERVAL[1]);
                did |= !rare && self.check_wait(self.receiver.time.now);
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
                        && (self.receiver.arriving.caps[i].polled || !before_sleep)
                }
            };
            if look {
                self.receiver.arriving.link = i;
                let budget =
                    if self.receiver.arriving.caps[i].network { TRAIN_BUDGET } else { budget };
                let found = self.links[i].recv(budget, &mut self.receiver) > 0;
                if found && !self.is_polled(i) {
                    self.polling.poll_interval = POLL_INTERVAL[0];
                }
                self.polling.note(i, found);
                more |= found;
            }
        }
        did |= more;
        self.absence.round_at = self.receiver.time.now;
        if timed {
            did |= self.on_time(more);
        }
        // A round that was put off ends here; held packets may leave when their link has reported
        // room.
        let due = self.coalesced.deferred_round
            || (did || rare) && self.receiver.engine.output().held()
            || rare && self.link_events();
        if due || self.receiver.has_work() {
            did |= self.finish_round(rare);
        }
        did
    }

    /// Ends a round: acts and sends, or leaves it to the next round.
    #[inline]
    pub(super) fn finish_round(&mut self, rare: bool) -> bool {
        self.coalesced.deferred_round = !rare && self.may_defer();
        self.coalesced.deferred_round || {
            self.receiver.freshen();
            self.flush()
        }
    }

    /// True if the remaining work can wait for the next round: an operation that the program waits
    /// for has ended, nothing waits for the rest, and the rest was not put off before.
    #[inline]
    fn may_defer(&self) -> bool {
        self.receiver.outcome.ended && !self.coalesced.deferred_round && !self.receiver.has_urgent()
    }

    /// Does due work. Timeouts may be deferred while `more` packets have arrived.
    fn on_time(&mut self, more: bool) -> bool {
        let mut did = false;
        if self.receiver.engine.next_timeout().is_some_and(|at| at <= self.receiver.time.now) {
            if self.absence.defers_timeout(more) {
                self.polling.rounds = CLOCK_ROUNDS;
            } else {
                self.receiver.engine.handle_timeout(self.receiver.time.now);
                did = true;
            }
        }
        self.receiver.ops.shrink_on();
        did |= self.wake_sleepers();
        did |= self.ask_due();
        did |= self.receiver.ports.note_due(self.receiver.time.now);
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
        self.receiver.engine.links().handle_unblocked();
        did |= self.handle_all_events();
        // One part of a large copy at a time: between parts, the peer's packets are handled and its
        // awaited packets leave, so that both sides copy.
        if let Some(copy) = self.receiver.due.copies.pop_front() {
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

    /// Handles the links' events. True if there were any.
    #[inline]
    fn link_events(&mut self) -> bool {
        let mut did = false;
        for i in 0..self.links.len() {
            while let Some(event) = self.links[i].poll_event() {
                did = true;
                self.link_event(i, event);
            }
        }
        did
    }

    fn act(&mut self) -> bool {
        let mut did = self.link_events();
        while let Some((peer, link, address)) = self.receiver.due.connects.pop() {
            did = true;
            if !self.on_moves(peer, &address) {
                self.route_back(peer, &address, link);
            }
        }
        while let Some((peer, link, answer)) = self.receiver.due.hellos.pop() {
            self.on_hello(peer, link, answer);
        }
        self.take_lengths();
        while let Some((endpoint, link)) = self.receiver.due.rejects.pop() {
            let processes = self.links[link].processes();
            processes.into_iter().for_each(|processes| processes.reject(endpoint));
        }
        while let Some(request) = self.receiver.due.atomics.pop_front() {
            did = true;
            self.receiver.atomic(&request);
        }
        while let Some(event) = self.receiver.next_event() {
            did = true;
            match event {
                Event::DirectRead(_) | Event::DirectWrite(_) => {
                    self.receiver.due.copies.push_back(event)
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
                self.receiver.forget(peer);
                self.receiver.outcome.failed.push((peer, failure));
                self.receiver.ports.failed(peer, failure);
            }
            Event::PeerSlow(peer, waited) => self.log_silent(peer, waited),
            Event::PeerFull(peer, messages, bytes) => self.report_full(peer, messages, bytes),
            Event::PeerSilent(peer) => self.on_silent(peer),
            Event::PeerStalled(peer, times) => self.on_stalled(peer, times),
            Event::PeerStuck { peer, since, bulk, len, heard } => {
                self.on_stuck(peer, since, (bulk, len), heard)
            }
            other => self.receiver.event(other),
        }
    }
}

//! Polling: the links that are polled in every round, and the direct polls between rounds while a
//! call waits.

use super::{Reactor, TRAIN_BUDGET};
use crate::clock::Moments;
use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::Instant;

/// Polls in vain after which a link whose poll costs a system call is polled rarely.
const QUIET: u32 = 256;
/// Direct polls of a link between two rounds.
pub(super) const CLOSE_ROUNDS: u32 = 16;
/// Factor of direct polls of networks: some 2 us in all.
const NETWORK_FACTOR: u32 = 16;

/// The links that are polled directly between rounds of progress.
#[derive(Default)]
pub(super) struct Close {
    links: ArrayVec<u8, 4>,
    /// True if all of them are networks, whose poll takes less time than that of memory.
    is_network: bool,
}

/// The links that are polled, and how often.
pub(crate) struct Polling {
    /// Polls of each link since the last that found a packet.
    pub quiet: Vec<u32>,
    /// Links polled in every round: those over which a peer is reached.
    pub busy: Vec<bool>,
    /// The links that are polled directly between rounds of progress.
    pub(super) close: Close,
    /// True if `close` has to be chosen anew: another link is in use, or quiet.
    pub(super) stale: bool,
    /// Rounds of progress, and of direct polls, since the clock was read.
    pub rounds: u32,
    /// Rounds of progress, and of direct polls, since the start, modulo 2^32.
    pub polls: u32,
    /// Time at which every link is polled again.
    pub poll_all_at: Instant,
    pub poll_interval: Duration,
    /// The links that have a packet, a bit each, as the system has just reported.
    pub ready_links: Option<u64>,
    /// True if the caller sleeps unless the next round finds something: a link whose poll costs a
    /// system call then ends the sleep at once if it has a packet.
    pub before_sleep: bool,
    /// True if a peer is reached over a network whose poll costs no system call.
    pub has_polled_network: bool,
    /// True if packets came over a network in its last polls.
    pub has_lively_network: bool,
    /// True if time is virtual: a simulator calls only when something happened, so every round
    /// polls every link.
    pub exact: bool,
    /// The time since the last round of progress for an operation that ended at once.
    pub moments: Moments,
}

/// Time between polls of a link that no peer uses, or whose poll costs a system call and gave
/// nothing: from the first to the last, doubled by each poll in vain. It is a time, not a number of
/// rounds: where rounds are cheap, such polls would take most of the time.
pub(super) const POLL_INTERVAL: [Duration; 2] =
    [Duration::from_micros(16), Duration::from_micros(128)];
/// Rounds between readings of the clock while nothing happens.
pub(super) const CLOCK_ROUNDS: u32 = 8;

impl Polling {
    pub fn new(now: Instant, links: usize, exact: bool) -> Polling {
        Polling {
            quiet: vec![0; links],
            busy: vec![false; links],
            close: Close::default(),
            stale: true,
            rounds: 0,
            polls: 0,
            poll_all_at: now,
            poll_interval: POLL_INTERVAL[0],
            ready_links: None,
            before_sleep: false,
            has_polled_network: false,
            has_lively_network: false,
            exact,
            moments: Moments::new(),
        }
    }
}

impl Polling {
    /// Notes a poll of a link, which found a packet or not.
    #[inline]
    pub(super) fn note(&mut self, link: usize, found: bool) {
        let was = self.quiet[link];
        let now = if found { 0 } else { was.saturating_add(1) };
        self.quiet[link] = now;
        self.stale |= (was < QUIET) != (now < QUIET);
    }
}

impl Reactor {
    /// Returns the time of the next `progress` call that is needed although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        let sleeper = self.sleepers.next_at();
        let engine = self.receiver.engine.next_timeout();
        let ask = Some(self.paths.ask_at.min(self.receiver.due.lengths.at))
            .filter(|&at| at != Instant::FAR);
        let client = self.receiver.ports.next_due();
        [sleeper, engine, ask, client, self.wait_due()].into_iter().flatten().min()
    }

    /// True if a link is polled in every round: a link in use is, unless its poll costs a system
    /// call, nothing came over it for long, and the poll of another link in use costs none or finds
    /// packets.
    #[inline]
    pub(super) fn is_polled(&self, i: usize) -> bool {
        self.polling.busy[i]
            && (self.receiver.arriving.caps[i].polled
                || self.polling.quiet[i] < QUIET
                || !(self.polling.has_polled_network || self.polling.has_lively_network))
    }

    /// Makes the next rounds poll all links in use, since data is expected: most likely over the
    /// link of earlier data, but maybe over another.
    pub(super) fn poll_for_data(&mut self) {
        if !self
            .receiver
            .arriving
            .data_over
            .is_some_and(|link| self.receiver.arriving.caps[link].polled)
        {
            self.polling.quiet.fill(0);
            self.polling.stale = true;
        }
    }

    /// Polls the links in use directly, between two rounds of progress, if that costs no system
    /// call: up to `polls` times or, for networks, `NETWORK_FACTOR` times as often. Handles arrived
    /// packets as a round does.
    #[inline]
    pub fn poll_closely(&mut self, polls: u32, budget: usize) -> bool {
        if self.polling.close.links.is_empty() {
            return false;
        }
        self.leave_if_copied();
        self.polling.rounds += 1;
        self.polling.polls = self.polling.polls.wrapping_add(1);
        (self.receiver.time.fresh, self.receiver.outcome.ended) = (false, false);
        let polls = if self.polling.close.is_network { polls * NETWORK_FACTOR } else { polls };
        let (turns, each) =
            if self.polling.close.links.len() == 1 { (1, polls) } else { (polls.div_ceil(4), 4) };
        for _ in 0..turns {
            for at in 0..self.polling.close.links.len() {
                let link = usize::from(self.polling.close.links[at]);
                self.receiver.arriving.link = link;
                let budget =
                    if self.receiver.arriving.caps[link].network { TRAIN_BUDGET } else { budget };
                if self.links[link].recv_soon(each, budget, &mut self.receiver) > 0 {
                    self.polling.note(link, true);
                    if self.receiver.has_work() || self.receiver.engine.output().held() {
                        self.finish_round(false);
                    }
                    return true;
                }
            }
        }
        false
    }

    /// True if there is a link to poll directly.
    #[inline]
    pub fn has_direct_poll(&self) -> bool {
        !self.polling.close.links.is_empty()
    }

    /// True if the next round must be one of progress, not only of direct polls.
    #[inline]
    pub fn is_round_due(&self) -> bool {
        self.coalesced.deferred_round || self.polling.rounds + 1 >= CLOCK_ROUNDS
    }

    /// Chooses the links to poll directly: those that are polled in every round, if no poll costs a
    /// system call.
    pub(super) fn choose_close(&mut self) {
        self.polling.stale = false;
        self.polling.has_lively_network = (0..self.links.len()).any(|at| {
            let network = self.polling.busy[at] && self.receiver.arriving.caps[at].network;
            network && self.polling.quiet[at] < QUIET
        });
        self.polling.close = Close { links: ArrayVec::new(), is_network: true };
        for at in 0..self.links.len() {
            if self.is_polled(at) {
                let caps = &self.receiver.arriving.caps[at];
                if !caps.polled || self.polling.close.links.try_push(at as u8).is_err() {
                    return self.polling.close.links.clear();
                }
                self.polling.close.is_network &= caps.network;
            }
        }
    }
}

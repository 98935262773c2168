//! Which links are looked at in every round, and how closely while somebody waits.

use super::driver::{Driver, TRAIN_BUDGET};
use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::Instant;

/// Looks in vain after which a link that costs a system call is looked at rarely.
const QUIET: u32 = 256;
/// Close looks at a link between two rounds.
pub(super) const CLOSE_ROUNDS: u32 = 16;
/// As many times more often at networks: some 2 us in all.
const SWIFT: u32 = 16;

/// The links looked at closely between rounds of progress.
#[derive(Default)]
pub(super) struct Close {
    links: ArrayVec<u8, 4>,
    /// All of them are networks, where a look takes less time than in memory.
    is_swift: bool,
}

/// The links that are polled, and how often.
pub(super) struct Polling {
    /// Polls of each link since the last that found a packet.
    pub quiet: Vec<u32>,
    /// Links polled in every round: those that a peer is reached over.
    pub busy: Vec<bool>,
    /// The links polled closely between rounds of progress.
    pub close: Close,
    /// Rounds of progress, and close polls, since the clock was read.
    pub rounds: u32,
    /// The same since the start, modulo 2^32.
    pub looks: u32,
    /// Time at which every link is polled again.
    pub look_at: Instant,
    pub rarely: Duration,
    /// The links that have a packet, a bit each, as the system has just reported.
    pub woken: Option<u64>,
    /// Some peer is reached over a network that costs no system call to poll.
    pub has_polled_network: bool,
    /// Time is virtual: a simulator calls only when something happened, so every round polls every
    /// link.
    pub exact: bool,
}

/// Time between looks at a link that no peer uses, or that costs a system call and gave nothing:
/// from the first to the last, doubled by each look in vain. Not rounds: where a round costs
/// nothing, such looks would make up most of the time.
pub(super) const RARELY: [Duration; 2] = [Duration::from_micros(16), Duration::from_micros(128)];
/// Rounds between readings of the clock while nothing happens.
pub(super) const CLOCK_ROUNDS: u32 = 8;

impl Polling {
    pub fn new(now: Instant, links: usize, exact: bool) -> Polling {
        Polling {
            quiet: vec![0; links],
            busy: vec![false; links],
            close: Close::default(),
            rounds: 0,
            looks: 0,
            look_at: now,
            rarely: RARELY[0],
            woken: None,
            has_polled_network: false,
            exact,
        }
    }
}

impl Driver {
    /// When `progress` wants to be called again although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        let sleeper = self.sleepers.first_key_value().map(|(&(at, _), _)| at);
        let engine = self.intake.engine.next_timeout();
        let ask = Some(self.paths.ask_at.min(self.intake.due.lengths.at))
            .filter(|&at| at != Instant::FAR);
        let client = self.intake.ports.next_due();
        [sleeper, engine, ask, client, self.wait_due()].into_iter().flatten().min()
    }

    /// Whether a link is looked at in every round: one in use, unless a look costs a system call
    /// and nothing came over it for long, while another in use costs none.
    #[inline]
    pub(super) fn is_looked_at(&self, i: usize) -> bool {
        self.polling.busy[i]
            && (self.intake.arriving.caps[i].polled
                || self.polling.quiet[i] < QUIET
                || !self.polling.has_polled_network)
    }

    /// Data is on its way: most likely over the link it came over before, but maybe over another.
    pub(super) fn look_for_data(&mut self) {
        if !self
            .intake
            .arriving
            .data_over
            .is_some_and(|link| self.intake.arriving.caps[link].polled)
        {
            self.polling.quiet.fill(0);
        }
    }

    /// Between two rounds of progress: looks closely, up to `looks` times or, at networks, `SWIFT`
    /// as often, at the links in use, if that costs no system call, and takes what comes as a round
    /// does.
    #[inline]
    pub fn look_closely(&mut self, looks: u32, budget: usize) -> bool {
        if self.polling.close.links.is_empty() {
            return false;
        }
        self.leave_if_copied();
        self.polling.rounds += 1;
        self.polling.looks = self.polling.looks.wrapping_add(1);
        (self.intake.time.fresh, self.intake.outcome.ended) = (false, false);
        let looks = if self.polling.close.is_swift { looks * SWIFT } else { looks };
        let (turns, each) =
            if self.polling.close.links.len() == 1 { (1, looks) } else { (looks.div_ceil(4), 4) };
        for _ in 0..turns {
            for at in 0..self.polling.close.links.len() {
                let link = usize::from(self.polling.close.links[at]);
                self.intake.arriving.link = link;
                let budget =
                    if self.intake.arriving.caps[link].network { TRAIN_BUDGET } else { budget };
                if self.links[link].recv_soon(each, budget, &mut self.intake) > 0 {
                    self.polling.quiet[link] = 0;
                    if self.intake.has_work() || self.intake.engine.has_held() {
                        self.wind_up(false);
                    }
                    return true;
                }
            }
        }
        false
    }

    /// Whether there is a link to look at closely.
    #[inline]
    pub fn has_close_look(&self) -> bool {
        !self.polling.close.links.is_empty()
    }

    /// Whether the next round is to be one of progress: not only a close look.
    #[inline]
    pub fn is_round_due(&self) -> bool {
        self.trains.put_off || self.polling.rounds + 1 >= CLOCK_ROUNDS
    }

    /// Chooses the links to look at closely: those that are looked at in every round, if no look
    /// costs a system call.
    pub(super) fn choose_close(&mut self) {
        self.polling.close = Close { links: ArrayVec::new(), is_swift: true };
        for at in 0..self.links.len() {
            if self.is_looked_at(at) {
                let caps = &self.intake.arriving.caps[at];
                if !caps.polled || self.polling.close.links.try_push(at as u8).is_err() {
                    return self.polling.close.links.clear();
                }
                self.polling.close.is_swift &= caps.network;
            }
        }
    }
}

//! Which links are looked at in every round, and how closely while somebody waits.

use super::driver::{Driver, CLOCK_ROUNDS, TRAIN_BUDGET};
use arrayvec::ArrayVec;
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

impl Driver {
    /// When `progress` wants to be called again although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        let sleeper = self.sleepers.first_key_value().map(|(&(at, _), _)| at);
        let engine = self.core.engine.next_timeout();
        let ask = Some(self.ask_at.min(self.core.lengths.at)).filter(|&at| at != Instant::FAR);
        let client = self.core.ports.next_due();
        [sleeper, engine, ask, client, self.wait_due()].into_iter().flatten().min()
    }

    /// Whether a link is looked at in every round: one in use, unless a look costs a system call
    /// and nothing came over it for long, while another in use costs none.
    #[inline]
    pub(super) fn is_looked_at(&self, i: usize) -> bool {
        self.busy[i]
            && (self.core.caps[i].polled || self.quiet[i] < QUIET || !self.has_polled_network)
    }

    /// Data is on its way: most likely over the link it came over before, but maybe over another.
    pub(super) fn look_for_data(&mut self) {
        if !self.core.data_over.is_some_and(|link| self.core.caps[link].polled) {
            self.quiet.fill(0);
        }
    }

    /// Between two rounds of progress: looks closely, up to `looks` times or, at networks, `SWIFT`
    /// as often, at the links in use, if that costs no system call, and takes what comes as a round
    /// does.
    #[inline]
    pub fn look_closely(&mut self, looks: u32, budget: usize) -> bool {
        if self.close.links.is_empty() {
            return false;
        }
        self.leave_if_copied();
        self.rounds += 1;
        self.looks = self.looks.wrapping_add(1);
        (self.core.fresh, self.core.ended) = (false, false);
        let looks = if self.close.is_swift { looks * SWIFT } else { looks };
        let (turns, each) =
            if self.close.links.len() == 1 { (1, looks) } else { (looks.div_ceil(4), 4) };
        for _ in 0..turns {
            for at in 0..self.close.links.len() {
                let link = usize::from(self.close.links[at]);
                self.core.link = link;
                let budget = if self.core.caps[link].network { TRAIN_BUDGET } else { budget };
                if self.links[link].recv_soon(each, budget, &mut self.core) > 0 {
                    self.quiet[link] = 0;
                    if self.core.has_work() || self.core.engine.has_held() {
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
        !self.close.links.is_empty()
    }

    /// Whether the next round is to be one of progress: not only a close look.
    #[inline]
    pub fn is_round_due(&self) -> bool {
        self.put_off || self.rounds + 1 >= CLOCK_ROUNDS
    }

    /// Chooses the links to look at closely: those that are looked at in every round, if no look
    /// costs a system call.
    pub(super) fn choose_close(&mut self) {
        self.close = Close { links: ArrayVec::new(), is_swift: true };
        for at in 0..self.links.len() {
            if self.is_looked_at(at) {
                let caps = &self.core.caps[at];
                if !caps.polled || self.close.links.try_push(at as u8).is_err() {
                    return self.close.links.clear();
                }
                self.close.is_swift &= caps.network;
            }
        }
    }
}

//! The member's controls besides changes of view, its waits, and the members that hold it up.

use super::{Action, Core, Early};
use crate::order::wire::{Control, Slot};
use crate::order::Style;
use std::time::Duration;
use weft_core::Instant;

/// Time of a wait after which the silence of all other members is noticed.
const WATCH: Duration = Duration::from_millis(20);
/// Pause before an attempt that met another one is made again, and its part for each member.
const AGAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(4)];
/// Time after which a rank that wants to join asks another one.
const ASK: Duration = Duration::from_millis(200);
/// Time without a quorum after which a member ends: others that have ended may tell their last
/// states meanwhile.
const GRACE: Duration = Duration::from_millis(500);
/// Time for answers to a question about a long wait.
const ANSWERS: Duration = Duration::from_millis(500);

impl Core {
    /// Handles a control of a rank.
    pub fn handle(&mut self, from: u32, control: Control) {
        if let Some(view) =
            control.view().filter(|&view| view != self.view || self.own.room.is_none())
        {
            if self.is_early(view) {
                self.early.keep(Early::Control(from, control), self.window);
            }
            return;
        }
        match control {
            Control::Submit { number, data, .. } => {
                if self.is_open() && self.keeper() == self.me && self.style == Style::Sequencer {
                    self.place(Slot { sender: from, number, data });
                    self.advance();
                }
            }
            Control::Ack { next, .. } => {
                if self.is_open() {
                    self.note_next(from, next);
                }
            }
            Control::Held { have, .. } => self.note_held(from, have),
            Control::Query { view, place } => {
                let holds = self.own.holds(place, self.store.base);
                let next = self.store.next;
                self.post(from, Control::Answer { view, place, next, holds });
            }
            Control::Answer { view, place, next, holds } => {
                if (view, place) == (self.view, self.store.next) {
                    // A member far behind keeps the window shut.
                    let behind = next.saturating_add(self.window / 2) < self.store.next;
                    let told = match holds || behind {
                        true => &mut self.patience.wait.holders,
                        false => &mut self.patience.wait.innocent,
                    };
                    if !told.contains(&from) {
                        told.push(from);
                    }
                }
            }
            other => self.handle_change(from, other),
        }
    }

    /// Takes the key of a counter made for a later view.
    pub fn counter_made(&mut self, key: Option<u64>) {
        self.change.spare = key;
    }

    /// Describes the state of this member in a line.
    pub fn describe(&self) -> String {
        let highest = self.store.slots.last().map_or(self.store.next, |place| place + 1);
        let mut text = format!(
            "view {} ({:#x}) of ranks {:?}, {} messages delivered, next place {} of {highest}, \
             {} stable, {} packets of its own on their way",
            self.view.epoch,
            self.view.stamp,
            self.members,
            self.store.delivered,
            self.store.next,
            self.store.stable,
            self.own.len()
        );
        if self.own.asking {
            text += ", waits for the counter";
        }
        if self.change.is_frozen() {
            text += &format!(", takes part in change {:#x}", self.change.promised);
        }
        if let Some(attempt) = &self.change.attempt {
            text += &attempt.describe();
        }
        if !self.change.suspects.is_empty() {
            text += &format!(", without ranks {:?}", self.change.suspects.keys());
        }
        if !self.change.joiners.is_empty() {
            text += &format!(", to let in ranks {:?}", self.change.joiners.keys());
        }
        if !self.change.reach.lost.is_empty() {
            text += &format!(", gave up ranks {:?}", self.change.reach.lost);
        }
        if let Some(ended) = &self.ended {
            text += &format!(", ended: {ended}");
        }
        text
    }

    /// True if this member waits for others.
    pub fn waits(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.store.has_gap()
            || !self.own.outgoing.is_empty()
            || self.store.unplaced.has_places()
            || self.change.is_frozen()
            || self.view.epoch == 0
            || self.wants_change()
    }

    /// Does what is due during waits.
    pub fn tick(&mut self, now: Instant, warn_after: Duration) {
        self.patience.now = now;
        self.end_if_lonely(now, GRACE);
        let mark = (self.store.next, self.store.stable, self.view, self.change.promised);
        if !self.waits() || mark != self.patience.wait.mark {
            if self.patience.wait.watches {
                self.watch(false);
            }
            self.patience.slow.clear();
            self.patience.wait = super::Wait { mark, since: Some(now), ..Default::default() };
            if !self.waits() {
                self.patience.wait.since = None;
            }
            return;
        }
        let since = *self.patience.wait.since.get_or_insert(now);
        let waited = now.since(since);
        let at = self.members.iter().position(|&rank| rank == self.me).unwrap_or(0) as u32;
        if self.change.again && waited >= AGAIN[0] + AGAIN[1] * at {
            self.change.again = false;
            self.consider();
        }
        if waited >= WATCH {
            // Again in each tick, since the members may have changed.
            self.watch(true);
            let asks = !self.change.joining.contacts.is_empty() && self.view.epoch == 0;
            let asked = self.change.joining.asked.get_or_insert(now);
            if asks && now.since(*asked) >= ASK {
                self.change.joining.asked = Some(now);
                self.ask_to_join();
            }
        }
        if !warn_after.is_zero() && waited >= warn_after {
            self.name_slow(waited, warn_after);
        }
    }

    /// Notes that the program waits for messages of others, or waits no more.
    pub fn expect(&mut self, on: bool) {
        if self.patience.expects != on && self.ended.is_none() {
            self.patience.expects = on;
            self.watch(self.patience.wait.watches);
        }
    }

    /// Notices the silence of all others if `all`; else of two while the program waits, so that
    /// each member is watched by another.
    pub(super) fn watch(&mut self, all: bool) {
        let others = self.members.iter().chain(&self.change.joining.contacts).copied();
        let suspects = &self.change.suspects;
        let lives = |rank: &u32| *rank != self.me && !suspects.contains_key(rank);
        let mut ranks: Vec<u32> = others.filter(lives).collect();
        if !all {
            let next = ranks.iter().copied().find(|&rank| rank > self.me);
            let two = [ranks.first().copied(), next];
            ranks.retain(|&rank| self.patience.expects && two.contains(&Some(rank)));
        }
        self.patience.wait.watches = all;
        self.actions.push_back(Action::Watch { ranks });
    }

    /// Asks all members about the place that is awaited, then names those that hold it up: they
    /// have it, or do not answer.
    fn name_slow(&mut self, waited: Duration, warn_after: Duration) {
        if self.store.paused && !self.patience.wait.said {
            self.patience.wait.said = true;
            self.patience.slow = vec![self.me];
            let text = "an ordered group is held up: this rank does not receive its messages";
            self.actions.push_back(Action::Say { text: text.to_string() });
            return;
        }
        if !self.patience.wait.said && self.members.is_empty() {
            self.patience.wait.said = true;
            let (asked, time) = (&self.change.joining.contacts, waited.as_secs_f64());
            let text = format!(
                "waiting for {time:.1} s to be let into an ordered group by ranks {asked:?}"
            );
            self.actions.push_back(Action::Say { text });
            return;
        }
        if !self.patience.wait.said {
            self.patience.wait.said = true;
            let (view, place) = (self.view, self.store.next);
            self.post_all(&Control::Query { view, place });
            return;
        }
        if waited < warn_after + ANSWERS || !self.patience.slow.is_empty() {
            return;
        }
        let innocent = |rank: &u32| self.patience.wait.innocent.contains(rank) || *rank == self.me;
        let slow: Vec<u32> = self.members.iter().copied().filter(|rank| !innocent(rank)).collect();
        if slow.is_empty() {
            return;
        }
        let each = slow.iter().map(|rank| match self.patience.wait.holders.contains(rank) {
            true => format!("rank {rank}, which holds it up"),
            false => format!("rank {rank}, which does not answer"),
        });
        let who = each.collect::<Vec<_>>().join(", ");
        let text = format!(
            "waiting for {:.1} s for message {} of an ordered group: {who}",
            waited.as_secs_f64(),
            self.store.delivered
        );
        self.patience.slow = slow;
        self.actions.push_back(Action::Say { text });
    }
}

//! All timers of a node, and the time in which they run.

use super::Node;
use crate::config::Config;
use crate::id::HostId;
use crate::stats::Stats;
use crate::subscriptions::SubscriptionId;
use alloc::collections::{BTreeMap, BTreeSet};
use weft_core::Instant;

/// The reasons why a node may want to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A watched host is due for a probe, for questions about it, or for the verdict.
    Watch(HostId),
    /// A loss that was held back is told.
    Hold(HostId),
    /// Addresses without a member, and lost hosts, are tried.
    Seek,
    /// A claim of a unique name is asked for again.
    Ask(u64),
    /// The time of a subscription is over.
    Subscription(SubscriptionId),
    /// Hosts that have gone long ago are forgotten.
    Forget,
    /// Returns of hosts that were held for lost are passed on.
    Returns,
}

/// Deadlines, one for each timer.
///
/// The time of a node goes on only while its driver is there. The driver may come much later than
/// it was asked to: a stopped process, a suspended machine, a clock that jumps forward. The delay
/// is taken off then, so that other hosts do not seem silent for it. A clock that jumps back counts
/// from there.
#[derive(Debug)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, Timer)>,
    at: BTreeMap<Timer, Instant>,
    now: Instant,
    /// The driver's time at the last call.
    last: Instant,
    /// The driver's time before that of the node: what was taken off.
    ahead: i128,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        let (set, at) = (BTreeSet::new(), BTreeMap::new());
        Timers { set, at, now, last: now, ahead: 0 }
    }

    /// Returns the node's time for the driver's.
    pub fn tick(&mut self, now: Instant, config: &Config, stats: &mut Stats) -> Instant {
        if now < self.last {
            self.ahead -= i128::from(self.last.0 - now.0);
            stats.naps += 1;
        }
        self.last = now;
        let ours = Instant((i128::from(now.0) - self.ahead).max(0) as u64).max(self.now);
        let due = self.set.first().map_or(ours, |(at, _)| (*at).max(self.now));
        let late = ours.since(due);
        self.now = ours;
        if late > config.tolerance / 4 {
            stats.naps += 1;
            self.ahead += late.as_nanos() as i128;
            self.now = due;
        }
        self.now
    }

    /// Returns the node's time at the last call.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Sets a timer, in place of its deadline before.
    pub fn arm(&mut self, timer: Timer, at: Instant) {
        self.disarm(timer);
        self.at.insert(timer, at);
        self.set.insert((at, timer));
    }

    /// Stops a timer.
    pub fn disarm(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.set.remove(&(at, timer));
        }
    }

    /// Returns true if a timer's deadline is not later than this time.
    pub fn is_due(&self, timer: Timer, by: Instant) -> bool {
        self.at.get(&timer).is_some_and(|at| *at <= by)
    }

    pub fn clear(&mut self) {
        self.set.clear();
        self.at.clear();
    }

    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Returns the first deadline, in the driver's time.
    pub fn next(&self) -> Option<Instant> {
        let ours = |at: &Instant| (i128::from(at.0) + self.ahead).clamp(0, u64::MAX.into()) as u64;
        self.set.first().map(|(at, _)| Instant(ours(at)))
    }

    fn pop(&mut self, now: Instant) -> Option<Timer> {
        let (_, timer) = *self.set.first().filter(|(at, _)| *at <= now)?;
        self.disarm(timer);
        Some(timer)
    }
}

impl Node {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Watch(host) => self.on_watch(now, host),
                Timer::Hold(host) => self.settle(now, host),
                Timer::Seek => self.on_seek(now),
                Timer::Ask(claim) => self.on_ask_timer(now, claim),
                Timer::Subscription(id) => {
                    if self.names.subscriptions.expire(now, id) {
                        self.event(super::Event::Readable(id));
                    }
                }
                Timer::Forget => self.on_forget(now),
                Timer::Returns => self.pass_returns(),
            }
            // A verdict above may have ended the node.
            if self.is_over {
                return;
            }
        }
        self.tidy(now);
    }
}

//! Membership: which hosts there are, and the history of each.
//!
//! The history of one life of a host is a sequence of numbered steps: odd numbers say that it is
//! there (1 when it starts), even ones that it is not. The host itself writes the odd ones; the
//! even ones are written by the host as it leaves, or by a host that watches it. A record with the
//! greater life, then the greater number counts, so records may come in any order from anybody, and
//! every host tells the same steps in the same order.

mod record;
mod ring;
mod watch;

pub use record::{Cause, MemberEvent, Record};
pub use ring::Ring;
pub use watch::{Due, Watch, WatchedHost};

use crate::id::{HostId, Life};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weft_core::Instant;

/// The effect of a record on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The table has it, or a later one.
    Old,
    /// The record is news.
    News,
    /// There is no room for another host.
    Full,
}

/// One host of the table.
#[derive(Clone, Debug)]
pub struct Member {
    /// The latest step of its history.
    pub record: Record,
    /// The life and number of the step that was told last; number 0: none.
    told: (Life, u32),
    /// The step is told at this time, unless the host says before that it is there.
    hold: Option<Instant>,
    /// The time when the record came.
    pub since: Instant,
}

impl Member {
    /// Returns true if the last step told says that the host is there.
    pub fn is_up(&self) -> bool {
        self.told.1 % 2 == 1
    }

    /// Returns the life and the number of the step told last.
    pub fn told(&self) -> (Life, u32) {
        self.told
    }

    /// Returns the time until which its loss is not told.
    pub fn held(&self) -> Option<Instant> {
        self.hold
    }

    /// Returns the steps that were not told, and notes them as told.
    fn tell(&mut self, seq: &mut u64) -> Vec<MemberEvent> {
        let Record { host, life, number, cause, .. } = self.record;
        let (told_life, told) = core::mem::replace(&mut self.told, (life, number));
        self.hold = None;
        let was_up = told % 2 == 1;
        let mut events = Vec::new();
        let mut add = |life, number, cause, missed, passed| {
            *seq += 1;
            events.push(MemberEvent { seq: *seq, host, life, number, cause, missed, passed });
        };
        if told_life != life {
            if was_up {
                let cause = Cause::Replaced { incarnation: life.incarnation };
                add(told_life, told + 1, cause, 0, false);
            }
            // Hosts that had gone before this one was there are not in its history.
            if number % 2 == 1 || told > 0 {
                add(life, number, cause, if told > 0 { number - 1 } else { 0 }, false);
            }
        } else if number > told {
            let steps = number - told;
            let passed = steps % 2 == 0;
            if passed {
                add(life, number - 1, Cause::Elsewhere, steps - 2, true);
            }
            add(life, number, cause, if passed { 0 } else { steps - 1 }, passed);
        }
        events
    }
}

/// The table of hosts.
#[derive(Debug)]
pub struct Members {
    table: BTreeMap<HostId, Member>,
    ring: Ring,
    max: usize,
    seq: u64,
}

/// A change of what a host is told to be.
#[derive(Clone, Debug)]
pub struct Shift {
    /// The events to be told.
    pub events: Vec<MemberEvent>,
    /// True if it was there before.
    pub was_up: bool,
    /// True if it is there.
    pub is_up: bool,
    /// The life that was told before.
    pub life_before: Life,
    /// The cause of the last step.
    pub cause: Cause,
}

impl Members {
    /// Makes an empty table for at most `max` hosts.
    pub fn new(max: usize) -> Members {
        Members { table: BTreeMap::new(), ring: Ring::default(), max, seq: 0 }
    }

    /// Returns a host.
    pub fn get(&self, host: HostId) -> Option<&Member> {
        self.table.get(&host)
    }

    /// Returns all hosts, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.table.values()
    }

    /// Returns how many hosts the table has.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the hosts that are there, as a ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes a record. `hold`: a loss of a host that is there is not told before this time.
    pub fn merge(&mut self, now: Instant, record: Record, hold: Option<Instant>) -> Merge {
        if let Some(member) = self.table.get_mut(&record.host) {
            if record.order() <= member.record.order() {
                // News from who saw it end the wait that hearsay began.
                let ends_wait = record.order() == member.record.order() && hold.is_none();
                return match ends_wait && member.hold.take().is_some() {
                    true => Merge::News,
                    false => Merge::Old,
                };
            }
            let same_life = member.told.0 == record.life;
            let is_loss = member.is_up() && !record.is_up() && same_life;
            member.hold = hold.filter(|_| is_loss).map(|at| member.hold.unwrap_or(at));
            member.since = now;
            member.record = record;
            return Merge::News;
        }
        if self.table.len() >= self.max {
            return Merge::Full;
        }
        let told = (Life::default(), 0);
        self.table.insert(record.host, Member { record, told, hold: None, since: now });
        Merge::News
    }

    /// Tells what is new of a host, if it may be told at this time.
    pub fn settle(&mut self, now: Instant, host: HostId) -> Option<Shift> {
        let member = self.table.get_mut(&host)?;
        if member.hold.is_some_and(|at| now < at) || member.told == member.record.step() {
            return None;
        }
        let (was_up, life_before) = (member.is_up(), member.told.0);
        let events = member.tell(&mut self.seq);
        let is_up = member.is_up();
        match is_up {
            true => self.ring.insert(host),
            false => self.ring.remove(host),
        }
        Some(Shift { events, was_up, is_up, life_before, cause: member.record.cause })
    }

    /// Removes a host from the table and its history from memory.
    pub fn forget(&mut self, host: HostId) {
        self.table.remove(&host);
        self.ring.remove(host);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const LIFE: Life = Life { incarnation: 5, nonce: 1 };
    const NEXT: Life = Life { incarnation: 6, nonce: 1 };

    fn record(life: Life, number: u32) -> Record {
        let cause = match (number % 2, number) {
            (1, 1) => Cause::Started,
            (1, _) => Cause::Returned,
            _ => Cause::Lost { by: HostId(9) },
        };
        let address = "10.0.0.1:1".parse().unwrap();
        Record { host: HostId(1), life, number, agent: 1, address, cause }
    }

    fn told(members: &mut Members, record: Record, hold: Option<u64>) -> Vec<(u64, u32, u32)> {
        members.merge(Instant(0), record, hold.map(Instant));
        let shift = members.settle(Instant(0), HostId(1));
        let events = shift.map_or(Vec::new(), |s| s.events);
        events.iter().map(|e| (e.life.incarnation, e.number, e.missed)).collect()
    }

    #[test]
    fn settle__reports_each_step_once_in_order() {
        let mut members = Members::new(9);
        assert_eq!(told(&mut members, record(LIFE, 1), None), [(5, 1, 0)]);
        assert_eq!(told(&mut members, record(LIFE, 1), None), []);
        assert_eq!(told(&mut members, record(LIFE, 2), None), [(5, 2, 0)]);
        assert_eq!(told(&mut members, record(LIFE, 1), None), []);
        assert_eq!(told(&mut members, record(LIFE, 5), None), [(5, 5, 2)]);
        assert_eq!(told(&mut members, record(LIFE, 9), None), [(5, 8, 2), (5, 9, 0)]);
        assert_eq!(told(&mut members, record(NEXT, 1), None), [(5, 10, 0), (6, 1, 0)]);
        assert_eq!(told(&mut members, record(LIFE, 12), None), []);
    }

    #[test]
    fn settle__a_loss_that_is_held_is_reported_as_passed_when_the_host_returns() {
        let mut members = Members::new(9);
        told(&mut members, record(LIFE, 1), None);
        assert_eq!(told(&mut members, record(LIFE, 2), Some(10)), []);
        assert!(members.get(HostId(1)).unwrap().is_up());
        assert_eq!(told(&mut members, record(LIFE, 3), Some(10)), [(5, 2, 0), (5, 3, 0)]);
        assert_eq!(told(&mut members, record(LIFE, 4), Some(10)), []);
        assert_eq!(members.settle(Instant(10), HostId(1)).unwrap().events.len(), 1);
    }

    #[test]
    fn settle__a_host_gone_before_is_not_reported() {
        let mut members = Members::new(9);
        assert_eq!(told(&mut members, record(LIFE, 4), None), []);
        assert_eq!(told(&mut members, record(LIFE, 5), None), [(5, 5, 0)]);
    }

    #[test]
    fn merge__the_table_is_bounded() {
        let mut members = Members::new(1);
        told(&mut members, record(LIFE, 1), None);
        let other = Record { host: HostId(2), ..record(LIFE, 1) };
        assert_eq!(members.merge(Instant(0), other, None), Merge::Full);
    }
}

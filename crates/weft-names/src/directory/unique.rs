//! Unique names: one host decides about each type.
//!
//! The arbiter of a type is the host with the greatest hash of type and host. It grants a name
//! that it knows no owner of, and remembers the grant until the name has come to it as a
//! publication. A host that has become arbiter because another went waits until it must know all
//! that the other granted. Parts of a cluster that do not hear each other have an arbiter each;
//! when they meet, the older claim stays (`Directory::rival`) and the owner of the other is told.

use crate::id::HostId;
use alloc::vec::Vec;
use core::time::Duration;
use weft_core::Instant;

/// A name that a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The host that asks.
    pub host: HostId,
    /// Its number of the claim.
    pub claim: u64,
    /// Type of the name.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
}

impl Question {
    fn overlaps(&self, other: &Question) -> bool {
        self.kind == other.kind && self.lower <= other.upper && other.lower <= self.upper
    }

    fn is_same(&self, other: &Question) -> bool {
        (self.host, self.claim) == (other.host, other.claim)
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The name is the asker's.
    Granted,
    /// A host has it, or was granted it.
    Taken(HostId),
    /// Ask again.
    Later,
}

/// Most grants that are remembered; more wait.
const GRANTS_MAX: usize = 4096;

/// The knowledge of a host as an arbiter.
#[derive(Debug, Default)]
pub struct Arbiter {
    grants: Vec<(Question, Instant)>,
    /// Hosts that went lately: until then their grants may be on their way.
    departed: Vec<(HostId, Instant)>,
    unsettled: Instant,
}

impl Arbiter {
    /// Notes that this host may not know all names until a time.
    pub fn unsettle(&mut self, until: Instant) {
        self.unsettled = self.unsettled.max(until);
    }

    /// Notes that a host went; its grants may be on their way until a time.
    pub fn departed(&mut self, now: Instant, host: HostId, until: Instant) {
        self.departed.retain(|(_, at)| *at > now);
        self.departed.push((host, until));
    }

    /// Notes that a host does not have a name any more.
    pub fn release(&mut self, host: HostId, kind: u32, lower: u32, upper: u32) {
        let range = (host, kind, lower, upper);
        self.grants.retain(|(g, _)| (g.host, g.kind, g.lower, g.upper) != range);
    }

    /// Returns the hosts that went lately.
    pub fn ghosts(&self, now: Instant) -> impl Iterator<Item = HostId> + '_ {
        self.departed.iter().filter(move |(_, at)| *at > now).map(|(host, _)| *host)
    }

    /// Answers a question about a name of which no owner is known.
    pub fn decide(&mut self, now: Instant, question: Question, keep: Duration) -> Verdict {
        if now < self.unsettled {
            return Verdict::Later;
        }
        self.grants.retain(|(_, until)| *until > now);
        for (grant, until) in &mut self.grants {
            if grant.is_same(&question) {
                *until = now + keep;
                return Verdict::Granted;
            }
            if grant.overlaps(&question) {
                return Verdict::Taken(grant.host);
            }
        }
        if self.grants.len() >= GRANTS_MAX {
            return Verdict::Later;
        }
        self.grants.push((question, now + keep));
        Verdict::Granted
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn question(host: u64, claim: u64, lower: u32, upper: u32) -> Question {
        Question { host: HostId(host), claim, kind: 100, lower, upper }
    }

    #[test]
    fn decide__of_overlapping_names_the_first_is_granted() {
        let mut arbiter = Arbiter::default();
        let keep = Duration::from_secs(1);
        let mut ask = |at, q| arbiter.decide(Instant(at), q, keep);
        assert_eq!(ask(0, question(1, 1, 5, 9)), Verdict::Granted);
        assert_eq!(ask(0, question(1, 1, 5, 9)), Verdict::Granted);
        assert_eq!(ask(0, question(2, 1, 9, 9)), Verdict::Taken(HostId(1)));
        assert_eq!(ask(0, question(2, 2, 10, 10)), Verdict::Granted);
        assert_eq!(ask(2_000_000_000, question(2, 1, 9, 9)), Verdict::Granted);
    }

    #[test]
    fn decide__waits_while_it_may_not_know_all() {
        let mut arbiter = Arbiter::default();
        arbiter.unsettle(Instant(10));
        let keep = Duration::from_secs(1);
        assert_eq!(arbiter.decide(Instant(9), question(1, 1, 5, 5), keep), Verdict::Later);
        assert_eq!(arbiter.decide(Instant(10), question(1, 1, 5, 5), keep), Verdict::Granted);
    }
}

//! Complaints about other agents, which come with every datagram: each source and cause is logged
//! once, then at most once a minute, with the number of those between.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use weft_core::Instant;

/// Time between two lines about one source and cause.
const REPEAT_EVERY: Duration = Duration::from_secs(60);
/// Most sources and causes that are told apart. Anybody may send from any number of addresses:
/// those beyond share a line for each cause.
const SOURCES_MAX: usize = 256;

/// Cause of a complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// This agent drops what the other sends, for the reason of this number.
    Dropped(u8),
    /// The other agent drops what this one sends.
    DroppedBy(u8),
    /// The other one speaks another version of names.
    Version(u8),
    /// There is no room for another host.
    Crowded,
    /// The key file of this host cannot be read.
    Keys,
}

/// The number of complaints that were left out before one that is logged, in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before(u64);

impl fmt::Display for Before {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(out, " ({more} more times since the last line)"),
        }
    }
}

/// The complaints that were logged.
#[derive(Debug, Default)]
pub struct Complaints {
    told: BTreeMap<(SocketAddr, Cause), (Instant, u64)>,
}

/// Stands for all sources that are not told apart.
fn anybody() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

impl Complaints {
    /// Notes a complaint. Returns the number of those left out before it, if this one is to be
    /// logged.
    pub fn note(&mut self, now: Instant, from: Option<SocketAddr>, cause: Cause) -> Option<Before> {
        let mut key = (from.unwrap_or_else(anybody), cause);
        if !self.told.contains_key(&key) && self.told.len() >= SOURCES_MAX {
            self.told.retain(|_, (at, _)| now.since(*at) < REPEAT_EVERY);
            if self.told.len() >= SOURCES_MAX {
                key.0 = anybody();
            }
        }
        match self.told.get_mut(&key) {
            None => {
                self.told.insert(key, (now, 0));
                Some(Before(0))
            }
            Some((at, more)) if now.since(*at) >= REPEAT_EVERY => {
                *at = now;
                Some(Before(std::mem::take(more)))
            }
            Some((_, more)) => {
                *more += 1;
                None
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn source(n: u16) -> Option<SocketAddr> {
        Some(([10, 0, 0, 1], n).into())
    }

    #[test]
    fn note__once_for_each_source_and_cause_then_once_a_minute_with_a_count() {
        let (mut all, start) = (Complaints::default(), Instant(5));
        let mut lines = Vec::new();
        for second in 0..150 {
            let now = start + Duration::from_secs(second);
            for _ in 0..3 {
                lines.extend(all.note(now, source(1), Cause::Dropped(3)));
            }
        }
        assert_eq!(lines, [Before(0), Before(179), Before(179)]);
        assert_eq!(lines[1].to_string(), " (179 more times since the last line)");
        assert_eq!(lines[0].to_string(), "");
        assert!(all.note(start, source(1), Cause::DroppedBy(3)).is_some());
        assert!(all.note(start, source(2), Cause::Dropped(3)).is_some());
    }

    #[test]
    fn note__sources_without_end_share_a_line_and_are_forgotten() {
        let (mut all, now) = (Complaints::default(), Instant(5));
        let lines = (1..9999).filter(|n| all.note(now, source(*n), Cause::Dropped(3)).is_some());
        assert_eq!(lines.count(), SOURCES_MAX + 1);
        let later = now + REPEAT_EVERY;
        assert_eq!(all.note(later, source(9999), Cause::Dropped(3)), Some(Before(0)));
        assert_eq!(all.told.len(), 1);
    }
}

//! Time since a peer was heard, and since packets to it make no progress.
//!
//! Something on the route may drop packets by their length or by their type. Silence cannot detect
//! that, so the time counts since the oldest unacknowledged packet became the oldest. A peer that
//! computes, or posts no receive, acknowledges all the same, so that no wait for a program counts;
//! and an agent whose rank accepts nothing reports that the packet has arrived.

use crate::time::Instant;
use core::time::Duration;

/// If the oldest packet was sent again too rarely, the part of the limit that is left for that once
/// it is noticed.
const REPEAT_EVERY: u32 = 8;

/// Packets that have been unacknowledged for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// The peer has been silent for this time.
    Silent(Duration),
    /// The peer is heard; the oldest packet has waited for this time.
    Stuck(Duration),
}

/// Times at which a peer was heard, and found to make no progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub heard_at: Instant,
    /// Time at which packets were first found to have been unacknowledged for too long.
    overdue_at: Instant,
}

impl Life {
    /// Returns the time at which packets without progress since `since` will have waited for too
    /// long.
    pub fn stuck_at(&self, since: Instant, limit: Duration) -> Instant {
        let at = match self.heard_at + limit / 2 >= since + limit {
            true => since + limit,
            false => self.heard_at.max(since) + limit,
        };
        match self.overdue_at > since {
            true => at.max(self.overdue_at + limit / REPEAT_EVERY),
            false => at,
        }
    }

    /// Judges packets without progress since `since`, whose time is over. `None`, once, if the
    /// oldest was sent too `rarely`: this process may have been inactive for the time that counts.
    pub fn judge_stuck(
        &mut self,
        now: Instant,
        (since, limit): (Instant, Duration),
        rarely: bool,
    ) -> Option<Overdue> {
        if rarely && self.overdue_at <= since {
            self.overdue_at = now;
            return None;
        }
        let silent = now.since(self.heard_at.max(since));
        Some(match silent >= limit {
            true => Overdue::Silent(silent),
            false => Overdue::Stuck(now.since(since)),
        })
    }
}

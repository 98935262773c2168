//! The table of deadlines: one for each peer.

use super::Connection;
use crate::id::PeerId;
use crate::time::Instant;
use alloc::collections::BTreeSet;

/// Deadlines by time. A peer is in the set once, at `Connection::armed`, no later than its earliest
/// cause.
#[derive(Default)]
pub(crate) struct Timers {
    set: BTreeSet<(Instant, PeerId)>,
}

impl Timers {
    /// Makes sure the peer's timer fires at `at` or before. A timer that fires too early costs less
    /// than moving it for every packet.
    #[inline]
    pub fn arm<W>(&mut self, conn: &mut Connection<W>, at: Instant) {
        if at < conn.armed {
            if conn.armed != Instant::FAR {
                self.set.remove(&(conn.armed, conn.id));
            }
            conn.armed = at;
            self.set.insert((at, conn.id));
        }
    }

    /// Returns the earliest deadline.
    #[inline]
    pub fn first(&self) -> Option<Instant> {
        self.set.first().map(|&(at, _)| at)
    }

    /// Returns the peer of the earliest deadline.
    pub fn peer(&self) -> Option<PeerId> {
        self.set.first().map(|&(_, peer)| peer)
    }

    /// Returns true if the peer's timer is in the set, at the peer's time.
    pub fn has<W>(&self, conn: &Connection<W>) -> bool {
        self.set.contains(&(conn.armed, conn.id))
    }

    pub fn disarm<W>(&mut self, conn: &mut Connection<W>) {
        self.set.remove(&(conn.armed, conn.id));
        conn.armed = Instant::FAR;
    }

    /// Removes the earliest deadline, if it has passed; its peer is no longer armed.
    pub fn pop(&mut self, now: Instant) -> Option<PeerId> {
        let &(at, peer) = self.set.first()?;
        if at > now {
            return None;
        }
        self.set.pop_first();
        Some(peer)
    }
}

//! Copies of a home of which nothing was heard for long.
//!
//! A home that waits for a rank gives it up after `WEFT_PEER_TIMEOUT_MS` of silence, and others
//! write the regions. The rank may live: it was stopped, or cut off, or only makes no progress. It
//! must not go on with copies that the home has taken away. So a copy is good for half of that time
//! after a question which the home has answered; then the rank asks again before it uses one. The
//! home cannot have given it up meanwhile, since it has heard the question. The clock for this goes
//! on while the host is suspended.

use super::entry::Entry;
use super::runtime::Inner;
use super::wire::method;
use super::RegionCause;
use crate::net::{Net, RankFailure};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weft::clock::Moments;
use weft_core::Instant;

/// The facts that a rank knows about itself and others as holders of copies.
#[derive(Default)]
pub(super) struct Standing {
    /// Homes and the ranks that they have given up.
    pub given_up: BTreeSet<(usize, usize)>,
    /// The times of the last questions to homes that were answered.
    confirmed: BTreeMap<usize, Instant>,
    /// The time when a copy was last looked at, and the moment since then: it is read again after
    /// that.
    looked_at: Cell<Instant>,
    moments: RefCell<Moments>,
}

impl<N: Net> Inner<N> {
    /// Notes that a home has answered a question of this rank that was asked at a time.
    pub fn confirmed(&self, home: usize, asked: Instant) {
        let mut standing = self.standing.borrow_mut();
        let at = standing.confirmed.entry(home).or_insert(asked);
        *at = asked.max(*at);
    }

    /// True if nothing was heard of the home of a copy for so long that it may have given this rank
    /// up.
    pub fn is_doubtful(&self, entry: &Entry) -> bool {
        if entry.home.is_some() {
            return false;
        }
        let good = self.net.peer_timeout() / 2;
        let standing = self.standing.borrow();
        // Each operation looks, at most a moment after the clock was read.
        if standing.moments.borrow_mut().is_over() || self.net.time_is_virtual() {
            standing.looked_at.set(self.net.boot_time());
        }
        let asked = standing.confirmed.get(&entry.id.home());
        asked.is_none_or(|&asked| standing.looked_at.get().since(asked) > good)
    }

    /// Asks the home of a region if this rank's copies are good still.
    ///
    /// # Errors
    /// The home has failed, or has given this rank up: all regions of that home are lost here.
    pub async fn confirm(&self, entry: &Rc<Entry>) -> Result<(), RegionCause> {
        let (home, asked) = (entry.id.home(), self.net.boot_time());
        let answer = self.rpc.call(home, method::CONFIRM, &[]).await;
        let cause = match answer {
            Ok(good) if good == [1] => {
                self.confirmed(home, asked);
                return Ok(());
            }
            Ok(_) => {
                let why = "it has given this rank up".to_string();
                self.home_lost(RankFailure { rank: home, certain: false, why })
            }
            Err(failed) => self.call_failed(entry.id, failed),
        };
        self.lose_home(home, &cause);
        Err(cause)
    }

    /// True if the copies of a rank are good, as this home knows.
    pub fn is_good(&self, rank: usize) -> bool {
        !self.standing.borrow().given_up.contains(&(self.net.rank(), rank))
    }

    /// Marks all regions of a home as lost, here.
    pub fn lose_home(&self, home: usize, cause: &RegionCause) {
        let all: Vec<_> = self.table.borrow().values().cloned().collect();
        for entry in all.iter().filter(|entry| entry.id.home() == home) {
            self.lose(entry, cause.clone());
        }
    }
}

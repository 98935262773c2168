//! The times at which counters for other processes are written, and of the last sleep.

use super::Reactor;
use crate::counters::Page;
use weft_core::{Instant, Stats};

/// Messages after which the counters of a program that does not poll may be written.
const UNPOLLED: u32 = 64;

/// The counters for other processes.
#[derive(Default)]
pub(crate) struct Published {
    pub page: Option<Page>,
    /// Messages sent since the last poll.
    unpolled: u32,
}

impl Reactor {
    /// Counts a round of progress, and writes the counters for other processes if it is time.
    #[inline]
    pub fn count(&mut self, did: bool) {
        self.published.unpolled = 0;
        if self.waiter.note_round() && !self.absence.watched {
            self.waiter.unregister_all();
        }
        let now = self.receiver.time.now;
        if self.published.page.as_mut().is_some_and(|page| page.note(did, now)) {
            self.write_counters(now);
        }
    }

    /// Counts a sent message, so that a program that only sends writes its counters too.
    #[inline]
    pub(super) fn count_sent(&mut self) {
        self.published.unpolled += 1;
        if self.published.unpolled == UNPOLLED {
            self.receiver.tick();
            self.count(true);
        }
    }

    #[cold]
    fn write_counters(&mut self, now: Instant) {
        let Some(mut page) = self.published.page.take() else { return };
        page.show(self.waiting());
        page.write(now, self.known.addresses.len(), |put| {
            let stats = self.receiver.engine.stats();
            let names = Stats::NAMES.iter().map(|(name, _)| *name);
            names.zip(stats.values()).for_each(|(name, value)| put(name, value));
            for link in &self.links {
                let prefix = format!("{}_", link.caps().name);
                link.counters(&mut |name, value| match name.starts_with(&prefix) {
                    true => put(name, value),
                    false => put(&format!("{prefix}{name}"), value),
                });
            }
        });
        self.published.page = Some(page);
    }
}

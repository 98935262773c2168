//! The times at which counters for other processes are written, and of the last sleep.

use super::Inner;
use weft_core::engine::types::SendArgs;
use weft_core::{Instant, Stats};

/// Messages after which the counters of a program that does not poll may be written.
const UNPOLLED: u32 = 64;
/// Rounds of progress without sleep after which the set of descriptors is emptied.
const AWAKE_ROUNDS: u32 = 256;

impl Inner {
    /// Counts a round of progress, and writes the counters for other processes if it is time.
    #[inline]
    pub(super) fn count(&mut self, did: bool) {
        self.unpolled = 0;
        self.awake = self.awake.wrapping_add(1);
        if self.awake.is_multiple_of(AWAKE_ROUNDS) && !self.driver.absence.watched {
            self.waiter.unregister_all();
        }
        let now = self.driver.intake.time.now;
        if self.page.as_mut().is_some_and(|page| page.note(did, now)) {
            self.write_counters(now);
        }
    }

    /// Counts a sent message, so that a program that only sends writes its counters too.
    #[inline]
    pub(super) fn count_sent(&mut self) {
        self.unpolled += 1;
        if self.unpolled == UNPOLLED {
            self.driver.intake.tick();
            self.count(true);
        }
    }

    /// Sends a message by [`Driver::send_now`], and counts the message if it was sent.
    ///
    /// [`Driver::send_now`]: super::driver::Driver::send_now
    #[inline(always)]
    pub(crate) fn send_now(&mut self, args: &SendArgs, data: &[u8]) -> bool {
        let sent = self.driver.send_now(args, data);
        if sent {
            self.count_sent();
        }
        sent
    }

    #[cold]
    fn write_counters(&mut self, now: Instant) {
        let (driver, Some(page)) = (&self.driver, &mut self.page) else { return };
        page.show(driver.waiting());
        page.write(now, driver.known.addresses.len(), |put| {
            let stats = driver.intake.engine.stats();
            let names = Stats::NAMES.iter().map(|(name, _)| *name);
            names.zip(stats.values()).for_each(|(name, value)| put(name, value));
            for link in &driver.links {
                let prefix = format!("{}_", link.caps().name);
                link.counters(&mut |name, value| match name.starts_with(&prefix) {
                    true => put(name, value),
                    false => put(&format!("{prefix}{name}"), value),
                });
            }
        });
    }
}

//! Waits for the launcher: each is bounded, and told of when it is long.

use std::time::{Duration, Instant};
use weft_core::Config;

/// A wait that has begun.
pub(super) struct Patience {
    began: Instant,
    /// How long it takes until it is told of; `None`: it was, or is not to be.
    slow: Option<Duration>,
}

/// `WEFT_WARN_AFTER_MS`, or what is usual. Whoever reads all settings says what is wrong with it.
fn slow() -> Option<Duration> {
    let set = std::env::var("WEFT_WARN_AFTER_MS").ok();
    let ms = set.and_then(|ms| ms.trim().parse().ok()).unwrap_or(Config::default().warn_after_ms);
    (ms > 0).then(|| Duration::from_millis(u64::from(ms)))
}

impl Patience {
    pub fn begin() -> Patience {
        Patience { began: Instant::now(), slow: slow() }
    }

    /// Of the time that is left, the part until there is something to say.
    pub fn part(&self, left: Duration) -> Duration {
        self.slow.map_or(left, |slow| left.min(slow.saturating_sub(self.began.elapsed())))
    }

    /// Says, once and when it is time, that this is waited for.
    pub fn say(&mut self, during: impl FnOnce() -> String) {
        if self.slow.take_if(|slow| self.began.elapsed() >= *slow).is_some() {
            log::warn!(
                "waiting for {:.1} s at start-up, {}",
                self.began.elapsed().as_secs_f64(),
                during()
            );
        }
    }
}

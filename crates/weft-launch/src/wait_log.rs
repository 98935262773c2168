//! Waits for the launcher: each is bounded, and a long one is logged.

use std::time::{Duration, Instant};
use weft_core::Config;

/// A wait that has begun.
pub(super) struct WaitLog {
    began: Instant,
    /// Time after which the wait is logged. `None` if it was logged, or must not be.
    slow: Option<Duration>,
}

/// Returns `WEFT_WARN_AFTER_MS`, or its default. The reader of all settings reports an invalid
/// value.
fn slow() -> Option<Duration> {
    let set = std::env::var("WEFT_WARN_AFTER_MS").ok();
    let ms = set.and_then(|ms| ms.trim().parse().ok()).unwrap_or(Config::default().warn_after_ms);
    (ms > 0).then(|| Duration::from_millis(u64::from(ms)))
}

impl WaitLog {
    pub fn begin() -> WaitLog {
        WaitLog { began: Instant::now(), slow: slow() }
    }

    /// Returns the part of the time left until a line is to be logged.
    pub fn part(&self, left: Duration) -> Duration {
        self.slow.map_or(left, |slow| left.min(slow.saturating_sub(self.began.elapsed())))
    }

    /// Logs the wait, once, when it is due.
    pub fn say(&mut self, during: impl FnOnce() -> String) {
        if self.slow.take_if(|slow| self.began.elapsed() >= *slow).is_some() {
            weft_link::warn!(
                "waiting for {:.1} s at start-up, {}",
                self.began.elapsed().as_secs_f64(),
                during()
            );
        }
    }
}

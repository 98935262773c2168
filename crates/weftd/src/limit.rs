//! Limits the log: any user who may connect can cause any number of lines.

use log::{Level, Log, Metadata, Record};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that one place in the code may write at once.
pub const BURST: u32 = 16;
/// Time after which a place may write one more line.
pub const PAUSE: Duration = Duration::from_secs(5);

/// Place in the code that writes a line; the number of places is bounded by the code.
type Place = (Option<&'static str>, Option<u32>);

/// The lines that one place may still write.
struct Bucket {
    left: u32,
    /// Start of the current pause, after which `left` grows by one.
    since: Instant,
    omitted: Option<Omitted>,
}

/// Lines omitted since the last one written.
struct Omitted {
    count: u64,
    level: Level,
    target: String,
    first: String,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        while self.left < BURST && now.duration_since(self.since) >= PAUSE {
            self.left += 1;
            self.since += PAUSE;
        }
        if self.left == BURST {
            self.since = now;
        }
    }

    /// True if a line is written now. While omitted lines are unreported, further ones are omitted
    /// too.
    fn take(&mut self, record: &Record<'_>) -> bool {
        if let Some(omitted) = &mut self.omitted {
            omitted.count += 1;
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        self.omitted = Some(Omitted {
            count: 1,
            level: record.level(),
            target: record.target().to_string(),
            first: record.args().to_string(),
        });
        false
    }
}

/// A log that writes at most a burst of lines from one place in the code, and then at times the
/// number of omitted lines. Levels below info, which a person asked for (`WEFT_LOG=debug`), are not
/// limited.
pub struct Limited<L> {
    to: L,
    places: Mutex<BTreeMap<Place, Bucket>>,
    /// True if omitted lines are not reported yet.
    omits: AtomicBool,
}

impl<L: Log> Limited<L> {
    /// Returns a log that writes to `to`.
    pub fn new(to: L) -> Limited<L> {
        Limited { to, places: Mutex::default(), omits: AtomicBool::new(false) }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Place, Bucket>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, record: &Record<'_>, now: Instant) -> bool {
        if record.level() > Level::Info {
            return true;
        }
        let place = (record.module_path_static(), record.line());
        let mut places = self.places();
        let fresh = || Bucket { left: BURST, since: now, omitted: None };
        let bucket = places.entry(place).or_insert_with(fresh);
        bucket.refill(now);
        let admitted = bucket.take(record);
        if !admitted {
            self.omits.store(true, Ordering::Relaxed);
        }
        admitted
    }

    /// Reports the number of omitted lines where it is due. Must be called repeatedly.
    pub fn tell(&self, now: Instant) {
        if self.omits.load(Ordering::Relaxed) {
            self.tell_where(|bucket| {
                bucket.refill(now);
                bucket.left > 0
            });
        }
    }

    fn tell_where(&self, is_due: impl Fn(&mut Bucket) -> bool) {
        let mut waiting = false;
        for bucket in self.places().values_mut().filter(|b| b.omitted.is_some()) {
            if !is_due(bucket) {
                waiting = true;
                continue;
            }
            bucket.left = bucket.left.saturating_sub(1);
            if let Some(omitted) = bucket.omitted.take() {
                self.write(&omitted);
            }
        }
        self.omits.store(waiting, Ordering::Relaxed);
    }

    fn write(&self, omitted: &Omitted) {
        let Omitted { count, level, target, first } = omitted;
        let text = format_args!("{count} more such lines were left out, the first: {first}");
        self.to.log(&Record::builder().level(*level).target(target).args(text).build());
    }
}

impl<L: Log> Log for Limited<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.to.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && self.admits(record, Instant::now()) {
            self.to.log(record);
        }
    }

    /// Reports the number of omitted lines at the end.
    fn flush(&self) {
        self.tell_where(|_| true);
        self.to.flush();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Keeps the lines written.
    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>);

    impl Log for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
        }

        fn flush(&self) {}
    }

    /// Writes a line from line `place` of the code at time `now`.
    fn say(log: &Limited<Kept>, now: Instant, place: u32, level: Level, text: &str) {
        let args = format_args!("{text}");
        let record = Record::builder().level(level).line(Some(place)).args(args).build();
        if log.admits(&record, now) {
            log.to.log(&record);
        }
    }

    fn written(log: &Limited<Kept>) -> Vec<String> {
        std::mem::take(&mut *log.to.0.lock().unwrap())
    }

    #[test]
    fn limited__a_burst_then_how_many_were_left_out() {
        let (log, start) = (Limited::new(Kept::default()), Instant::now());
        for i in 0..1000 {
            say(&log, start, 1, Level::Warn, &format!("no {i}"));
        }
        assert_eq!(written(&log).len(), BURST as usize);
        log.tell(start + PAUSE / 2);
        assert_eq!(written(&log), [""; 0]);
        log.tell(start + PAUSE);
        assert_eq!(written(&log), ["WARN 984 more such lines were left out, the first: no 16"]);
        log.tell(start + 100 * PAUSE);
        assert_eq!(written(&log), [""; 0]);
    }

    #[test]
    fn limited__a_flood_takes_a_line_in_each_pause() {
        let (log, start) = (Limited::new(Kept::default()), Instant::now());
        for ms in 0..100_000 {
            let now = start + Duration::from_millis(ms);
            say(&log, now, 1, Level::Warn, "no");
            log.tell(now);
        }
        let pauses = 100_000 / PAUSE.as_millis() as usize;
        let lines = written(&log);
        assert!((pauses..=pauses + BURST as usize).contains(&lines.len()), "{}", lines.len());
        // After a long silence the limit is as at the start.
        let later = start + Duration::from_secs(10_000);
        log.tell(later);
        written(&log);
        for _ in 0..100 {
            say(&log, later + BURST * PAUSE, 1, Level::Warn, "no");
        }
        assert_eq!(written(&log).len(), BURST as usize);
    }

    #[test]
    fn limited__other_lines_are_written_during_a_flood() {
        let (log, now) = (Limited::new(Kept::default()), Instant::now());
        for _ in 0..1000 {
            say(&log, now, 1, Level::Warn, "no");
            say(&log, now, 2, Level::Debug, "asked for");
        }
        say(&log, now, 3, Level::Error, "of another kind");
        let lines = written(&log);
        assert_eq!(lines.len(), BURST as usize + 1001);
        assert_eq!(lines.last().map(String::as_str), Some("ERROR of another kind"));
    }

    #[test]
    fn limited__reports_at_the_end() {
        let (log, now) = (Limited::new(Kept::default()), Instant::now());
        for _ in 0..20 {
            say(&log, now, 1, Level::Info, "served");
        }
        written(&log);
        log.flush();
        assert_eq!(written(&log), ["INFO 4 more such lines were left out, the first: served"]);
    }
}

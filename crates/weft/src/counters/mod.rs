//! Live counters of a rank, readable by other processes of the same user.
//!
//! Each rank keeps a small sealed memory file named `weft-counters` and from time to time writes
//! its counters there, by plain stores. A reader finds the file under `/proc/<pid>/fd` and reads it
//! without the rank's help. So reading works while the rank computes, sleeps or is stopped; the
//! file has no name in a file system, and nothing is left after SIGKILL.
//!
//! The agent of the host gets the file as well, where one of a cluster serves: so the user sees the
//! rank from all hosts. [`weft_cluster::counters`] has the layout.

mod report;
mod scan;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod tests;

pub use scan::scan;
pub use weft_cluster::counters::{merge, AwaitedOp, Snapshot, Waiting, AWAITED_MAX};
pub use weft_cluster::counters::{NAME, VERSION};

use report::Report;
use std::ffi::CStr;
use std::io;
use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, SystemTime};
use sys::Words;
use weft_cluster::counters::{
    ENTRY, FIRST, JOB, JOB_WORDS, LEN, MAGIC, MOST, NAME_WORDS, PROCESS, SEQUENCE, WAIT, WORDS,
};
use weft_core::Instant;
use weft_link::copied::Origin;

const NAME_C: &CStr = c"weft-counters";

/// Least time between two changes of a page.
const INTERVAL: Duration = Duration::from_millis(50);

/// The rank to which the counters belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankId {
    /// Name of the job, any text; the first 64 bytes are kept.
    pub job: String,
    /// Rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns word `at` of a text that is padded with zeros.
fn text_word(text: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let part = text.get(at * 8..).unwrap_or_default();
    let len = part.len().min(8);
    word[..len].copy_from_slice(&part[..len]);
    u64::from_le_bytes(word)
}

/// The page of one endpoint, the writing side.
pub(crate) struct Page {
    /// A forked copy of the process shares the memory, and must not write to it.
    origin: Origin,
    words: Words,
    due: Instant,
    changed: bool,
    waits: u64,
    waiting: Option<Waiting>,
    report: Report,
}

impl Page {
    /// Makes a page without counters.
    pub fn create(who: &RankId) -> io::Result<Page> {
        let (origin, words) = (Origin::here(), Words::create()?);
        let (due, changed, waits, waiting) = (Instant(0), true, 0, None);
        let report = Report::default();
        let mut page = Page { origin, words, due, changed, waits, waiting, report };
        page.set(1, VERSION);
        page.set(PROCESS, u64::from(std::process::id()));
        page.set(4, who.rank as u64);
        page.set(5, who.size as u64);
        page.set(6, now_ns());
        page.set(7, now_ns());
        for at in 0..JOB_WORDS {
            page.set(JOB + at, text_word(who.job.as_bytes(), at));
        }
        // The magic is written last, since a reader ignores a page without it.
        page.words.words()[0].store(MAGIC.to_le(), Ordering::Release);
        page.report.keep_up(Instant(0), page.words.file());
        Ok(page)
    }

    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.words.words().get(at) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Records a round of progress, which did something or not. True if the counters are to be
    /// written now.
    #[inline]
    pub fn note(&mut self, did: bool, now: Instant) -> bool {
        self.changed |= did;
        self.changed && now >= self.due
    }

    /// Records that the rank goes to sleep. Returns the time to wake it for writing the last
    /// counts.
    pub fn note_wait(&mut self) -> Option<Instant> {
        self.waits += 1;
        self.changed.then_some(self.due)
    }

    /// Sets the operations that the rank waits for, which are written with the counters.
    pub fn show(&mut self, waiting: Option<Waiting>) {
        self.waiting = waiting;
    }

    /// Writes the counters that `each` enumerates.
    pub fn write(
        &mut self,
        now: Instant,
        peers: usize,
        each: impl FnOnce(&mut dyn FnMut(&str, u64)),
    ) {
        self.changed = false;
        self.due = now + INTERVAL;
        if !self.origin.is_here() {
            return;
        }
        let sequence = &self.words.words()[SEQUENCE];
        let before = u64::from_le(sequence.load(Ordering::Relaxed));
        sequence.store(before.wrapping_add(1).to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
        let mut count = 0;
        let mut put = |name: &str, value: u64| {
            if count < MOST {
                let at = FIRST + count * ENTRY;
                (0..NAME_WORDS).for_each(|i| self.set(at + i, text_word(name.as_bytes(), i)));
                self.set(at + NAME_WORDS, value);
                count += 1;
            }
        };
        each(&mut put);
        put("waits", self.waits);
        self.set(7, now_ns());
        let wait = self.waiting.as_ref().map(|waiting| waiting.words(now_ns())).unwrap_or_default();
        (WAIT..FIRST).zip(wait).for_each(|(at, word)| self.set(at, word));
        self.set(8, count as u64);
        self.set(9, peers as u64);
        sequence.store(before.wrapping_add(2).to_le(), Ordering::Release);
        self.report.keep_up(now, self.words.file());
    }
}

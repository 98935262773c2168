//! Reading the pages of other processes. No content is trusted.

use super::wait::Waiting;
use super::{
    ENTRY, FIRST, JOB, JOB_WORDS, LEN, MAGIC, MOST, NAME_WORDS, SEQUENCE, VERSION, WAIT, WORDS,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

/// The counters of one rank, as last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Process id, as this process sees it.
    pub pid: u32,
    /// Job the rank belongs to.
    pub job: String,
    /// Rank.
    pub rank: u64,
    /// Number of ranks of the job.
    pub size: u64,
    /// Start time of the rank.
    pub start: SystemTime,
    /// Time of the last write; a rank that computes or waits does not write.
    pub updated: SystemTime,
    /// Peers of the endpoint.
    pub peers: u64,
    /// The rank's wait, if it has lasted for long.
    pub waiting: Option<Waiting>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Returns a counter; 0 if the rank has none of this name.
    pub fn get(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Adds up the pages of each rank: every endpoint has a page.
pub fn merge(all: impl IntoIterator<Item = Snapshot>) -> Vec<Snapshot> {
    let mut ranks: BTreeMap<(String, u64, u32), Snapshot> = BTreeMap::new();
    for page in all {
        let Some(rank) = ranks.get_mut(&(page.job.clone(), page.rank, page.pid)) else {
            ranks.insert((page.job.clone(), page.rank, page.pid), page);
            continue;
        };
        rank.start = rank.start.min(page.start);
        rank.updated = rank.updated.max(page.updated);
        rank.peers = rank.peers.max(page.peers);
        // The rank waits only if all its endpoints wait.
        rank.waiting = rank.waiting.take().filter(|_| page.waiting.is_some());
        for (name, value) in page.counters {
            let sum = rank.counters.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    ranks.into_values().collect()
}

/// Returns the printable text up to the first zero.
fn text(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0);
    bytes.map(|b| if b.is_ascii_graphic() { char::from(b) } else { '?' }).collect()
}

fn time(ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)
}

/// True if a text may be the name of a counter.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(plain)
}

/// Parses the words of a page.
pub fn decode(pid: u32, words: &[u64; WORDS]) -> Option<Snapshot> {
    if words[0] != MAGIC || words[1] != VERSION {
        return None;
    }
    let count = usize::try_from(words[8]).ok().filter(|count| *count <= MOST)?;
    let entries = words[FIRST..].chunks_exact(ENTRY).take(count);
    let counters = entries
        .map(|entry| (text(&entry[..NAME_WORDS]), entry[NAME_WORDS]))
        .filter(|(name, _)| is_name(name))
        .collect();
    Some(Snapshot {
        pid,
        job: text(&words[JOB..JOB + JOB_WORDS]),
        rank: words[4],
        size: words[5],
        start: time(words[6]),
        updated: time(words[7]),
        peers: words[9],
        waiting: Waiting::of_words(&words[WAIT..FIRST]),
        counters,
    })
}

fn sequence(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, SEQUENCE as u64 * 8)?;
    Ok(u64::from_le_bytes(word))
}

/// Reads one page, with so many attempts while the rank writes. `None` if the file is no page, or
/// changes during every attempt.
pub fn read(pid: u32, file: &File, tries: usize) -> Option<Snapshot> {
    let mut bytes = [0; LEN];
    for _ in 0..tries {
        let before = sequence(file).ok()?;
        file.read_exact_at(&mut bytes, 0).ok()?;
        if before % 2 == 0 && sequence(file).ok()? == before {
            let mut words = [0; WORDS];
            for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(eight.try_into().ok()?);
            }
            return decode(pid, &words);
        }
        std::thread::yield_now();
    }
    None
}

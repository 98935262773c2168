//! The page of a rank's counters, as others read it.
//!
//! A rank writes its counters to a small sealed memory file (`weft::counters`), which processes of
//! its user find under `/proc/<pid>/fd`. It hands the file to the agent of its host as well, which
//! tells the other agents of the cluster on request ([`ranks`](crate::ranks)). A reader copies the
//! bytes and trusts none of them.
//!
//! # Layout, version 1
//! 1024 little-endian words of 64 bits:
//!
//! | word | content |
//! | --- | --- |
//! | 0 | the bytes `weftcntr` |
//! | 1 | version |
//! | 2 | number of changes times two; odd while one is under way |
//! | 3, 4, 5 | process as the rank sees it, rank, number of ranks |
//! | 6, 7 | start, last change: nanoseconds since 1970 |
//! | 8, 9 | number of counters, number of peers |
//! | 16..24 | job, up to 64 bytes of text filled up with zeros |
//! | 24 | since when the rank waits, as word 6; 0: it does not, or not for long |
//! | 25 | operations that it waits for |
//! | 26 + 2i | of the first three of these: kind in byte 0 (1 send, 2 receive, 3 put, 4 get, 5 |
//! | | atomic), above it the awaited rank and 2, or 0: anybody, 1: a rank not known |
//! | 27 + 2i | of the same: match bits |
//! | 32 + 4i.. | counter i: name, up to 24 bytes filled up with zeros, then its value |

mod read;
mod wait;

pub(crate) use read::is_name;
pub use read::{decode, merge, read, Snapshot};
pub use wait::{AwaitedOp, Waiting, AWAITED_MAX, WAIT_WORDS};

/// Name of the memory file.
pub const NAME: &str = "weft-counters";
/// Version of the layout.
pub const VERSION: u64 = 1;
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"weftcntr");
/// Words of a page.
pub const WORDS: usize = 1024;
/// Bytes of a page.
pub const LEN: usize = WORDS * 8;
/// The word with the number of the process, as the rank sees it.
pub const PROCESS: usize = 3;
/// The word that counts changes.
pub const SEQUENCE: usize = 2;
/// First word of the job's name.
pub const JOB: usize = 16;
/// Words of the job's name.
pub const JOB_WORDS: usize = 8;
/// First word of the wait.
pub const WAIT: usize = 24;
/// First word of the counters.
pub const FIRST: usize = 32;
/// Words of a counter's name.
pub const NAME_WORDS: usize = 3;
/// Words of a counter.
pub const ENTRY: usize = NAME_WORDS + 1;
/// Most counters of a page.
pub const MOST: usize = (WORDS - FIRST) / ENTRY;

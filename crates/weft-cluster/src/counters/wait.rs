//! The operations a rank waits for, as other processes see them.

use std::time::{Duration, SystemTime};
use weft_core::engine::types::OpKind;

/// Most operations that are listed one by one.
pub const AWAITED_MAX: usize = 3;
/// Words of a page for the wait.
pub const WAIT_WORDS: usize = 2 + 2 * AWAITED_MAX;

/// An operation that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedOp {
    /// The kind of operation.
    pub kind: OpKind,
    /// True if any peer can end the wait.
    pub anybody: bool,
    /// The awaited rank, if it is a single known rank.
    pub rank: Option<u32>,
    /// Match bits of the message.
    pub tag: u64,
}

/// A wait that has lasted for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Duration of the wait so far.
    pub ago: Duration,
    /// Number of awaited operations.
    pub count: u64,
    /// The first of them, at most [`AWAITED_MAX`].
    pub awaited: Vec<AwaitedOp>,
}

const KINDS: [OpKind; 5] = [OpKind::Send, OpKind::Recv, OpKind::Put, OpKind::Get, OpKind::Atomic];

impl AwaitedOp {
    pub(crate) fn words(&self) -> [u64; 2] {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64 + 1;
        let who = match self.rank {
            Some(rank) => u64::from(rank) + 2,
            None => u64::from(!self.anybody),
        };
        [kind | who << 8, self.tag]
    }

    pub(crate) fn of_words(word: u64, tag: u64) -> Option<AwaitedOp> {
        let kind = *KINDS.get((word as u8).checked_sub(1)? as usize)?;
        let who = word >> 8;
        let rank = match who {
            0 | 1 => None,
            named => Some(u32::try_from(named - 2).ok()?),
        };
        Some(AwaitedOp { kind, anybody: who == 0, rank, tag })
    }
}

impl Waiting {
    /// Returns the words of a page; `now_ns` is in nanoseconds since 1970.
    pub fn words(&self, now_ns: u64) -> [u64; WAIT_WORDS] {
        let mut words = [0; WAIT_WORDS];
        let ago = u64::try_from(self.ago.as_nanos()).unwrap_or(u64::MAX);
        words[0] = now_ns.saturating_sub(ago).max(1);
        words[1] = self.count;
        for (two, awaited) in words[2..].chunks_exact_mut(2).zip(&self.awaited) {
            two.copy_from_slice(&awaited.words());
        }
        words
    }

    /// Parses the words of a page.
    pub(super) fn of_words(words: &[u64]) -> Option<Waiting> {
        let [since, count, rest @ ..] = words else { return None };
        let since = Some(*since).filter(|&since| since > 0)?;
        let since = SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
        let awaited = rest.chunks_exact(2).filter_map(|two| AwaitedOp::of_words(two[0], two[1]));
        let awaited: Vec<AwaitedOp> = awaited.collect();
        let ago = SystemTime::now().duration_since(since).unwrap_or_default();
        (!awaited.is_empty()).then_some(Waiting { ago, count: *count, awaited })
    }
}

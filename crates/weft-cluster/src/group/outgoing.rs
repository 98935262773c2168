//! The messages of a member that are under way or wait for credit.

use super::{NotSent, To, OUT_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::Instant;

/// A message that waits for credit of its receivers.
#[derive(Debug)]
pub(super) struct Waiting {
    pub to: To,
    pub payload: Arc<[u8]>,
    pub end: Instant,
}

/// The messages of a member.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Messages under way.
    pub under_way: BTreeMap<u64, Arc<[u8]>>,
    /// Their bytes.
    pub bytes: usize,
    /// Number of the message that was sent last.
    pub last: u64,
    pub waiting: Option<Waiting>,
    /// The outcome of the message that waited.
    pub sent: Option<Result<u64, NotSent>>,
}

impl Outgoing {
    /// True if a message of so many bytes finds room; one always does.
    pub fn has_room(&self, len: usize) -> bool {
        self.under_way.is_empty() || self.bytes + len <= OUT_BYTES
    }

    /// Returns the number of the next message.
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    /// Keeps the next message until all its receivers have it. Returns its number.
    pub fn keep(&mut self, payload: &Arc<[u8]>) -> u64 {
        self.last += 1;
        self.bytes += payload.len();
        self.under_way.insert(self.last, payload.clone());
        self.last
    }

    /// Drops a message that all its receivers have.
    pub fn settled(&mut self, number: u64) {
        if let Some(payload) = self.under_way.remove(&number) {
            self.bytes -= payload.len();
        }
    }
}

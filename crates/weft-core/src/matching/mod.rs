//! Tag matching with the order rules of MPI: a message takes the oldest posted receive that accepts
//! it, a receive takes the oldest unexpected message it accepts.
//!
//! While few entries wait, they are walked in order, which is fastest. Beyond that, entries are
//! also chained in hash bins. All lists are threaded through one slab, so nothing is allocated once
//! the slab has grown to the largest number of entries waiting at one time, and nothing before
//! first use.

mod posted;
mod slab;
#[cfg(test)]
mod tests;
mod unexpected;

pub use posted::Posted;
pub use unexpected::Unexpected;

use crate::PeerId;

/// The messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvSpec {
    /// The sender, or None for any.
    pub source: Option<PeerId>,
    /// The match bits.
    pub tag: u64,
    /// Ignore mask: match bits not compared.
    pub ignore: u64,
}

impl RecvSpec {
    /// Returns true if a message from `source` with match bits `tag` is accepted.
    #[inline]
    pub fn accepts(&self, source: PeerId, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|peer| peer == source)
    }
}

//! Credit for eager messages and announcements, in both directions.

use crate::reliability::{CreditIn, CreditOut};

/// Credit in both directions. A rank spends and grants it; its agent passes on the grants of both
/// sides.
pub(crate) struct Credit {
    /// The grants of the peer.
    pub inward: CreditIn,
    /// The grants to the peer.
    pub outward: CreditOut,
    /// True if an acknowledgement, or new credit, is to be sent.
    pub ack_asked: bool,
}

impl Credit {
    pub fn new(outward: CreditOut) -> Credit {
        Credit { inward: CreditIn::default(), outward, ack_asked: false }
    }

    /// Takes the credit for a message of `len` bytes. A tagged message leaves the reserve, which
    /// only an active message may use.
    #[inline]
    pub fn take(&mut self, len: usize, active: bool) -> bool {
        match active {
            false => self.inward.try_take(len),
            true => self.inward.try_take_active(len),
        }
    }
}

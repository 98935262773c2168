//! Reliability between two peers, exchangeable at run time: none, go-back-N, selective
//! retransmission.
//!
//! [`SendWindow`] keeps the descriptors of unacknowledged packets and chooses those to retransmit,
//! [`RecvWindow`] judges arriving sequence numbers and chooses the time of acknowledgements,
//! [`Rtt`] keeps the retransmission timeout, [`Congestion`] bounds the packets in the network, and
//! [`CreditIn`] / [`CreditOut`] bound the eager bytes in flight.

mod asking;
mod congestion;
mod credit;
mod mtus;
mod pmtu;
mod recv_window;
mod rtt;
mod send_window;
#[cfg(test)]
mod tests;

pub use crate::config::{Reliability, UnknownReliability};
pub use asking::{asks_at, nearly_full, should_ask};
pub use congestion::{Congestion, DelayWindow, Signal};
pub use credit::{cost, CreditIn, CreditOut, RESERVE, UNIT};
pub use mtus::LinkMtus;
pub use recv_window::{AckPolicy, RecvWindow, Verdict};
pub use rtt::Rtt;
pub use send_window::{AckOutcome, SendWindow, LANES};

/// Largest window of [`Reliability::Selective`], in packets: 1.4 MB in Ethernet frames, bandwidth
/// times delay of a fast LAN with a busy receiver.
pub const MAX_SELECTIVE: u32 = crate::config::WINDOW_MAX;

/// Packets one [`SackMap`] describes, from the one after the cumulative acknowledgement on. Later
/// packets are reported when the acknowledgement has moved on.
pub const SACK_BITS: u32 = 256;

/// Selective acknowledgement: bit `i` (least significant bit of word 0 first) says that packet
/// `ack + 1 + i` was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackMap(pub [u64; 4]);

impl SackMap {
    /// Returns true if no packet is reported.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns true if packet `ack + 1 + i` is reported; false beyond the map.
    pub fn contains(&self, i: u32) -> bool {
        self.0.get((i / 64) as usize).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }

    /// Returns the packets that this map reports and `other`, of the same acknowledgement number,
    /// does not.
    pub fn without(&self, other: &SackMap) -> SackMap {
        SackMap(core::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Returns the reported indices, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(w, &word)| Bits(word).map(move |b| w as u32 * 64 + b))
    }
}

/// The set bits of a word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

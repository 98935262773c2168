//! Packets and messages that wait for a rank.

use super::proxy::ToRank;
use super::Control;
use std::collections::{BTreeMap, VecDeque};
use weft_core::wire::HeaderBuf;
use weft_core::PeerId;

/// Highest number of packets and messages that wait for room in the rank's ring.
const WAITING_MAX: usize = 1024;
/// Memory of a held packet beside its payload, in bytes.
const HELD: usize = 160;

/// A packet or message that waits for room in the rank's ring.
pub enum Inbound {
    /// A packet of a peer, or of an endpoint without a peer.
    Packet(Option<PeerId>, HeaderBuf, Vec<u8>),
    /// A message of the agent.
    Say(Control),
}

impl Inbound {
    fn len(&self) -> usize {
        match self {
            Inbound::Packet(_, _, payload) => payload.len() + 64,
            Inbound::Say(Control::GroupPacket(_, _, bytes)) => bytes.len() + 64,
            Inbound::Say(_) => 256,
        }
    }
}

/// Packets and messages that wait for room in the rank's ring, in order.
#[derive(Default)]
pub struct Inbox {
    waiting: VecDeque<Inbound>,
    bytes: usize,
}

impl Inbox {
    /// True if nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if one more packet may wait, and another `bytes_max` at most do.
    pub fn has_room(&self, bytes_max: usize) -> bool {
        self.takes_more() && self.bytes < bytes_max
    }

    /// True if one more may wait, whatever the bytes.
    pub fn takes_more(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// True if much more may wait than does.
    pub fn is_short(&self) -> bool {
        self.waiting.len() < WAITING_MAX / 16
    }

    /// Adds a packet or message behind the others.
    pub fn push(&mut self, inbound: Inbound) {
        self.bytes += inbound.len();
        self.waiting.push_back(inbound);
    }

    /// Delivers to the rank what its ring has room for. True if something was delivered.
    pub fn pump(&mut self, rank: &mut impl ToRank) -> bool {
        let before = self.waiting.len();
        while let Some(first) = self.waiting.front() {
            let went = match first {
                Inbound::Packet(from, header, payload) => {
                    rank.deliver(*from, header.as_slice(), payload)
                }
                Inbound::Say(message) => rank.say(message),
            };
            if !went {
                break;
            }
            self.bytes -= first.len();
            self.waiting.pop_front();
        }
        self.waiting.len() < before
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }
}

/// Packets that came before an earlier one of their peer.
#[derive(Default)]
pub struct Held {
    /// By peer and number.
    packets: BTreeMap<(u32, u32), (HeaderBuf, Vec<u8>)>,
    bytes: usize,
}

impl Held {
    /// Returns the memory that the packets take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a packet under its peer and number; one that is there gives its place.
    pub fn insert(&mut self, key: (u32, u32), header: HeaderBuf, payload: Vec<u8>) {
        self.take(key);
        self.bytes += payload.len() + HELD;
        self.packets.insert(key, (header, payload));
    }

    /// Removes and returns a packet.
    pub fn take(&mut self, key: (u32, u32)) -> Option<(HeaderBuf, Vec<u8>)> {
        let held = self.packets.remove(&key)?;
        self.bytes -= held.1.len() + HELD;
        Some(held)
    }

    /// Drops the packets of a peer: the time depends on their number alone.
    pub fn forget(&mut self, peer: PeerId) {
        let of_peer = (peer.0, 0)..=(peer.0, u32::MAX);
        let held: Vec<(u32, u32)> = self.packets.range(of_peer).map(|(key, _)| *key).collect();
        held.into_iter().for_each(|key| drop(self.take(key)));
    }
}

//! The rank's side: the number of its packets to each peer that may wait at its agent.
//!
//! All peers of a rank share one ring to the agent. If a peer that accepts nothing could fill it,
//! packets to the others would wait until that peer is given up. So only so many numbered packets
//! to each peer are handed over before the agent reports that earlier ones are in its window.

use crate::id::PeerId;
use crate::wire::{field, PacketType};
use alloc::vec::Vec;

/// Most numbered packets to one peer that wait at the agent for its window.
pub const SHARE: u32 = 256;
/// Number of packets that the agent reports at a time when they no longer wait. Less than a share,
/// so that the rank can always send until the next report.
pub(super) const TOLD: u32 = SHARE / 4;

/// The share of one peer. Numbers count from the rank's first packet to it, modulo 2^32.
#[derive(Clone, Copy, Default)]
struct Share {
    /// False if no agent serves the peer: packets to it are dropped, and wait for nothing.
    open: bool,
    given: u32,
    left: u32,
    /// True if a packet was refused, and there has been no room since.
    full: bool,
}

/// The shares of all peers, as the rank counts them.
#[derive(Default)]
pub struct Shares {
    peers: Vec<Share>,
}

/// Returns true if a packet counts: those without numbers are few, and must not wait behind others.
#[inline]
fn counts(header: &[u8]) -> bool {
    let kind = header.get(field::TYPE).and_then(|&kind| PacketType::try_from(kind).ok());
    kind.is_some_and(PacketType::is_sequenced)
}

impl Shares {
    /// Returns the share of a peer, for a packet that counts.
    #[inline]
    fn for_packet(&mut self, peer: PeerId, header: &[u8]) -> Option<&mut Share> {
        self.of(peer).filter(|_| counts(header))
    }

    #[inline]
    fn of(&mut self, peer: PeerId) -> Option<&mut Share> {
        self.peers.get_mut(peer.0 as usize).filter(|share| share.open)
    }

    /// Opens the share of a peer. Returns the number of packets to it so far, from which the agent
    /// goes on counting: reports about earlier packets are recognised by that number.
    pub fn open(&mut self, peer: PeerId) -> u32 {
        let at = peer.0 as usize;
        if self.peers.len() <= at {
            self.peers.resize(at + 1, Share::default());
        }
        let share = &mut self.peers[at];
        *share = Share { open: true, given: share.given, left: share.given, full: false };
        share.given
    }

    /// Sets the number of packets handed over.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, peer: PeerId, given: u32) {
        self.of(peer).into_iter().for_each(|share| (share.given, share.left) = (given, given));
    }

    /// Counts a packet to be handed over. False if it has to wait until others have left.
    #[inline]
    pub fn take(&mut self, peer: PeerId, header: &[u8]) -> bool {
        let Some(share) = self.for_packet(peer, header) else { return true };
        if share.given.wrapping_sub(share.left) >= SHARE {
            return false;
        }
        share.given = share.given.wrapping_add(1);
        true
    }

    /// Reverts `take` for a packet that was not handed over.
    pub fn give_back(&mut self, peer: PeerId, header: &[u8]) {
        if let Some(share) = self.for_packet(peer, header) {
            share.given = share.given.wrapping_sub(1);
        }
    }

    /// Notes that a packet was refused for lack of a share. True if it is the first.
    #[cold]
    pub fn note_full(&mut self, peer: PeerId) -> bool {
        self.of(peer).is_some_and(|share| !core::mem::replace(&mut share.full, true))
    }

    /// Handles the agent's report of the packets to a peer that no longer wait. True if there is
    /// room now after a refusal. Impossible reports are ignored.
    pub fn on_left(&mut self, peer: PeerId, left: u32) -> bool {
        let Some(share) = self.of(peer) else { return false };
        let (step, most) = (left.wrapping_sub(share.left), share.given.wrapping_sub(share.left));
        if step == 0 || step > most {
            return false;
        }
        share.left = left;
        core::mem::take(&mut share.full)
    }

    /// Closes the share of a peer that the rank or its agent has forgotten, until it is opened
    /// again: packets to it are dropped, and never wait. True if a packet was refused, and there
    /// has been no room since.
    pub fn close(&mut self, peer: PeerId) -> bool {
        self.of(peer).is_some_and(|share| {
            share.open = false;
            core::mem::take(&mut share.full)
        })
    }
}

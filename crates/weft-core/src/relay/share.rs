//! The rank's end: how much of what it sends to each peer may wait at its agent.
//!
//! All peers of a rank share one way to the agent. If a peer that takes nothing could fill it, what
//! is for the others would wait until that peer is given up. So only so many numbered packets to
//! each peer are handed over before the agent has said that earlier ones are in its window.

use crate::id::PeerId;
use crate::wire::{field, PacketType};
use alloc::vec::Vec;

/// Numbered packets to one peer that wait at the agent for its window, at most.
pub const SHARE: u32 = 256;
/// The agent tells of so many that do not wait any more at a time. Fewer than a share: the rank can
/// always send until it is told.
pub(super) const TOLD: u32 = SHARE / 4;

/// One peer's. Numbers count from the rank's first packet to it, modulo 2^32.
#[derive(Clone, Copy, Default)]
struct Share {
    /// What is for a peer that nobody serves is dropped, and waits for nothing.
    open: bool,
    given: u32,
    left: u32,
    /// One was refused, and there has been no room since.
    full: bool,
}

/// The shares of all peers, as the rank counts them.
#[derive(Default)]
pub struct Shares {
    peers: Vec<Share>,
}

/// Whether a packet counts: those without numbers are few, and are not to wait behind others.
#[inline]
fn counts(header: &[u8]) -> bool {
    let kind = header.get(field::TYPE).and_then(|&kind| PacketType::try_from(kind).ok());
    kind.is_some_and(PacketType::is_sequenced)
}

impl Shares {
    /// That of a peer, for a packet that counts.
    #[inline]
    fn for_packet(&mut self, peer: PeerId, header: &[u8]) -> Option<&mut Share> {
        self.of(peer).filter(|_| counts(header))
    }

    #[inline]
    fn of(&mut self, peer: PeerId) -> Option<&mut Share> {
        self.peers.get_mut(peer.0 as usize).filter(|share| share.open)
    }

    /// A peer begins anew. The number of packets to it so far, which the agent goes on from: what
    /// it says of those before is known by that.
    pub fn open(&mut self, peer: PeerId) -> u32 {
        let at = peer.0 as usize;
        if self.peers.len() <= at {
            self.peers.resize(at + 1, Share::default());
        }
        let share = &mut self.peers[at];
        *share = Share { open: true, given: share.given, left: share.given, full: false };
        share.given
    }

    /// As if so many had been handed over before.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, peer: PeerId, given: u32) {
        self.of(peer).into_iter().for_each(|share| (share.given, share.left) = (given, given));
    }

    /// A packet is to be handed over. False: not before others have left.
    #[inline]
    pub fn take(&mut self, peer: PeerId, header: &[u8]) -> bool {
        let Some(share) = self.for_packet(peer, header) else { return true };
        if share.given.wrapping_sub(share.left) >= SHARE {
            return false;
        }
        share.given = share.given.wrapping_add(1);
        true
    }

    /// The packet was not handed over after all.
    pub fn give_back(&mut self, peer: PeerId, header: &[u8]) {
        if let Some(share) = self.for_packet(peer, header) {
            share.given = share.given.wrapping_sub(1);
        }
    }

    /// A packet was refused for want of a share. True if that is news.
    #[cold]
    pub fn note_full(&mut self, peer: PeerId) -> bool {
        self.of(peer).is_some_and(|share| !core::mem::replace(&mut share.full, true))
    }

    /// The agent says how many packets to a peer do not wait any more. True if there is room now
    /// for what was refused. What cannot be is not believed.
    pub fn on_left(&mut self, peer: PeerId, left: u32) -> bool {
        let Some(share) = self.of(peer) else { return false };
        let (step, most) = (left.wrapping_sub(share.left), share.given.wrapping_sub(share.left));
        if step == 0 || step > most {
            return false;
        }
        share.left = left;
        core::mem::take(&mut share.full)
    }

    /// A peer is forgotten, by the rank or its agent, until it begins anew: what is handed over for
    /// it goes nowhere, and never waits. True if something was refused, and there has been no room
    /// since.
    pub fn close(&mut self, peer: PeerId) -> bool {
        self.of(peer).is_some_and(|share| {
            share.open = false;
            core::mem::take(&mut share.full)
        })
    }
}

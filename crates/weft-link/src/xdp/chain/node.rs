//! What a program knows of a group: one entry of an array that the process sees too.

use super::super::sip::SipKey;
use super::super::sys::SharedArray;
use crate::ether::Mac;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Groups of an interface.
pub(super) const GROUPS: u32 = 64;
/// Packets that a member keeps until its process takes them; a power of two.
pub(super) const RING: u64 = 64;
/// Bytes of a kept packet, and what stands before them: their number and their check.
pub(super) const SLOT_DATA: usize = 2032;
pub(super) const SLOT_HEAD: usize = 16;
/// Words of a slot.
pub(super) const SLOT_WORDS: usize = (SLOT_HEAD + SLOT_DATA) / 8;

/// This bit of `NEXT`: a packet is being kept.
pub(super) const BUSY: u32 = 63;

/// Words of an entry. Place of the member in the chain, 1 for the first, [`ROOT`] for the root, 0
/// for none.
pub(super) const PLACE: usize = 0;
/// Number of the next packet; at the root, of the first that not all have.
pub(super) const NEXT: usize = 1;
/// Packets that the process has taken; at the root, the limit.
pub(super) const TAKEN: usize = 2;
/// Not zero at the last member.
pub(super) const LAST: usize = 3;
/// Addresses, six bytes.
pub(super) const NEXT_MAC: usize = 4;
pub(super) const ROOT_MAC: usize = 5;
/// State of the hash, four words.
pub(super) const KEY: usize = 6;
/// The root: who last had no room, and who last missed a packet, with the number of it times 2^16.
pub(super) const SLOW: usize = 10;
pub(super) const MISSED: usize = 11;
/// Counts: answers at the root; packets that came again, had no room, came too early, were forged.
pub(super) const ANSWERS: usize = 12;
pub(super) const REPEATED: usize = 13;
pub(super) const NO_ROOM: usize = 14;
pub(super) const AHEAD: usize = 15;
pub(super) const FORGED: usize = 16;
/// Not zero while the process sleeps until the bell rings.
pub(super) const SLEEPS: usize = 17;
/// Words of an entry.
pub(super) const WORDS: usize = 18;

/// The place of the root.
pub(super) const ROOT: u64 = 1 << 16;

/// Where a member stands in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 for the member that the root sends to, 2 for the one after it, and so on.
    pub position: u16,
    /// The interface of the next member; `None` at the last.
    pub next: Option<Mac>,
    /// The root's interface.
    pub root: Mac,
}

/// Makes this interface a member of the group, or its root.
pub(super) fn enter(nodes: &SharedArray, group: u32, key: &SipKey, place: Option<Place>) {
    let word = |at: usize| nodes.word(group, at);
    (0..WORDS).for_each(|at| word(at).store(0, Relaxed));
    for (at, part) in (KEY..).zip(key.state()) {
        word(at).store(part, Relaxed);
    }
    let Some(place) = place else { return word(PLACE).store(ROOT, Release) };
    let address = |mac: Mac| {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&mac.0);
        u64::from_ne_bytes(bytes)
    };
    word(LAST).store(u64::from(place.next.is_none()), Relaxed);
    word(NEXT_MAC).store(address(place.next.unwrap_or_default()), Relaxed);
    word(ROOT_MAC).store(address(place.root), Relaxed);
    word(PLACE).store(u64::from(place.position), Release);
}

/// Frames of this group are dropped from now on.
pub(super) fn leave(nodes: &SharedArray, group: u32) {
    nodes.word(group, PLACE).store(0, Release);
}

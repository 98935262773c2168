//! A program's data about a group: one entry of an array that the process shares.

use crate::sip::SipKey;
use crate::sys::SharedArray;
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_link::ether::Mac;

/// Number of groups of an interface.
pub(super) const GROUPS: u32 = 64;
/// Number of packets that a member keeps until its process takes them; a power of two.
pub(super) const RING: u64 = 64;
/// Bytes of a kept packet, and of the fields before them: its number and its check.
pub(super) const SLOT_DATA: usize = 2032;
pub(super) const SLOT_HEAD: usize = 16;
/// Number of words of a slot.
pub(super) const SLOT_WORDS: usize = (SLOT_HEAD + SLOT_DATA) / 8;

/// This bit of `NEXT` is set while a packet is being stored.
pub(super) const BUSY: u32 = 63;

/// The words of an entry, by index. Position of the member in the chain: 1 for the first, [`ROOT`]
/// for the root, 0 for no member.
pub(super) const PLACE: usize = 0;
/// Number of the next packet; at the root, of the first packet that a member lacks.
pub(super) const NEXT: usize = 1;
/// Number of packets that the process has taken; at the root, the limit.
pub(super) const TAKEN: usize = 2;
/// Not zero at the last member.
pub(super) const LAST: usize = 3;
/// MAC addresses, six bytes each.
pub(super) const NEXT_MAC: usize = 4;
pub(super) const ROOT_MAC: usize = 5;
/// Initial state of the hash, four words.
pub(super) const KEY: usize = 6;
/// At the root: the last member without room, and the last member that missed a packet; each word
/// holds the packet's number times 2^16 plus the member's position.
pub(super) const SLOW: usize = 10;
pub(super) const MISSED: usize = 11;
/// Counters: answers at the root; packets that arrived again, had no room, came too early, were
/// forged.
pub(super) const ANSWERS: usize = 12;
pub(super) const REPEATED: usize = 13;
pub(super) const NO_ROOM: usize = 14;
pub(super) const AHEAD: usize = 15;
pub(super) const FORGED: usize = 16;
/// Not zero while the process sleeps until the bell wakes it.
pub(super) const SLEEPS: usize = 17;
/// Number of words of an entry.
pub(super) const WORDS: usize = 18;

/// The position of the root.
pub(super) const ROOT: u64 = 1 << 16;

/// A member's position in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 for the member to which the root sends, 2 for the next one, and so on.
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

/// Removes the member: frames of this group are dropped from now on.
pub(super) fn leave(nodes: &SharedArray, group: u32) {
    nodes.word(group, PLACE).store(0, Release);
}

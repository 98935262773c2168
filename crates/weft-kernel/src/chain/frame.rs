//! The frames of a chain.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 18 | 1 | version: 1 |
//! | 19 | 1 | 0: data; 1: all have the packets before `number`; 2: no room; 3: it is missing |
//! | 20 | 2 | group |
//! | 22 | 2 | data: position of the receiver in the chain, 1 the first; answers: of the sender |
//! | 24 | 8 | number of the packet |
//! | 32 | 8 | limit: the first number for which a member on the path has no room |
//! | 40 | 8 | check of the payload |
//! | 48 | 8 | tag of bytes 16 to 47 |
//! | 56 | | payload |
//!
//! Ethernet header and shim (`slot` 0xfffe) come before it; all numbers are little-endian. Check
//! and tag are SipHash-2-4 under the key of the group. Each member makes a new tag, since position
//! and limit change. The check is made by the root, for the process that takes the packet.

use super::{FRAME, SLOT};
use crate::sip::SipKey;
use weft_link::ether::{EtherHead, EtherType, Mac};

pub(super) const VERSION: usize = EtherHead::LEN;
pub(super) const KIND: usize = VERSION + 1;
pub(super) const GROUP: usize = VERSION + 2;
pub(super) const HOP: usize = VERSION + 4;
pub(super) const NUMBER: usize = VERSION + 6;
pub(super) const LIMIT: usize = VERSION + 14;
pub(super) const CHECK: usize = VERSION + 22;
pub(super) const TAG: usize = VERSION + 30;
/// Bytes before the payload.
pub(super) const HEAD: usize = TAG + 8;
/// Start of the bytes that the tag covers: the shim's length.
pub(super) const TAGGED: usize = EtherHead::LENGTH;
pub(super) const TAGGED_WORDS: i16 = ((TAG - TAGGED) / 8) as i16;

/// Types of frames.
pub(super) const DATA: u8 = 0;
pub(super) const ACK: u8 = 1;
pub(super) const FULL: u8 = 2;
pub(super) const MISSING: u8 = 3;
pub(super) const VERSION_NOW: u8 = 1;

/// A pair of interfaces: EtherType, and the addresses of receiver and sender.
pub(super) type Route = (EtherType, Mac, Mac);

/// Makes a data frame for the member at a position.
pub(super) fn data(
    (kind, dst, src): Route,
    (group, hop): (u16, u16),
    key: &SipKey,
    number: u64,
    payload: &[u8],
) -> Vec<u8> {
    let len = (HEAD - EtherHead::LEN + payload.len()) as u16;
    let mut frame = vec![0; HEAD];
    frame[..EtherHead::LEN]
        .copy_from_slice(&EtherHead { dst, src, kind, slot: SLOT, len }.encode());
    (frame[VERSION], frame[KIND]) = (VERSION_NOW, DATA);
    frame[GROUP..HOP].copy_from_slice(&group.to_le_bytes());
    frame[HOP..NUMBER].copy_from_slice(&hop.to_le_bytes());
    frame[NUMBER..LIMIT].copy_from_slice(&number.to_le_bytes());
    frame[LIMIT..CHECK].copy_from_slice(&u64::MAX.to_le_bytes());
    frame[CHECK..TAG].copy_from_slice(&check(key, number, payload).to_le_bytes());
    let tag = key.hash(&[&frame[TAGGED..TAG]]);
    frame[TAG..HEAD].copy_from_slice(&tag.to_le_bytes());
    frame.extend_from_slice(payload);
    frame.resize(frame.len().max(FRAME), 0);
    frame
}

/// Returns the check of a packet's payload. Its first byte differs from that of all tagged bytes.
pub(super) fn check(key: &SipKey, number: u64, payload: &[u8]) -> u64 {
    key.hash(&[&[0xff; 8], &number.to_le_bytes(), payload])
}

/// An answer of a member to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub kind: u8,
    pub hop: u16,
    pub number: u64,
    pub limit: u64,
}

impl Answer {
    /// Parses a frame to the root of that group; `None` for any other frame or a forged one.
    pub fn read(
        frame: &[u8],
        (kind, me): (EtherType, Mac),
        group: u16,
        key: &SipKey,
    ) -> Option<Answer> {
        let word = |at: usize| frame[at..at + 8].try_into().map(u64::from_le_bytes);
        let half = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
        let ours = frame.len() >= FRAME
            && frame[..6] == me.0
            && frame[12..14] == kind.get().to_be_bytes()
            && half(EtherHead::SLOT) == SLOT
            && frame[VERSION] == VERSION_NOW
            && (ACK..=MISSING).contains(&frame[KIND])
            && half(GROUP) == group
            && word(TAG).ok() == Some(key.hash(&[&frame[TAGGED..TAG]]));
        if !ours {
            return None;
        }
        let (number, limit) = (word(NUMBER).ok()?, word(LIMIT).ok()?);
        Some(Answer { kind: frame[KIND], hop: half(HOP), number, limit })
    }
}

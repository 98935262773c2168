//! Messages of objects: those in the order of the group, and calls to owners.

use super::Placement;
use serde::{Deserialize, Serialize};

/// An operation in the order; the others are a [`Note`].
const OP: u8 = 0;
const NOTE: u8 = 1;

/// Methods of calls: an operation at the owner.
pub(super) const METHOD: u16 = 1;

/// Bytes before an operation in the order: kind, object, number of the operation, reads.
const OP_HEAD: usize = 1 + 8 + 8 + 4;
/// Bytes before an operation in a call: object, messages that the caller has processed.
const CALL_HEAD: usize = 8 + 8;
/// Bytes before a result: messages that the owner has processed, status.
const REPLY_HEAD: usize = 8 + 1;

/// A message in the order besides operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Note {
    /// A new object.
    Create { object: u64, class: u32, version: u32, placement: Placement, state: Vec<u8> },
    /// The sender gives up an operation of its own that waits.
    Cancel { object: u64, serial: u64 },
    /// The owner of an object sends its state: it is replicated from here on.
    Replicate { object: u64, state: Vec<u8> },
    /// The sender has read a replicated object so many times.
    Reads { object: u64, reads: u32 },
    /// An object that all ranks open has no state: it has so many bytes, too many for a message.
    TooLong { object: u64, len: u64 },
    /// The sender takes a replicated object, which is better at this rank: only one that lives
    /// does so.
    Take { object: u64 },
    /// An object is deleted.
    Delete { object: u64 },
}

/// A message in the order.
pub(super) enum Ordered<'a> {
    Op { object: u64, serial: u64, reads: u32, op: &'a [u8] },
    Note(Note),
}

pub(super) fn op_message(object: u64, serial: u64, reads: u32, op: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OP_HEAD + op.len());
    bytes.push(OP);
    bytes.extend_from_slice(&object.to_le_bytes());
    bytes.extend_from_slice(&serial.to_le_bytes());
    bytes.extend_from_slice(&reads.to_le_bytes());
    bytes.extend_from_slice(op);
    bytes
}

pub(super) fn note_message(note: &Note) -> Vec<u8> {
    postcard::to_extend(note, vec![NOTE]).unwrap_or_default()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(super) fn parse(bytes: &[u8]) -> Option<Ordered<'_>> {
    match *bytes.first()? {
        OP => Some(Ordered::Op {
            object: u64_at(bytes, 1)?,
            serial: u64_at(bytes, 9)?,
            reads: u32::from_le_bytes(bytes.get(17..21)?.try_into().ok()?),
            op: bytes.get(OP_HEAD..)?,
        }),
        NOTE => postcard::from_bytes(&bytes[1..]).ok().map(Ordered::Note),
        _ => None,
    }
}

pub(super) fn call_head(object: u64, stamp: u64) -> [u8; CALL_HEAD] {
    let mut head = [0; CALL_HEAD];
    head[..8].copy_from_slice(&object.to_le_bytes());
    head[8..].copy_from_slice(&stamp.to_le_bytes());
    head
}

pub(super) fn parse_call(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    Some((u64_at(bytes, 0)?, u64_at(bytes, 8)?, bytes.get(CALL_HEAD..)?))
}

/// The result of an operation at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Done = 0,
    /// The object is not at this rank: look again.
    Moved = 1,
    NoObject = 2,
    Broken = 3,
    Unreadable = 4,
    Panicked = 5,
}

impl Status {
    fn of(code: u8) -> Option<Status> {
        let all = [
            Status::Done,
            Status::Moved,
            Status::NoObject,
            Status::Broken,
            Status::Unreadable,
            Status::Panicked,
        ];
        all.get(usize::from(code)).copied()
    }
}

pub(super) fn reply_head(stamp: u64, status: Status) -> [u8; REPLY_HEAD] {
    let mut head = [0; REPLY_HEAD];
    head[..8].copy_from_slice(&stamp.to_le_bytes());
    head[8] = status as u8;
    head
}

pub(super) fn parse_reply(bytes: &[u8]) -> Option<(u64, Status, &[u8])> {
    Some((u64_at(bytes, 0)?, Status::of(*bytes.get(8)?)?, bytes.get(REPLY_HEAD..)?))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__round_trip_and_no_panic_on_nonsense() {
        let bytes = op_message(7, 8, 9, b"op");
        let Some(Ordered::Op { object: 7, serial: 8, reads: 9, op: b"op" }) = parse(&bytes) else {
            panic!("{bytes:?}");
        };
        let note = Note::Replicate { object: 3, state: vec![1, 2] };
        assert!(matches!(parse(&note_message(&note)), Some(Ordered::Note(n)) if n == note));
        (0..bytes.len()).for_each(|len| drop(parse(&bytes[..len])));
        assert!(parse(&[9; 40]).is_none() && parse(&bytes[..20]).is_none());
        assert_eq!(parse_call(&call_head(1, 2)), Some((1, 2, &[][..])));
        assert_eq!(parse_reply(&reply_head(5, Status::Moved)), Some((5, Status::Moved, &[][..])));
        assert_eq!(parse_reply(&[6; 9]), None);
    }
}

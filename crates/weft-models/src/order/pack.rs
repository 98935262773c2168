//! Messages in slots: several short ones in one, or a long one over several.
//!
//! A slot is a list of chunks: four bytes of length, whose highest bit marks the last chunk of a
//! message, then the bytes. The chunks of one sender come in order.

use super::wire::Reader;
use crate::channel::MESSAGE_MAX;
use std::collections::{BTreeMap, VecDeque};

const LAST: u32 = 1 << 31;
const CHUNK: usize = 4;
/// Least room for data in a slot.
pub(super) const ROOM_MIN: usize = 2 * CHUNK;

/// A message of this member on its way.
pub(super) struct Message {
    /// The program's number for it.
    pub token: u64,
    pub bytes: Vec<u8>,
}

/// The messages of this member that are not delivered yet, and which part of them is in slots.
#[derive(Default)]
pub(super) struct Outgoing {
    messages: VecDeque<Message>,
    /// Number of messages that are in slots as a whole.
    packed: usize,
    /// Bytes of the next message that are in slots.
    offset: usize,
    bytes: usize,
    /// Bytes that are in no slot.
    unpacked: usize,
}

impl Outgoing {
    pub fn push(&mut self, message: Message) {
        self.bytes += message.bytes.len();
        self.unpacked += message.bytes.len();
        self.messages.push_back(message);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Makes the next slot of at most `room` bytes; returns it with the number of messages that end
    /// in it. `None` if there is nothing to pack.
    pub fn pack(&mut self, room: usize) -> Option<(Vec<u8>, usize)> {
        let room = room.max(ROOM_MIN);
        let (mut slot, mut ends) = (Vec::new(), 0);
        while let Some(message) = self.messages.get(self.packed) {
            let rest = &message.bytes[self.offset..];
            let free = room - slot.len();
            // A chunk without bytes is worth its place only if it is the last.
            if free < CHUNK || free == CHUNK && !rest.is_empty() {
                break;
            }
            let now = rest.len().min(free - CHUNK);
            let last = now == rest.len();
            let head = now as u32 | if last { LAST } else { 0 };
            if slot.is_empty() {
                // All messages that wait, as far as they have room.
                let messages = self.messages.len() - self.packed;
                slot.reserve_exact((self.unpacked + messages * CHUNK).min(room));
            }
            slot.extend_from_slice(&head.to_le_bytes());
            slot.extend_from_slice(&rest[..now]);
            self.offset += now;
            self.unpacked -= now;
            if last {
                (self.packed, self.offset) = (self.packed + 1, 0);
                ends += 1;
            }
        }
        (!slot.is_empty()).then_some((slot, ends))
    }

    /// Takes the oldest message, which has been delivered.
    pub fn pop(&mut self) -> Option<u64> {
        let message = self.messages.pop_front()?;
        self.packed -= 1;
        self.bytes -= message.bytes.len();
        Some(message.token)
    }

    /// Forgets what is in slots: all that is left is packed anew.
    pub fn begin_anew(&mut self) {
        (self.packed, self.offset) = (0, 0);
        self.unpacked = self.bytes;
    }
}

/// The first parts of messages, by sender.
#[derive(Default)]
pub(super) struct Incoming {
    begun: BTreeMap<u32, Vec<u8>>,
}

impl Incoming {
    /// Calls `deliver` for each message that a slot completes. False if the slot is malformed.
    pub fn unpack(&mut self, sender: u32, slot: &[u8], mut deliver: impl FnMut(Vec<u8>)) -> bool {
        let mut reader = Reader(slot);
        while !reader.0.is_empty() {
            let Some(head) = reader.u32() else { return false };
            let Some(bytes) = reader.bytes((head & !LAST) as usize) else { return false };
            let mut whole = self.begun.remove(&sender).unwrap_or_default();
            if whole.len() + bytes.len() > MESSAGE_MAX {
                return false;
            }
            whole.extend_from_slice(bytes);
            match head & LAST {
                0 => drop(self.begun.insert(sender, whole)),
                _ => deliver(whole),
            }
        }
        true
    }

    /// Forgets messages that are not complete: their senders begin them anew.
    pub fn clear(&mut self) {
        self.begun.clear();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn round_trip(lens: &[usize], room: usize) {
        let mut out = Outgoing::default();
        for (token, &len) in lens.iter().enumerate() {
            out.push(Message { token: token as u64, bytes: vec![token as u8; len] });
        }
        let (mut incoming, mut got, mut ended) = (Incoming::default(), Vec::new(), 0);
        while let Some((slot, ends)) = out.pack(room) {
            assert!(slot.len() <= room.max(ROOM_MIN));
            assert!(incoming.unpack(7, &slot, |message| got.push(message)));
            ended += ends;
            assert_eq!(got.len(), ended);
        }
        let want: Vec<Vec<u8>> = (0..).zip(lens).map(|(t, &len)| vec![t; len]).collect();
        assert_eq!(got, want, "{lens:?} in {room}");
        assert!((0..lens.len() as u64).all(|token| out.pop() == Some(token)) && out.is_empty());
    }

    #[test]
    fn pack__every_message_comes_out_whole_and_in_order() {
        for room in [1, 8, 9, 12, 13, 100] {
            round_trip(&[], room);
            round_trip(&[0], room);
            round_trip(&[1, 0, 0, 5, 20, 0, 4, 4, 4, 8, 100, 1], room);
        }
    }

    #[test]
    fn unpack__malformed_slots_are_noticed() {
        let mut incoming = Incoming::default();
        for bad in [&[1, 0][..], &[5, 0, 0, 0, 1], &[255; 4]] {
            assert!(!incoming.unpack(0, bad, |_| panic!("nothing is whole")));
        }
    }

    #[test]
    fn begin_anew__packs_again_what_was_not_delivered() {
        let mut out = Outgoing::default();
        (0..3).for_each(|token| out.push(Message { token, bytes: vec![token as u8; 3] }));
        let first = out.pack(100).unwrap();
        assert_eq!(first.1, 3);
        assert_eq!(out.pop(), Some(0));
        out.begin_anew();
        let (slot, ends) = out.pack(100).unwrap();
        assert_eq!((ends, slot.len()), (2, 14));
    }
}

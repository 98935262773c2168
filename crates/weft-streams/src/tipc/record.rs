//! Records that a program reads from its socket.

use super::address::{Address, SockAddr};
use super::{u32_at, MESSAGE_MAX};

/// Length of the head of a record.
pub const HEAD: usize = 48;

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message.
    Message = 1,
    /// A message of this socket that was not delivered, or the end of its connection.
    Returned = 2,
    /// Somebody connects.
    Caller = 3,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Its kind.
    pub kind: Kind,
    /// The record is an event of a group (MSG_OOB).
    pub out_of_band: bool,
    /// The data end a record (MSG_EOR): of an event of a group, the member leaves.
    pub ends: bool,
    /// The reason why it came back.
    pub error: u32,
    /// The socket that sent it, and its host.
    pub from: (u32, u32),
    /// The name that it was sent to: type, first and last instance.
    pub name: Option<(u32, u32, u32)>,
    /// The member of a group that sent it: type and instance.
    pub member: Option<(u32, u32)>,
    /// Length of the data.
    pub len: u32,
}

const OUT_OF_BAND: u8 = 1;
const ENDS: u8 = 2;
const NAMED: u8 = 4;
const OF_MEMBER: u8 = 8;

impl RecordHead {
    /// Makes the head of a message.
    pub fn new(kind: Kind, from: (u32, u32), len: usize) -> RecordHead {
        let (name, member) = (None, None);
        let len = len as u32;
        RecordHead { kind, out_of_band: false, ends: false, error: 0, from, name, member, len }
    }

    /// Returns the addresses of the sender: the socket, and the member of a group.
    pub fn places(&self) -> (SockAddr, Option<SockAddr>) {
        let member = self.member.map(|(kind, instance)| SockAddr {
            address: Address::Service { kind, instance, domain: 0 },
            scope: 0,
        });
        (SockAddr::socket(self.from.0, self.from.1), member)
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; HEAD] {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.out_of_band, OUT_OF_BAND)
            | flag(self.ends, ENDS)
            | flag(self.name.is_some(), NAMED)
            | flag(self.member.is_some(), OF_MEMBER);
        let name = self.name.unwrap_or_default();
        let member = self.member.unwrap_or_default();
        let (port, node) = self.from;
        let numbers =
            [self.error, port, node, name.0, name.1, name.2, member.0, member.1, self.len];
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1]) = (self.kind as u8, flags);
        for (to, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// Reads it. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<RecordHead> {
        let bytes = bytes.first_chunk::<HEAD>()?;
        let kinds = [Kind::Message, Kind::Returned, Kind::Caller];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let number = |at: usize| u32_at(bytes, 4 + 4 * at);
        let has = |bit: u8| bytes[1] & bit != 0;
        let len = number(8).filter(|len| *len as usize <= MESSAGE_MAX)?;
        let name = (number(3)?, number(4)?, number(5)?);
        let member = (number(6)?, number(7)?);
        Some(RecordHead {
            kind,
            out_of_band: has(OUT_OF_BAND),
            ends: has(ENDS),
            error: number(0)?,
            from: (number(1)?, number(2)?),
            name: has(NAMED).then_some(name),
            member: has(OF_MEMBER).then_some(member),
            len,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::{Answer, Op, Request};
    use super::*;

    #[test]
    fn codecs__read_what_they_wrote_and_survive_any_bytes() {
        let head = RecordHead {
            kind: Kind::Returned,
            out_of_band: true,
            ends: true,
            error: 3,
            from: (7, 8),
            name: Some((1, 2, 3)),
            member: Some((4, 5)),
            len: 66_000,
        };
        assert_eq!(RecordHead::decode(&head.encode()), Some(head));
        let address = Address::Service { kind: 1, instance: 2, domain: 3 };
        let place = SockAddr { address, scope: -2 };
        assert_eq!(SockAddr::decode(&place.encode()), Some(place));
        let request = Request { op: Op::Bind, flags: 1, value: 9, field: place.encode() };
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Ok((request, &[][..])));
        assert_eq!(request.place(), Some(Some(place)));
        let answer = Answer::place(place);
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        let mut seed = 1u64;
        for len in 0..4096 {
            let bytes: Vec<u8> = (0..len % 80)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8 & if len % 2 == 0 { 0xff } else { 7 }
                })
                .collect();
            let _ = (RecordHead::decode(&bytes), SockAddr::decode(&bytes));
            let _ = (Request::decode(&bytes), Answer::decode(&bytes));
        }
    }
}

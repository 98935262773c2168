//! The messages between two network interfaces. They are messages of the port: a number of 24 bits
//! (kind and connection), an argument of 32 bits, and bytes.
//!
//! | kind | argument | bytes |
//! | --- | --- | --- |
//! | 0 control | version | as in [`Control`] |
//! | 1 send | 0 | the message |
//! | 2 send with immediate data | the data | the message |
//! | 3 write with immediate data | the data | address u64, handle u32, length u32 |
//! | 4 receipt | bits of the sender's status | none |
//! | 5 break | a [`Reason`] | none |
//! | 6 notice of a refused write or read | a [`Reason`] | none |
//!
//! All numbers are little-endian.

use crate::address::NetAddress;
use crate::table::Key;

/// The number of this client of the port.
pub const CLIENT: u8 = weft::port::WEFT + 3;
/// Version of the messages.
pub const VERSION: u32 = 1;

/// Bits of the index in the number of a connection; above it are 8 bits of its generation.
const INDEX_BITS: u32 = 13;
const ID_BITS: u32 = INDEX_BITS + 8;
/// Most connections of a network interface.
pub const CONNECTIONS: usize = 1 << INDEX_BITS;
/// The bits of a generation that are in the number of a connection.
pub const GENERATION: u32 = 0xff;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// About a connection that is being made.
    Control = 0,
    /// A message for a posted descriptor.
    Send = 1,
    /// A message for a posted descriptor, with immediate data.
    SendImmediate = 2,
    /// Immediate data of a write that was sent before.
    Wrote = 3,
    /// Receipt of a message of the highest level of reliability.
    Receipt = 4,
    /// The connection has ended.
    Break = 5,
    /// A write or read was refused.
    Notice = 6,
}

const KINDS: [Kind; 7] = [
    Kind::Control,
    Kind::Send,
    Kind::SendImmediate,
    Kind::Wrote,
    Kind::Receipt,
    Kind::Break,
    Kind::Notice,
];

/// Returns the number of a connection.
pub fn id_of(key: Key) -> u32 {
    (key.generation & GENERATION) << INDEX_BITS | key.index
}

/// Returns index and low bits of the generation of a connection.
#[inline]
pub fn parts(id: u32) -> (u32, u32) {
    (id & ((1 << INDEX_BITS) - 1), id >> INDEX_BITS & GENERATION)
}

/// Returns the number of a message.
#[inline]
pub fn number(kind: Kind, id: u32) -> u32 {
    (kind as u32) << ID_BITS | id
}

/// Returns kind and connection of a message; `None` for a kind that this version does not know.
#[inline]
pub fn kind(number: u32) -> Option<(Kind, u32)> {
    let kind = *KINDS.get((number >> ID_BITS) as usize)?;
    Some((kind, number & ((1 << ID_BITS) - 1)))
}

/// True if a message may end a connection.
#[inline]
pub fn ends(number: u32) -> bool {
    matches!(kind(number), Some((Kind::Control | Kind::Break, _)))
}

/// The reason why one side ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The program disconnected.
    Disconnect = 0,
    /// A message came, and no descriptor was posted.
    RecvqEmpty = 1,
    /// A write was refused.
    Write = 2,
    /// A read was refused.
    Read = 3,
    /// A descriptor failed.
    Descriptor = 4,
}

impl Reason {
    /// Decodes a reason.
    pub fn from_wire(number: u32) -> Option<Reason> {
        [Reason::Disconnect, Reason::RecvqEmpty, Reason::Write, Reason::Read, Reason::Descriptor]
            .into_iter()
            .find(|reason| *reason as u32 == number)
    }
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of the connection at this side.
    pub id: u32,
    /// Level of reliability.
    pub level: u16,
    /// Maximum transfer size.
    pub max: u32,
    /// True if the other side may write to memory here.
    pub write: bool,
    /// True if the other side may read memory here.
    pub read: bool,
    /// The part of the keys of regions that their protection tag gives; 0 if neither is allowed.
    pub secret: u32,
}

/// The turn of a request that meets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The request comes of itself.
    First,
    /// The request answers the other one.
    Reply,
}

/// A message about a connection that is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A request.
    Request {
        /// Set if both sides request.
        peers: Option<Turn>,
        /// The requesting side.
        offer: Offer,
        /// Its address.
        from: NetAddress,
        /// The address that it asks for.
        to: NetAddress,
    },
    /// A request is accepted.
    Accept {
        /// The requesting side's connection.
        to: u32,
        /// The accepting side.
        offer: Offer,
    },
    /// A request is refused.
    Refuse {
        /// The requesting side's connection.
        to: u32,
        /// True if nobody waits at the address; else the program rejected the request.
        no_match: bool,
    },
    /// The requesting side is connected.
    Confirm {
        /// The accepting side's connection.
        to: u32,
    },
    /// The requesting side has given up.
    Cancel {
        /// Its connection.
        id: u32,
    },
}

const REQUEST: u8 = 0;
const ACCEPT: u8 = 1;
const REFUSE: u8 = 2;
const CONFIRM: u8 = 3;
const CANCEL: u8 = 4;
const PEERS: u8 = 1;
const REPLY: u8 = 3;
const NO_MATCH: u8 = 1;
const WRITE: u8 = 1;
const READ: u8 = 2;

impl Offer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.level.to_le_bytes());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.extend_from_slice(&[flag(self.write, WRITE) | flag(self.read, READ), 0]);
        out.extend_from_slice(&self.max.to_le_bytes());
        out.extend_from_slice(&self.secret.to_le_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Offer> {
        let id = id(bytes)?;
        let level = u16::from_le_bytes(take(bytes)?);
        let [flags, zero] = take(bytes)?;
        let (max, secret) = (u32::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
        let good = level.is_power_of_two()
            && level & !crate::code::level::ALL == 0
            && flags & !(WRITE | READ) == 0
            && zero == 0;
        let (write, read) = (flags & WRITE != 0, flags & READ != 0);
        good.then_some(Offer { id, level, max, write, read, secret })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// Decodes the number of a connection.
fn id(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(bytes)?)).filter(|id| id >> ID_BITS == 0)
}

impl Control {
    /// Encodes a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        match self {
            Control::Request { peers, offer, from, to } => {
                let flags = match peers {
                    None => 0,
                    Some(Turn::First) => PEERS,
                    Some(Turn::Reply) => REPLY,
                };
                out.extend_from_slice(&[REQUEST, flags]);
                offer.encode(&mut out);
                from.encode(&mut out);
                to.encode(&mut out);
            }
            Control::Accept { to, offer } => {
                out.extend_from_slice(&[ACCEPT, 0]);
                out.extend_from_slice(&to.to_le_bytes());
                offer.encode(&mut out);
            }
            Control::Refuse { to, no_match } => {
                out.extend_from_slice(&[REFUSE, if *no_match { NO_MATCH } else { 0 }]);
                out.extend_from_slice(&to.to_le_bytes());
            }
            Control::Confirm { to: id } | Control::Cancel { id } => {
                let kind = if matches!(self, Control::Confirm { .. }) { CONFIRM } else { CANCEL };
                out.extend_from_slice(&[kind, 0]);
                out.extend_from_slice(&id.to_le_bytes());
            }
        }
        out
    }

    /// Decodes a message, which fills the bytes exactly.
    pub fn decode(mut bytes: &[u8]) -> Option<Control> {
        let rest = &mut bytes;
        let [kind, flags] = take(rest)?;
        let message = match (kind, flags) {
            (REQUEST, 0 | PEERS | REPLY) => Control::Request {
                peers: match flags {
                    PEERS => Some(Turn::First),
                    REPLY => Some(Turn::Reply),
                    _ => None,
                },
                offer: Offer::decode(rest)?,
                from: NetAddress::decode(rest)?,
                to: NetAddress::decode(rest)?,
            },
            (ACCEPT, 0) => Control::Accept { to: id(rest)?, offer: Offer::decode(rest)? },
            (REFUSE, 0 | NO_MATCH) => {
                Control::Refuse { to: id(rest)?, no_match: flags == NO_MATCH }
            }
            (CONFIRM, 0) => Control::Confirm { to: id(rest)? },
            (CANCEL, 0) => Control::Cancel { id: id(rest)? },
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

/// Place and length of a write whose immediate data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Address of the first byte.
    pub at: u64,
    /// Handle of the memory.
    pub handle: u32,
    /// Bytes.
    pub len: u32,
}

impl Wrote {
    /// Encodes it.
    pub fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.at.to_le_bytes());
        out[8..12].copy_from_slice(&self.handle.to_le_bytes());
        out[12..].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// Decodes it.
    pub fn decode(mut bytes: &[u8]) -> Option<Wrote> {
        let rest = &mut bytes;
        let wrote = Wrote {
            at: u64::from_le_bytes(take(rest)?),
            handle: u32::from_le_bytes(take(rest)?),
            len: u32::from_le_bytes(take(rest)?),
        };
        rest.is_empty().then_some(wrote)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn samples() -> Vec<Control> {
        let offer = Offer { id: 5, level: 2, max: 65536, write: true, read: false, secret: 77 };
        let address = |n: u8| NetAddress::new(Ipv4Addr::new(10, 0, 0, n), &[n; 8]).unwrap();
        vec![
            Control::Request { peers: None, offer, from: address(1), to: address(2) },
            Control::Request { peers: Some(Turn::First), offer, from: address(3), to: address(0) },
            Control::Request { peers: Some(Turn::Reply), offer, from: address(3), to: address(4) },
            Control::Accept { to: 9, offer: Offer { level: 4, read: true, ..offer } },
            Control::Refuse { to: 1, no_match: true },
            Control::Refuse { to: (1 << ID_BITS) - 1, no_match: false },
            Control::Confirm { to: 3 },
            Control::Cancel { id: 4 },
        ]
    }

    #[test]
    fn decode__gives_back_what_was_encoded_and_refuses_other_lengths() {
        for message in samples() {
            let bytes = message.encode();
            assert_eq!(Control::decode(&bytes), Some(message));
            for cut in 0..bytes.len() {
                assert_eq!(Control::decode(&bytes[..cut]), None);
            }
            assert_eq!(Control::decode(&[&bytes[..], &[0]].concat()), None);
        }
        let wrote = Wrote { at: 1 << 40, handle: 3, len: 4 };
        assert_eq!(Wrote::decode(&wrote.encode()), Some(wrote));
        assert_eq!(Wrote::decode(&wrote.encode()[1..]), None);
    }

    #[test]
    fn decode__of_changed_bytes_is_none_or_canonical() {
        for message in samples() {
            let bytes = message.encode();
            for at in 0..bytes.len() {
                for value in 0..=255 {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Some(other) = Control::decode(&changed) {
                        assert_eq!(other.encode(), changed);
                    }
                }
            }
        }
    }

    #[test]
    fn number__holds_kind_and_connection() {
        let key = Key { index: 8191, generation: 0xabcdef };
        let id = id_of(key);
        assert_eq!(parts(id), (8191, 0xef));
        for of in KINDS {
            assert_eq!(kind(number(of, id)), Some((of, id)));
            assert!(number(of, id) < weft::port::NUMBERS);
        }
        assert_eq!(kind(7 << ID_BITS), None);
        let reasons: Vec<_> = (0..6).map(Reason::from_wire).collect();
        assert!(reasons[..5].iter().all(Option::is_some) && reasons[5].is_none());
    }
}

//! The messages between agents about the two ends of a connection: `PROTOCOL.md`, section Sockets
//! between hosts. Each is the content of one authenticated datagram of their session.

use super::back::message::{examples, Back};
use crate::far::Pos;
use crate::message::Place;

/// Version of these messages: byte 0 of each.
pub(super) const VERSION: u8 = 1;
/// Bytes of a number by which an agent shows that the network leads from it.
pub const NUMBER: usize = 16;
/// A number that only the agents know.
pub type Number = [u8; NUMBER];

/// The names of an end: its own, and that of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Its own name.
    pub local: Place,
    /// The name of its peer.
    pub remote: Place,
}

impl Names {
    /// True if these are the names of the other end.
    pub fn is_other(&self, other: &Names) -> bool {
        self.local == other.remote && self.remote == other.local
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// An end of this host looks for its other end.
    Find {
        /// The sender's number of its end.
        id: u64,
        /// The names of that end.
        names: Names,
        /// Its user.
        user: u32,
    },
    /// An end has shown its socket, and a path.
    Offer {
        /// The sender's number of its end.
        id: u64,
        /// The receiver's number of the other end.
        of: u64,
        /// The port of the path, at the end's address.
        port: u16,
        /// The number that the sender sends by the path.
        number: Number,
        /// True if the receiver's number came by the path.
        has_come: bool,
        /// True if the sender has joined its end, and needs no answer.
        is_joined: bool,
    },
    /// The end of the receiver's host has bytes by TCP after a phase: how long was the phase?
    Ask {
        /// The receiver's number of its end.
        of: u64,
        /// The phase.
        phase: u32,
    },
    /// The last phase that has ended, and its length.
    Stopped {
        /// The receiver's number of its end.
        of: u64,
        /// The phase and its length.
        stop: Pos,
        /// The bytes of a phase that the other end knows to be acknowledged.
        acked: Pos,
    },
}

fn put(to: &mut Vec<u8>, place: Place) {
    to.extend(place.address());
    to.extend(place.port().to_le_bytes());
}

/// Takes fields from the front of bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or("length")?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn small(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    fn port(&mut self) -> Result<u16, &'static str> {
        self.take().map(u16::from_le_bytes)
    }

    fn place(&mut self) -> Result<Place, &'static str> {
        Ok(Place::new(self.take()?, self.port()?))
    }
}

impl Between {
    /// Returns the bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION, 0];
        match self {
            Between::Find { id, names, user } => {
                to[1] = 1;
                to.extend(id.to_le_bytes());
                to.extend(user.to_le_bytes());
                put(&mut to, names.local);
                put(&mut to, names.remote);
            }
            Between::Offer { id, of, port, number, has_come, is_joined } => {
                to[1] = 2;
                to.extend(id.to_le_bytes());
                to.extend(of.to_le_bytes());
                to.extend(port.to_le_bytes());
                to.extend(number);
                to.push(u8::from(*has_come) | u8::from(*is_joined) << 1);
            }
            Between::Ask { of, phase } => {
                to[1] = 3;
                to.extend(of.to_le_bytes());
                to.extend(phase.to_le_bytes());
            }
            Between::Stopped { of, stop, acked } => {
                to[1] = 4;
                to.extend(of.to_le_bytes());
                to.extend(stop.0.to_le_bytes());
                to.extend(acked.0.to_le_bytes());
            }
        }
        to
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The wrong field.
    pub fn decode(bytes: &[u8]) -> Result<Between, &'static str> {
        let mut fields = Fields(bytes);
        let [version, kind] = fields.take()?;
        if version != VERSION {
            return Err("version");
        }
        let first = fields.number()?;
        let message = match kind {
            1 => {
                let user = fields.small()?;
                let names = Names { local: fields.place()?, remote: fields.place()? };
                Between::Find { id: first, names, user }
            }
            2 => {
                let (of, port, number) = (fields.number()?, fields.port()?, fields.take()?);
                let [flags @ 0..4] = fields.take()? else { return Err("flags") };
                let (has_come, is_joined) = (flags & 1 != 0, flags & 2 != 0);
                Between::Offer { id: first, of, port, number, has_come, is_joined }
            }
            3 => Between::Ask { of: first, phase: fields.small()? },
            4 => {
                let (stop, acked) = (Pos(fields.number()?), Pos(fields.number()?));
                Between::Stopped { of: first, stop, acked }
            }
            _ => return Err("kind"),
        };
        match fields.0 {
            [] => Ok(message),
            _ => Err("length"),
        }
    }
}

/// Decodes bytes, for fuzzing. No input may cause a panic; an accepted message must have one
/// encoding.
///
/// # Panics
/// One of these conditions does not hold.
pub fn check_message(bytes: &[u8]) {
    if let Ok(message) = Between::decode(bytes) {
        assert_eq!(message.encode(), bytes, "two encodings: {message:?}");
        assert!(!Back::is_one(bytes));
    }
    if let Ok(message) = Back::decode(bytes) {
        assert_eq!(message.encode(), bytes, "two encodings: {message:?}");
        assert!(Back::is_one(bytes));
    }
}

/// Returns the bytes of one message of each kind, for tests that damage them.
pub fn example_messages() -> Vec<Vec<u8>> {
    let (local, remote) = (Place::v4([10, 0, 0, 1], 80), Place::v4([10, 0, 0, 2], 50000));
    let names = Names { local, remote };
    [
        Between::Find { id: 1, names, user: 1000 },
        Between::Offer {
            id: 1,
            of: 2,
            port: 7,
            number: [3; NUMBER],
            has_come: true,
            is_joined: false,
        },
        Between::Ask { of: 2, phase: 5 },
        Between::Stopped { of: 2, stop: Pos::new(5, 64), acked: Pos::new(6, 1) },
    ]
    .iter()
    .map(Between::encode)
    .chain(examples().iter().map(Back::encode))
    .collect()
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn decode__every_kind_and_no_part_of_it() {
        for bytes in example_messages() {
            check_message(&bytes);
            let is_one = |bytes: &[u8]| match Back::is_one(bytes) {
                true => Back::decode(bytes).is_ok(),
                false => Between::decode(bytes).is_ok(),
            };
            assert!(is_one(&bytes));
            // A piece may have fewer bytes.
            let least = if bytes[1] == 7 { bytes.len() - 4 } else { bytes.len() };
            for end in 0..least {
                assert!(!is_one(&bytes[..end]), "{end} bytes of {bytes:?}");
            }
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1 << (at % 8);
                check_message(&other);
            }
        }
    }
}

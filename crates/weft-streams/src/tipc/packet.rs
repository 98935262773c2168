//! Messages from agent to agent. The host of the sender is that of the session they come by.

use super::MESSAGE_MAX;

/// Length of a packet without its payload.
pub const HEAD: usize = 32;

/// A kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A message without connection.
    Message = 1,
    /// A socket connects.
    Call = 2,
    /// Its call was taken.
    Taken = 3,
    /// Data of a connection.
    Data = 4,
    /// A connection has ended. The data are those of a message that was not read.
    End = 5,
    /// A message was delivered, but its program did not read it: it comes back.
    Unread = 6,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its kind.
    pub what: What,
    /// The type of the socket that sent it.
    pub kind: u8,
    /// Its importance: 0 to 3.
    pub importance: u8,
    /// The packet comes back if it is not delivered.
    pub returns: bool,
    /// The socket that it is for.
    pub to: u32,
    /// The socket that it is from.
    pub from: u32,
    /// The reason of an end.
    pub error: u32,
    /// The name that it was sent to: type, first and last instance.
    pub name: Option<(u32, u32, u32)>,
    /// The data.
    pub payload: Vec<u8>,
}

const RETURNS: u8 = 1;
const NAMED: u8 = 2;

impl Packet {
    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.payload.len());
        let flags = if self.returns { RETURNS } else { 0 };
        let flags = flags | if self.name.is_some() { NAMED } else { 0 };
        bytes.extend([self.what as u8, self.kind, self.importance, flags]);
        let (kind, lower, upper) = self.name.unwrap_or_default();
        for number in [self.to, self.from, self.error, kind, lower, upper] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend((self.payload.len() as u32).to_le_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// Reads it. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<Packet> {
        use What::{Call, Data, End, Message, Taken, Unread};
        let (head, payload) = bytes.split_first_chunk::<HEAD>()?;
        let number = |at: usize| {
            let bytes = head[4 + 4 * at..].first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let all = [Message, Call, Taken, Data, End, Unread];
        let what = all.into_iter().find(|what| *what as u8 == head[0])?;
        let flags = head[3];
        let fits = payload.len() <= MESSAGE_MAX && number(6)? as usize == payload.len();
        if !fits || head[2] > 3 || flags & !(RETURNS | NAMED) != 0 {
            return None;
        }
        let name = (number(3)?, number(4)?, number(5)?);
        Some(Packet {
            what,
            kind: head[1],
            importance: head[2],
            returns: flags & RETURNS != 0,
            to: number(0)?,
            from: number(1)?,
            error: number(2)?,
            name: (flags & NAMED != 0).then_some(name),
            payload: payload.to_vec(),
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn decode__reads_what_encode_wrote_and_nothing_else() {
        let packet = Packet {
            what: What::Data,
            kind: 5,
            importance: 3,
            returns: true,
            to: 1,
            from: 2,
            error: 3,
            name: Some((4, 5, 6)),
            payload: b"hello".to_vec(),
        };
        let bytes = packet.encode();
        assert_eq!(Packet::decode(&bytes), Some(packet));
        for len in 0..bytes.len() {
            assert_eq!(Packet::decode(&bytes[..len]), None);
        }
        for at in [0, 2, 3, 28] {
            let mut wrong = bytes.clone();
            wrong[at] = 0xff;
            assert_eq!(Packet::decode(&wrong), None, "byte {at}");
        }
    }
}

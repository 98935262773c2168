//! Requests of the library about a socket, and the agent's answers.

use super::address::{self, SockAddr};
use super::u32_at;

const MAGIC: [u8; 4] = *b"weft";
/// Version of these messages and of the records.
pub const VERSION: u8 = 1;
/// Length of a request before its data.
pub const HEAD: usize = 32;
/// Length of an answer.
pub const ANSWER: usize = 32;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A new socket; the value is its type. The answer has a descriptor.
    Socket = 1,
    /// Binds it to a name, or takes a name from it; without an address: takes all.
    Bind = 2,
    /// Asks for the socket's own address.
    Own = 3,
    /// Asks for its peer's.
    Peer = 4,
    /// Connects it.
    Connect = 5,
    /// Listens.
    Listen = 6,
    /// Takes a connection. The answer has a descriptor, and the caller's address.
    Accept = 7,
    /// Sends the data that follow.
    Send = 8,
    /// Sets the option named by the value; the address field has its value.
    Set = 9,
    /// Asks for an option.
    Get = 10,
    /// Ends its connection.
    Shutdown = 11,
    /// Asks for the number of a host, 16 bytes.
    Node = 12,
}

impl Op {
    fn of(number: u8) -> Option<Op> {
        use Op::{
            Accept, Bind, Connect, Get, Listen, Node, Own, Peer, Send, Set, Shutdown, Socket,
        };
        let all =
            [Socket, Bind, Own, Peer, Connect, Listen, Accept, Send, Set, Get, Shutdown, Node];
        all.into_iter().find(|op| *op as u8 == number)
    }
}

/// Flag of a request: it has an address.
pub const HAS_ADDRESS: u8 = 1;
/// Flag of a request: it does not wait.
pub const DONT_WAIT: u8 = 2;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its kind.
    pub op: Op,
    /// [`HAS_ADDRESS`], [`DONT_WAIT`].
    pub flags: u8,
    /// A number.
    pub value: u32,
    /// A `struct sockaddr_tipc`, or the value of an option.
    pub field: [u8; address::LEN],
}

impl Request {
    /// Makes a request without address.
    pub fn new(op: Op, value: u32) -> Request {
        Request { op, flags: 0, value, field: [0; address::LEN] }
    }

    /// Returns the address. `None`: there is none; `Some(None)`: it is none that TIPC knows.
    pub fn place(&self) -> Option<Option<SockAddr>> {
        (self.flags & HAS_ADDRESS != 0).then(|| SockAddr::decode(&self.field))
    }

    /// Returns a number of the field.
    pub fn number(&self, at: usize) -> u32 {
        u32_at(&self.field, 4 * at).unwrap_or(0)
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        (bytes[4], bytes[5], bytes[6]) = (VERSION, self.op as u8, self.flags);
        bytes[8..12].copy_from_slice(&self.value.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.field);
        bytes
    }

    /// Reads a request; the data follow.
    ///
    /// # Errors
    /// The bytes are no request: the reason.
    pub fn decode(bytes: &[u8]) -> Result<(Request, &[u8]), &'static str> {
        let Some((head, data)) = bytes.split_first_chunk::<HEAD>() else {
            return Err("a request that is cut");
        };
        if head[..4] != MAGIC {
            return Err("no request");
        }
        if head[4] != VERSION {
            return Err("a request of another version");
        }
        let op = Op::of(head[5]).ok_or("an unknown request")?;
        let value = u32_at(head, 8).unwrap_or(0);
        let mut field = [0; address::LEN];
        field.copy_from_slice(&head[16..]);
        Ok((Request { op, flags: head[6], value, field }, data))
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0, or the number of an error as the C library has it.
    pub error: i32,
    /// A number.
    pub value: u32,
    /// An address, or a number of 16 bytes.
    pub field: [u8; address::LEN],
}

impl Answer {
    /// Returns the answer to a request that is done, with a value.
    pub fn done(value: u32) -> Answer {
        Answer { value, ..Answer::default() }
    }

    /// Returns the answer to a request that is not done, with the reason's number.
    pub fn error(error: i32) -> Answer {
        Answer { error, ..Answer::default() }
    }

    /// An address.
    pub fn place(place: SockAddr) -> Answer {
        Answer { field: place.encode(), ..Answer::default() }
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[8..12].copy_from_slice(&self.error.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.value.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.field);
        bytes
    }

    /// Reads it. `None`: it is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let mut field = [0; address::LEN];
        field.copy_from_slice(&bytes[16..]);
        Some(Answer { error: u32_at(bytes, 8)? as i32, value: u32_at(bytes, 12)?, field })
    }
}

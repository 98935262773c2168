//! The messages between a process and the agent of its host: one datagram of a Unix socket each.
//!
//! Little-endian: magic u32, version u8, kind u8, pad u16, token u64, then the fields. The token is
//! the process's number of a connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 4] = *b"wefs";
/// Version of these messages and of the shared memory.
pub const VERSION: u8 = 6;
/// Bytes before the fields.
const HEAD: usize = 16;
/// Longest message.
pub const MESSAGE_MAX: usize = HEAD + WHY_MAX;
/// Longest reason.
const WHY_MAX: usize = 200;

/// An address and a port. An IPv4 address is the mapped IPv6 address, as a socket for both sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    address: [u8; 16],
    port: u16,
}

impl Place {
    /// Bytes of an encoded place.
    const LEN: usize = 18;

    /// Makes a place of the bytes of an IPv6 or mapped IPv4 address.
    pub fn new(address: [u8; 16], port: u16) -> Place {
        Place { address, port }
    }

    /// Makes a place of an IPv4 address.
    pub fn v4(address: [u8; 4], port: u16) -> Place {
        let mut mapped = [0; 16];
        mapped[10..12].fill(0xff);
        mapped[12..].copy_from_slice(&address);
        Place { address: mapped, port }
    }

    /// Returns the bytes of the address.
    pub fn address(self) -> [u8; 16] {
        self.address
    }

    /// Returns the same address with another port.
    pub fn with_port(self, port: u16) -> Place {
        Place { port, ..self }
    }

    /// True if the address is one of the host's own that no network leads to.
    pub fn is_loopback(self) -> bool {
        IpAddr::V6(Ipv6Addr::from(self.address)).to_canonical().is_loopback()
    }

    /// Returns the port.
    pub fn port(self) -> u16 {
        self.port
    }

    fn encode(self, to: &mut [u8]) {
        to[..16].copy_from_slice(&self.address);
        to[16..Place::LEN].copy_from_slice(&self.port.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Place> {
        let (address, port) = bytes.split_first_chunk::<16>()?;
        Some(Place { address: *address, port: u16::from_le_bytes(port.try_into().ok()?) })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = IpAddr::V6(Ipv6Addr::from(self.address)).to_canonical();
        SocketAddr::new(address, self.port).fmt(f)
    }
}

/// The other end of a connection that shares memory: the agent keeps nothing of a connection, so
/// each end knows the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// The agent's number of its program.
    pub program: u64,
    /// Its program's number of the connection.
    pub token: u64,
    /// A number that both ends of the connection know, and nobody else.
    pub key: u64,
}

impl Other {
    /// Bytes of an encoded one.
    const LEN: usize = 24;

    fn encode(self, to: &mut [u8]) {
        for (to, number) in to.chunks_exact_mut(8).zip([self.program, self.token, self.key]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Option<Other> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let all = Other { program: number(0)?, token: number(8)?, key: number(16)? };
        (bytes.len() == Other::LEN).then_some(all)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Process: is there another end of the connection with these names?
    Ask {
        /// The process's number of the connection.
        token: u64,
        /// The socket's own name.
        local: Place,
        /// The name of its peer.
        remote: Place,
    },
    /// Process, with a descriptor: this is the socket.
    Here(u64),
    /// Process: the connection has ended, or is not to be upgraded.
    Cancel(u64),
    /// Process, with a descriptor: a UDP socket at the address of the socket, for the agent to look
    /// if the network leads from it to the other end. The socket follows by `Here`.
    Path(u64),
    /// Process, with a descriptor: the list of the connections of the process of this number.
    Board(u64),
    /// Command: which programs are there, after the one of this number?
    List(u64),
    /// Process, with a descriptor: a socket with one record, the bytes that wait in the ring of a
    /// connection, which a program without the library is to read. The process or the agent takes
    /// the record: that one has the bytes. The connection's socket follows by `Here`.
    Back {
        /// The process's number of the connection.
        token: u64,
        /// Bytes by TCP that are to be read before them.
        before: u64,
        /// The other end.
        other: Other,
    },
    /// Process, with a descriptor: the other end of the socket by which the agent says `Lend` and
    /// `Free`, for the process of this number.
    Bell(u64),
    /// Process, with a descriptor, by its bell: the socket. Nothing is sent by it until `Free`.
    Lent(u64),
    /// Process, by its bell: a call sends by the socket, which is lent once the call has ended.
    Soon(u64),
    /// Agent, by the bell: lend the socket, as its peer's bytes in the ring go back to TCP.
    Lend {
        /// The process's number of the connection.
        token: u64,
        /// The number that both ends of the connection know.
        key: u64,
    },
    /// Agent, by the bell: the socket may send again.
    Free(u64),
    /// Agent: the bytes of `Back` come by TCP.
    Given(u64),
    /// Agent: too many bytes of this user go back at this moment; ask again.
    Later(u64),
    /// Agent, with a descriptor: the list of a program, by the number of its process.
    Listed(u64),
    /// Agent: the number to ask for the next ones by; 0: there are no more.
    More(u64),
    /// Agent: the other end has asked; show the socket.
    Call(u64),
    /// Agent: the other end has asked, in another network namespace; show a path and the socket.
    Far(u64),
    /// Agent, with a descriptor: the memory shared with the other end.
    Pair {
        /// The process's number of the connection.
        token: u64,
        /// True if this end sends in the first direction.
        first: bool,
        /// The other end.
        other: Other,
    },
    /// Agent: there is none, for this reason.
    None {
        /// The process's number of the connection.
        token: u64,
        /// The reason.
        why: String,
    },
}

/// A message as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes as much of a text as there is room for; returns its length.
fn put_text(to: &mut [u8], text: &str) -> usize {
    let fits = |&end: &usize| text.is_char_boundary(end);
    let end = (0..=to.len().min(text.len())).rev().find(fits).unwrap_or(0);
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
    end
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    std::str::from_utf8(bytes).map(String::from).map_err(|_| "text")
}

impl Message {
    /// Returns the bytes; allocates nothing.
    pub fn encode(&self) -> Bytes {
        let mut bytes = [0; MESSAGE_MAX];
        let fields = &mut bytes[HEAD..];
        let (kind, token, len) = match self {
            Message::Ask { token, local, remote } => {
                local.encode(fields);
                remote.encode(&mut fields[Place::LEN..]);
                (1, *token, 2 * Place::LEN)
            }
            Message::Here(token) => (2, *token, 0),
            Message::Cancel(token) => (3, *token, 0),
            Message::Board(process) => (4, *process, 0),
            Message::List(after) => (5, *after, 0),
            Message::Back { token, before, other } => {
                fields[..8].copy_from_slice(&before.to_le_bytes());
                other.encode(&mut fields[8..8 + Other::LEN]);
                (6, *token, 8 + Other::LEN)
            }
            Message::Bell(process) => (7, *process, 0),
            Message::Lent(token) => (8, *token, 0),
            Message::Path(token) => (9, *token, 0),
            Message::Far(token) => (24, *token, 0),
            Message::Soon(token) => (10, *token, 0),
            Message::Lend { token, key } => {
                fields[..8].copy_from_slice(&key.to_le_bytes());
                (21, *token, 8)
            }
            Message::Later(token) => (25, *token, 0),
            Message::Free(token) => (22, *token, 0),
            Message::Given(token) => (23, *token, 0),
            Message::Listed(process) => (19, *process, 0),
            Message::More(after) => (20, *after, 0),
            Message::Call(token) => (16, *token, 0),
            Message::Pair { token, first, other } => {
                fields[0] = u8::from(*first);
                other.encode(&mut fields[1..1 + Other::LEN]);
                (17, *token, 1 + Other::LEN)
            }
            Message::None { token, why } => (18, *token, put_text(fields, why)),
        };
        bytes[..4].copy_from_slice(&MAGIC);
        (bytes[4], bytes[5]) = (VERSION, kind);
        bytes[8..HEAD].copy_from_slice(&token.to_le_bytes());
        Bytes { bytes, len: HEAD + len }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The wrong field.
    pub fn decode(bytes: &[u8]) -> Result<Message, &'static str> {
        let (head, fields) = bytes.split_first_chunk::<HEAD>().ok_or("length")?;
        if head[..4] != MAGIC {
            return Err("magic");
        }
        if head[4] != VERSION {
            return Err("version");
        }
        if head[6..8] != [0; 2] {
            return Err("pad");
        }
        let token = head[8..].try_into().map(u64::from_le_bytes).map_err(|_| "length")?;
        match (head[5], fields.len()) {
            (1, _) => {
                let (local, remote) = fields.split_at_checked(Place::LEN).ok_or("length")?;
                let place = |bytes| Place::decode(bytes).ok_or("length");
                Ok(Message::Ask { token, local: place(local)?, remote: place(remote)? })
            }
            (2, 0) => Ok(Message::Here(token)),
            (3, 0) => Ok(Message::Cancel(token)),
            (4, 0) => Ok(Message::Board(token)),
            (5, 0) => Ok(Message::List(token)),
            (6, _) => {
                let (before, other) = fields.split_first_chunk::<8>().ok_or("length")?;
                let other = Other::decode(other).ok_or("length")?;
                Ok(Message::Back { token, before: u64::from_le_bytes(*before), other })
            }
            (10, 0) => Ok(Message::Soon(token)),
            (7, 0) => Ok(Message::Bell(token)),
            (8, 0) => Ok(Message::Lent(token)),
            (9, 0) => Ok(Message::Path(token)),
            (24, 0) => Ok(Message::Far(token)),
            (21, _) => {
                let key = fields.try_into().map(u64::from_le_bytes).map_err(|_| "length")?;
                Ok(Message::Lend { token, key })
            }
            (25, 0) => Ok(Message::Later(token)),
            (22, 0) => Ok(Message::Free(token)),
            (23, 0) => Ok(Message::Given(token)),
            (19, 0) => Ok(Message::Listed(token)),
            (20, 0) => Ok(Message::More(token)),
            (16, 0) => Ok(Message::Call(token)),
            (17, _) => {
                let (first, other) = fields.split_first().ok_or("length")?;
                let other = Other::decode(other).ok_or("length")?;
                match first {
                    0 | 1 => Ok(Message::Pair { token, first: *first == 1, other }),
                    _ => Err("direction"),
                }
            }
            (18, ..=WHY_MAX) => Ok(Message::None { token, why: text(fields)? }),
            (2..=10 | 16..=25, _) => Err("length"),
            _ => Err("kind"),
        }
    }
}

/// Decodes bytes, for fuzzing: as a message and as a list of connections. No input may cause a
/// panic; an accepted message must have one encoding.
///
/// # Panics
/// One of these conditions does not hold.
pub fn check_message(bytes: &[u8]) {
    let _ = crate::board::read(bytes);
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(&*message.encode(), bytes, "two encodings: {message:?}");
    }
}

/// Returns the bytes of one message of each kind, for tests that damage them.
pub fn example_messages() -> Vec<Vec<u8>> {
    let (local, remote) = (Place::v4([127, 0, 0, 1], 80), Place::v4([127, 0, 0, 1], 50000));
    let other = Other { program: 8, token: 9, key: 10 };
    [
        Message::Ask { token: 7, local, remote },
        Message::Here(7),
        Message::Cancel(7),
        Message::Board(7),
        Message::List(7),
        Message::Back { token: 7, before: 8, other },
        Message::Bell(7),
        Message::Lent(7),
        Message::Path(7),
        Message::Far(7),
        Message::Soon(7),
        Message::Lend { token: 7, key: 8 },
        Message::Later(7),
        Message::Free(7),
        Message::Given(7),
        Message::Listed(7),
        Message::More(7),
        Message::Call(7),
        Message::Pair { token: 7, first: true, other },
        Message::None { token: 7, why: "the other end does not ask".into() },
    ]
    .iter()
    .map(|message| message.encode().to_vec())
    .collect()
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn decode__every_kind_and_no_part_of_it() {
        for bytes in example_messages() {
            let message = Message::decode(&bytes).unwrap();
            assert_eq!(message.encode().to_vec(), bytes);
            for end in 0..bytes.len() {
                // A reason may be shorter.
                assert!(bytes[5] == 18 && end >= 16 || Message::decode(&bytes[..end]).is_err());
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[at] ^= 1 << bit;
                    check_message(&other);
                }
            }
        }
    }

    #[test]
    fn place__mapped_addresses_are_those_of_ipv4() {
        let mapped = "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(Place::new(mapped, 7), Place::v4([10, 0, 0, 1], 7));
        assert_eq!(Place::new(mapped, 7).to_string(), "10.0.0.1:7");
    }

    #[test]
    fn encode__a_long_reason_is_cut_between_characters() {
        let why = "ä".repeat(WHY_MAX);
        let bytes = Message::None { token: 1, why }.encode();
        assert!(
            matches!(Message::decode(&bytes), Ok(Message::None { why, .. }) if why.len() == 200)
        );
    }
}

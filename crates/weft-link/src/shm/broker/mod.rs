//! Memory shared between ranks in different namespaces of one host, brokered by the host's agent.
//!
//! Abstract sockets belong to a network namespace, so a rank in another container cannot connect to
//! the listener of its peer. The agent's socket is a path, which a container can mount. Each rank
//! keeps a connection to it. To reach a peer, a rank makes a pair of connected sockets, puts its
//! offer with the segment into one end, and hands the other end to the agent. The agent checks who
//! both are, as the kernel tells it, and passes the end on. From then on the two talk over their
//! pair as over any connection of the link, and the agent has no part in it.
//!
//! The agent never sees the key of a job. Both sides prove it to each other, by the hello
//! (`Proof`), before either takes a packet of the other.

mod agent;
mod connection;
#[cfg(all(test, not(loom)))]
mod tests;

pub use agent::{Broker, BrokerLimits};
pub(in crate::shm) use connection::Said;
pub use connection::{AgentConnection, BrokerConfig, Standing};

use weft_core::EndpointId;

const MAGIC: [u8; 4] = *b"weft";
/// Version of these messages.
pub(super) const VERSION: u8 = 1;
/// Bytes before the fields: magic, version, kind, zeros.
const HEAD: usize = 8;
/// Longest reason of a refusal, in bytes.
const REASON_MAX: usize = 400;
/// Longest message, in bytes.
pub(super) const MESSAGE_MAX: usize = HEAD + REASON_MAX;

/// A message between a rank and its agent, one datagram each. Little-endian: magic u32, version u8,
/// kind u8, pad u16, and the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Rank: the public number of its job, and its endpoint.
    Register { job: u64, endpoint: EndpointId },
    /// Agent: the rank is registered. Fields: the agent's identity, the rank's user as the agent
    /// sees it.
    Registered { identity: u64, user: u32 },
    /// Rank, with a socket: pass this socket to the rank of that endpoint.
    Join(EndpointId),
    /// Agent, with a socket: the rank of this endpoint is at the other end.
    Joined(EndpointId),
    /// Agent: the rank is not, or no longer, registered; the reason.
    Refused(String),
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, fields): (u8, Vec<u8>) = match self {
            Message::Register { job, endpoint } => {
                (16, [job.to_le_bytes(), endpoint.0.to_le_bytes()].concat())
            }
            Message::Registered { identity, user } => {
                (17, [&identity.to_le_bytes()[..], &user.to_le_bytes(), &[0; 4]].concat())
            }
            Message::Join(endpoint) => (18, endpoint.0.to_le_bytes().to_vec()),
            Message::Joined(endpoint) => (19, endpoint.0.to_le_bytes().to_vec()),
            Message::Refused(why) => {
                let end = (0..=REASON_MAX.min(why.len())).rev().find(|&i| why.is_char_boundary(i));
                (20, why.as_bytes()[..end.unwrap_or(0)].to_vec())
            }
        };
        [&MAGIC[..], &[VERSION, kind, 0, 0], &fields].concat()
    }

    /// Decodes a message; the error names the wrong field.
    pub(super) fn decode(bytes: &[u8]) -> Result<Message, &'static str> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or("length")?;
        if head[..4] != MAGIC {
            return Err("magic");
        }
        if head[4] != VERSION {
            return Err("version");
        }
        if head[6..] != [0; 2] {
            return Err("pad");
        }
        if head[5] == 20 {
            let why = std::str::from_utf8(rest).map_err(|_| "text")?;
            let fits = why.len() <= REASON_MAX;
            return if fits { Ok(Message::Refused(why.into())) } else { Err("length") };
        }
        let (first, rest) = rest.split_first_chunk::<8>().ok_or("length")?;
        let first = u64::from_le_bytes(*first);
        let second = || rest.try_into().map(u64::from_le_bytes).map_err(|_| "length");
        match (head[5], rest.len()) {
            (16, _) => Ok(Message::Register { job: first, endpoint: EndpointId(second()?) }),
            (17, _) => match u32::try_from(second()?) {
                Ok(user) => Ok(Message::Registered { identity: first, user }),
                Err(_) => Err("pad"),
            },
            (18, 0) => Ok(Message::Join(EndpointId(first))),
            (19, 0) => Ok(Message::Joined(EndpointId(first))),
            (18 | 19, _) => Err("length"),
            _ => Err("kind"),
        }
    }
}

/// Decodes bytes as a message between a rank and its broker, for fuzzing. No input may cause a
/// panic; an accepted message must have one encoding.
///
/// # Panics
/// One of these conditions does not hold.
pub fn check_message(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes, "two encodings: {message:?}");
        assert!(bytes.len() <= MESSAGE_MAX);
    }
}

/// Returns the bytes of one message of each kind, for tests that damage them.
pub fn example_messages() -> Vec<Vec<u8>> {
    [
        Message::Register { job: 7, endpoint: EndpointId(1) },
        Message::Registered { identity: 9, user: 1000 },
        Message::Join(EndpointId(2)),
        Message::Joined(EndpointId(1)),
        Message::Refused("it is not here".into()),
    ]
    .iter()
    .map(Message::encode)
    .collect()
}

//! The messages between agents about bytes that go back to TCP: `PROTOCOL.md`, section Sockets
//! between hosts. Each is the content of one authenticated datagram of their session.

use super::super::message::{Fields, VERSION};

/// The lowest kind of these messages: the kinds below are those of [`super::super::message`].
const FIRST: u8 = 5;
/// Most bytes of a piece.
pub const PIECE: usize = 1024;
/// Longest message.
pub const MESSAGE_MAX: usize = 2 + 8 + 4 + 4 + PIECE;

/// A message about a job: one connection whose bytes go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// The giver's number of the job, which nobody else knows.
    pub job: u64,
    /// The content.
    pub what: BackContent,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackContent {
    /// Giver: have an end lend its socket, and say how much of its bytes is on its way.
    Lend {
        /// The lender's number of its end.
        of: u64,
    },
    /// Lender: the socket is lent; so many of its bytes are not acknowledged.
    Lent(u64),
    /// Giver: a piece of the bytes that are to be sent by that socket.
    Piece {
        /// Bytes before it.
        at: u32,
        /// All bytes.
        total: u32,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Lender: so many of these bytes have come.
    Have(u32),
    /// Lender: the socket is not lent.
    None,
    /// Giver: no bytes will come.
    Over {
        /// True if bytes were taken out of TCP, which would be missing.
        is_lost: bool,
    },
}

impl Back {
    /// True if bytes are a message of these kinds.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|kind| *kind >= FIRST)
    }

    /// Returns the bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION, 0];
        to.extend(self.job.to_le_bytes());
        to[1] = match &self.what {
            BackContent::Lend { of } => {
                to.extend(of.to_le_bytes());
                FIRST
            }
            BackContent::Lent(left) => {
                to.extend(left.to_le_bytes());
                6
            }
            BackContent::Piece { at, total, bytes } => {
                to.extend(at.to_le_bytes());
                to.extend(total.to_le_bytes());
                to.extend(bytes);
                7
            }
            BackContent::Have(bytes) => {
                to.extend(bytes.to_le_bytes());
                8
            }
            BackContent::None => 9,
            BackContent::Over { is_lost } => {
                to.push(u8::from(*is_lost));
                10
            }
        };
        to
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The wrong field.
    pub fn decode(bytes: &[u8]) -> Result<Back, &'static str> {
        let mut fields = Fields(bytes);
        let [version, kind] = fields.take()?;
        if version != VERSION {
            return Err("version");
        }
        let job = fields.number()?;
        let what = match kind {
            FIRST => BackContent::Lend { of: fields.number()? },
            6 => BackContent::Lent(fields.number()?),
            7 => {
                let (at, total) = (fields.small()?, fields.small()?);
                let bytes = std::mem::take(&mut fields.0).to_vec();
                if bytes.is_empty() || bytes.len() > PIECE {
                    return Err("length");
                }
                BackContent::Piece { at, total, bytes }
            }
            8 => BackContent::Have(fields.small()?),
            9 => BackContent::None,
            10 => match fields.take()? {
                [flags @ 0..2] => BackContent::Over { is_lost: flags == 1 },
                _ => return Err("flags"),
            },
            _ => return Err("kind"),
        };
        match fields.0 {
            [] => Ok(Back { job, what }),
            _ => Err("length"),
        }
    }
}

/// Returns one message of each kind.
pub(in crate::reach) fn examples() -> Vec<Back> {
    [
        BackContent::Lend { of: 7 },
        BackContent::Lent(9),
        BackContent::Piece { at: 4, total: 9, bytes: b"hello".to_vec() },
        BackContent::Have(9),
        BackContent::None,
        BackContent::Over { is_lost: true },
    ]
    .map(|what| Back { job: 3, what })
    .into()
}

//! Errors of ordered groups.

use std::fmt;

/// The reason why a member's part in an ordered group has ended, or why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderError {
    /// This member has left.
    Left,
    /// The other members go on without this one: they could not reach it.
    Excluded {
        /// The rank that told so.
        by: usize,
    },
    /// Members are out of reach, or have ended without a word, and are so many that others may go
    /// on, or have gone on, without this one.
    NoQuorum {
        /// The ranks that are out of reach or have ended.
        missing: Vec<usize>,
    },
    /// All ranks that this one asked to join are out of reach, or are no members any more.
    NobodyToJoin,
    /// A member and this rank were out of reach of each other for so long that they have given each
    /// other up: this process cannot become a member beside that one.
    Unreachable {
        /// The member.
        member: usize,
    },
    /// There is no counter for the places of messages: neither here nor at the agent.
    NoCounter,
    /// The multicast group of a view could not be made: its number is taken, or a member has no
    /// link.
    NoMulticast,
    /// The members do not agree any more: a fault of this library.
    Broken,
    /// Too many of this member's messages are on their way: wait for room.
    Busy,
    /// The message is longer than 256 MiB; at a rank that joins, the state that it begins with.
    TooLong,
    /// There is no view yet, or it is being changed: wait for it.
    NoView,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderError::Left => f.write_str("this rank has left the ordered group"),
            OrderError::Excluded { by } => write!(
                f,
                "the ordered group goes on without this rank, which was out of reach (rank {by} \
                 told so): it may join again"
            ),
            OrderError::NoQuorum { missing } => {
                let ranks: Vec<String> = missing.iter().map(usize::to_string).collect();
                write!(
                    f,
                    "the ordered group has ended here: ranks {} are out of reach or have ended, \
                     and may go on, or have gone on, without this one",
                    ranks.join(", ")
                )
            }
            OrderError::NobodyToJoin => {
                f.write_str(
                    "no rank can let this one into the ordered group: those that it asked are out \
                     of reach, have left, or were never members",
                )
            }
            OrderError::Unreachable { member } => write!(
                f,
                "this rank cannot become a member of the ordered group beside rank {member}: the \
                 two have given each other up after a silence; start this process anew, or join \
                 once rank {member} has left"
            ),
            OrderError::NoCounter => f.write_str(
                "no counter for the places of messages: too many keys are in use, or the agent has \
                 no word left",
            ),
            OrderError::NoMulticast => f.write_str(
                "the multicast group of the ordered group could not be made: its number is taken, \
                 or no link leads to a member",
            ),
            OrderError::Broken => f.write_str("the members of the ordered group do not agree"),
            OrderError::Busy => {
                f.write_str("too many messages of this rank are on their way: wait for room")
            }
            OrderError::TooLong => {
                f.write_str("the message, or the state for a new member, is longer than 256 MiB")
            },
            OrderError::NoView => f.write_str("the ordered group has no view now: wait for one"),
        }
    }
}

impl std::error::Error for OrderError {}

//! Errors of operations on objects.

use crate::net::InUpcall;
use crate::order::OrderError;
use crate::rpc::CallError;
use std::fmt;

/// An operation that has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    /// Number of the object.
    pub object: u64,
    /// The type of its state.
    pub class: &'static str,
    /// The cause.
    pub cause: ObjectCause,
}

/// The reason why an operation has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectCause {
    /// This rank's part in the group of all ranks has ended.
    Group(OrderError),
    /// The object was at this rank, which has failed.
    Lost {
        /// The rank.
        rank: usize,
    },
    /// The call to the rank that has the object failed; the operation may have been done.
    Call(CallError),
    /// There is no such object: it has been deleted, or never was; or it is of another class.
    NoObject,
    /// An operation has panicked, with this text: the object is broken on all ranks.
    Broken(String),
    /// The operation has panicked as a read, with this text: the object is as before.
    Panicked(String),
    /// The operation, the state or the result cannot be sent or read.
    Unreadable(String),
    /// The operation, or the state of a new object, is too long for a message.
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Ranks have different versions of the class.
    Version {
        /// The version here.
        here: u32,
        /// The version at the rank that made the object.
        there: u32,
        /// The rank that made it.
        rank: usize,
    },
    /// The call waits, and was made inside an upcall, a service or an operation.
    Inside(InUpcall),
    /// This rank has registered the class too late: so many messages about its objects had come
    /// before that they were dropped.
    Late {
        /// Number of the class.
        class: u32,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {:#x} ({}): ", self.object, self.class)?;
        match &self.cause {
            ObjectCause::Group(error) => error.fmt(f),
            ObjectCause::Lost { rank } => {
                write!(
                    f,
                    "it was at rank {rank}, which has failed: objects that have to survive \
                           the failure of a rank are replicated"
                )
            }
            ObjectCause::Call(error) => error.fmt(f),
            ObjectCause::NoObject => {
                f.write_str("there is no such object of this class: deleted, or never made")
            }
            ObjectCause::Broken(text) => {
                write!(
                    f,
                    "an operation has panicked on all ranks, and the object is of no use any \
                           more: {text}"
                )
            }
            ObjectCause::Panicked(text) => write!(f, "the read has panicked: {text}"),
            ObjectCause::Unreadable(why) => write!(f, "bytes of another type: {why}"),
            ObjectCause::TooLong { len } => {
                let most = super::BYTES_MAX;
                write!(f, "an operation or a new state of {len} bytes, and {most} are the most")
            }
            ObjectCause::Version { here, there, rank } => {
                write!(f, "rank {rank} has version {there} of the class, and this rank {here}")
            }
            ObjectCause::Inside(why) => why.fmt(f),
            ObjectCause::Late { class } => write!(
                f,
                "this rank has registered class {class} too late, after 16 MiB of messages about \
                 its objects"
            ),
        }
    }
}

impl std::error::Error for ObjectError {}

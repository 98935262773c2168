//! Collective operations of a group of endpoints (`fi_collective(3)`), without the endpoints: the
//! tree of the members, and the bytes that each takes from those below and gives to them.
//!
//! The members form a binomial tree over their order in the address set. Their bytes go up to the
//! first member, and the results come down from it: every member waits for all others. Values are
//! combined in the order of the members, so that each run has the same bits.

mod message;
mod operation;
mod tree;

pub use message::{hostile, Message, Step, PART};
pub use operation::{Differs, Operation, Work};
pub use tree::Place;

/// Longest bytes of all members' blocks of an operation.
pub const LONGEST: usize = 256 << 20;

/// A collective operation (`enum fi_collective_op`): those that libfabric's own software offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Barrier,
    Broadcast,
    AllReduce,
    AllGather,
    Scatter,
}

impl Kind {
    /// Returns the operation with libfabric's `number`; `None` if it is not offered.
    pub fn from_number(number: i64) -> Option<Kind> {
        match number {
            0 => Some(Kind::Barrier),
            1 => Some(Kind::Broadcast),
            3 => Some(Kind::AllReduce),
            4 => Some(Kind::AllGather),
            7 => Some(Kind::Scatter),
            _ => None,
        }
    }

    /// Returns true if one member's bytes are for others.
    pub fn has_root(self) -> bool {
        matches!(self, Kind::Broadcast | Kind::Scatter)
    }
}

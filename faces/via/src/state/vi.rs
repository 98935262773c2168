//! Virtual interfaces.

use super::queue::{Direction, WorkQueue};
use crate::address::NetAddress;
use crate::code::{level, Answer, Code, Phase};
use crate::table::Key;
use crate::wire::Offer;
use std::time::Instant;
use weft::PeerId;

/// Attributes of a virtual interface: `VIP_VI_ATTRIBUTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViAttributes {
    /// Level of reliability.
    pub level: u16,
    /// Maximum transfer size.
    pub max: u64,
    /// Its protection tag; none where the interface has no tags.
    pub tag: Option<Key>,
    /// True if the other side may write to memory here.
    pub write: bool,
    /// True if the other side may read memory here.
    pub read: bool,
}

/// A connection, or one that is being made.
#[derive(Debug)]
pub struct Connection {
    /// Its number here.
    pub own: Key,
    /// The other side's endpoint, once it is known.
    pub peer: Option<PeerId>,
    /// The other side, once it is known.
    pub offer: Option<Offer>,
    /// True if the peer's silence is noticed.
    pub watched: bool,
}

/// A request for a connection that has not ended, or whose end the program has not heard of.
#[derive(Debug, Default)]
pub enum Request {
    /// None.
    #[default]
    None,
    /// The program waits for the answer, in `VipConnectRequest` or `VipConnectAccept`.
    Waits(Option<Answer>),
    /// Both sides request.
    Peers {
        /// The address here.
        local: NetAddress,
        /// The other side's.
        remote: NetAddress,
        /// The end of its time.
        until: Option<Instant>,
        /// The result.
        answer: Option<Answer>,
    },
}

/// A virtual interface.
#[derive(Debug)]
pub struct Vi {
    /// Its attributes.
    pub attributes: ViAttributes,
    /// Its state.
    pub phase: Phase,
    /// The send queue.
    pub send: WorkQueue,
    /// The receive queue.
    pub recv: WorkQueue,
    /// Its connection.
    pub connection: Option<Connection>,
    /// Its request for a connection.
    pub request: Request,
    /// Reads of the other side's memory that have not ended.
    pub reads: u32,
}

impl Vi {
    /// Makes an idle one; `queues` are the completion queues of sends and receives.
    pub fn new(attributes: ViAttributes, queues: [Option<Key>; 2]) -> Vi {
        Vi {
            attributes,
            phase: Phase::Idle,
            send: WorkQueue::new(queues[0]),
            recv: WorkQueue::new(queues[1]),
            connection: None,
            request: Request::None,
            reads: 0,
        }
    }

    /// Returns one of the queues.
    pub fn queue(&mut self, direction: Direction) -> &mut WorkQueue {
        match direction {
            Direction::Send => &mut self.send,
            Direction::Recv => &mut self.recv,
        }
    }

    /// True if it is connected or about to be.
    pub fn is_linked(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Pending)
    }

    /// True if errors end its connection.
    pub fn is_reliable(&self) -> bool {
        self.attributes.level != level::UNRELIABLE
    }

    /// True if a send ends when the message is in the other side's memory.
    pub fn waits_for_receipts(&self) -> bool {
        self.attributes.level == level::RECEPTION
    }

    /// Returns peer and offer of a connection that is there.
    pub fn other_side(&self) -> Option<(PeerId, Offer)> {
        let connection = self.connection.as_ref()?;
        Some((connection.peer?, connection.offer?))
    }
}

/// Checks the level of reliability of a virtual interface.
///
/// # Errors
/// `VIP_INVALID_RELIABILITY_LEVEL`: it is not one level.
pub fn check_level(of: u16) -> Answer<u16> {
    match of.is_power_of_two() && of & !level::ALL == 0 {
        true => Ok(of),
        false => Err(Code::InvalidReliabilityLevel),
    }
}

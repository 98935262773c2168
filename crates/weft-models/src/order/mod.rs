//! Totally ordered groups: all members get the same messages in the same order.
//!
//! Each message has a place in the order. By default the sender fetches it from a counter
//! (fetch-and-add at a rank, its agent or its kernel) and then multicasts, as in paper 004. A
//! sequencer may give the place instead, before the multicast or after it ([`Style`]).
//!
//! Members may join, leave and fail. Each such change is a new *view*, which comes at the same
//! place of the order at all members that go on. A member that fails with the place of a message in
//! its hands stalls nobody: the others agree that the view ends there, and send again in the next
//! one what they had behind it. All survivors deliver the same messages.
//!
//! ```no_run
//! use weft_models::net::{Blocking, Live, Net};
//! use weft_models::order::{Options, OrderedGroup};
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let all: Vec<usize> = (0..net.size()).collect();
//! let group = OrderedGroup::open(&net, 0, &all, Options::default());
//! let sent = group.send(format!("hello from rank {}", net.rank()));
//! // Every rank prints the same lines in the same order.
//! for _ in 0..net.size() {
//!     let message = net.block_on(group.recv())?;
//!     println!("{} {}", message.place, String::from_utf8_lossy(&message.bytes));
//! }
//! println!("mine had place {}", net.block_on(sent)?);
//! job.world().barrier_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod core;
mod driver;
mod error;
mod grave;
mod pack;
mod penalty;
mod places;
mod sent;
mod wire;

pub use driver::OrderedGroup;
pub use error::OrderError;
pub use sent::Sent;

/// The way in which messages get their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// The sender fetches the place from a counter, then multicasts. No process has to place
    /// messages, if the counter is at an agent or in a kernel.
    #[default]
    Ticket,
    /// The sender hands the message to the member with the lowest rank, which places and
    /// multicasts it: the least work for others, if messages are short.
    Sequencer,
    /// The sender multicasts the message, and the member with the lowest rank multicasts its
    /// place: long messages go over the network once.
    Broadcast,
}

/// Options of an ordered group, the same at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The way in which messages get their places.
    pub style: Style,
    /// Packets that may be on their way beyond those that all members have delivered, from 4 up.
    /// Members keep so many, for the case that one fails.
    pub window: u32,
    /// If true, a member delivers a message of its own only when a quorum of the view has it, so
    /// that the message is in the order of all that go on, also if this member is cut off or
    /// stopped just then. This takes the time of an answer of another member. If false, a member
    /// that the others have given up may deliver a few messages of its own that nobody else gets,
    /// before it learns of its exclusion.
    pub safe: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { style: Style::Ticket, window: 1024, safe: true }
    }
}

impl Options {
    /// The defaults but for `safe`: members deliver their messages at once, as in paper 004.
    pub fn at_once() -> Options {
        Options { safe: false, ..Options::default() }
    }
}

/// A message of an ordered group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The rank that sent it.
    pub from: usize,
    /// Its place among all messages of the group, from 0 and without a gap.
    pub place: u64,
    /// The message.
    pub bytes: Vec<u8>,
}

/// The members of an ordered group from some place of its order on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Number of the view, from 1.
    pub number: u32,
    /// Ranks of the members, ascending.
    pub members: Vec<usize>,
    /// Members that were not in the view before.
    pub joined: Vec<usize>,
    /// Members of the view before that have left in good order. Others that are missing have
    /// failed.
    pub left: Vec<usize>,
}

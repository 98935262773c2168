//! Multicast by the kernels of its members: the XDP program of each member keeps a packet for its
//! process and forwards it to the next member of a chain. The program of the last member
//! acknowledges it to the root. The processes may do other work in the meantime.
//!
//! Reliable and in order: the root numbers packets, keeps them until all members have them, and
//! retransmits from a lost packet on (go-back-N). A member keeps 64 packets; if its process takes
//! none, the root waits and can name the member. Frames are authenticated: the programs check a
//! keyed hash of each header, the processes check one of the payload. A packet that was altered on
//! its path ends the chain, with an error, at the member that detects it.
//!
//! At each member one frame arrives and one leaves, and the root receives one answer for each
//! packet, for any number of members. Each member adds the latency of one kernel and one wire. The
//! topology is a chain because a program has one verdict for a frame: copies made by a map of
//! devices share their bytes in generic mode, so they cannot have different addresses.
//!
//! - `program.rs`: the program; `node.rs`: the memory that it shares with the process.
//! - `frame.rs`: the frames.
//! - `member.rs`, `root.rs`: the two ends; `sender.rs`: a root without its socket; `window.rs`: its
//!   retransmission.

mod frame;
mod member;
mod node;
mod program;
mod root;
mod sender;
#[cfg(test)]
mod tests;
mod window;

pub use crate::sip::SipKey;
pub use member::ChainMember;
pub use node::Place;
pub use root::{Answers, ChainRoot};
pub use sender::{check_answers, example_answer};

use crate::sys::{Bells, SharedArray};
use node::{GROUPS, RING, SLOT_WORDS, WORDS};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;
use weft_link::ether::{EtherType, Interface, Mac};
use weft_link::xdp::bpf;
use weft_link::xdp::{attach, XdpMode};

/// The slot of frames of chains.
pub const SLOT: u16 = u16::MAX - 1;
/// Length of the shortest Ethernet frame, without checksum: no answer is longer.
const FRAME: usize = 60;
/// Name of program and maps.
const NAME: &str = "weft_chain";

/// The reason why no packet was sent or received.
#[derive(Debug)]
pub enum ChainError {
    /// No progress.
    Stuck {
        /// Time without progress.
        timeout: Duration,
        /// The member that has no room, if one reported so, counted from 1.
        slow: Option<u16>,
        /// The members that do not answer.
        silent: Vec<u16>,
    },
    /// No packet arrived within this time.
    Nothing(Duration),
    /// The packet of this number differs from the one that the root sent.
    Altered(u64),
    /// A packet of this length exceeds the limit (length, limit).
    TooLong(usize, usize),
    /// A packet without bytes.
    Empty,
    /// The group is in use on this interface, or its number is beyond 63.
    Group(u16),
    /// An error of the kernel.
    System(io::Error),
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainError::Stuck { timeout, slow, silent } => {
                write!(f, "the chain has not moved for {timeout:?}: ")?;
                match (slow, &silent[..]) {
                    (_, [first, ..]) => write!(f, "no answer from the kernel of member {first}")?,
                    (Some(slow), _) => write!(f, "member {slow} takes nothing")?,
                    _ => write!(f, "all members answer, but frames between them are lost")?,
                }
                if silent.len() > 1 {
                    write!(f, " and {} others", silent.len() - 1)?;
                }
                Ok(())
            }
            ChainError::Nothing(timeout) => write!(f, "no packet within {timeout:?}"),
            ChainError::Altered(number) => {
                write!(f, "packet {number} is not what the root sent: it was altered on its way")
            }
            ChainError::TooLong(len, most) => {
                write!(f, "a packet of {len} bytes; the longest on this interface is {most}")
            }
            ChainError::Empty => f.write_str("a packet needs at least one byte"),
            ChainError::Group(group) => write!(
                f,
                "group {group} cannot be joined: it is in use on this interface, or not below \
                 {GROUPS}"
            ),
            ChainError::System(e) => write!(f, "kernel chain: {e}"),
        }
    }
}

impl std::error::Error for ChainError {}

impl From<io::Error> for ChainError {
    fn from(e: io::Error) -> ChainError {
        ChainError::System(e)
    }
}

/// The program on an interface, and its data for the members. The program is detached when this is
/// dropped or the process ends.
#[derive(Debug)]
pub struct KernelChains {
    _link: Option<OwnedFd>,
    nodes: SharedArray,
    slots: SharedArray,
    bells: Bells,
    /// The mode of the program.
    pub mode: XdpMode,
}

impl KernelChains {
    /// Attaches the program to an interface. Needs `CAP_NET_ADMIN` and `CAP_BPF`. The program
    /// passes on frames for AF_XDP sockets, so an interface serves either chains or the xdp link;
    /// packet sockets are not disturbed.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if another program is attached.
    pub fn serve(interface: &Interface, kind: EtherType) -> io::Result<KernelChains> {
        let (mut chains, program) = KernelChains::load(kind, interface.mac)?;
        let (link, mode) = attach::alone(&program, interface)?;
        (chains._link, chains.mode) = (Some(link), mode);
        Ok(chains)
    }

    /// Loads the program for an interface with this address, without attaching it.
    fn load(kind: EtherType, mac: Mac) -> io::Result<(KernelChains, OwnedFd)> {
        let nodes = SharedArray::new(GROUPS, WORDS, NAME)?;
        let slots = SharedArray::new(GROUPS * RING as u32, SLOT_WORDS, NAME)?;
        let bells = Bells::new(GROUPS, NAME)?;
        let code = program::assemble((&nodes, &slots, &bells), (kind, mac));
        let program = bpf::load(&code, NAME, false)?;
        let mode = XdpMode::Generic;
        Ok((KernelChains { _link: None, nodes, slots, bells, mode }, program))
    }

    /// Joins a group. Its root and members agree on number (below 64), key and order before. Each
    /// chain needs a new key: under an old key, packets of an older chain would be accepted.
    ///
    /// # Errors
    /// [`ChainError::Group`].
    pub fn join(
        &self,
        group: u16,
        key: SipKey,
        place: Place,
    ) -> Result<ChainMember<'_>, ChainError> {
        ChainMember::new(self, group, key, place)
    }

    /// Reserves a group of the interface.
    fn enter(&self, group: u16, key: &SipKey, place: Option<Place>) -> Result<u32, ChainError> {
        let number = u32::from(group);
        let misplaced = place.is_some_and(|place| place.position == 0);
        if number >= GROUPS || misplaced || self.nodes.word(number, node::PLACE).load(Acquire) != 0
        {
            return Err(ChainError::Group(group));
        }
        node::enter(&self.nodes, number, key, place);
        Ok(number)
    }
}

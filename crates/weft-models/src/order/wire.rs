//! Messages between the members of an ordered group.
//!
//! Casts go to all members: a fixed head, then bytes. Controls go to one member: a type of serde.

use serde::{Deserialize, Serialize};

/// The identity of a view. Views follow each other by epoch; the stamp names the attempt, and its
/// author, by which the view came to be.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(crate) struct ViewId {
    pub epoch: u32,
    /// Round of the attempt, and in the low 16 bits the rank of its author.
    pub stamp: u32,
}

/// Returns the stamp of an attempt.
pub(super) fn stamp(round: u32, author: u32) -> u32 {
    round.min(0xffff) << 16 | author & 0xffff
}

/// Kinds of casts: arguments of multicast packets.
pub(super) mod cast {
    /// Place (8 bytes), sender (4), the sender's number (8), data.
    pub const SLOT: u8 = 1;
    /// The sender's number (8 bytes), data: without a place so far.
    pub const DATA: u8 = 2;
    /// First place (8 bytes), then sender (4) and number (8) for each place.
    pub const ACCEPT: u8 = 3;
    /// The place below which all members have delivered all (8 bytes).
    pub const STABLE: u8 = 4;
    /// Number of packets of this message that follow (4 bytes, the highest bit for the first one),
    /// data: without order.
    pub const LOOSE: u8 = 5;
    /// Marks the first packet of a message without order.
    pub const FIRST: u32 = 1 << 31;
}

/// Bytes of the view before each cast.
pub(super) const VIEW: usize = 8;
/// Most bytes before the data of a cast.
pub(super) const HEAD: usize = VIEW + 8 + 4 + 8;

pub(super) fn put_view(view: ViewId, to: &mut Vec<u8>) {
    to.extend_from_slice(&view.epoch.to_le_bytes());
    to.extend_from_slice(&view.stamp.to_le_bytes());
}

/// Reads numbers from the front of bytes.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    pub fn view(&mut self) -> Option<ViewId> {
        Some(ViewId { epoch: self.u32()?, stamp: self.u32()? })
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}

/// The content of a place in the order: a packet of one sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    pub sender: u32,
    /// The sender's number of it, from 0.
    pub number: u64,
    pub data: Vec<u8>,
}

/// The decision on a view, for members that do not know it yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Install {
    pub old: ViewId,
    pub new: ViewId,
    pub members: Vec<u32>,
    /// Members that begin anew, also if they were in the old view, with the numbers of their lives;
    /// the author sends them the state.
    pub joined: Vec<(u32, u64)>,
    /// Members of the old view that leave in good order.
    pub left: Vec<u32>,
    /// The first place of the new view.
    pub base: u64,
    /// The place below which all members of the old view had delivered all.
    pub stable: u64,
    /// Rank and key of the counter of places, if places are fetched.
    pub counter: Option<(u32, u64)>,
}

/// A place and its content.
pub(super) type Placed = (u64, Slot);

/// A view that a member has accepted, by the attempt of this stamp. It enters the view once it
/// knows that a quorum has accepted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub stamp: u32,
    pub install: Install,
}

/// The state of a member in its view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    /// The member has delivered all slots below.
    pub next: u64,
    /// The slots that the receiver may lack.
    pub slots: Vec<Placed>,
    /// Key of a counter that could serve the next view.
    pub spare: Option<u64>,
    pub accepted: Option<Accepted>,
}

/// The end of a life of a rank (see [`Control::Join`]) in a view: it takes part in no attempt any
/// more. Its last state is there if it was short enough; then the member has resigned, and no
/// quorum needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gone {
    pub life: u64,
    pub view: ViewId,
    /// The member has taken part in attempts up to this stamp.
    pub promised: u32,
    pub standing: Option<Standing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// A slot for the sequencer to place.
    Submit { view: ViewId, number: u64, data: Vec<u8> },
    /// The sender has delivered all places below this one.
    Ack { view: ViewId, next: u64 },
    /// A rank has failed.
    Suspect { rank: u32, certain: bool },
    /// The sender's part has ended.
    Gone(Gone),
    /// A rank wants to become a member. Each handle by which it joins is a life of the rank, with a
    /// number above those before. A handle that has opened the group has number 0.
    Join { rank: u32, life: u64 },
    /// A rank, which is a member of the view of this number, wants to be a member no more.
    Leave { rank: u32, epoch: u32 },
    /// The author of an attempt asks for the receiver's state, which takes part in no other
    /// attempt of a lesser stamp from then on. The author has delivered what is below `next`,
    /// and has the places of `held`. The ranks of `joiners` want to join.
    Flush { view: ViewId, stamp: u32, next: u64, held: Vec<u64>, joiners: Vec<u32> },
    /// The answer, with all slots that the author lacks, and the joiners whom the sender has given
    /// up.
    State { view: ViewId, stamp: u32, standing: Standing, unreachable: Vec<u32> },
    /// The receiver takes part in an attempt with this stamp.
    Nack { view: ViewId, promised: u32 },
    /// The sender is in an earlier view than the one that the receiver has named, whose number is
    /// `asked`, and has delivered what is below `next`. A life that has entered no view will enter
    /// none up to that one.
    Lag { view: ViewId, next: u64, life: u64, asked: u32 },
    /// The view that the author of an attempt proposes, with the places up to its base that the
    /// receiver has not delivered.
    Propose { accepted: Accepted, slots: Vec<Placed> },
    /// The sender has accepted the view, by the attempt of this stamp.
    Accept { new: ViewId, stamp: u32 },
    /// A quorum has accepted the view, which the receiver has too.
    Enter { new: ViewId },
    /// The view after that of the receiver, which a quorum has accepted, and places as above.
    Install { install: Install, slots: Vec<Placed> },
    /// The first view of a new member: number of messages delivered so far, and the state.
    Welcome { install: Install, delivered: u64, snapshot: Vec<u8> },
    /// The sender is no member, or none any more: it can let nobody in.
    Over,
    /// A rank that wants to join cannot: it and the member `of` have given each other up.
    Unreachable { rank: u32, of: u32 },
    /// The receiver is no member any more.
    Excluded { view: ViewId },
    /// The sender has all slots below this place. Members of a safe group tell it to those whose
    /// slots they get.
    Held { view: ViewId, have: u64 },
    /// Asks for the state of a wait for a place.
    Query { view: ViewId, place: u64 },
    /// The answer: the sender has delivered what is below `next`; it has the content of the place
    /// and has not got it through.
    Answer { view: ViewId, place: u64, next: u64, holds: bool },
    /// The state for the receiver, a new member, is too long for a message.
    TooLong,
}

impl Install {
    /// Returns the life of a rank that has joined with this view.
    pub fn life_of(&self, rank: u32) -> Option<u64> {
        self.joined.iter().find(|(joined, _)| *joined == rank).map(|&(_, life)| life)
    }

    fn names_below(&self, ranks: u32) -> bool {
        self.members.len() <= ranks as usize && self.members.iter().all(|&rank| rank < ranks)
    }
}

impl Control {
    /// Reads a control whose ranks are below a number.
    ///
    /// # Errors
    /// The bytes are nonsense: the cause, in words.
    pub fn read(bytes: &[u8], ranks: usize) -> Result<Control, String> {
        let control: Control = postcard::from_bytes(bytes).map_err(|why| why.to_string())?;
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        let is_known = match &control {
            Control::Suspect { rank, .. }
            | Control::Join { rank, .. }
            | Control::Leave { rank, .. } => *rank < ranks,
            Control::Unreachable { rank, of } => *rank.max(of) < ranks,
            Control::Propose { accepted: Accepted { install, .. }, .. }
            | Control::Install { install, .. }
            | Control::Welcome { install, .. } => install.names_below(ranks),
            Control::Gone(Gone { standing: Some(standing), .. })
            | Control::State { standing, .. } => {
                standing.accepted.iter().all(|accepted| accepted.install.names_below(ranks))
            }
            _ => true,
        };
        is_known.then_some(control).ok_or_else(|| "it names a rank that does not exist".into())
    }

    /// Returns the view without which the control means nothing; `None` for controls of changes.
    pub fn view(&self) -> Option<ViewId> {
        match self {
            Control::Submit { view, .. }
            | Control::Ack { view, .. }
            | Control::Held { view, .. } => Some(*view),
            _ => None,
        }
    }

    /// True for a part of a change which only a member that has a state may take. A rank that wants
    /// to join has none: its view is that before the first, and could be taken for it.
    pub fn is_of_change(&self) -> bool {
        match self {
            Control::Flush { view, .. } => view.epoch == 0,
            Control::Nack { .. } | Control::Propose { .. } | Control::Install { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn stamp__later_rounds_are_greater_for_any_author() {
        assert!(stamp(1, 9) < stamp(2, 0));
        assert!(stamp(1, 0) < stamp(1, 1));
        assert!(ViewId { epoch: 1, stamp: u32::MAX } < ViewId { epoch: 2, stamp: 0 });
    }

    #[test]
    fn Control__of_a_rank_that_does_not_exist_is_nonsense() {
        let join = |rank| postcard::to_allocvec(&Control::Join { rank, life: 1 }).unwrap();
        assert_eq!(Control::read(&join(2), 3), Ok(Control::Join { rank: 2, life: 1 }));
        assert!(Control::read(&join(3), 3).is_err() && Control::read(&[0xff], 3).is_err());
        let install = |members: &[u32]| {
            let (view, none) = (ViewId::default(), Vec::new());
            let (members, joined) = (members.to_vec(), Vec::new());
            let (old, new, left, counter) = (view, view, none, None);
            let install = Install { old, new, members, joined, left, base: 0, stable: 0, counter };
            postcard::to_allocvec(&Control::Install { install, slots: Vec::new() }).unwrap()
        };
        assert!(Control::read(&install(&[0, 2]), 3).is_ok());
        assert!(Control::read(&install(&[0, 3]), 3).is_err());
        assert!(Control::read(&install(&[0, 1, 2, 2]), 3).is_err());
    }

    #[test]
    fn Reader__stops_at_the_end() {
        let mut reader = Reader(&[1, 0, 0, 0, 2]);
        assert_eq!((reader.u32(), reader.u32(), reader.bytes(2)), (Some(1), None, None));
        assert_eq!(reader.bytes(1), Some(&[2][..]));
    }
}

//! Messages between the ranks of an actor system.

use super::loads::Reported;
use super::Index;
use serde::{Deserialize, Serialize};

/// Kinds of messages of the channel.
pub(super) mod kind {
    /// A message for an object: [`Head`](super::Head), then its bytes.
    pub const MESSAGE: u8 = 1;
    /// The number of the run (1 byte), then a [`Note`](super::Note).
    pub const NOTE: u8 = 2;
    /// A [`Found`](super::Found). It belongs to no run.
    pub const FOUND: u8 = 3;
    /// A [`Broken`](super::Broken).
    pub const BROKEN: u8 = 4;
}

/// Bytes before those of a message for an object.
pub(super) const HEAD: usize = 7;

/// The receiver of a message, and the run to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub run: u8,
    pub array: u16,
    pub element: u32,
}

impl Head {
    pub fn to_bytes(self) -> [u8; HEAD] {
        let ([a, b], [c, d, e, f]) = (self.array.to_le_bytes(), self.element.to_le_bytes());
        [self.run, a, b, c, d, e, f]
    }

    pub fn split(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let ([run, a, b, c, d, e, f], rest) = bytes.split_first_chunk::<HEAD>()?;
        let (array, element) = (u16::from_le_bytes([*a, *b]), u32::from_le_bytes([*c, *d, *e, *f]));
        Some((Head { run: *run, array, element }, rest))
    }
}

/// Content of a message to objects: of a message of the program, or of a reduction's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    Message,
    /// The result for the section of this number.
    Reduced(u16),
}

/// An object on its way: its number, what goes with it, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Packed {
    pub array: u16,
    pub element: u32,
    /// Moves of the object, this one included.
    pub moves: u32,
    /// Broadcasts that it has had, or will have otherwise.
    pub heard: u32,
    /// Reductions of the array, and of sections, to which it has contributed.
    pub rounds: u32,
    pub sections: Vec<(u16, u32)>,
    pub state: Vec<u8>,
}

/// The less frequent messages of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Note<'a> {
    /// A message of a priority, or one that comes by another rank than `origin`.
    Message {
        array: u16,
        element: u32,
        priority: i32,
        origin: Option<u32>,
        content: Content,
        bytes: &'a [u8],
    },
    /// A broadcast on its way to rank 0, which numbers it.
    Broadcast { array: u16, section: u16, priority: i32, bytes: &'a [u8] },
    /// A broadcast on its way to all.
    Cast {
        array: u16,
        number: u32,
        section: u16,
        priority: i32,
        content: Content,
        #[serde(borrow)]
        bytes: &'a [u8],
    },
    /// Contributions of so many objects to a reduction.
    Partial { array: u16, section: u16, round: u32, count: u32, value: &'a [u8] },
    /// An object comes.
    Move(Packed),
    /// An object has come; its new rank had passed on so many broadcasts.
    Moved { array: u16, element: u32, moves: u32, heard: u32 },
    /// The loads of a rank's objects, for rank 0.
    Loads(Vec<Reported>),
    /// The new ranks of objects: array, object, rank, moves; and the imbalance before and after.
    Plan(Vec<(u16, u32, u32, u32)>, f64, f64),
    /// Objects for a checkpoint, for rank 0, or from it for their new ranks.
    Saved(Vec<(u16, u32, Vec<u8>)>),
    /// The end of writing or reading a checkpoint: the text of an error, if there is one.
    Checkpoint(Option<String>),
}

/// The rank of an object, and its moves so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    pub array: u16,
    pub element: u32,
    pub rank: u32,
    pub moves: u32,
}

/// The end of a run by an object's fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Broken {
    pub rank: u32,
    pub object: Option<(String, Index)>,
    pub panicked: bool,
    pub text: String,
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Head__comes_back_before_the_bytes() {
        let head = Head { run: 200, array: 0x1234, element: 0xfedc_ba98 };
        let bytes = [&head.to_bytes()[..], b"rest"].concat();
        assert_eq!(Head::split(&bytes), Some((head, &b"rest"[..])));
        assert_eq!(Head::split(&bytes[..HEAD - 1]), None);
    }

    #[test]
    fn Note__of_each_kind_comes_back_and_a_part_of_one_is_refused() {
        let bytes = &b"abc"[..];
        let packed = Packed { element: 7, state: vec![1, 2], ..Packed::default() };
        let content = Content::Reduced(3);
        let notes = [
            Note::Message { array: 1, element: 2, priority: -3, origin: Some(4), content, bytes },
            Note::Broadcast { array: 1, section: 0, priority: 9, bytes },
            Note::Cast { array: 1, number: 2, section: 3, priority: 0, content, bytes },
            Note::Partial { array: 1, section: 2, round: 3, count: 4, value: bytes },
            Note::Move(packed),
            Note::Moved { array: 1, element: 2, moves: 3, heard: 4 },
            Note::Plan(vec![(1, 2, 3, 4)], 1.5, 1.0),
            Note::Saved(vec![(1, 2, vec![3])]),
            Note::Checkpoint(Some("full".to_string())),
        ];
        for note in notes {
            let all = postcard::to_allocvec(&note).expect("it has a form");
            assert_eq!(postcard::from_bytes::<Note<'_>>(&all).as_ref(), Ok(&note));
            assert!(postcard::from_bytes::<Note<'_>>(&all[..all.len() - 1]).is_err());
        }
    }
}

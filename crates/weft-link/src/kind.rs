//! Questions and answers: which packets prove the way they came.

use weft_core::wire::{self, field, flags, PacketType};

/// What an authentic packet tells about the way it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A HELLO that asks for an answer.
    Question,
    /// The answer to one: the way works in both directions.
    Answer,
    /// Anything else.
    Other,
}

impl Kind {
    #[inline]
    pub fn of(header: &[u8]) -> Kind {
        if header.get(field::TYPE) != Some(&(PacketType::Hello as u8)) {
            return Kind::Other;
        }
        match wire::parse(header) {
            Ok((common, _, _)) if common.flags & flags::REPLY != 0 => Kind::Answer,
            _ => Kind::Question,
        }
    }
}

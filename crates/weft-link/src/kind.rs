//! Questions and answers: which packets prove the way they came.

use weft_core::wire::{field, Hello, PacketType};

/// What an authentic packet tells about the way it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A HELLO that asks for an answer.
    Question,
    /// The answer to one: the way works in both directions.
    Answer,
    /// Anything else.
    Other,
}

impl Kind {
    /// Of a packet with this header.
    #[inline]
    pub fn of(header: &[u8]) -> Kind {
        if header.get(field::TYPE) != Some(&(PacketType::Hello as u8)) {
            return Kind::Other;
        }
        match Hello::is_answer(header) {
            true => Kind::Answer,
            false => Kind::Question,
        }
    }
}

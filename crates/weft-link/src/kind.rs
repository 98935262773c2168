//! Classifies packets by their proof of the path: HELLOs that ask for an answer, and answers.

use weft_core::wire::{field, Hello, PacketType};

/// The proof that an authentic packet gives of the path over which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A HELLO that asks for an answer.
    Question,
    /// The answer to a HELLO: the path works in both directions.
    Answer,
    /// Any other packet.
    Other,
}

impl Kind {
    /// Classifies the packet with this header.
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

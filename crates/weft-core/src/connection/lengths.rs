//! The peer's questions for the length of packets that gets through.

use super::Policy;
use crate::wire::Probe;
use alloc::collections::VecDeque;

/// Answers that are owed to a peer's questions for lengths.
#[derive(Default)]
pub(crate) struct Lengths {
    /// Numbers of the questions, and the lengths that arrived.
    answers: VecDeque<(u32, u32)>,
}

impl Lengths {
    /// Notes the question with this number, whose packet of `size` bytes arrived. False if too many
    /// wait for answers.
    pub fn note(&mut self, number: u32, size: u32, policy: &Policy) -> bool {
        let same = self.answers.iter().position(|(of, _)| *of == number);
        match same.filter(|_| !policy.each_length) {
            // Shorter ones get through as well.
            Some(at) => self.answers[at].1 = size.max(self.answers[at].1),
            None if self.answers.len() < policy.answers => self.answers.push_back((number, size)),
            None => return false,
        }
        true
    }

    /// Returns true if an answer is owed.
    #[inline]
    pub fn owes(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns the number of the next answer, and the answer.
    pub fn next_answer(&mut self) -> Option<(u32, Probe)> {
        let (number, size) = self.answers.pop_front()?;
        Some((number, Probe { size }))
    }
}

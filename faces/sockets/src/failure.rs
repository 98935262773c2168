//! The reason for which bytes stay in a ring.

/// Longest reason.
const MOST: usize = 112;

/// A reason.
#[derive(Clone, Copy)]
pub struct Failure {
    text: [u8; MOST],
    len: usize,
}

impl Failure {
    /// Makes one, as long as there is space.
    pub fn new(text: &str) -> Failure {
        let mut failure = Failure { text: [0; MOST], len: 0 };
        for (to, from) in failure.text.iter_mut().zip(text.bytes()) {
            *to = from;
            failure.len += 1;
        }
        failure
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

//! Messages between members that are neighbours in the tree of a group.
//!
//! A message: the group (8 bytes), its step (1 byte), the length of the whole (8 bytes), and a part
//! of the bytes. The argument of the active message is the number of the operation in the group.
//! Numbers are little-endian.

use super::LONGEST;

/// Most bytes of a part: an active message has 64 KiB.
pub const PART: usize = 60 << 10;

const HEAD: usize = 17;

/// The step of an operation that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes of a subtree, for the member above.
    Up,
    /// Bytes for a subtree.
    Down,
    /// A member has failed: its place in the group stands for the length.
    Failed,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The group.
    pub group: u64,
    /// Its step.
    pub step: Step,
    /// The number of bytes of all parts together.
    pub whole: usize,
    /// A part of the bytes.
    pub part: &'a [u8],
}

impl<'a> Message<'a> {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.part.len());
        out.extend(self.group.to_le_bytes());
        out.push(match self.step {
            Step::Up => 0,
            Step::Down => 1,
            Step::Failed => 2,
        });
        out.extend((self.whole as u64).to_le_bytes());
        out.extend_from_slice(self.part);
        out
    }

    /// Decodes a message.
    pub fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (group, rest) = bytes.split_first_chunk::<8>()?;
        let (step, rest) = rest.split_first()?;
        let (whole, part) = rest.split_first_chunk::<8>()?;
        let whole = usize::try_from(u64::from_le_bytes(*whole)).ok()?;
        let step = match step {
            0 => Step::Up,
            1 => Step::Down,
            2 => Step::Failed,
            _ => return None,
        };
        let most = if step == Step::Failed { 0 } else { whole };
        let fits = whole <= LONGEST && part.len() <= most;
        fits.then_some(Message { group: u64::from_le_bytes(*group), step, whole, part })
    }

    /// Returns the messages that carry these bytes in parts.
    pub fn parts(group: u64, step: Step, bytes: &[u8]) -> Vec<Vec<u8>> {
        let message = |part| Message { group, step, whole: bytes.len(), part }.encode();
        match bytes {
            [] => vec![message(&[])],
            _ => bytes.chunks(PART).map(message).collect(),
        }
    }
}

/// Body of the fuzz target `collective_message`: a decoded message encodes to the same bytes.
pub fn hostile(data: &[u8]) {
    if let Some(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "a message with two encodings");
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parts__together_are_the_bytes() {
        for len in [0, 1, PART, PART + 1, 3 * PART] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut got = Vec::new();
            for one in Message::parts(7, Step::Down, &bytes) {
                let message = Message::decode(&one).unwrap();
                assert_eq!((message.group, message.step, message.whole), (7, Step::Down, len));
                got.extend_from_slice(message.part);
            }
            assert_eq!(got, bytes);
        }
    }

    #[test]
    fn decode__refuses_what_is_cut_or_too_long() {
        let good = Message { group: 1, step: Step::Up, whole: 3, part: &[1, 2, 3] }.encode();
        (0..HEAD).for_each(|cut| assert_eq!(Message::decode(&good[..cut]), None, "{cut}"));
        let more = [&good[..], &[4]].concat();
        assert_eq!(Message::decode(&more), None);
        let with = |at: usize, value| {
            let mut bad = good.clone();
            bad[at] = value;
            bad
        };
        assert_eq!(Message::decode(&with(8, 3)), None);
        assert_eq!(Message::decode(&with(8, 2)), None, "a failure has no bytes");
        assert_eq!(Message::decode(&with(14, 1)), None, "longer than any operation");
        (0..good.len()).for_each(|at| (0..=u8::MAX).for_each(|byte| hostile(&with(at, byte))));
    }
}

//! Sequence numbers of messages.

/// Bits of a sequence number; the other two are the session's.
pub const SEQ_BITS: u16 = 0x3fff;

/// Returns the sequence number of the first message of a connection: its session bits differ from
/// those of the connections before, so late messages of those are out of the window.
pub fn start_of(epoch: u16) -> u16 {
    epoch << SEQ_BITS.count_ones() | 1
}

/// Returns the sequence number some steps further.
pub fn step(seq: u16, by: u16) -> u16 {
    seq & !SEQ_BITS | seq.wrapping_add(by) & SEQ_BITS
}

/// Returns the steps from one sequence number to another. `None` if their sessions differ.
pub fn steps(from: u16, to: u16) -> Option<u16> {
    ((from ^ to) & !SEQ_BITS == 0).then(|| to.wrapping_sub(from) & SEQ_BITS)
}

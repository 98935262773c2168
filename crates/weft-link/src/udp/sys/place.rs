//! The memory that a prediction names.

use crate::Prediction;

/// The `len` bytes of a prediction's memory from `at` on; `None` if it is not that long.
///
/// Sound because a [`Prediction`] promises memory that is writable and used by nobody else until
/// the next call of the sink, and because what this gives out is dropped before that: the caller
/// holds it no longer than it takes to check one packet.
pub fn place(p: &mut Prediction, at: usize, len: usize) -> Option<&mut [u8]> {
    let fits = at.checked_add(len).is_some_and(|end| end <= p.len);
    if !fits || p.base.is_null() {
        return None;
    }
    // SAFETY: within the prediction's memory, which is writable and unused by its promise.
    Some(unsafe { std::slice::from_raw_parts_mut(p.base.add(at), len) })
}

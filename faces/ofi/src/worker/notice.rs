//! The encoding of pieces of remote memory in messages about them.

use crate::abi::RmaIov;

/// Encoded length of a part of a region: key, offset, bytes.
const PART: usize = 24;

fn part(bytes: &[u8]) -> [u64; 3] {
    let number = |b: &[u8]| b.iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b));
    [number(&bytes[..8]), number(&bytes[8..16]), number(&bytes[16..PART])]
}

/// Returns the pieces in a notice: key, offset and length of each.
pub(super) fn parts(notice: &[u8]) -> Option<impl Iterator<Item = [u64; 3]> + '_> {
    let whole = !notice.is_empty() && notice.len().is_multiple_of(PART);
    whole.then(|| notice.chunks_exact(PART).map(part))
}

/// Encodes a notice of these pieces.
pub(super) fn notice(remote: &[RmaIov]) -> Vec<u8> {
    let numbers = |r: &RmaIov| [r.key, r.addr, r.len as u64];
    remote.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect()
}

//! Copies of bytes that avoid a slow case of the processor.

#[cfg(test)]
pub(crate) mod testing;

/// Addresses that are equal modulo this look alike to a processor that orders loads after stores.
const ALIAS: usize = 4096;
/// Distances below this, destination after source modulo [`ALIAS`], make string instructions slow.
const CLOSE: usize = 32;
/// Libraries copy up to this many bytes without string instructions on every processor.
const PIECE: usize = 1024;

/// True if a string instruction would be slow from `src` to `dst` (`rep movsb`, with which the C
/// library and the kernel copy kilobytes). On AMD's Zen 3 and 4 it is up to twenty times slower
/// where the destination follows the source by 1 to 31 bytes modulo 4096 (glibc, bug 30994).
#[inline]
pub(crate) fn crawls(src: usize, dst: usize) -> bool {
    (1..CLOSE).contains(&(dst.wrapping_sub(src) % ALIAS))
}

/// Copies `len` bytes; the two ranges may overlap.
///
/// # Safety
/// `src` can be read and `dst` written for `len` bytes; another process may write `src` meanwhile.
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    let apart = src.addr().abs_diff(dst.addr()) >= len;
    if len > PIECE && apart && crawls(src.addr(), dst.addr()) {
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(PIECE);
            // SAFETY: within the ranges, which do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), piece) };
            at += piece;
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(src, dst, len) };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn crawls__where_the_destination_follows_closely_modulo_pages() {
        for (src, dst, slow) in [
            (0, 0, false),
            (0, 1, true),
            (8192, 31, true),
            (8192, 32, false),
            (1, 0, false),
            (usize::MAX, 0, true),
            (4095, 4096 * 3, true),
        ] {
            assert_eq!(crawls(src, dst), slow, "{src} {dst}");
        }
    }

    #[test]
    fn copy__the_same_bytes_at_every_distance() {
        let source = bytes(5000);
        for distance in 4096..4096 + 40 {
            for len in [0, 1, PIECE, PIECE + 1, 3 * PIECE, 5000] {
                let mut memory = vec![0; 3 * 8192];
                let at = memory.as_ptr().addr() % ALIAS;
                let start = ALIAS + source.as_ptr().addr() % ALIAS - at + distance;
                let into = &mut memory[start % ALIAS..][..len + 1];
                // SAFETY: both have at least `len` bytes.
                unsafe { copy(source.as_ptr(), into.as_mut_ptr(), len) };
                assert_eq!(into[..len], source[..len], "{distance} {len}");
                assert_eq!(into[len], 0);
            }
        }
    }

    #[test]
    fn copy__of_ranges_that_overlap() {
        for (from, to) in [(0, 16), (16, 0), (0, 4096 + 16), (4096 + 16, 0), (100, 100)] {
            let (mut memory, len) = (bytes(12_000), 7000);
            let mut expected = memory.clone();
            expected.copy_within(from..from + len, to);
            let base = memory.as_mut_ptr();
            // SAFETY: both ranges are within the vector.
            unsafe { copy(base.add(from), base.add(to), len) };
            assert!(memory == expected, "{from} {to}");
        }
    }
}

//! Parameters of endpoints that programs open.

use crate::code::{self, Answer};

/// Most bits of a context.
const CONTEXT_BITS_MAX: u8 = 16;

/// The bits of a message's match bits that name its context; 0 without contexts.
///
/// # Errors
/// `MX_BAD_PARAM_VAL`: too many, or beyond 64 bits.
pub fn context_mask((bits, shift): (u8, u8)) -> Answer<u64> {
    if bits > CONTEXT_BITS_MAX || u32::from(bits) + u32::from(shift) > 64 {
        return Err(code::BAD_PARAM_VAL);
    }
    match bits {
        0 => Ok(0),
        bits => Ok((u64::MAX >> (64 - bits)) << shift),
    }
}

/// Checks the match bits and the mask of a receive or a search.
///
/// # Errors
/// `MX_BAD_MATCH_MASK`: bits outside of the mask.
#[inline]
pub fn check_mask(bits: u64, mask: u64) -> Answer {
    match bits & !mask {
        0 => Ok(()),
        _ => Err(code::BAD_MATCH_MASK),
    }
}

/// Checks the mask of a receive where messages have contexts.
///
/// # Errors
/// `MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK`: the mask does not cover the context.
#[inline]
pub fn check_contexts(mask: u64, contexts: u64) -> Answer {
    match contexts & !mask {
        0 => Ok(()),
        _ => Err(code::BAD_MATCHING_FOR_CONTEXT_ID_MASK),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn context_mask__has_its_bits_at_the_shift() {
        assert_eq!((context_mask((0, 64)), context_mask((10, 10))), (Ok(0), Ok(0x3ff << 10)));
        assert_eq!(context_mask((16, 48)), Ok(0xffff << 48));
        for wrong in [(17, 0), (16, 49), (1, 64), (255, 255)] {
            assert_eq!(context_mask(wrong), Err(code::BAD_PARAM_VAL), "{wrong:?}");
        }
    }

    #[test]
    fn check_contexts__the_mask_covers_them() {
        assert_eq!(check_contexts(u64::MAX, 0x3ff), Ok(()));
        let wrong = Err(code::BAD_MATCHING_FOR_CONTEXT_ID_MASK);
        assert_eq!(check_contexts(0x3fe, 0x3ff), wrong);
    }
}

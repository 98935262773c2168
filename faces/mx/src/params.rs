//! Parameters of endpoints that programs open.

use crate::code::{self, Answer};
use crate::errors::Handler;
use weft_ffi::given::List;
use weft_ffi::mx as environment;

/// Most bits of a context.
const CONTEXT_BITS_MAX: u8 = 16;

/// `mx_param_t`: its kind, and a value that is a handler of errors, a number, or bits and shift of
/// contexts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Param {
    key: u32,
    value: Option<Handler>,
}

/// The parameters of an endpoint.
#[derive(Default)]
pub struct Wanted {
    /// The bits of match bits that name a context.
    pub contexts: u64,
    /// The handler of errors.
    pub on_error: Option<Handler>,
}

impl Wanted {
    /// Reads the parameters of a program, and of the environment.
    ///
    /// # Errors
    /// `MX_BAD_PARAM_LIST`, `MX_BAD_PARAM_NAME`, `MX_BAD_PARAM_VAL`.
    pub fn of(params: List<'_, Param>) -> Answer<Wanted> {
        let mut wanted = Wanted::default();
        if let Some(bits) = environment::contexts() {
            wanted.contexts = context_mask(bits)?;
        }
        if params.count() == 0 {
            return Ok(wanted);
        }
        for param in params.read().ok_or(code::BAD_PARAM_LIST)? {
            match param.key {
                0 => wanted.on_error = param.value,
                // The room for unexpected messages is a setting of weft (`WEFT_UNEXPECTED_MAX`).
                1 => {}
                2 => {
                    let value = param.value.map_or(0, |value| value as usize);
                    let [bits, shift, ..] = value.to_ne_bytes();
                    wanted.contexts = context_mask((bits, shift))?;
                }
                _ => return Err(code::BAD_PARAM_NAME),
            }
        }
        Ok(wanted)
    }
}

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

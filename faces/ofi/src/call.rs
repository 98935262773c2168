//! Calls of a program: errors become numbers, and a panic never unwinds into C.

use crate::abi::{err, Returned};
use libc::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use weft_sys::forks::is_child;

/// The result of a call: a count or size, or an error number, which is returned negated.
pub type Answer = Result<isize, c_int>;

/// Runs the body of a call.
#[inline]
pub fn call<R: Returned>(body: impl FnOnce() -> Result<R, c_int>) -> R {
    if is_child() {
        return R::of_error(err::EIO);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => R::of_error(error),
        Err(_) => {
            // The panic may have come from the log.
            let _told = catch_unwind(|| {
                log::error!("the provider panicked: please report this with the lines above");
            });
            R::of_error(err::EOTHER)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    extern "C" fn panics() -> c_int {
        call(|| panic!("on purpose"))
    }

    #[test]
    fn call__a_panic_is_an_error_number() {
        assert_eq!(panics(), -err::EOTHER);
        assert_eq!(call(|| Ok(7_isize)), 7);
        assert_eq!(call::<isize>(|| Err(err::EAGAIN)), -(err::EAGAIN as isize));
    }
}

//! Checks of memory that programs name.

use super::{Fault, WEFT_TOO_MANY};
use std::ffi::c_void;
use weft::memory;

/// Checks the length of memory that is not null.
///
/// # Errors
/// The memory is longer than any memory, or so long that it is checked, and not all of it is
/// mapped.
#[inline]
pub(super) fn check_len(memory: *const c_void, len: usize) -> Result<(), Fault> {
    match memory::seems_mapped(memory, len) {
        true => Ok(()),
        false if len > isize::MAX as usize => Err(Fault::argument("len is beyond all memory")),
        false => Err(not_mapped(memory, len)),
    }
}

pub(super) fn not_mapped(memory: *const c_void, len: usize) -> Fault {
    Fault::argument(format!("of the {len} bytes at {memory:p} not all are memory of this process"))
}

/// Copies values of the program.
///
/// # Errors
/// `WEFT_TOO_MANY`: the machine does not have so much memory.
pub(super) fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, Fault> {
    memory::copied(values).ok_or_else(|| {
        let len = size_of_val(values);
        Fault(WEFT_TOO_MANY, format!("no memory for a copy of {len} bytes is left here"))
    })
}

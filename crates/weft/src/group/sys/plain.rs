//! Values as the bytes that they are in memory.

use crate::group::number::{Bf16, Complex, F16};

/// A type without padding.
///
/// # Safety
/// Every byte of a value is initialised.
pub unsafe trait Dense: Copy {}

/// A type of which any bytes are a valid value.
///
/// # Safety
/// There are no invalid values.
pub unsafe trait Plain: Dense {}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        // SAFETY: a number, or two of one type, has no padding.
        unsafe impl Dense for $ty {}
        // SAFETY: any bits are a number.
        unsafe impl Plain for $ty {}
    )*};
}

plain!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 F16 Bf16 Complex<f32> Complex<f64>);

// SAFETY: a byte of its own.
unsafe impl Dense for bool {}

/// Returns the bytes of values, where they are in little-endian order.
pub fn bytes<T: Dense>(values: &[T]) -> Option<&[u8]> {
    let len = size_of_val(values);
    // SAFETY: the same memory, all of it initialised.
    let bytes = || unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), len) };
    cfg!(target_endian = "little").then(bytes)
}

/// Returns the bytes of values to be written, where they are in little-endian order.
pub fn bytes_mut<T: Plain>(values: &mut [T]) -> Option<&mut [u8]> {
    let len = size_of_val(values);
    // SAFETY: the same memory, all of it initialised, and any bytes are valid values.
    let bytes = || unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), len) };
    cfg!(target_endian = "little").then(bytes)
}

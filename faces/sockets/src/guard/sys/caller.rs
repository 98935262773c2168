//! Addresses that programs give.

use super::copy;
use libc::c_char;
use std::ffi::CStr;

/// The size of a page is at least this.
const PAGE: usize = 4096;

/// Writes a value to space that a caller has named. False: it is none.
pub fn put<T: Copy>(to: &mut T, value: T) -> bool {
    // SAFETY: space for such a value, or a fault.
    unsafe { copy(std::ptr::from_mut(to).cast(), (&raw const value).cast(), size_of::<T>()) }
}

/// An address that a program has given for values of a type, which may be an address of nothing.
/// This library and the kernel use it as the C library's function would.
#[derive(Debug)]
pub struct Caller<T>(*mut T);

impl<T> Clone for Caller<T> {
    fn clone(&self) -> Caller<T> {
        *self
    }
}

impl<T> Copy for Caller<T> {}

impl<T> Caller<T> {
    /// No address.
    pub const NONE: Caller<T> = Caller(std::ptr::null_mut());

    /// Makes it of the address.
    ///
    /// # Safety
    /// The address is a caller's, for as long as the call takes that it was given to.
    pub const unsafe fn new(at: *const T) -> Caller<T> {
        Caller(at.cast_mut())
    }

    /// Returns the address, for a call of the kernel.
    pub fn at(self) -> *mut T {
        self.0
    }

    /// True if there is no address.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the address as one of values of another type.
    pub fn cast<U>(self) -> Caller<U> {
        Caller(self.0.cast())
    }

    /// The address of the value behind so many.
    pub fn skip(self, n: usize) -> Caller<T> {
        Caller(self.0.wrapping_add(n))
    }

    /// True if `n` values can be read.
    #[inline]
    pub fn is_readable(self, n: usize) -> bool {
        let len = n.checked_mul(size_of::<T>()).filter(|&len| len <= isize::MAX as usize);
        let Some(len) = len else { return false };
        let (mut byte, from) = (0u8, self.0.cast::<u8>());
        let mut can_read = |offset: usize| {
            // SAFETY: a byte of the caller's memory, or a fault.
            unsafe { copy(&mut byte, from.wrapping_add(offset), 1) }
        };
        if len == 0 || self.is_null() {
            return len == 0;
        }
        (0..len).step_by(PAGE).all(&mut can_read) && (len < 2 || can_read(len - 1))
    }

    /// Returns `n` values, if they are there.
    pub fn list<'a>(self, n: usize) -> Option<&'a [T]> {
        let is_there = !self.is_null() && self.is_readable(n);
        // SAFETY: the caller's memory, which can be read.
        is_there.then(|| unsafe { std::slice::from_raw_parts(self.0, n) })
    }

    /// Returns space for `n` values, which nobody has looked at.
    pub fn space<'a>(self, n: usize) -> Option<&'a mut [T]> {
        // SAFETY: the caller's memory, which it lets the function write to.
        (!self.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(self.0, n) })
    }

    /// Returns a value, if it is there.
    #[inline]
    pub fn get<'a>(self) -> Option<&'a T> {
        if !self.is_readable(1) {
            return None;
        }
        // SAFETY: the caller's memory, which can be read.
        unsafe { self.0.as_ref() }
    }

    /// Returns a value that can be changed, if it is there.
    #[inline]
    pub fn get_mut<'a>(self) -> Option<&'a mut T> {
        if !self.is_readable(1) {
            return None;
        }
        // SAFETY: the caller's memory, which it lets the function write to.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Copy> Caller<T> {
    /// Writes a value. False: there is no space for it.
    pub fn put(self, value: T) -> bool {
        self.put_all(&[value])
    }

    /// Writes values. False: there is no space for them.
    pub fn put_all(self, values: &[T]) -> bool {
        // SAFETY: the caller's address; values of this size.
        unsafe { copy(self.0.cast(), values.as_ptr().cast(), size_of_val(values)) }
    }

    /// Returns a copy of values. `None`: they are not there.
    pub fn copy<const N: usize>(self, zero: T) -> Option<[T; N]> {
        let mut values = [zero; N];
        // SAFETY: the caller's address; values of this size.
        let is_there =
            unsafe { copy(values.as_mut_ptr().cast(), self.0.cast(), size_of_val(&values)) };
        is_there.then_some(values)
    }
}

impl Caller<c_char> {
    /// Returns a text, if it is there.
    pub fn text<'a>(self) -> Option<&'a CStr> {
        // SAFETY: the caller's text, which begins at an address that can be read.
        self.is_readable(1).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

impl Caller<*const c_char> {
    /// Calls `each` with the texts of a list, which ends with a null. False once it returns false,
    /// or where there is none.
    pub fn texts(self, mut each: impl FnMut(Caller<c_char>) -> bool) -> bool {
        let mut at = self.0;
        if !self.is_readable(1) {
            return false;
        }
        // SAFETY: the caller's list, which ends with a null.
        unsafe {
            while !(*at).is_null() {
                if !each(Caller::new(*at)) {
                    return false;
                }
                at = at.add(1);
            }
        }
        true
    }
}

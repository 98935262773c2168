//! The types themselves: no code makes a value of one but C, or by a reference or a promise.

use std::ffi::{c_char, CStr};
use std::marker::PhantomData;

/// A place for a `T`, as a function of C has it in place of a pointer: null, misaligned, or memory
/// of the program while the call lasts. Of one that is read, the program has set the value.
#[repr(transparent)]
pub struct Place<'a, T>(*mut T, PhantomData<&'a T>);

impl<T> Clone for Place<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<'_, T> {}

impl<'a, T: Copy> Place<'a, T> {
    /// No place.
    pub const NONE: Place<'a, T> = Place(std::ptr::null_mut(), PhantomData);

    /// Makes one of a reference.
    pub fn of(value: &'a mut T) -> Place<'a, T> {
        Place(value, PhantomData)
    }

    /// True if the program wants no result.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// True if the pointer is neither null nor misaligned.
    #[inline]
    pub fn is_there(self) -> bool {
        !self.0.is_null() && self.0.is_aligned()
    }

    /// Returns the value, if the place is there.
    #[inline]
    pub fn read(self) -> Option<T> {
        // SAFETY: promised by the program.
        self.is_there().then(|| unsafe { self.0.read() })
    }

    /// Stores a value. False if the place is not there.
    #[inline]
    pub fn store(self, value: T) -> bool {
        let is_there = self.is_there();
        if is_there {
            // SAFETY: promised by the program.
            unsafe { self.0.write(value) };
        }
        is_there
    }

    /// Returns the place as the first one of a list.
    ///
    /// # Safety
    /// If it is there, as many values are, as far as any are used.
    #[inline]
    pub unsafe fn list(self, count: usize) -> List<'a, T> {
        List { first: self, count }
    }
}

/// Places of a program that follow each other.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    first: Place<'a, T>,
    count: usize,
}

impl<'a, T: Copy> List<'a, T> {
    /// Makes one of a slice.
    pub fn of(values: &'a mut [T]) -> List<'a, T> {
        List { first: Place(values.as_mut_ptr(), PhantomData), count: values.len() }
    }

    /// Returns the place of the first value.
    pub fn first(self) -> Place<'a, T> {
        self.first
    }

    /// Returns the number of values, as the program says.
    #[inline]
    pub fn count(self) -> usize {
        self.count
    }

    /// True if the pointer is neither null nor misaligned.
    #[inline]
    pub fn is_there(self) -> bool {
        self.first.is_there()
    }

    /// Returns the values, if they are there, and no more than memory has.
    #[inline]
    pub fn read(self) -> Option<&'a [T]> {
        let len = self.count.checked_mul(size_of::<T>())?;
        let is_there = self.is_there() && len <= isize::MAX as usize;
        // SAFETY: promised where the list was made.
        is_there.then(|| unsafe { std::slice::from_raw_parts(self.first.0, self.count) })
    }

    /// Stores as many values as there are places for.
    pub fn store(self, values: &[T]) {
        if self.is_there() {
            let count = values.len().min(self.count);
            // SAFETY: promised where the list was made.
            unsafe { self.first.0.copy_from(values.as_ptr(), count) };
        }
    }
}

/// A text of a program, as a function of C has it in place of a pointer: null, or bytes up to a 0.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// Makes one of a text.
    pub fn of(text: &'a CStr) -> Text<'a> {
        Text(text.as_ptr(), PhantomData)
    }

    /// True if there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the text, if it is UTF-8 and has less than `max` bytes.
    pub fn read(self, max: usize) -> Option<&'a str> {
        // SAFETY: promised by the program.
        if self.0.is_null() || unsafe { libc::strnlen(self.0, max) } == max {
            return None;
        }
        // SAFETY: as before.
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

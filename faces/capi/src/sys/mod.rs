//! Pointers of programs: each is checked as far as possible, once, and becomes a place for results,
//! values or a text, which safe code uses.

#[cfg(test)]
mod tests;

use crate::fault::{Fault, WEFT_TOO_MANY};
use std::ffi::{c_char, c_void, CStr};
use std::ptr::NonNull;
use weft::{memory, OpError, PeerId};
use weft_packets::{Exported, Packets};

/// A place of a program for a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Errors
    /// The pointer is null or misaligned.
    ///
    /// # Safety
    /// The pointer is null, misaligned or names memory that takes a `T` until the call has
    /// returned, or, where a request stores the result, until that has ended.
    #[inline]
    pub unsafe fn new(at: *mut T) -> Result<Out<T>, Fault> {
        let place = NonNull::new(at).filter(|place| place.is_aligned());
        let wrong = || Fault::argument("the place for the result is null or misaligned");
        place.map(Out).ok_or_else(wrong)
    }

    /// Makes the place of a result that the program need not take: null is none.
    ///
    /// # Errors
    /// The pointer is misaligned.
    ///
    /// # Safety
    /// The caller keeps the rules of [`new`](Self::new).
    #[inline]
    pub unsafe fn optional(at: *mut T) -> Result<Option<Out<T>>, Fault> {
        // SAFETY: promised by the caller.
        (!at.is_null()).then(|| unsafe { Out::new(at) }).transpose()
    }

    /// Stores a result.
    #[inline]
    pub fn store(&self, value: T) {
        // SAFETY: neither null nor misaligned, and promised to be there where this was made.
        unsafe { self.0.write(value) };
    }
}

impl<T> Out<*mut T> {
    /// Makes the place of a handle, which is null until one is stored.
    ///
    /// # Errors
    /// The pointer is null or misaligned.
    ///
    /// # Safety
    /// The caller keeps the rules of [`new`](Self::new).
    #[inline]
    pub unsafe fn handle(at: *mut *mut T) -> Result<Out<*mut T>, Fault> {
        // SAFETY: promised by the caller.
        let place = unsafe { Out::new(at) }?;
        place.store(std::ptr::null_mut());
        Ok(place)
    }

    /// Hands an object over to the program.
    pub fn give(&self, object: Box<T>) {
        self.store(Box::into_raw(object));
    }
}

/// The address of values of a program, which are there only if the call needs them.
#[derive(Clone, Copy)]
pub(crate) struct Given<T>(*mut T);

impl<T: Copy> Given<T> {
    /// # Safety
    /// Where the call, by its own description, uses values there, they can be read or written until
    /// it has returned, or for as long as it says; nobody else changes them.
    #[inline]
    pub unsafe fn new(at: *const T) -> Given<T> {
        Given(at.cast_mut())
    }

    /// Returns the address as that of values of another type.
    pub fn cast<U>(self) -> Given<U> {
        Given(self.0.cast())
    }

    /// True if the program has no such values.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns so many values.
    ///
    /// # Errors
    /// `what` is null or misaligned, is longer than any memory, or so long that it is checked, and
    /// not all of it is mapped.
    #[inline]
    pub fn values(self, what: &str, count: usize) -> Result<Borrowed<T>, Fault> {
        if count == 0 {
            return Ok(Borrowed { at: NonNull::dangling(), count });
        }
        let at = NonNull::new(self.0).filter(|at| at.is_aligned());
        let at = at.ok_or_else(|| Fault::argument(format!("{what} is null or misaligned")))?;
        let len = count.checked_mul(size_of::<T>()).filter(|&len| len <= isize::MAX as usize);
        let len = len.ok_or_else(|| Fault::argument(format!("{what} is beyond all memory")))?;
        match memory::seems_mapped(self.0.cast(), len) {
            true => Ok(Borrowed { at, count }),
            false => Err(not_mapped(self.0.cast(), len)),
        }
    }
}

fn not_mapped(at: *const c_void, len: usize) -> Fault {
    Fault::argument(format!("of the {len} bytes at {at:p} not all are memory of this process"))
}

/// Values of a program.
pub(crate) struct Borrowed<T> {
    at: NonNull<T>,
    count: usize,
}

/// Returns bytes of a program.
///
/// # Errors
/// Returns the errors of [`Given::values`].
///
/// # Safety
/// The caller keeps the rules of [`Given::new`].
#[inline]
pub(crate) unsafe fn bytes(data: *const c_void, len: usize) -> Result<Borrowed<u8>, Fault> {
    // SAFETY: promised by the caller.
    unsafe { Given::new(data.cast()) }.values("data", len)
}

impl<T: Copy> Borrowed<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the address.
    pub fn as_ptr(&self) -> *mut T {
        self.at.as_ptr()
    }

    /// Returns the values.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: aligned, no longer than a slice can be, and promised to be there where this was
        // made.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }

    /// Returns the values to be written.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as before; nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.count) }
    }

    /// Copies the values.
    ///
    /// # Errors
    /// `WEFT_TOO_MANY`: the machine does not have so much memory.
    pub fn copied(&self) -> Result<Vec<T>, Fault> {
        copied(self.as_slice())
    }

    /// # Errors
    /// Not all of the values are mapped.
    pub fn check_mapped(&self) -> Result<(), Fault> {
        let (at, len) = (self.as_ptr().cast_const().cast(), size_of_val(self.as_slice()));
        if memory::is_mapped(at, len) {
            Ok(())
        } else {
            Err(not_mapped(at, len))
        }
    }

    /// Stores values from an index on, as many as there is room for.
    pub fn put(&self, at: usize, values: &[T]) {
        let count = values.len().min(self.count.saturating_sub(at));
        // SAFETY: inside the values, which were promised to be there where this was made.
        unsafe { std::ptr::copy(values.as_ptr(), self.at.as_ptr().wrapping_add(at), count) };
    }
}

impl Borrowed<u8> {
    /// Sends a packet straight from the bytes, which the program does not change until they are
    /// returned.
    ///
    /// # Errors
    /// Returns the errors of [`Packets::try_gather_at`].
    pub fn gather(
        &self,
        packets: &Packets,
        to: PeerId,
        (handler, argument): (u16, u32),
    ) -> Result<(), OpError> {
        // SAFETY: promised by the program: its call says how long the bytes are used.
        unsafe { packets.try_gather_at(to, handler, argument, self.as_ptr(), self.count) }
    }

    /// Lets other ranks write the bytes until the export has ended. `None`: no key is left. `call`
    /// returns the number of the program's call, in which it may unmap them.
    pub fn export(&self, packets: &Packets, call: fn() -> u64) -> Option<Exported> {
        // SAFETY: promised by the program: its call says how long the bytes are used.
        unsafe { packets.exports().make_at((self.as_ptr(), self.count), call) }
    }
}

/// Returns a text of a program.
///
/// # Errors
/// The pointer is null, or the text is not in UTF-8.
///
/// # Safety
/// `text` is null or a string that lives and stays unchanged for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Fault> {
    if text.is_null() {
        return Err(Fault::argument("a name, a value or an address is null"));
    }
    // SAFETY: not null, and promised by the caller to be a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::argument("a name, a value or an address is no word"))
}

/// Returns a text of a program that need not be there: null is none.
///
/// # Errors
/// The text is not in UTF-8.
///
/// # Safety
/// The caller keeps the rules of [`text`].
pub(crate) unsafe fn optional_text<'a>(text: *const c_char) -> Result<Option<&'a str>, Fault> {
    // SAFETY: promised by the caller.
    (!text.is_null()).then(|| unsafe { self::text(text) }).transpose()
}

/// Copies values of a program.
///
/// # Errors
/// `WEFT_TOO_MANY`: the machine does not have so much memory.
pub(crate) fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, Fault> {
    memory::copied(values).ok_or_else(|| {
        let len = size_of_val(values);
        Fault(WEFT_TOO_MANY, format!("no memory for a copy of {len} bytes is left here"))
    })
}

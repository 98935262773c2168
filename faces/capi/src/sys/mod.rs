//! The binary interface. Each function checks its pointers as far as possible, lets no panic out
//! and returns one of the codes below.

pub mod collective;
pub mod comm;
pub mod crl;
pub mod gather;
pub mod job;
mod mapped;
pub mod member;
pub mod message;
pub mod names;
pub mod packet;
pub mod receive;
pub mod remote;
pub mod request;
#[cfg(test)]
mod tests;

use crate::entry::last_text;
pub(crate) use crate::entry::{call, enter, enter_apart, outside};
use crate::fault::meaning;
pub(crate) use crate::fault::Fault;
pub use crate::fault::{
    WEFT_ARGUMENT, WEFT_BUSY, WEFT_CANCELLED, WEFT_INIT, WEFT_NO_AGENT, WEFT_OK, WEFT_PANIC,
    WEFT_PEER, WEFT_REFUSED, WEFT_SIGNAL, WEFT_THREAD, WEFT_TOO_LONG, WEFT_TOO_MANY, WEFT_UPCALL,
};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

pub(crate) use job::{free, job_of, object_of};

/// Returns the meaning of a code.
#[no_mangle]
pub extern "C" fn weft_strerror(code: c_int) -> *const c_char {
    meaning(code).as_ptr()
}

/// Returns details of the last call of this thread that failed, valid until the next one that
/// fails; for a failed rank its number, host, link, interface and addresses, the reason, and the
/// next step for the user.
#[no_mangle]
pub extern "C" fn weft_last_error() -> *const c_char {
    last_text()
}

/// The head of each object that this interface makes: its type, and its job. Anything else,
/// including a freed object, most likely has other bytes there.
pub(crate) struct Head {
    mark: u64,
    job: *const c_void,
    /// Number of calls that use the object now: upcalls run inside of calls that wait.
    uses: Cell<u32>,
}

impl Head {
    /// Makes the head of an object of a job; of a job itself `job` is null.
    pub fn new<T: Object>(job: *const impl Sized) -> Head {
        Head { mark: T::MARK, job: job.cast(), uses: Cell::new(0) }
    }

    /// Returns true if both are objects of one job.
    pub fn has_job_of(&self, other: &Head) -> bool {
        self.job == other.job
    }

    /// Returns the address of the job.
    pub fn job<J>(&self) -> *const J {
        self.job.cast()
    }

    /// True if a call that has not returned uses the object.
    pub fn is_used(&self) -> bool {
        self.uses.get() > 0
    }
}

/// An object that a call uses until this is dropped: no upcall inside of the call frees it.
pub(crate) struct Used<'a, T: Object>(&'a T);

impl<'a, T: Object> Used<'a, T> {
    pub fn new(object: &'a T) -> Used<'a, T> {
        let uses = &object.head().uses;
        uses.set(uses.get() + 1);
        Used(object)
    }

    /// # Errors
    /// An outer call uses the object too.
    pub fn alone(&self) -> Result<(), Fault> {
        match self.0.head().uses.get() {
            1 => Ok(()),
            _ => Err(in_use(T::NAME)),
        }
    }
}

impl<T: Object> std::ops::Deref for Used<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Object> Drop for Used<'_, T> {
    fn drop(&mut self) {
        let uses = &self.0.head().uses;
        uses.set(uses.get() - 1);
    }
}

/// Returns the fault of an upcall that would end what an outer call waits for.
pub(crate) fn in_use(name: &str) -> Fault {
    Fault::argument(format!("{name}: the call in which this upcall runs uses it"))
}

impl Drop for Head {
    fn drop(&mut self) {
        // SAFETY: its own field. Volatile, because the compiler sees no later read and could drop
        // the write.
        unsafe { (&raw mut self.mark).write_volatile(0) };
    }
}

/// An object that programs have a pointer to.
pub(crate) trait Object {
    /// The mark of a living object.
    const MARK: u64;
    /// Name in messages to people.
    const NAME: &'static str;
    fn head(&self) -> &Head;
}

/// Makes a type with the field `head` an object: its name, and eight letters as its mark.
macro_rules! is_object {
    ($kind:ty, $name:literal, $mark:literal) => {
        impl $crate::sys::Object for $kind {
            const MARK: u64 = u64::from_be_bytes(*$mark);
            const NAME: &'static str = $name;

            fn head(&self) -> &$crate::sys::Head {
                &self.head
            }
        }
    };
}
pub(crate) use is_object;

/// Returns the object behind a pointer.
///
/// # Safety
/// The pointer is null, misaligned or names memory of at least the object's size.
pub(crate) unsafe fn object<'a, T: Object>(pointer: *const T) -> Result<&'a T, Fault> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Fault::argument(format!("{} is null or misaligned", T::NAME)));
    }
    // SAFETY: not null, aligned, and promised by the caller to be there.
    let object = unsafe { &*pointer };
    match object.head().mark == T::MARK {
        true => Ok(object),
        false => Err(Fault::argument(format!("{} is not one, or was freed", T::NAME))),
    }
}

/// Returns the caller's bytes.
///
/// # Safety
/// `data..data + len` is readable and unchanged for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Fault> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fault::argument("data is null")),
        _ => {
            mapped::check_len(data.cast(), len)?;
            // SAFETY: promised by the caller; a slice is never longer than `isize::MAX`.
            Ok(unsafe { std::slice::from_raw_parts(data, len) })
        }
    }
}

/// Stores a result.
///
/// # Safety
/// `out` is null, misaligned or points to memory that takes a `T`.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) -> Result<(), Fault> {
    if out.is_null() || !out.is_aligned() {
        return Err(Fault::argument("the place for the result is null or misaligned"));
    }
    // SAFETY: not null, aligned, and promised by the caller to be there.
    unsafe { out.write(value) };
    Ok(())
}

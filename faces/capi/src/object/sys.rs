//! The memory of objects: a mark tells a living one from anything else.

use super::Object;
use crate::fault::Fault;

/// The first bytes of a living object. A dropped one has others there.
pub(crate) struct Mark(u64);

impl Mark {
    /// Makes the mark of a type.
    pub fn of<T: Object>() -> Mark {
        Mark(T::MARK)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: its own field. Volatile, because the compiler sees no later read and could drop
        // the write.
        unsafe { (&raw mut self.0).write_volatile(0) };
    }
}

/// Returns the object behind a pointer.
///
/// # Safety
/// The pointer is null, misaligned or names memory of at least the object's size, which stays one
/// for `'a` if it is one now.
#[inline]
pub(crate) unsafe fn object<'a, T: Object>(pointer: *const T) -> Result<&'a T, Fault> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Fault::argument(format!("{} is null or misaligned", T::NAME)));
    }
    // SAFETY: not null, aligned, and promised by the caller to be there.
    let object = unsafe { &*pointer };
    match object.head().mark.0 == T::MARK {
        true => Ok(object),
        false => Err(Fault::argument(format!("{} is not one, or was freed", T::NAME))),
    }
}

/// Returns the object of no job behind a pointer, if this thread may use it.
///
/// # Safety
/// The caller keeps the rules of [`object`].
pub(crate) unsafe fn apart<'a, T: Object>(pointer: *const T) -> Result<&'a T, Fault> {
    // SAFETY: promised by the caller.
    let object = unsafe { object(pointer) }?;
    object.head().check_thread()?;
    Ok(object)
}

/// Frees an object of no job.
///
/// # Errors
/// The pointer is none, or the object belongs to another thread.
///
/// # Safety
/// The caller keeps the rules of [`object`]; the object was handed over in a box, and nobody uses
/// it afterwards.
pub(crate) unsafe fn free_apart<T: Object>(pointer: *mut T) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    unsafe { apart(pointer) }?;
    // SAFETY: made by `Box::into_raw`, and checked to be alive.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(())
}

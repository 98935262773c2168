//! Objects that programs have pointers to.

#[allow(unsafe_code)]
pub(crate) mod sys;

use crate::fault::{Fault, WEFT_THREAD};
use std::cell::Cell;
use std::ffi::c_void;
use std::thread::ThreadId;
use sys::Mark;

/// The head of each object that this interface makes: its type, and its owner, a job or a thread.
/// Anything else, including a freed object, most likely has other bytes there.
pub(crate) struct Head {
    mark: Mark,
    job: *const c_void,
    /// The thread that made an object of no job.
    thread: Option<ThreadId>,
    /// Number of calls that use the object now: upcalls run inside of calls that wait.
    uses: Cell<u32>,
}

impl Head {
    /// Makes the head of an object of a job.
    pub fn new<T: Object>(job: *const impl Object) -> Head {
        Head { mark: Mark::of::<T>(), job: job.cast(), thread: None, uses: Cell::new(0) }
    }

    /// Makes the head of an object that belongs to this thread, and to no job.
    pub fn apart<T: Object>() -> Head {
        let thread = Some(std::thread::current().id());
        Head { mark: Mark::of::<T>(), job: std::ptr::null(), thread, uses: Cell::new(0) }
    }

    /// Returns true if both are objects of one job.
    pub fn has_job_of(&self, other: &Head) -> bool {
        self.job == other.job
    }

    /// Returns the address of the job.
    pub fn job<J>(&self) -> *const J {
        self.job.cast()
    }

    /// True if the object belongs to this thread.
    #[inline]
    pub fn is_of_this_thread(&self) -> bool {
        self.thread == Some(std::thread::current().id())
    }

    /// # Errors
    /// The object, which has no job, belongs to another thread.
    pub fn check_thread(&self) -> Result<(), Fault> {
        match self.is_of_this_thread() {
            true => Ok(()),
            false => Err(Fault(WEFT_THREAD, "names belong to the thread that opened them".into())),
        }
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
        impl $crate::object::Object for $kind {
            const MARK: u64 = u64::from_be_bytes(*$mark);
            const NAME: &'static str = $name;

            fn head(&self) -> &$crate::object::Head {
                &self.head
            }
        }
    };
}
pub(crate) use is_object;

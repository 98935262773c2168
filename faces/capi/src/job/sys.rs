//! Handles of jobs, and of the objects that are made with them.

use super::WeftJob;
use crate::entry::enter;
use crate::fault::{Fault, WEFT_OK};
use crate::object::sys::object;
use crate::object::{Head, Object, Used};
use crate::watchdog::Held;

/// Returns the job of an object.
///
/// # Errors
/// The job has ended.
pub(crate) fn of(head: &Head) -> Result<&WeftJob, Fault> {
    // SAFETY: the head of an object was made with the address of its job, whose few bytes stay
    // allocated when it ends.
    unsafe { object(head.job()) }
}

/// Returns a job if the calling thread may use it.
///
/// # Safety
/// The caller keeps the rules of [`object`].
#[inline]
pub(crate) unsafe fn job_of<'a>(job: *const WeftJob) -> Result<&'a WeftJob, Fault> {
    // SAFETY: promised by the caller.
    let job = unsafe { object(job) }?;
    job.check_thread()?;
    Ok(job)
}

/// Returns the object behind a pointer, for this call to use, and its job if the calling thread may
/// use it.
///
/// # Safety
/// The caller keeps the rules of [`object`].
#[inline]
pub(crate) unsafe fn object_of<'a, T: Object>(
    pointer: *const T,
) -> Result<(Used<'a, T>, &'a WeftJob), Fault> {
    // SAFETY: promised by the caller.
    let object: &'a T = unsafe { object(pointer) }?;
    // Uses are counted by the thread of the job alone.
    let job = of(object.head())?;
    job.check_thread()?;
    Ok((Used::new(object), job))
}

/// Frees an object of a caller.
///
/// # Errors
/// The pointer is none, its job belongs to another thread, or an outer call uses it.
///
/// # Safety
/// The caller keeps the rules of [`object`]; the object was handed over in a box, and nobody uses
/// it afterwards.
pub(crate) unsafe fn free<T: Object>(pointer: *mut T) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    unsafe { object_of(pointer.cast_const()) }?.0.alone()?;
    // SAFETY: made by `Box::into_raw`, and checked to be alive.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(())
}

/// The job of a watchdog.
struct Charge(*const WeftJob);

// SAFETY: the thread uses the job only while it holds the gate and the job is not over; the job
// ends in a call that holds the gate, before it is freed. All other code that uses the job or
// counts references to parts of it is in functions of this interface, which take the gate too. No
// link that a job opens is bound to a thread.
unsafe impl Send for Charge {}

/// Starts the watchdog of a job, if one is chosen. Returns the handle of the job, and the gate that
/// the caller keeps until its function returns.
///
/// # Errors
/// The watchdog does not start: the job is left.
pub(crate) fn start(joined: Box<WeftJob>) -> Result<(*mut WeftJob, Option<Held>), Fault> {
    let joined = Box::into_raw(joined);
    let charge = Charge(joined);
    let round = move || {
        let Charge(job) = &charge;
        // A panic has printed its place, like any in a call.
        enter(|| {
            // SAFETY: as `Charge` says; the watchdog holds the gate, and the job is not over.
            unsafe { &**job }.watched();
            Ok(WEFT_OK)
        });
    };
    // SAFETY: just made.
    let gate = super::watch(unsafe { &*joined }, round).inspect_err(|_| {
        // SAFETY: made by `Box::into_raw`; nobody else has it.
        drop(unsafe { Box::from_raw(joined) });
    })?;
    Ok((joined, gate))
}

/// Ends a job. Its few bytes stay allocated, without the mark of a job: later uses of it, and of
/// objects made with it, find that.
///
/// # Safety
/// The handle is that of a living job, which nobody uses afterwards.
pub(crate) unsafe fn end(job: *mut WeftJob) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::drop_in_place(job) };
}

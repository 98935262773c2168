//! Jobs: joining, leaving, progress.

use super::{enter, object, store, Object, Used};
use super::{Fault, WEFT_INIT, WEFT_OK, WEFT_REFUSED};
use crate::fault::code_of;
use crate::job::join;
pub use crate::job::WeftJob;
use crate::watchdog::{self, Held};
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;
use weft::choices::Receipt;

/// Returns the object behind a pointer, for this call to use, and its job if the calling thread may
/// use it.
///
/// # Safety
/// The caller keeps the rules of [`object`]; an object lives no longer than its job.
pub(crate) unsafe fn object_of<'a, T: Object>(
    pointer: *const T,
) -> Result<(Used<'a, T>, &'a WeftJob), Fault> {
    // SAFETY: promised by the caller.
    let object = unsafe { object(pointer) }?;
    // Uses are counted by the thread of the job alone.
    // SAFETY: as before.
    let job = unsafe { job_of(object.head().job()) }?;
    Ok((Used::new(object), job))
}

/// Returns a job if the calling thread may use it.
///
/// # Safety
/// The caller keeps the rules of [`object`].
pub(crate) unsafe fn job_of<'a>(job: *const WeftJob) -> Result<&'a WeftJob, Fault> {
    // SAFETY: promised by the caller.
    let job = unsafe { object(job) }?;
    job.check_thread()?;
    Ok(job)
}

/// Frees an object of a caller.
///
/// # Errors
/// The pointer is none, its job belongs to another thread, or an outer call uses it.
///
/// # Safety
/// The caller keeps the rules of `object`, and nobody uses the object afterwards.
pub(crate) unsafe fn free<T: Object>(pointer: *mut T) -> Result<c_int, Fault> {
    // SAFETY: promised by the caller.
    unsafe { object_of(pointer.cast_const()) }?.0.alone()?;
    // SAFETY: made by `Box::into_raw`, and checked to be alive.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(WEFT_OK)
}

/// The job of a watchdog.
struct Charge(*const WeftJob);

// SAFETY: the thread uses the job only while it holds the gate and the job is not over; the job
// ends in a call that holds the gate, before it is freed. All other code that uses the job or
// counts references to parts of it is in functions of this interface, which take the gate too. No
// link that a job opens is bound to a thread.
unsafe impl Send for Charge {}

/// Starts a watchdog for a job that will not move in memory, if one is chosen. The caller keeps the
/// returned gate until its function returns.
fn watch(job: &WeftJob) -> Result<Option<Held>, Fault> {
    if job.packets.endpoint().choices().receipt != Receipt::Watchdog {
        return Ok(None);
    }
    let config = weft::job::config_from_env().map_err(|e| Fault(WEFT_INIT, e.to_string()))?;
    let period = Duration::from_micros(config.watchdog_us.max(1).into());
    let charge = Charge(job);
    let round = move || {
        let Charge(job) = &charge;
        // A panic has printed its place, like any in a call.
        enter(|| {
            // SAFETY: as `Charge` says; the watchdog holds the gate, and the job is not over.
            unsafe { &**job }.watched();
            Ok(WEFT_OK)
        });
    };
    let failed = |why| Fault(WEFT_INIT, format!("WEFT_RECEIPT=watchdog: {why}"));
    let (watchdog, gate) = watchdog::start(round, period).map_err(failed)?;
    *job.watchdog.borrow_mut() = Some(watchdog);
    Ok(Some(gate))
}

/// Joins the job this process was started in and stores its handle.
///
/// # Safety
/// `job` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_init(job: *mut *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        unsafe { store(job, std::ptr::null_mut()) }?;
        let joined = Box::into_raw(join()?);
        // SAFETY: just made.
        let gate = watch(unsafe { &*joined });
        if gate.is_err() {
            // SAFETY: made by `Box::into_raw`; nobody else has it.
            drop(unsafe { Box::from_raw(joined) });
        }
        let _gate = gate?;
        // SAFETY: as before.
        unsafe { store(job, joined) }?;
        Ok(WEFT_OK)
    })
}

/// Sends queued packets and leaves the job. The handle is no longer valid, nor is any object made
/// with it; so too in a copy of the process, which gets an error.
///
/// # Safety
/// `job` is a handle that `weft_init` stored and that was not finished.
#[no_mangle]
pub unsafe extern "C" fn weft_finish(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let of = unsafe { job_of(job) }?;
        of.may_wait()?;
        let here = of.is_here();
        // SAFETY: made by `Box::into_raw`, and checked to be alive. Its few bytes stay allocated,
        // without the mark of a job: later uses of it, and of objects made with it, find that.
        unsafe { std::ptr::drop_in_place(job) };
        here.map(|()| WEFT_OK)
    })
}

/// Returns the number of this process in the job.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_rank(job: *const WeftJob) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| Ok(unsafe { job_of(job) }?.world().rank() as c_int))
}

/// Returns the number of ranks of the job.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_size(job: *const WeftJob) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| Ok(unsafe { job_of(job) }?.world().size() as c_int))
}

/// Makes progress and calls upcalls; returns 1 if anything happened, else 0.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_poll(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.is_here()?;
        Ok(c_int::from(job.packets.poll() | job.fresh.take()))
    })
}

/// Makes progress as `weft_poll` does, and waits until something happens, at most `timeout_us`
/// microseconds; forever if that is negative.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_wait(job: *mut WeftJob, timeout_us: i64) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        job.is_here()?;
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        Ok(c_int::from(job.fresh.take() || job.packets.wait(timeout)))
    })
}

/// Returns a descriptor that is readable when `weft_poll` may have work, for the program's own
/// `poll(2)` or epoll, between `weft_prepare_wait` and `weft_finish_wait`. The job owns it: it must
/// not be read or closed.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_wait_fd(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.sleeps_itself()?;
        let fd = job.endpoint().waiting().fd().map(|fd| fd.as_raw_fd());
        fd.ok_or_else(|| Fault(WEFT_REFUSED, "the system gives no descriptor to wait on".into()))
    })
}

/// Prepares for the program's sleep on the descriptor. Returns 1, or 0 if the program must not
/// sleep, because there is work for `weft_poll`; then `weft_finish_wait` must not follow.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_prepare_wait(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.sleeps_itself()?;
        Ok(c_int::from(job.endpoint().waiting().prepare()))
    })
}

/// Reverts `weft_prepare_wait`.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_finish_wait(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.sleeps_itself()?;
        job.endpoint().waiting().finish();
        Ok(WEFT_OK)
    })
}

/// Returns when every rank has called it.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_barrier(job: *mut WeftJob) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        let met = job.world().barrier_blocking();
        met.map_err(|error| Fault(code_of(error.cause()), error.to_string()))?;
        Ok(WEFT_OK)
    })
}

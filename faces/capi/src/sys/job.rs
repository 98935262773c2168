//! Jobs: joining, leaving, progress.

use super::request::WeftRequest;
use super::watchdog::{self, Held, Watchdog};
use super::WEFT_UPCALL;
use super::{enter, is_object, job_of, store, Fault, Head};
use super::{
    WEFT_ARGUMENT, WEFT_BUSY, WEFT_CANCELLED, WEFT_INIT, WEFT_NO_AGENT, WEFT_OK, WEFT_PEER,
    WEFT_REFUSED, WEFT_THREAD, WEFT_TOO_LONG,
};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::thread::ThreadId;
use std::time::Duration;
use weft::choices::Receipt;
use weft::{Endpoint, Group, Job, OpError, PeerId};
use weft_packets::{OpenError, Packets};

/// A rank of a job: `struct weft_job`.
pub struct WeftJob {
    head: Head,
    thread: ThreadId,
    pub(crate) packets: Packets,
    job: Job,
    ranks: RefCell<HashMap<PeerId, usize>>,
    /// Number of running upcalls.
    pub(crate) depth: Cell<u32>,
    watchdog: RefCell<Option<Watchdog>>,
    /// True if the watchdog made progress that the program has not been informed of.
    fresh: Cell<bool>,
    /// Peers whose failure a receive from any rank has reported.
    pub(super) told: RefCell<HashSet<PeerId>>,
    /// Ids of the communicators that were made of a list of ranks.
    pub(super) comms: RefCell<HashSet<u16>>,
    /// Requests of collective operations that have not ended.
    pub(super) collectives: RefCell<Vec<*const WeftRequest>>,
    /// Time of a vain wait, in milliseconds, after which a warning is due.
    pub(super) warn_after_ms: u32,
}

is_object!(WeftJob, "job", b"weft job");

impl Drop for WeftJob {
    fn drop(&mut self) {
        // The watchdog ends before anything else of the job.
        *self.watchdog.get_mut() = None;
    }
}

impl WeftJob {
    pub(crate) fn check_thread(&self) -> Result<(), Fault> {
        match std::thread::current().id() == self.thread || watchdog::is_this_thread() {
            true => Ok(()),
            false => Err(Fault(WEFT_THREAD, "a job belongs to one thread".into())),
        }
    }

    /// # Errors
    /// An upcall runs: a call that waits would wait for ever.
    pub(crate) fn may_wait(&self) -> Result<(), Fault> {
        match self.depth.get() {
            0 => Ok(()),
            _ => Err(Fault(WEFT_UPCALL, "waits, and was called from an upcall".into())),
        }
    }

    /// # Errors
    /// This process is a copy of the one that joined the job.
    fn is_here(&self) -> Result<(), Fault> {
        self.endpoint().end_error().map_or(Ok(()), |error| Err(self.fault(error)))
    }

    /// # Errors
    /// An upcall runs, this process is a copy, or a watchdog makes the progress that a sleeping
    /// program would wait for.
    fn sleeps_itself(&self) -> Result<(), Fault> {
        self.may_wait()?;
        self.is_here()?;
        match self.watchdog.borrow().is_some() {
            true => Err(Fault(WEFT_REFUSED, "the watchdog waits for this job".into())),
            false => Ok(()),
        }
    }

    /// Makes progress in the program's place: the program's next wait returns at once, because it
    /// may wait for just that event.
    pub(super) fn watched(&self) {
        if self.packets.poll() {
            self.fresh.set(true);
        }
    }

    pub(crate) fn world(&self) -> &Group {
        self.job.world()
    }

    /// Checks the number of a rank.
    ///
    /// # Errors
    /// The job has no rank of that number.
    pub(crate) fn rank(&self, rank: c_int) -> Result<usize, Fault> {
        let ranks = self.world().size();
        let known = usize::try_from(rank).ok().filter(|&rank| rank < ranks);
        known.ok_or_else(|| {
            Fault::argument(format!(
                "there is no rank {rank}: the job has ranks 0 to {}",
                ranks - 1
            ))
        })
    }

    pub(crate) fn peer(&self, rank: c_int) -> Result<PeerId, Fault> {
        let rank = self.rank(rank)?;
        let peer = self.explained(self.world().peer(rank).map_err(OpError::from))?;
        self.ranks.borrow_mut().insert(peer, rank);
        Ok(peer)
    }

    /// Converts the error of an operation to a fault that names rank, host, link, interface and
    /// address, and the next step for the user.
    pub(crate) fn explained<T>(&self, result: Result<T, OpError>) -> Result<T, Fault> {
        result.map_err(|error| self.fault(error))
    }

    /// Returns the code of an error, with its whole text.
    pub(crate) fn fault(&self, error: OpError) -> Fault {
        Fault(code_of(error), self.world().explain(error))
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.job.endpoint()
    }

    /// Describes a peer with its rank, host and path, for messages to people.
    pub(crate) fn describe(&self, peer: PeerId) -> String {
        self.job.endpoint().describe(peer)
    }

    /// Returns the rank of a peer; -1 if it belongs to another job.
    pub(crate) fn rank_of(&self, peer: PeerId) -> c_int {
        if let Some(&rank) = self.ranks.borrow().get(&peer) {
            return rank as c_int;
        }
        let all = 0..self.world().size() as c_int;
        all.into_iter().find(|&rank| self.peer(rank).is_ok_and(|p| p == peer)).unwrap_or(-1)
    }
}

/// Returns the code of an error.
pub(super) fn code_of(error: OpError) -> c_int {
    match error {
        OpError::Busy => WEFT_BUSY,
        OpError::Peer { .. } => WEFT_PEER,
        OpError::Uneven { .. } | OpError::Mismatch { .. } => WEFT_ARGUMENT,
        OpError::Truncated { .. } => WEFT_TOO_LONG,
        OpError::Cancelled => WEFT_CANCELLED,
        _ => WEFT_REFUSED,
    }
}

fn join() -> Result<Box<WeftJob>, Fault> {
    // Fails in a second job of this process: the first one's logger stays.
    weft_link::telling::log_to_standard_error();
    let failed = |error: weft::JobError| {
        let text = error.to_string();
        let code = if text.starts_with("no agent") { WEFT_NO_AGENT } else { WEFT_INIT };
        Fault(code, text)
    };
    // If a watchdog is chosen, `watchdog` has the lock.
    let job = Job::init_locked().map_err(failed)?;
    let warn_after_ms = weft::job::config_from_env().map_err(failed)?.warn_after_ms;
    let packets = Packets::new(job.endpoint()).map_err(|error| match error {
        OpenError::NoAgent(why) => Fault(WEFT_NO_AGENT, why.to_string()),
        OpenError::Setting(why) => failed(why),
    })?;
    Ok(Box::new(WeftJob {
        head: Head::new::<WeftJob>(std::ptr::null()),
        thread: std::thread::current().id(),
        packets,
        job,
        ranks: RefCell::default(),
        depth: Cell::new(0),
        watchdog: RefCell::default(),
        fresh: Cell::new(false),
        told: RefCell::default(),
        comms: RefCell::default(),
        collectives: RefCell::default(),
        warn_after_ms,
    }))
}

/// Starts a watchdog for a job that will not move in memory, if one is chosen. The caller keeps the
/// returned gate until its function returns.
fn watch(job: &WeftJob) -> Result<Option<Held>, Fault> {
    if job.packets.endpoint().choices().receipt != Receipt::Watchdog {
        return Ok(None);
    }
    let config = weft::job::config_from_env().map_err(|e| Fault(WEFT_INIT, e.to_string()))?;
    let period = Duration::from_micros(config.watchdog_us.max(1).into());
    let (watchdog, gate) = watchdog::start(job, period)?;
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
        let fd = job.job.endpoint().wait_fd().map(|fd| fd.as_raw_fd());
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
        Ok(c_int::from(job.job.endpoint().prepare_wait()))
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
        job.job.endpoint().finish_wait();
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

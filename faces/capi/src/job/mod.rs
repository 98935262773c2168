//! A rank of a job, as all functions use it.

#[allow(unsafe_code)]
pub(crate) mod sys;

use crate::fault::{code_of, Fault};
use crate::fault::{WEFT_BUSY, WEFT_INIT, WEFT_NO_AGENT, WEFT_REFUSED, WEFT_THREAD, WEFT_UPCALL};
use crate::object::{is_object, Head};
use crate::watchdog::{self, Held, Watchdog};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::rc::Weak;
use std::time::Duration;
use weft::choices::Receipt;
use weft::{Endpoint, Group, Job, OpError, PeerId, Refused};
use weft_packets::{OpenError, Packets};

/// Any rank.
pub const WEFT_ANY: c_int = -1;

/// A rank of a job: `struct weft_job`.
pub struct WeftJob {
    head: Head,
    pub(crate) packets: Packets,
    job: Job,
    ranks: RefCell<HashMap<PeerId, usize>>,
    /// Number of running upcalls.
    pub(crate) depth: Cell<u32>,
    pub(crate) watchdog: RefCell<Option<Watchdog>>,
    /// True if the watchdog made progress that the program has not been informed of.
    pub(crate) fresh: Cell<bool>,
    /// Peers whose failure a receive from any rank has reported.
    pub(crate) told: RefCell<HashSet<PeerId>>,
    /// Ids of the communicators that were made of a list of ranks.
    pub(crate) comms: RefCell<HashSet<u16>>,
    /// Requests of collective operations that have not ended.
    pub(crate) collectives: RefCell<Vec<Weak<dyn Collective>>>,
    /// Time of a vain wait, in milliseconds, after which a warning is due.
    pub(crate) warn_after_ms: u32,
}

is_object!(WeftJob, "job", b"weft job");

/// The request of a collective operation.
pub(crate) trait Collective {
    /// Ends the request if its operation has ended. True if it has.
    fn check(&self) -> bool;
}

impl Drop for WeftJob {
    fn drop(&mut self) {
        // The watchdog ends before anything else of the job.
        *self.watchdog.get_mut() = None;
    }
}

impl WeftJob {
    /// # Errors
    /// The job belongs to another thread than the calling one.
    #[inline]
    pub(crate) fn check_thread(&self) -> Result<(), Fault> {
        match self.head.is_of_this_thread() || watchdog::is_this_thread() {
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
    pub(crate) fn is_here(&self) -> Result<(), Fault> {
        self.endpoint().waiting().end_error().map_or(Ok(()), |error| Err(self.fault(error)))
    }

    /// # Errors
    /// An upcall runs, this process is a copy, or a watchdog makes the progress that a sleeping
    /// program would wait for.
    pub(crate) fn sleeps_itself(&self) -> Result<(), Fault> {
        self.may_wait()?;
        self.is_here()?;
        match self.watchdog.borrow().is_some() {
            true => Err(Fault(WEFT_REFUSED, "the watchdog waits for this job".into())),
            false => Ok(()),
        }
    }

    /// Makes progress in the program's place: the program's next wait returns at once, because it
    /// may wait for just that event.
    pub(crate) fn watched(&self) {
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
        self.job.endpoint().peer(peer).describe()
    }

    /// Returns the rank of a peer; -1 if it belongs to another job.
    pub(crate) fn rank_of(&self, peer: PeerId) -> c_int {
        if let Some(&rank) = self.ranks.borrow().get(&peer) {
            return rank as c_int;
        }
        let all = 0..self.world().size() as c_int;
        all.into_iter().find(|&rank| self.peer(rank).is_ok_and(|p| p == peer)).unwrap_or(-1)
    }

    /// Returns the peer that a receive names; none for `WEFT_ANY`.
    pub(crate) fn source(&self, rank: c_int) -> Result<Option<PeerId>, Fault> {
        match rank {
            WEFT_ANY => Ok(None),
            rank => self.peer(rank).map(Some),
        }
    }

    /// # Errors
    /// The peer has failed: it will send nothing more.
    pub(crate) fn not_failed(&self, source: Option<PeerId>) -> Result<(), Fault> {
        let failure = source.and_then(|peer| Some((peer, self.endpoint().peer(peer).failure()?)));
        match failure {
            Some((peer, failure)) => self.explained(Err(OpError::Peer { peer, failure })),
            None => Ok(()),
        }
    }
}

/// Joins the job this process was started in.
///
/// # Errors
/// The settings are wrong, the job cannot be joined, or an agent is chosen and there is none.
pub(crate) fn join() -> Result<Box<WeftJob>, Fault> {
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
        head: Head::apart::<WeftJob>(),
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

/// Starts a watchdog for a job that does not move in memory, if one is chosen: it calls `round`.
/// The caller keeps the returned gate until its function returns.
fn watch(job: &WeftJob, round: impl FnMut() + Send + 'static) -> Result<Option<Held>, Fault> {
    if job.endpoint().choices().receipt != Receipt::Watchdog {
        return Ok(None);
    }
    let config = weft::job::config_from_env().map_err(|e| Fault(WEFT_INIT, e.to_string()))?;
    let period = Duration::from_micros(config.watchdog_us.max(1).into());
    let failed = |why| Fault(WEFT_INIT, format!("WEFT_RECEIPT=watchdog: {why}"));
    let (watchdog, gate) = watchdog::start(round, period).map_err(failed)?;
    *job.watchdog.borrow_mut() = Some(watchdog);
    Ok(Some(gate))
}

/// Returns the code and the text of an operation that was refused.
pub(crate) fn refused(job: &WeftJob, refused: Refused) -> Fault {
    match refused {
        Refused::Busy => Fault(WEFT_BUSY, "too many operations are under way".into()),
        Refused::Peer(peer, failure) => job.fault(OpError::Peer { peer, failure }),
        other => Fault::argument(other.to_string()),
    }
}

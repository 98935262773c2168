//! A job whose endpoint many threads or a watchdog use.

use super::SharedEndpoint;
use crate::card::Card;
use crate::group::rank_name;
use crate::job::{entry_of, join, JobError};
use std::cell::RefCell;
use std::time::Duration;
use weft_core::PeerId;
use weft_launch::{Bootstrap, LaunchError};
use weft_link::copied::Origin;

/// This process as a rank of its job, by a [`SharedEndpoint`]: for programs of many threads, and
/// for those that a watchdog serves while they compute (`WEFT_RECEIPT=watchdog`). The job stays in
/// the thread that joined it; clones of its endpoint go to other threads. Dropping it sends what is
/// queued and leaves the job.
///
/// ```no_run
/// let job = weft::SharedJob::init()?;
/// if job.rank() == 0 {
///     // A thread for each other rank; each waits for its own messages.
///     std::thread::scope(|scope| {
///         for rank in 1..job.size() {
///             let (endpoint, peer) = (job.endpoint().clone(), job.peer(rank)?);
///             scope.spawn(move || endpoint.recv(Some(peer), 1, 0, &mut [0; 64]));
///         }
///         Ok::<(), String>(())
///     })?;
/// } else {
///     job.endpoint().send(job.peer(0)?, 1, b"hello")?;
/// }
/// job.fence()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedJob {
    origin: Origin,
    boot: RefCell<Box<dyn Bootstrap>>,
    endpoint: SharedEndpoint,
    peers: RefCell<Vec<Option<PeerId>>>,
    card: Card,
}

impl SharedJob {
    /// Joins the job of this process, as [`Job::init`](crate::Job::init).
    ///
    /// # Errors
    /// The launcher fails, a variable is wrong, or no link opens.
    pub fn init() -> Result<SharedJob, JobError> {
        let (boot, endpoint, card) = join()?;
        let peers = RefCell::new(vec![None; boot.size()]);
        let endpoint = SharedEndpoint::of(endpoint);
        Ok(SharedJob { origin: Origin::here(), boot: RefCell::new(boot), endpoint, peers, card })
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> usize {
        self.boot.borrow().rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.peers.borrow().len()
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &SharedEndpoint {
        &self.endpoint
    }

    /// Returns the peer of a rank, and asks for its address at the first use.
    ///
    /// # Errors
    /// There is no such rank, or no link reaches it: the text says why.
    pub fn peer(&self, rank: usize) -> Result<PeerId, String> {
        let known = self.peers.borrow().get(rank).copied();
        match known {
            Some(Some(peer)) => return Ok(peer),
            Some(None) => {}
            None => return Err(format!("there is no rank {rank} in a job of {}", self.size())),
        }
        let (address, host) = entry_of(self.boot.borrow_mut().as_mut(), &self.card, rank)?;
        let peer = self.endpoint.connect(&address).map_err(|e| format!("rank {rank}: {e}"))?;
        // Errors show this name.
        let host = host.as_deref();
        self.endpoint
            .with(|e| e.peer(peer).set_name(&rank_name(rank, &address, host, e.address().host)));
        self.peers.borrow_mut()[rank] = Some(peer);
        Ok(peer)
    }

    /// Waits in the launcher until every rank has called it. Meanwhile this thread makes no
    /// progress; the watchdog or other threads do.
    ///
    /// # Errors
    /// The error names the ranks that are late.
    pub fn fence(&self) -> Result<(), LaunchError> {
        self.boot.borrow_mut().fence()
    }
}

impl Drop for SharedJob {
    fn drop(&mut self) {
        // In a forked copy of the process: only the original leaves the job.
        if std::thread::panicking() || !self.origin.is_here() {
            return;
        }
        self.endpoint.close(Duration::from_secs(5));
        if let Err(e) = self.boot.borrow_mut().finalize() {
            weft_link::warn!("leaving the job: {e}");
        }
    }
}

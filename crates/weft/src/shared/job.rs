//! A job whose endpoint many threads use, or a watchdog.

use super::SharedEndpoint;
use crate::group::rank_name;
use crate::job::{address_of, join, JobError};
use crate::launch::{Bootstrap, LaunchError};
use std::cell::RefCell;
use std::time::Duration;
use weft_core::PeerId;
use weft_link::copied::Origin;

/// This process as a rank of its job, by a [`SharedEndpoint`]: for programs of many threads, and
/// for those that a watchdog serves while they compute (`WEFT_RECEIPT=watchdog`). The job stays
/// with the thread that joined it, clones of its endpoint go to others. Dropping it sends what is
/// queued and leaves the job.
pub struct SharedJob {
    origin: Origin,
    boot: RefCell<Box<dyn Bootstrap>>,
    endpoint: SharedEndpoint,
    peers: RefCell<Vec<Option<PeerId>>>,
}

impl SharedJob {
    /// Joins the job this process was started in, as [`Job::init`](crate::Job::init).
    ///
    /// # Errors
    /// The launcher does not help, a variable is wrong, no link opens.
    pub fn init() -> Result<SharedJob, JobError> {
        let (boot, endpoint) = join()?;
        let peers = RefCell::new(vec![None; boot.size()]);
        let endpoint = SharedEndpoint::of(endpoint);
        Ok(SharedJob { origin: Origin::here(), boot: RefCell::new(boot), endpoint, peers })
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.boot.borrow().rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.peers.borrow().len()
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &SharedEndpoint {
        &self.endpoint
    }

    /// The peer of a rank, whose address is asked for when it is first used.
    ///
    /// # Errors
    /// There is no such rank, or no link leads there: the text says why.
    pub fn peer(&self, rank: usize) -> Result<PeerId, String> {
        let known = self.peers.borrow().get(rank).copied();
        match known {
            Some(Some(peer)) => return Ok(peer),
            Some(None) => {}
            None => return Err(format!("there is no rank {rank} in a job of {}", self.size())),
        }
        let address = address_of(self.boot.borrow_mut().as_mut(), rank)?;
        let peer = self.endpoint.connect(&address).map_err(|e| format!("rank {rank}: {e}"))?;
        // What errors call it.
        self.endpoint.with(|e| e.set_name(peer, &rank_name(rank, &address, e.address().host)));
        self.peers.borrow_mut()[rank] = Some(peer);
        Ok(peer)
    }

    /// Waits until every rank has called it. The launcher counts them: meanwhile the watchdog or
    /// other threads make progress, this one does not.
    ///
    /// # Errors
    /// Ranks that are late are named.
    pub fn fence(&self) -> Result<(), LaunchError> {
        self.boot.borrow_mut().fence()
    }
}

impl Drop for SharedJob {
    fn drop(&mut self) {
        // A copy of the process leaves the job to the original.
        if std::thread::panicking() || !self.origin.is_here() {
            return;
        }
        self.endpoint.close(Duration::from_secs(5));
        if let Err(e) = self.boot.borrow_mut().finalize() {
            log::warn!("leaving the job: {e}");
        }
    }
}

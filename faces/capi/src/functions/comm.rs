//! Communicators: ranks in an order, with collective operations of their own (`collective`).

use super::tree::tree_of;
use crate::fault::Fault;
use crate::job::WeftJob;
use crate::object::{is_object, Head};
use crate::sys::Given;
use std::ffi::c_int;
use weft::{Group, OpError};

/// A communicator: `struct weft_comm`.
pub struct WeftComm {
    head: Head,
    pub(super) group: Group,
    /// 0 for the communicator of all ranks, which is the job's.
    pub(super) id: u16,
}

is_object!(WeftComm, "communicator", b"weft com");

/// Returns a communicator of all ranks.
pub(crate) fn all(job: &WeftJob) -> Box<WeftComm> {
    let head = Head::new::<WeftComm>(job);
    Box::new(WeftComm { head, group: job.world().clone(), id: 0 })
}

/// Makes communicator `id` of the given ranks, this one included, in their order. All of them do so
/// with the same id and ranks.
///
/// # Errors
/// The ranks are more than the job has, one is none or stands twice, this one is missing, or the id
/// is in use.
pub(crate) fn make(
    job: &WeftJob,
    id: u16,
    ranks: Given<c_int>,
    count: usize,
) -> Result<Box<WeftComm>, Fault> {
    if count > job.world().size() {
        return Err(Fault::argument("count is larger than the job"));
    }
    let ranks = ranks.values("ranks", count)?;
    let members = ranks.as_slice().iter().map(|&rank| job.rank(rank));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let mut sorted = members.clone();
    sorted.sort_unstable();
    if let Some(two) = sorted.windows(2).find(|two| two[0] == two[1]) {
        return Err(Fault::argument(format!("ranks names rank {} twice", two[0])));
    }
    if id == 0 || job.comms.borrow().contains(&id) {
        let why = format!("communicator {id} is that of all ranks, or is in use");
        return Err(Fault::argument(why));
    }
    let group = job.world().subset(&members, id);
    let group = group.ok_or_else(|| Fault::argument("this rank is not among the ranks"))?;
    job.comms.borrow_mut().insert(id);
    Ok(Box::new(WeftComm { head: Head::new::<WeftComm>(job), group, id }))
}

impl WeftComm {
    /// Returns the number of this process.
    #[inline]
    pub(crate) fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Returns the number of ranks.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.group.size()
    }

    /// Checks the number of a root, and returns whether it is this rank.
    ///
    /// # Errors
    /// There is no such rank.
    pub(super) fn root(&self, root: c_int) -> Result<(usize, bool), Fault> {
        let found = usize::try_from(root).ok().filter(|&root| root < self.group.size());
        let root = found.ok_or_else(|| {
            let size = self.group.size();
            Fault::argument(format!("there is no rank {root}: the communicator has {size}"))
        })?;
        Ok((root, root == self.group.rank()))
    }

    /// Returns the number in the job of a rank.
    ///
    /// # Errors
    /// There is no such rank, or it has failed.
    pub(crate) fn job_rank(&self, job: &WeftJob, rank: c_int) -> Result<c_int, Fault> {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        let peer = self.group.peer(rank).map_err(|error| match error.cause() {
            OpError::NoRank { .. } => Fault::argument(error.to_string()),
            cause => job.fault(cause),
        })?;
        Ok(job.rank_of(peer))
    }

    /// Chooses the tree of broadcasts and reductions from now on. All ranks choose the same.
    ///
    /// # Errors
    /// There is no such tree.
    pub(crate) fn choose_tree(&self, job: &WeftJob, tree: c_int) -> Result<(), Fault> {
        self.group.set_tree(tree_of(job, tree)?);
        Ok(())
    }
}

/// Gives the id of a communicator back, whose handle was freed.
pub(crate) fn forget(job: &WeftJob, id: u16) {
    job.comms.borrow_mut().remove(&id);
}

//! Communicators: ranks in an order, with collective operations of their own (`collective`).

use super::remote::tree_of;
use super::{enter, free, is_object, job_of, object_of, store, Fault, Head, WEFT_OK};
use crate::job::WeftJob;
use std::ffi::c_int;
use weft::{Group, OpError};

/// A communicator: `struct weft_comm`.
pub struct WeftComm {
    head: Head,
    pub(super) group: Group,
    /// 0 for the communicator of all ranks, which is the job's.
    id: u16,
}

is_object!(WeftComm, "communicator", b"weft com");

/// Stores the handle of a communicator of all ranks.
///
/// # Safety
/// `job` is a living handle, `comm` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_all(job: *mut WeftJob, comm: *mut *mut WeftComm) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let owner = unsafe { job_of(job) }?;
        let head = Head::new::<WeftComm>(job);
        let made = Box::new(WeftComm { head, group: owner.world().clone(), id: 0 });
        // SAFETY: promised by the caller.
        unsafe { store(comm, Box::into_raw(made)) }?;
        Ok(WEFT_OK)
    })
}

/// Makes communicator `id` of the given ranks, this one included, in their order, and stores its
/// handle. All of them do so with the same id and ranks.
///
/// # Safety
/// `job` is a living handle, `ranks..ranks + count` is readable, `comm` points to memory for a
/// pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_make(
    job: *mut WeftJob,
    id: u16,
    ranks: *const c_int,
    count: usize,
    comm: *mut *mut WeftComm,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let owner = unsafe { job_of(job) }?;
        if ranks.is_null() || !ranks.is_aligned() || count > owner.world().size() {
            return Err(Fault::argument("ranks is null or misaligned, or count out of bounds"));
        }
        // SAFETY: not null, aligned, and promised by the caller to be readable.
        let ranks = unsafe { std::slice::from_raw_parts(ranks, count) };
        let members = ranks.iter().map(|&rank| owner.rank(rank)).collect::<Result<Vec<_>, _>>()?;
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if let Some(two) = sorted.windows(2).find(|two| two[0] == two[1]) {
            return Err(Fault::argument(format!("ranks names rank {} twice", two[0])));
        }
        if id == 0 || owner.comms.borrow().contains(&id) {
            let why = format!("communicator {id} is that of all ranks, or is in use");
            return Err(Fault::argument(why));
        }
        let group = owner.world().subset(&members, id);
        let group = group.ok_or_else(|| Fault::argument("this rank is not among the ranks"))?;
        let made = Box::new(WeftComm { head: Head::new::<WeftComm>(job), group, id });
        // SAFETY: promised by the caller.
        unsafe { store(comm, Box::into_raw(made)) }?;
        owner.comms.borrow_mut().insert(id);
        Ok(WEFT_OK)
    })
}

/// Frees the handle of a communicator and its id; operations under way go on.
///
/// # Safety
/// `comm` is a living handle of a living job, and nobody uses it afterwards.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_free(comm: *mut WeftComm) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (of, job) = unsafe { object_of(comm.cast_const()) }?;
        let id = of.id;
        drop(of);
        // SAFETY: as before.
        let freed = unsafe { free(comm) }?;
        job.comms.borrow_mut().remove(&id);
        Ok(freed)
    })
}

/// Returns the number of this process in a communicator.
///
/// # Safety
/// `comm` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_rank(comm: *const WeftComm) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| Ok(unsafe { object_of(comm) }?.0.group.rank() as c_int))
}

/// Returns the number of ranks of a communicator.
///
/// # Safety
/// `comm` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_size(comm: *const WeftComm) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| Ok(unsafe { object_of(comm) }?.0.group.size() as c_int))
}

/// Returns the number in the job of a rank of a communicator.
///
/// # Safety
/// `comm` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_job_rank(comm: *const WeftComm, rank: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (comm, job) = unsafe { object_of(comm) }?;
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        let peer = comm.group.peer(rank).map_err(|error| match error.cause() {
            OpError::NoRank { .. } => Fault::argument(error.to_string()),
            cause => job.fault(cause),
        })?;
        Ok(job.rank_of(peer))
    })
}

/// Chooses the tree (`WEFT_TREE_...`) of broadcasts and reductions of a communicator from now on.
/// All its ranks choose the same.
///
/// # Safety
/// `comm` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_comm_tree(comm: *mut WeftComm, tree: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (comm, job) = unsafe { object_of(comm.cast_const()) }?;
        comm.group.set_tree(tree_of(job, tree)?);
        Ok(WEFT_OK)
    })
}

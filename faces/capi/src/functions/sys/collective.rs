//! Communicators, and their collective operations.

use super::functions;
use crate::entry::{enter, Answer};
use crate::functions::collective::{self, Begun, Gets, Places, Ranks, Reduction};
use crate::functions::comm::{self, WeftComm};
use crate::functions::request::WeftRequest;
use crate::functions::wait;
use crate::job::sys::{free, job_of, object_of};
use crate::job::WeftJob;
use crate::sys::{bytes, Given, Out};
use std::ffi::{c_int, c_void};

functions! { enter:
    fn weft_comm_all(job: *mut WeftJob, comm: *mut *mut WeftComm) -> c_int {
        let (job, comm) = (job_of(job)?, Out::new(comm)?);
        comm.give(comm::all(job));
        Ok(())
    }

    fn weft_comm_make(
        job: *mut WeftJob, id: u16, ranks: *const c_int, count: usize, comm: *mut *mut WeftComm,
    ) -> c_int {
        let (job, comm) = (job_of(job)?, Out::new(comm)?);
        comm::make(job, id, Given::new(ranks), count).map(|made| comm.give(made))
    }

    fn weft_comm_free(comm: *mut WeftComm) -> c_int {
        let (of, job) = object_of(comm.cast_const())?;
        let id = of.id;
        drop(of);
        free(comm).map(|()| comm::forget(job, id))
    }

    fn weft_comm_rank(comm: *const WeftComm) -> c_int {
        Ok(object_of(comm)?.0.rank())
    }

    fn weft_comm_size(comm: *const WeftComm) -> c_int {
        Ok(object_of(comm)?.0.size())
    }

    fn weft_comm_job_rank(comm: *const WeftComm, rank: c_int) -> c_int {
        let (comm, job) = object_of(comm)?;
        comm.job_rank(job, rank)
    }

    fn weft_comm_tree(comm: *mut WeftComm, tree: c_int) -> c_int {
        let (comm, job) = object_of(comm.cast_const())?;
        comm.choose_tree(job, tree)
    }
}

/// Begins an operation and returns at its end.
///
/// # Safety
/// `comm` is a living handle of a living job.
unsafe fn wait_for(comm: *const WeftComm, begin: impl FnOnce(Ranks<'_>) -> Begun) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (comm, job) = unsafe { object_of(comm) }?;
        job.may_wait()?;
        wait::finish(&*begin((&comm, job))?, job, None).map(Answer::number)
    })
}

/// Begins an operation and stores its request.
///
/// # Safety
/// `comm` is a living handle of a living job, `request` points to memory for a pointer.
unsafe fn hand_over(
    comm: *const WeftComm,
    request: *mut *mut WeftRequest,
    begin: impl FnOnce(Ranks<'_>) -> Begun,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let ((comm, job), request) = unsafe { (object_of(comm)?, Out::handle(request)?) };
        begin((&comm, job)).map(|begun| request.hand_over(begun)).map(Answer::number)
    })
}

/// Defines two functions of an operation: one that waits for its end, and one that stores its
/// request. They have the parameters given, after the communicator and before the request.
macro_rules! both {
    ($(
        fn $wait:ident | $start:ident($($arg:ident: $type:ty),* $(,)?) $begin:expr;
    )*) => {$(
        #[doc = concat!("`", stringify!($wait), "`, as `weft.h` describes it.")]
        ///
        /// # Safety
        /// `comm` is a living handle of a living job; the other rules are those of `weft.h`.
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $wait(comm: *mut WeftComm $(, $arg: $type)*) -> c_int {
            // SAFETY: promised by the caller.
            unsafe { wait_for(comm, $begin) }
        }

        #[doc = concat!("Starts the operation of `", stringify!($wait), "`, and stores its")]
        /// request.
        ///
        /// # Safety
        #[doc = concat!("The caller keeps the rules of `", stringify!($wait), "`, those of memory")]
        /// that is written until the request has ended; `request` points to memory for a pointer.
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $start(
            comm: *mut WeftComm,
            $($arg: $type,)*
            request: *mut *mut WeftRequest,
        ) -> c_int {
            // SAFETY: promised by the caller.
            unsafe { hand_over(comm, request, $begin) }
        }
    )*};
}

/// Returns memory with a place for each rank, and the lengths of their contents.
///
/// # Safety
/// The caller keeps the rules of [`Given::new`].
unsafe fn places(all: *const c_void, each: usize, lens: *const usize) -> Places {
    // SAFETY: promised by the caller.
    unsafe { Places { all: Given::new(all.cast()), each, lens: Given::new(lens) } }
}

/// Returns the parts of a reduction.
///
/// # Safety
/// The caller keeps the rules of [`Given::new`].
unsafe fn values(
    (data, result): (*const c_void, *mut c_void),
    count: usize,
    (kind, op): (c_int, c_int),
) -> Reduction {
    // SAFETY: promised by the caller.
    let (data, result) = unsafe { (Given::new(data.cast()), Given::new(result.cast())) };
    Reduction { data, result, count, kind, op }
}

both! {
    fn weft_comm_barrier | weft_comm_ibarrier() collective::barrier;

    fn weft_comm_broadcast | weft_comm_ibroadcast(root: c_int, data: *mut c_void, len: usize)
        |ranks| collective::broadcast(ranks, root, bytes(data, len)?);

    fn weft_comm_reduce | weft_comm_ireduce(
        root: c_int, data: *const c_void, result: *mut c_void, count: usize, kind: c_int, op: c_int,
    ) |ranks| {
        let reduction = values((data, result), count, (kind, op));
        collective::reduce(ranks, Gets::Root(root), reduction)
    };

    fn weft_comm_allreduce | weft_comm_iallreduce(
        data: *const c_void, result: *mut c_void, count: usize, kind: c_int, op: c_int,
    ) |ranks| collective::reduce(ranks, Gets::All, values((data, result), count, (kind, op)));

    fn weft_comm_reduce_scatter | weft_comm_ireduce_scatter(
        data: *const c_void, result: *mut c_void, counts: *const usize, kind: c_int, op: c_int,
    ) |ranks| {
        let reduction = values((data, result), 0, (kind, op));
        collective::reduce_scatter(ranks, Given::new(counts), reduction)
    };

    fn weft_comm_gather | weft_comm_igather(
        root: c_int, data: *const c_void, len: usize, all: *mut c_void, each: usize,
        lens: *mut usize,
    ) |ranks| collective::gather(ranks, Some(root), &bytes(data, len)?, places(all, each, lens));

    fn weft_comm_allgather | weft_comm_iallgather(
        data: *const c_void, len: usize, all: *mut c_void, each: usize, lens: *mut usize,
    ) |ranks| collective::gather(ranks, None, &bytes(data, len)?, places(all, each, lens));

    fn weft_comm_scatter | weft_comm_iscatter(
        root: c_int, all: *const c_void, each: usize, lens: *const usize, data: *mut c_void,
        len: usize, got: *mut usize,
    ) |ranks| {
        let (data, got) = (bytes(data, len)?, Out::optional(got)?);
        collective::scatter(ranks, root, places(all, each, lens), data, got)
    };

    fn weft_comm_alltoall | weft_comm_ialltoall(
        data: *const c_void, lens: *const usize, all: *mut c_void, got: *mut usize, each: usize,
    ) |ranks| collective::alltoall(ranks, places(data, each, lens), places(all, each, got));
}

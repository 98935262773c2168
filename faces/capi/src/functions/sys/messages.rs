//! Messages with tags, requests and sets of requests.

use super::functions;
use crate::functions::message::{self, WeftMessage};
use crate::functions::request::{WeftRequest, WeftStatus};
use crate::functions::set::{self, WeftSet};
use crate::functions::wait;
use crate::job::sys::{free, job_of, object_of};
use crate::job::WeftJob;
use crate::object::sys::object;
use crate::sys::{bytes, Given, Out};
use std::ffi::{c_int, c_void};
use std::rc::Rc;

impl Out<*mut WeftRequest> {
    /// Hands a request over to the program.
    #[inline]
    pub(super) fn hand_over(&self, request: Rc<WeftRequest>) {
        self.store(Rc::into_raw(request).cast_mut());
    }
}

functions! { enter:
    fn weft_msg_send(
        job: *mut WeftJob, rank: c_int, tag: u32, data: *const c_void, len: usize,
    ) -> c_int {
        let (job, data) = (job_of(job)?, bytes(data, len)?);
        message::send(job, rank, tag, data.as_slice())
    }

    fn weft_msg_recv(
        job: *mut WeftJob, rank: c_int, tag: u32, ignore: u32, data: *mut c_void, len: usize,
        status: *mut WeftStatus,
    ) -> c_int {
        let (job, data, status) = (job_of(job)?, bytes(data, len)?, Out::optional(status)?);
        message::recv(job, (rank, tag, ignore), data, status)
    }

    fn weft_msg_isend(
        job: *mut WeftJob, rank: c_int, tag: u32, data: *const c_void, len: usize,
        request: *mut *mut WeftRequest,
    ) -> c_int {
        let (job, request) = (job_of(job)?, Out::handle(request)?);
        let started = message::start_send(job, rank, (tag, false), &bytes(data, len)?);
        started.map(|started| request.hand_over(started))
    }

    fn weft_msg_issend(
        job: *mut WeftJob, rank: c_int, tag: u32, data: *const c_void, len: usize,
        request: *mut *mut WeftRequest,
    ) -> c_int {
        let (job, request) = (job_of(job)?, Out::handle(request)?);
        let started = message::start_send(job, rank, (tag, true), &bytes(data, len)?);
        started.map(|started| request.hand_over(started))
    }

    fn weft_msg_irecv(
        job: *mut WeftJob, rank: c_int, tag: u32, ignore: u32, data: *mut c_void, len: usize,
        request: *mut *mut WeftRequest,
    ) -> c_int {
        let (job, request) = (job_of(job)?, Out::handle(request)?);
        let started = message::start_recv(job, (rank, tag, ignore), bytes(data, len)?);
        started.map(|started| request.hand_over(started))
    }

    fn weft_msg_probe(
        job: *mut WeftJob, rank: c_int, tag: u32, ignore: u32, status: *mut WeftStatus,
    ) -> c_int {
        message::probe(job_of(job)?, (rank, tag, ignore), Out::optional(status)?)
    }

    fn weft_msg_claim(
        job: *mut WeftJob, rank: c_int, tag: u32, ignore: u32, message: *mut *mut WeftMessage,
        status: *mut WeftStatus,
    ) -> c_int {
        let (job, message) = (job_of(job)?, Out::handle(message)?);
        let claimed = message::claim(job, (rank, tag, ignore), Out::optional(status)?)?;
        Ok(claimed.map(|claimed| message.give(claimed)).is_some())
    }

    fn weft_msg_take(
        message: *mut WeftMessage, data: *mut c_void, len: usize, status: *mut WeftStatus,
    ) -> c_int {
        let (of, job) = object_of(message.cast_const())?;
        job.may_wait()?;
        let status = Out::optional(status)?;
        let request = message::take(&of, job, bytes(data, len)?)?;
        drop(of);
        free(message)?;
        wait::finish(&request, job, status)
    }

    fn weft_msg_itake(
        message: *mut WeftMessage, data: *mut c_void, len: usize, request: *mut *mut WeftRequest,
    ) -> c_int {
        let request = Out::handle(request)?;
        let (of, job) = object_of(message.cast_const())?;
        let started = message::take(&of, job, bytes(data, len)?)?;
        drop(of);
        free(message)?;
        request.hand_over(started);
        Ok(())
    }

    fn weft_test(request: *mut *mut WeftRequest, status: *mut WeftStatus) -> c_int {
        wait::test(Given::new(request), Out::optional(status)?)
    }

    fn weft_wait_any(
        requests: *mut *mut WeftRequest, count: usize, at: *mut usize, status: *mut WeftStatus,
    ) -> c_int {
        wait::wait_any(Given::new(requests), count, Out::optional(at)?, Out::optional(status)?)
    }

    fn weft_wait_all(
        requests: *mut *mut WeftRequest, count: usize, statuses: *mut WeftStatus,
    ) -> c_int {
        wait::wait_all(Given::new(requests), count, Given::new(statuses))
    }

    fn weft_cancel(request: *mut WeftRequest) -> c_int {
        let (request, job) = object_of(request.cast_const())?;
        request.cancel(job);
        Ok(())
    }

    fn weft_set_make(job: *mut WeftJob, set: *mut *mut WeftSet) -> c_int {
        let (job, set) = (job_of(job)?, Out::new(set)?);
        set.give(set::make(job));
        Ok(())
    }

    fn weft_set_add(set: *mut WeftSet, request: *mut WeftRequest, context: *mut c_void) -> c_int {
        let (set, _) = object_of(set.cast_const())?;
        set.may_add(object(request.cast_const())?)?;
        set.add(Rc::from_raw(request), context);
        Ok(())
    }

    fn weft_set_wait(
        set: *mut WeftSet, timeout_us: i64, context: *mut *mut c_void, status: *mut WeftStatus,
    ) -> c_int {
        let set = object_of(set.cast_const())?;
        set::wait(set, timeout_us, Out::optional(context)?, Out::optional(status)?)
    }

    fn weft_set_free(set: *mut WeftSet) -> c_int {
        free(set)
    }
}

//! Operations on memory of the program, and the requests that their completions name.

use super::WeftRequest;
use crate::fault::Fault;
use crate::job::{refused, WeftJob};
use crate::object::sys::object;
use crate::sys::{Borrowed, Given};
use std::rc::Rc;
use weft::{RecvArgs, SendArgs};
use weft_core::engine::types::{Claimed, Completion};
use weft_core::matching::RecvSpec;

impl WeftRequest {
    /// Returns the context of its operation.
    fn address(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    /// Posts the send. If its memory is free already, the request has ended.
    ///
    /// # Errors
    /// The operation is refused.
    #[inline]
    pub(crate) fn post_send(
        &self,
        job: &WeftJob,
        data: &Borrowed<u8>,
        args: SendArgs,
    ) -> Result<(), Fault> {
        let args = SendArgs { context: self.address(), ..args };
        // SAFETY: the program keeps the memory until the request has ended; a request that is
        // dropped before takes it back.
        let posted = unsafe { job.endpoint().posted().send(data.as_ptr(), args) };
        match posted.map_err(|why| refused(job, why))? {
            Some(op) => self.op.set(Some(op)),
            None => self.end(Ok(super::WeftStatus::NOTHING)),
        }
        Ok(())
    }

    /// Posts a receive into its memory.
    ///
    /// # Errors
    /// The operation is refused.
    #[inline]
    pub(crate) fn post_recv(&self, job: &WeftJob, spec: RecvSpec) -> Result<(), Fault> {
        let Some((at, args)) = self.recv_args(spec) else { return Ok(()) };
        // SAFETY: the program keeps the memory until the request has ended; a request that is
        // dropped before takes it back.
        let posted = unsafe { job.endpoint().posted().recv(at, args) };
        self.op.set(Some(posted.map_err(|why| refused(job, why))?));
        Ok(())
    }

    /// Posts the receive of a claimed message into its memory.
    ///
    /// # Errors
    /// The operation is refused.
    pub(crate) fn post_claimed(&self, job: &WeftJob, claimed: Claimed) -> Result<(), Fault> {
        let any = RecvSpec { source: None, tag: 0, ignore: 0 };
        let Some((at, args)) = self.recv_args(any) else { return Ok(()) };
        // SAFETY: as in `post_recv`.
        let posted = unsafe { job.endpoint().posted().recv_claimed(claimed, at, args) };
        self.op.set(Some(posted.map_err(|why| refused(job, why))?));
        Ok(())
    }

    fn recv_args(&self, RecvSpec { source, tag, ignore }: RecvSpec) -> Option<(*mut u8, RecvArgs)> {
        let memory = self.memory.as_ref()?;
        let (len, context) = (memory.len() as u64, self.address());
        let args = RecvArgs { source, tag, ignore, len, addr: 0, context, untagged: false };
        Some((memory.as_ptr(), args))
    }
}

/// Returns the next request whose operation has ended.
#[inline]
pub(super) fn next_completed(job: &WeftJob) -> Option<(&WeftRequest, Completion)> {
    let completion = job.endpoint().posted().poll()?;
    let request = completion.context as *const WeftRequest;
    // SAFETY: the context of each operation on this queue is its request, which lives until its end
    // was reported here, or the operation was taken back.
    Some((unsafe { &*request }, completion))
}

/// A list of a program: its entries are null, or requests that were living when it was made.
pub(crate) struct Handles(Borrowed<*mut WeftRequest>);

impl Handles {
    /// Checks a list.
    ///
    /// # Errors
    /// The list is null, misaligned or not there, or an entry is no request.
    pub fn new(list: Given<*mut WeftRequest>, count: usize) -> Result<Handles, Fault> {
        let list = list.values("the list of requests", count)?;
        let mut entries = list.as_slice().iter().filter(|entry| !entry.is_null());
        // SAFETY: the program has made the list of null and requests.
        entries.try_for_each(|&entry| unsafe { object(entry) }.map(|_: &WeftRequest| ()))?;
        Ok(Handles(list))
    }

    /// Returns the requests, with their indices.
    pub fn living(&self) -> impl Iterator<Item = (usize, &WeftRequest)> {
        let entries = self.0.as_slice().iter().enumerate();
        // SAFETY: checked when the list was made. They live until a call takes them.
        entries.filter_map(|(at, entry)| unsafe { entry.as_ref() }.map(|request| (at, request)))
    }

    /// Takes a request, in whose place the entry is null.
    ///
    /// # Errors
    /// The program has freed it meanwhile.
    pub fn take(&self, at: usize) -> Result<Rc<WeftRequest>, Fault> {
        let request = self.0.as_slice()[at].cast_const();
        // SAFETY: the program has made the list of null and requests.
        unsafe { object(request) }?;
        self.0.put(at, &[std::ptr::null_mut()]);
        // SAFETY: handed over by `Rc::into_raw`, and alive.
        Ok(unsafe { Rc::from_raw(request) })
    }
}

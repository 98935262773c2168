//! Requests: started operations.
//!
//! A request is posted on the endpoint's completion queue with its own address as context, so that
//! a completion finds it without a search. It lives until a call reports its end.

#[allow(unsafe_code)]
pub(super) mod sys;

use crate::fault::{Fault, WEFT_CANCELLED, WEFT_OK, WEFT_TOO_LONG};
use crate::job::{self, Collective, WeftJob, WEFT_ANY};
use crate::object::{is_object, Head};
use crate::sys::{Borrowed, Out};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use weft::{OpError, OpId, PeerId};
use weft_core::engine::types::Completion;

/// The result of a message: `weft_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeftStatus {
    /// The rank that sent it; -1 if nothing was received.
    pub source: c_int,
    /// Its tag.
    pub tag: u32,
    /// Its length when sent, even if the memory is shorter.
    pub len: usize,
    /// The result of the operation: `WEFT_OK` or a code.
    pub code: c_int,
}

impl WeftStatus {
    pub(super) const NOTHING: WeftStatus =
        WeftStatus { source: WEFT_ANY, tag: 0, len: 0, code: WEFT_OK };

    pub(super) fn of(job: &WeftJob, source: PeerId, tag: u64, len: usize) -> WeftStatus {
        WeftStatus { source: job.rank_of(source), tag: tag as u32, len, code: WEFT_OK }
    }
}

/// The end of an operation: its status, and for a failed one the text for `weft_last_error`.
pub(super) type Ended = Result<WeftStatus, (WeftStatus, String)>;

/// Tests whether a collective operation has ended, and then stores its result in the program's
/// memory.
type CheckFn = Box<dyn FnMut() -> Option<Ended>>;

/// The result of a request.
pub(super) struct Outcome {
    pub(super) status: WeftStatus,
    /// The text for `weft_last_error`, if it failed.
    text: String,
}

impl Outcome {
    /// Returns the result of the call that reports it.
    pub(super) fn result(self) -> Result<(), Fault> {
        match self.status.code {
            WEFT_OK => Ok(()),
            code => Err(Fault(code, self.text)),
        }
    }
}

/// The addresses of the requests of a set that have ended and are not reported yet.
pub(super) type Queue = Rc<RefCell<VecDeque<*const WeftRequest>>>;

/// A request's place in a set.
struct Place {
    ended: Queue,
    /// The program's context for it.
    context: *mut c_void,
}

/// A started operation: `struct weft_request`.
pub struct WeftRequest {
    head: Head,
    op: Cell<Option<OpId>>,
    /// Test of a collective operation that has not ended.
    check: RefCell<Option<CheckFn>>,
    outcome: RefCell<Option<Outcome>>,
    /// Memory of a receive; none for a send.
    memory: Option<Borrowed<u8>>,
    /// True for a receive from any rank.
    pub(super) is_any: bool,
    /// The set that contains it.
    set: RefCell<Option<Place>>,
}

is_object!(WeftRequest, "request", b"weft req");

impl Drop for WeftRequest {
    fn drop(&mut self) {
        // A call unwound while its operation would use the memory later: the memory is taken back.
        let op = self.op.get().filter(|_| self.outcome.get_mut().is_none());
        if let (Some(op), Ok(job)) = (op, job::sys::of(&self.head)) {
            job.endpoint().posted().take_back(op);
        }
    }
}

impl Collective for WeftRequest {
    fn check(&self) -> bool {
        let mut check = self.check.borrow_mut();
        if let Some(ended) = check.as_mut().and_then(|check| check()) {
            *check = None;
            self.end(ended);
        }
        self.is_done()
    }
}

impl WeftRequest {
    fn new(job: &WeftJob, memory: Option<Borrowed<u8>>, is_any: bool) -> Rc<WeftRequest> {
        Rc::new(WeftRequest {
            head: Head::new::<WeftRequest>(job),
            op: Cell::new(None),
            check: RefCell::default(),
            outcome: RefCell::default(),
            memory,
            is_any,
            set: RefCell::default(),
        })
    }

    pub(super) fn send(job: &WeftJob) -> Rc<WeftRequest> {
        WeftRequest::new(job, None, false)
    }

    pub(super) fn recv(job: &WeftJob, is_any: bool, memory: Borrowed<u8>) -> Rc<WeftRequest> {
        WeftRequest::new(job, Some(memory), is_any)
    }

    /// Makes the request of a collective operation, which goes on even if the request is dropped.
    pub(super) fn collective(job: &WeftJob, check: CheckFn) -> Rc<WeftRequest> {
        let request = WeftRequest::new(job, None, false);
        *request.check.borrow_mut() = Some(check);
        let listed: Rc<dyn Collective> = request.clone();
        job.collectives.borrow_mut().push(Rc::downgrade(&listed));
        request
    }

    /// Ends the request.
    fn end(&self, result: Ended) {
        let (status, text) = result.map_or_else(|failed| failed, |status| (status, String::new()));
        *self.outcome.borrow_mut() = Some(Outcome { status, text });
        if let Some(place) = &*self.set.borrow() {
            place.ended.borrow_mut().push_back(self);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Returns the job.
    ///
    /// # Errors
    /// The job has ended, or the calling thread may not use it.
    pub(super) fn job(&self) -> Result<&WeftJob, Fault> {
        let job = job::sys::of(&self.head)?;
        job.check_thread().map(|()| job)
    }

    /// Notes that the operation has ended.
    fn complete(&self, job: &WeftJob, completion: &Completion) {
        let status = completion.status;
        let source = status.source.map_or(WEFT_ANY, |peer| job.rank_of(peer));
        let source = if self.memory.is_some() { source } else { WEFT_ANY };
        let came =
            WeftStatus { source, tag: status.tag as u32, len: status.len as usize, code: WEFT_OK };
        self.end(match completion.error {
            None => Ok(came),
            Some(OpError::Truncated { sent }) => {
                let room = self.memory.as_ref().map_or(0, Borrowed::len);
                Err(cut(WeftStatus { len: sent as usize, ..came }, room))
            }
            Some(OpError::Cancelled) => {
                let text = "the receive was cancelled".to_owned();
                Err((WeftStatus { code: WEFT_CANCELLED, ..WeftStatus::NOTHING }, text))
            }
            Some(error) => {
                let Fault(code, text) = job.fault(error);
                Err((WeftStatus { code, ..came }, text))
            }
        });
    }

    /// Ends a posted request with an error, and takes its memory back. False if its operation has
    /// ended.
    pub(super) fn fail(&self, job: &WeftJob, error: OpError) -> bool {
        let Some(op) = self.op.take() else { return false };
        job.endpoint().posted().take_back(op);
        let Fault(code, text) = job.fault(error);
        self.end(Err((WeftStatus { code, ..WeftStatus::NOTHING }, text)));
        true
    }

    /// Cancels a receive that has not matched a message. A send goes on.
    pub(crate) fn cancel(&self, job: &WeftJob) {
        if let (Some(op), Some(_), false) = (self.op.get(), &self.memory, self.is_done()) {
            job.endpoint().posted().cancel(op);
            collect(job);
        }
    }

    /// Takes the result of an ended request before it is freed.
    ///
    /// # Errors
    /// The request has not ended.
    pub(super) fn outcome(&self) -> Result<Outcome, Fault> {
        let outcome = self.outcome.take();
        let outcome = outcome.ok_or_else(|| Fault::argument("the request has not ended"))?;
        self.op.set(None);
        Ok(outcome)
    }

    /// Stores the status of an ended request before it is freed. Returns the result of the call.
    ///
    /// # Errors
    /// The operation failed, or has not ended.
    pub(super) fn tell(&self, out: Option<Out<WeftStatus>>) -> Result<(), Fault> {
        let outcome = self.outcome()?;
        out.iter().for_each(|out| out.store(outcome.status));
        outcome.result()
    }

    /// True if a set has it.
    pub(super) fn is_in_set(&self) -> bool {
        self.set.borrow().is_some()
    }

    /// Notes the set that has it from now on, and the program's context.
    pub(super) fn put_in_set(&self, ended: &Queue, context: *mut c_void) {
        if self.is_done() {
            ended.borrow_mut().push_back(self);
        }
        *self.set.borrow_mut() = Some(Place { ended: Rc::clone(ended), context });
    }

    /// Returns the program's context for it in its set.
    pub(super) fn context(&self) -> *mut c_void {
        self.set.borrow().as_ref().map_or(std::ptr::null_mut(), |place| place.context)
    }
}

/// Returns the end of a message that is longer than the room for it.
pub(super) fn cut(status: WeftStatus, room: usize) -> (WeftStatus, String) {
    let sent = status.len;
    let text = format!("a message of {sent} bytes, and room for {room}: its first part is there");
    (WeftStatus { code: WEFT_TOO_LONG, ..status }, text)
}

/// Handles the completions in the endpoint's queue, and collective operations that have ended.
pub(super) fn collect(job: &WeftJob) {
    while let Some((request, completion)) = sys::next_completed(job) {
        request.complete(job, &completion);
    }
    if !job.collectives.borrow().is_empty() {
        let goes_on = |request: Rc<dyn Collective>| !request.check();
        job.collectives.borrow_mut().retain(|request| request.upgrade().is_some_and(goes_on));
    }
}

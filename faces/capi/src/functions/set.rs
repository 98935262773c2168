//! Sets of requests, which report them in the order in which they end.

use super::progress::limit;
use super::request::{Queue, WeftRequest, WeftStatus};
use super::wait::wait_until;
use crate::fault::Fault;
use crate::job::WeftJob;
use crate::object::{in_use, is_object, Head, Object, Used};
use crate::sys::Out;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;

/// Requests that are reported in the order in which they end: `struct weft_set`.
pub struct WeftSet {
    head: Head,
    /// The requests by their addresses.
    requests: RefCell<HashMap<*const WeftRequest, Rc<WeftRequest>>>,
    ended: Queue,
    /// Number of receives from any rank among the requests.
    anys: Cell<u32>,
}

is_object!(WeftSet, "set", b"weft set");

/// Makes an empty set.
pub(crate) fn make(job: &WeftJob) -> Box<WeftSet> {
    Box::new(WeftSet {
        head: Head::new::<WeftSet>(job),
        requests: RefCell::default(),
        ended: Rc::default(),
        anys: Cell::new(0),
    })
}

impl WeftSet {
    /// # Errors
    /// A request cannot be added: it is another job's or set's, or an outer call uses it.
    pub(crate) fn may_add(&self, request: &WeftRequest) -> Result<(), Fault> {
        if !request.head().has_job_of(&self.head) || request.is_in_set() {
            return Err(Fault::argument("the request is another job's or set's"));
        }
        match request.head().is_used() {
            true => Err(in_use("request")),
            false => Ok(()),
        }
    }

    /// Adds a request, with the program's context for it. The set owns it from then on.
    pub(crate) fn add(&self, request: Rc<WeftRequest>, context: *mut c_void) {
        request.put_in_set(&self.ended, context);
        self.anys.set(self.anys.get() + u32::from(request.is_any));
        self.requests.borrow_mut().insert(Rc::as_ptr(&request), request);
    }

    /// Returns a receive from any rank that has not ended.
    fn any(&self) -> Option<Rc<WeftRequest>> {
        if self.anys.get() == 0 {
            return None;
        }
        let requests = self.requests.borrow();
        requests.values().find(|request| request.is_any && !request.is_done()).cloned()
    }
}

/// Waits until a request of a set has ended, and stores its context and its status. False if none
/// ended in time, or the set is empty.
///
/// # Errors
/// An upcall runs, or an outer call uses the set. The failure of a request is no failure of this
/// call.
pub(crate) fn wait(
    (set, job): (Used<'_, WeftSet>, &WeftJob),
    timeout_us: i64,
    context: Option<Out<*mut c_void>>,
    status: Option<Out<WeftStatus>>,
) -> Result<bool, Fault> {
    set.alone()?;
    if set.requests.borrow().is_empty() {
        return Ok(false);
    }
    let any = set.any();
    let done = || !set.ended.borrow().is_empty();
    wait_until(job, done, any.as_deref(), limit(timeout_us))?;
    let ended = set.ended.borrow_mut().pop_front();
    let ended = ended.and_then(|ended| set.requests.borrow_mut().remove(&ended));
    let Some(ended) = ended else { return Ok(false) };
    set.anys.set(set.anys.get() - u32::from(ended.is_any));
    context.iter().for_each(|context| context.store(ended.context()));
    let _code = ended.tell(status);
    Ok(true)
}

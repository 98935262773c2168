//! Requests: started operations, and the calls that wait for them.
//!
//! A request is posted on the endpoint's completion queue with its own address as context, so that
//! a completion finds it without a search. It lives until a call reports its end.

use super::{enter, in_use, is_object, job_of, object, object_of, store, Fault, Head, Used};
use super::{WEFT_ARGUMENT, WEFT_CANCELLED, WEFT_OK, WEFT_TOO_LONG};
use crate::job::{refused, WeftJob, WEFT_ANY};
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};
use weft::{OpError, OpId, PeerFailure, PeerId, RecvArgs, SendArgs};
use weft_core::engine::types::{Claimed, Completion};
use weft_core::matching::RecvSpec;

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

    /// Stores it unless `out` is null.
    ///
    /// # Safety
    /// `out` is null or points to memory for a status.
    pub(super) unsafe fn store(self, out: *mut WeftStatus) -> Result<(), Fault> {
        match out.is_null() {
            true => Ok(()),
            // SAFETY: promised by the caller.
            false => unsafe { store(out, self) },
        }
    }
}

/// Memory of the program that a request uses until it has ended.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub at: *mut u8,
    pub len: usize,
}

/// The end of an operation: its status, and for a failed one the text for `weft_last_error`.
pub(super) type Ended = Result<WeftStatus, (WeftStatus, String)>;

/// Tests whether a collective operation has ended, and then stores its result in the program's
/// memory.
type CheckFn = Box<dyn FnMut() -> Option<Ended>>;

/// The result of a request.
struct Outcome {
    status: WeftStatus,
    /// The text for `weft_last_error`, if it failed.
    text: String,
}

/// A started operation: `struct weft_request`.
pub struct WeftRequest {
    head: Head,
    op: Cell<Option<OpId>>,
    /// Test of a collective operation that has not ended.
    check: RefCell<Option<CheckFn>>,
    outcome: RefCell<Option<Outcome>>,
    /// Memory of a receive; none for a send.
    memory: Option<Memory>,
    /// True for a receive from any rank.
    is_any: bool,
    /// The set that contains it, and the program's context for it there.
    set: Cell<(*const WeftSet, *mut c_void)>,
}

is_object!(WeftRequest, "request", b"weft req");

impl Drop for WeftRequest {
    fn drop(&mut self) {
        // A call unwound while its operation would use the memory later: the memory is taken back.
        if let Some(op) = self.op.get().filter(|_| self.outcome.get_mut().is_none()) {
            // SAFETY: a request lives no longer than its job.
            unsafe { &*self.head.job::<WeftJob>() }.endpoint().posted().take_back(op);
        }
        if self.check.get_mut().is_some() {
            // SAFETY: as before.
            let job = unsafe { &*self.head.job::<WeftJob>() };
            job.collectives.borrow_mut().retain(|&other| !std::ptr::eq(other.cast(), self));
        }
    }
}

impl WeftRequest {
    fn new(job: &WeftJob, memory: Option<Memory>, is_any: bool) -> Box<WeftRequest> {
        Box::new(WeftRequest {
            head: Head::new::<WeftRequest>(job),
            op: Cell::new(None),
            check: RefCell::default(),
            outcome: RefCell::default(),
            memory,
            is_any,
            set: Cell::new((std::ptr::null(), std::ptr::null_mut())),
        })
    }

    pub(super) fn send(job: &WeftJob) -> Box<WeftRequest> {
        WeftRequest::new(job, None, false)
    }

    pub(super) fn recv(job: &WeftJob, is_any: bool, memory: Memory) -> Box<WeftRequest> {
        WeftRequest::new(job, Some(memory), is_any)
    }

    /// Makes the request of a collective operation, which goes on even if the request is dropped.
    pub(super) fn collective(job: &WeftJob, check: CheckFn) -> Box<WeftRequest> {
        let request = WeftRequest::new(job, None, false);
        *request.check.borrow_mut() = Some(check);
        job.collectives.borrow_mut().push((&raw const *request).cast());
        request
    }

    /// Ends the request if its collective operation has ended.
    fn check(&self) {
        let mut check = self.check.borrow_mut();
        let Some(ended) = check.as_mut().and_then(|check| check()) else { return };
        *check = None;
        self.end(ended);
    }

    fn context(&self) -> u64 {
        (&raw const *self) as u64
    }

    /// Posts the send. If its memory is free already, the request has ended.
    ///
    /// # Safety
    /// The bytes are readable and unchanged until the request has ended, and it lives as long.
    pub(super) unsafe fn post_send(
        &self,
        job: &WeftJob,
        data: *const u8,
        args: SendArgs,
    ) -> Result<(), Fault> {
        let args = SendArgs { context: self.context(), ..args };
        // SAFETY: promised by the caller.
        let posted = unsafe { job.endpoint().posted().send(data, args) };
        match posted.map_err(|why| refused(job, why))? {
            Some(op) => self.op.set(Some(op)),
            None => self.end(Ok(WeftStatus::NOTHING)),
        }
        Ok(())
    }

    fn recv_args(&self, spec: RecvSpec, len: usize) -> RecvArgs {
        RecvArgs {
            source: spec.source,
            tag: spec.tag,
            ignore: spec.ignore,
            len: len as u64,
            addr: 0,
            context: self.context(),
            untagged: false,
        }
    }

    /// Posts the receive.
    ///
    /// # Safety
    /// The memory is nobody else's until the request has ended, and it lives as long.
    pub(super) unsafe fn post_recv(&self, job: &WeftJob, spec: RecvSpec) -> Result<(), Fault> {
        let Some(Memory { at, len }) = self.memory else { return Ok(()) };
        let args = self.recv_args(spec, len);
        // SAFETY: promised by the caller.
        let posted = unsafe { job.endpoint().posted().recv(at, args) };
        self.op.set(Some(posted.map_err(|why| refused(job, why))?));
        Ok(())
    }

    /// Posts the receive of a claimed message.
    ///
    /// # Safety
    /// The caller keeps the rules of [`post_recv`](Self::post_recv).
    pub(super) unsafe fn post_claimed(&self, job: &WeftJob, claimed: Claimed) -> Result<(), Fault> {
        let Some(Memory { at, len }) = self.memory else { return Ok(()) };
        let args = self.recv_args(RecvSpec { source: None, tag: 0, ignore: 0 }, len);
        // SAFETY: promised by the caller.
        let posted = unsafe { job.endpoint().posted().recv_claimed(claimed, at, args) };
        self.op.set(Some(posted.map_err(|why| refused(job, why))?));
        Ok(())
    }

    fn end(&self, result: Ended) {
        let (status, text) = result.map_or_else(|failed| failed, |status| (status, String::new()));
        *self.outcome.borrow_mut() = Some(Outcome { status, text });
        let (set, _) = self.set.get();
        if !set.is_null() {
            // SAFETY: a set frees its requests before itself.
            unsafe { &*set }.ended.borrow_mut().push_back(self);
        }
    }

    fn is_done(&self) -> bool {
        self.outcome.borrow().is_some()
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
                let room = self.memory.map_or(0, |memory| memory.len);
                let text = format!(
                    "a message of {sent} bytes, and room for {room}: its first part is there"
                );
                Err((WeftStatus { len: sent as usize, code: WEFT_TOO_LONG, ..came }, text))
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

    /// Waits for the end and stores the status. Returns the result of the call.
    pub(super) fn finish(&self, job: &WeftJob, status: *mut WeftStatus) -> Result<c_int, Fault> {
        wait_until(job, || self.is_done(), self.is_any.then_some(self), None)?;
        self.tell(status)
    }

    /// Stores the status of an ended request before it is freed. Returns the result of the call.
    fn tell(&self, out: *mut WeftStatus) -> Result<c_int, Fault> {
        let Some(Outcome { status, text }) = self.outcome.take() else {
            return Err(Fault::argument("the request has not ended"));
        };
        self.op.set(None);
        // SAFETY: every caller's caller promised it.
        unsafe { status.store(out) }?;
        match status.code {
            WEFT_OK => Ok(WEFT_OK),
            code => Err(Fault(code, text)),
        }
    }
}

/// Handles the completions in the endpoint's queue, and collective operations that have ended.
pub(super) fn collect(job: &WeftJob) {
    while let Some(completion) = job.endpoint().posted().poll() {
        let request = completion.context as *const WeftRequest;
        // SAFETY: the context of each operation on this queue is its request, which lives until its
        // end was reported here, or the operation was taken back.
        unsafe { &*request }.complete(job, &completion);
    }
    if !job.collectives.borrow().is_empty() {
        job.collectives.borrow_mut().retain(|&request| {
            // SAFETY: a request leaves the list before it ends.
            let request = unsafe { &*request.cast::<WeftRequest>() };
            request.check();
            !request.is_done()
        });
    }
}

/// Ranks whose silence is noticed because a receive from any rank has waited for them in vain for
/// longer than the time of warnings.
struct Expected<'a> {
    job: &'a WeftJob,
    peers: Vec<PeerId>,
}

impl<'a> Expected<'a> {
    fn all(job: &'a WeftJob) -> Expected<'a> {
        let me = job.world().rank();
        let others = (0..job.world().size()).filter(|&rank| rank != me);
        let peers = others.filter_map(|rank| job.world().peer(rank).ok());
        let peers = peers.filter(|&peer| job.endpoint().peer(peer).expect()).collect();
        Expected { job, peers }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.peers.iter().for_each(|&peer| self.job.endpoint().peer(peer).unexpect());
    }
}

/// Returns the failure that a receive from any rank ends with: that of a rank whose failure is not
/// reported yet, or of the last remaining rank.
fn failure_of_all(job: &WeftJob) -> Option<OpError> {
    let me = job.world().rank();
    let (mut remain, mut gone) = (false, None);
    for rank in (0..job.world().size()).filter(|&rank| rank != me) {
        let known = job.world().peer(rank).ok();
        let failed = known.and_then(|peer| Some((peer, job.endpoint().peer(peer).failure()?)));
        let Some((peer, failure)) = failed else {
            remain = true;
            continue;
        };
        let error = OpError::Peer { peer, failure };
        if failure != PeerFailure::Closed && job.told.borrow_mut().insert(peer) {
            return Some(error);
        }
        gone = Some(error);
    }
    gone.filter(|_| !remain)
}

/// Makes progress until `done`, or for at most `timeout`; then it returns false. `any`: one of the
/// awaited requests is a receive from any rank, which ends with an error when no other rank
/// remains.
fn wait_until(
    job: &WeftJob,
    done: impl Fn() -> bool,
    any: Option<&WeftRequest>,
    timeout: Option<Duration>,
) -> Result<bool, Fault> {
    collect(job);
    if done() {
        job.endpoint().waiting().attend();
        return Ok(true);
    }
    job.may_wait()?;
    let start = Instant::now();
    let patience = Duration::from_millis(job.warn_after_ms.into());
    let (mut expected, mut failures) = (None, None);
    loop {
        if let Some(request) = any {
            if expected.is_none() && start.elapsed() >= patience {
                expected = Some(Expected::all(job));
                failures = None;
            }
            let now = job.endpoint().waiting().failures();
            if failures.replace(now) != Some(now) {
                if let (Some(error), Some(op)) = (failure_of_all(job), request.op.get()) {
                    job.endpoint().posted().take_back(op);
                    let Fault(code, text) = job.fault(error);
                    request.op.set(None);
                    request.end(Err((WeftStatus { code, ..WeftStatus::NOTHING }, text)));
                    continue;
                }
            }
        }
        let left = match timeout {
            Some(timeout) => match timeout.checked_sub(start.elapsed()) {
                Some(left) if !left.is_zero() => Some(left),
                _ => return Ok(false),
            },
            None => None,
        };
        let soon = any.filter(|_| expected.is_none()).map(|_| patience);
        job.packets.wait(left.into_iter().chain(soon).min());
        collect(job);
        if done() {
            return Ok(true);
        }
    }
}

/// The entries of a list of requests, and the living ones with their indices.
type Listed<'a> = (&'a mut [*mut WeftRequest], Living<'a>);

/// Living requests of a list, with their indices.
type Living<'a> = Vec<(usize, Used<'a, WeftRequest>)>;

/// True if a list of so many entries may be memory of this process.
fn is_list<T>(list: *const T, count: usize) -> bool {
    let len = count.checked_mul(size_of::<T>());
    len.is_some_and(|len| weft::memory::seems_mapped(list.cast(), len))
}

/// Returns the living requests of a list, without its null entries.
///
/// # Safety
/// `requests` points to `count` pointers, each null or a living request of `job`.
unsafe fn listed<'a>(requests: *mut *mut WeftRequest, count: usize) -> Result<Listed<'a>, Fault> {
    if count == 0 {
        return Ok((&mut [], Vec::new()));
    }
    if requests.is_null() || !requests.is_aligned() || !is_list(requests, count) {
        return Err(Fault::argument("the list of requests is null, misaligned or not there"));
    }
    // SAFETY: promised by the caller.
    let list = unsafe { std::slice::from_raw_parts_mut(requests, count) };
    let (mut living, mut seen) = (Vec::new(), HashSet::new());
    for (at, &request) in list.iter().enumerate().filter(|(_, request)| !request.is_null()) {
        if !seen.insert(request) {
            return Err(Fault::argument("a request stands twice in the list"));
        }
        // SAFETY: promised by the caller.
        let one: &WeftRequest = unsafe { object(request.cast_const()) }?;
        // SAFETY: promised by the caller.
        unsafe { job_of(one.head.job()) }?;
        if !one.set.get().0.is_null() {
            return Err(Fault::argument("a request of a set: weft_set_wait reports its end"));
        }
        if one.head.is_used() {
            return Err(in_use("request"));
        }
        living.push((at, Used::new(one)));
    }
    Ok((list, living))
}

/// Frees an ended request of a list, which the call uses no more; its status goes to `status`.
///
/// # Safety
/// The entry is a living request, and `status` is null or has room for a status.
unsafe fn take(entry: &mut *mut WeftRequest, status: *mut WeftStatus) -> Result<c_int, Fault> {
    let request = std::mem::replace(entry, std::ptr::null_mut());
    // SAFETY: made by `Box::into_raw`, and alive.
    unsafe { Box::from_raw(request) }.tell(status)
}

fn job_in<'a>(living: &Living<'_>) -> Result<&'a WeftJob, Fault> {
    let (_, first) = living.first().ok_or_else(|| Fault::argument("no request"))?;
    if living.iter().any(|(_, request)| !request.head.has_job_of(&first.head)) {
        return Err(Fault::argument("requests of several jobs"));
    }
    // SAFETY: requests live no longer than their job.
    unsafe { job_of(first.head.job()) }
}

fn any_of<'a>(living: &'a Living<'_>) -> Option<&'a WeftRequest> {
    living.iter().map(|(_, request)| &**request).find(|r| r.is_any && !r.is_done())
}

/// Tests a request: if it has ended, returns 1, stores its status, and sets the pointer to null;
/// else returns 0, after a round of progress. A null request counts as ended.
///
/// # Safety
/// `request` points to null or a living request, `status` is null or points to memory for a status.
#[no_mangle]
pub unsafe extern "C" fn weft_test(
    request: *mut *mut WeftRequest,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (list, living) = unsafe { listed(request, 1) }?;
        if living.is_empty() {
            // SAFETY: promised by the caller.
            unsafe { WeftStatus::NOTHING.store(status) }?;
            return Ok(1);
        }
        let job = job_in(&living)?;
        collect(job);
        if !living[0].1.is_done() {
            job.packets.poll();
            collect(job);
        } else {
            job.endpoint().waiting().attend();
        }
        let is_done = living[0].1.is_done();
        drop(living);
        match is_done {
            // SAFETY: promised by the caller.
            true => unsafe { take(&mut list[0], status) }.map(|_| 1),
            false => Ok(0),
        }
    })
}

/// Waits until one request of a list has ended; stores its index in the list and its status, and
/// sets the entry to null. Null entries are ignored; without any other it returns `WEFT_ARGUMENT`.
///
/// # Safety
/// `requests` points to `count` entries, each null or a living request; `at` and `status` are null
/// or point to memory for them.
#[no_mangle]
pub unsafe extern "C" fn weft_wait_any(
    requests: *mut *mut WeftRequest,
    count: usize,
    at: *mut usize,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (list, living) = unsafe { listed(requests, count) }?;
        let job = job_in(&living)?;
        let done = || living.iter().any(|(_, request)| request.is_done());
        wait_until(job, done, any_of(&living), None)?;
        let ended = living.iter().find(|(_, request)| request.is_done());
        let place = ended.map_or(0, |(place, _)| *place);
        drop(living);
        // SAFETY: promised by the caller.
        unsafe {
            if !at.is_null() {
                store(at, place)?;
            }
            take(&mut list[place], status)
        }
    })
}

/// Waits until all requests of a list have ended; stores their statuses, in the order of the list,
/// and sets the entries to null. Returns `WEFT_OK`, or the code of the first that failed; the
/// statuses have the codes of the others.
///
/// # Safety
/// `requests` points to `count` entries, each null or a living request; `statuses` is null or
/// points to memory for `count` statuses.
#[no_mangle]
pub unsafe extern "C" fn weft_wait_all(
    requests: *mut *mut WeftRequest,
    count: usize,
    statuses: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (list, living) = unsafe { listed(requests, count) }?;
        if living.is_empty() {
            return Ok(WEFT_OK);
        }
        let job = job_in(&living)?;
        for (_, request) in &living {
            let any = request.is_any.then_some(&**request);
            wait_until(job, || request.is_done(), any, None)?;
        }
        let places: Vec<usize> = living.into_iter().map(|(place, _)| place).collect();
        let mut first = Ok(WEFT_OK);
        for place in places {
            let status = match statuses.is_null() {
                true => statuses,
                false => statuses.wrapping_add(place),
            };
            // SAFETY: promised by the caller.
            let code = unsafe { take(&mut list[place], status) };
            first = first.and(code);
        }
        first
    })
}

/// Cancels a receive that has not matched a message: the request ends with `WEFT_CANCELLED`, or as
/// without this call. A send goes on.
///
/// # Safety
/// `request` is a living request.
#[no_mangle]
pub unsafe extern "C" fn weft_cancel(request: *mut WeftRequest) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (request, job) = unsafe { object_of(request.cast_const()) }?;
        if let (Some(op), Some(_)) = (request.op.get(), request.memory) {
            if !request.is_done() {
                job.endpoint().posted().cancel(op);
                collect(job);
            }
        }
        Ok(WEFT_OK)
    })
}

/// Requests that are reported in the order in which they end: `struct weft_set`.
pub struct WeftSet {
    head: Head,
    requests: RefCell<HashSet<*const WeftRequest>>,
    /// Requests that have ended and are not reported yet.
    ended: RefCell<VecDeque<*const WeftRequest>>,
    /// Number of receives from any rank among the requests.
    anys: Cell<u32>,
}

is_object!(WeftSet, "set", b"weft set");

impl Drop for WeftSet {
    fn drop(&mut self) {
        for request in self.requests.get_mut().drain() {
            // SAFETY: the set owns its requests until it has reported their end.
            drop(unsafe { Box::from_raw(request.cast_mut()) });
        }
    }
}

/// Makes an empty set.
///
/// # Safety
/// `job` is a living handle, `set` points to memory for a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_set_make(job: *mut WeftJob, set: *mut *mut WeftSet) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        let made = WeftSet {
            head: Head::new::<WeftSet>(job),
            requests: RefCell::default(),
            ended: RefCell::default(),
            anys: Cell::new(0),
        };
        // SAFETY: promised by the caller.
        unsafe { store(set, Box::into_raw(Box::new(made))) }?;
        Ok(WEFT_OK)
    })
}

/// Adds a request to a set, with the program's context for it. The set owns the request from then
/// on.
///
/// # Safety
/// `set` and `request` are living handles of one job.
#[no_mangle]
pub unsafe extern "C" fn weft_set_add(
    set: *mut WeftSet,
    request: *mut WeftRequest,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let ((of, _), what) =
            unsafe { (object_of(set.cast_const())?, object(request.cast_const())?) };
        if !what.head.has_job_of(&of.head) || !what.set.get().0.is_null() {
            return Err(Fault(WEFT_ARGUMENT, "the request is another job's or set's".into()));
        }
        if what.head.is_used() {
            return Err(in_use("request"));
        }
        what.set.set((set.cast_const(), context));
        of.requests.borrow_mut().insert(request);
        of.anys.set(of.anys.get() + u32::from(what.is_any));
        if what.is_done() {
            of.ended.borrow_mut().push_back(request);
        }
        Ok(WEFT_OK)
    })
}

/// Waits until a request of a set has ended, at most `timeout_us` microseconds, forever if that is
/// negative. Returns 1, its context and its status; or 0 if none ended in time, or the set is
/// empty.
///
/// # Safety
/// `set` is a living handle; `context` and `status` are null or point to memory for them.
#[no_mangle]
pub unsafe extern "C" fn weft_set_wait(
    set: *mut WeftSet,
    timeout_us: i64,
    context: *mut *mut c_void,
    status: *mut WeftStatus,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (set, job) = unsafe { object_of(set.cast_const()) }?;
        set.alone()?;
        if set.requests.borrow().is_empty() {
            return Ok(0);
        }
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        wait_until(job, || !set.ended.borrow().is_empty(), set.any(), timeout)?;
        let Some(ended) = set.ended.borrow_mut().pop_front() else { return Ok(0) };
        set.requests.borrow_mut().remove(&ended);
        // SAFETY: made by `Box::into_raw`; the set, which owned it, no longer has it.
        let ended = unsafe { Box::from_raw(ended.cast_mut()) };
        set.anys.set(set.anys.get() - u32::from(ended.is_any));
        // SAFETY: promised by the caller.
        unsafe {
            if !context.is_null() {
                store(context, ended.set.get().1)?;
            }
        }
        // The failure of a request is no failure of this call.
        let _code = ended.tell(status);
        Ok(1)
    })
}

impl WeftSet {
    /// Returns a receive from any rank that has not ended.
    fn any(&self) -> Option<&WeftRequest> {
        if self.anys.get() == 0 {
            return None;
        }
        self.requests.borrow().iter().find_map(|&request| {
            // SAFETY: the requests of a set live until it has reported their end.
            let request = unsafe { &*request };
            (request.is_any && !request.is_done()).then_some(request)
        })
    }
}

/// Frees a set. Its receives that have not matched a message are cancelled; sends continue from a
/// copy.
///
/// # Safety
/// `set` is a living handle, and nobody uses it afterwards.
#[no_mangle]
pub unsafe extern "C" fn weft_set_free(set: *mut WeftSet) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| unsafe { super::free(set) })
}

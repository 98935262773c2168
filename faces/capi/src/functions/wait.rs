//! Calls that test requests, or wait until they have ended.

use super::request::sys::Handles;
use super::request::{collect, WeftRequest, WeftStatus};
use crate::fault::Fault;
use crate::job::WeftJob;
use crate::object::{in_use, Object, Used};
use crate::sys::{Given, Out};
use std::time::{Duration, Instant};
use weft::{OpError, PeerFailure, PeerId};

/// Ranks whose silence is noticed because a receive from any rank has waited for them in vain for
/// longer than the time of warnings.
struct Expected<'a> {
    job: &'a WeftJob,
    peers: Vec<PeerId>,
}

impl<'a> Expected<'a> {
    fn all(job: &'a WeftJob) -> Expected<'a> {
        let peers = others(job).filter_map(|rank| job.world().peer(rank).ok());
        let peers = peers.filter(|&peer| job.endpoint().peer(peer).expect()).collect();
        Expected { job, peers }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.peers.iter().for_each(|&peer| self.job.endpoint().peer(peer).unexpect());
    }
}

/// Returns the numbers of the other ranks.
fn others(job: &WeftJob) -> impl Iterator<Item = usize> {
    let me = job.world().rank();
    (0..job.world().size()).filter(move |&rank| rank != me)
}

/// Returns the failure that a receive from any rank ends with: that of a rank whose failure is not
/// reported yet, or of the last remaining rank.
fn failure_of_all(job: &WeftJob) -> Option<OpError> {
    let (mut remain, mut gone) = (false, None);
    for rank in others(job) {
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
///
/// # Errors
/// An upcall runs, and nothing has ended before.
pub(super) fn wait_until(
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
            let is_new = failures.replace(now) != Some(now);
            let failure = if is_new { failure_of_all(job) } else { None };
            if failure.is_some_and(|error| request.fail(job, error)) {
                continue;
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

/// Waits for the end of a request and stores its status. Returns the result of the call.
///
/// # Errors
/// The operation failed, or an upcall runs.
pub(super) fn finish(
    request: &WeftRequest,
    job: &WeftJob,
    status: Option<Out<WeftStatus>>,
) -> Result<(), Fault> {
    wait_until(job, || request.is_done(), request.is_any.then_some(request), None)?;
    request.tell(status)
}

/// Requests that a call uses, with their indices in its list.
struct Living<'a>(Vec<(usize, Used<'a, WeftRequest>)>);

impl<'a> Living<'a> {
    /// Returns the requests of a list, without its null entries.
    ///
    /// # Errors
    /// A request stands twice in the list, or is a set's; another thread's job or an outer call
    /// uses it.
    fn of(list: &'a Handles) -> Result<Living<'a>, Fault> {
        let mut living: Vec<(usize, Used<'_, WeftRequest>)> = Vec::new();
        for (at, one) in list.living() {
            one.job()?;
            if one.is_in_set() {
                return Err(Fault::argument("a request of a set: weft_set_wait reports its end"));
            }
            if one.head().is_used() {
                let is_here = |other: &WeftRequest| std::ptr::eq(other, one);
                return Err(match living.iter().any(|(_, other)| is_here(other)) {
                    true => Fault::argument("a request stands twice in the list"),
                    false => in_use("request"),
                });
            }
            living.push((at, Used::new(one)));
        }
        Ok(Living(living))
    }

    /// Returns the job of the requests.
    ///
    /// # Errors
    /// There is no request, or some are of other jobs.
    fn job(&self) -> Result<&WeftJob, Fault> {
        let (_, first) = self.0.first().ok_or_else(|| Fault::argument("no request"))?;
        if self.0.iter().any(|(_, request)| !request.head().has_job_of(first.head())) {
            return Err(Fault::argument("requests of several jobs"));
        }
        first.job()
    }

    /// Returns the index of a request that has ended.
    fn ended(&self) -> Option<usize> {
        self.0.iter().find(|(_, request)| request.is_done()).map(|(at, _)| *at)
    }

    /// Returns a receive from any rank that has not ended.
    fn any(&self) -> Option<&WeftRequest> {
        self.0.iter().map(|(_, request)| &**request).find(|r| r.is_any && !r.is_done())
    }
}

/// Tests a request: if it has ended, stores its status, sets the entry to null, and returns true.
/// Otherwise the call makes a round of progress. A null request counts as ended.
///
/// # Errors
/// The entry is no request, or the operation failed.
pub(crate) fn test(
    request: Given<*mut WeftRequest>,
    status: Option<Out<WeftStatus>>,
) -> Result<bool, Fault> {
    let list = Handles::new(request, 1)?;
    let living = Living::of(&list)?;
    if living.0.is_empty() {
        status.iter().for_each(|status| status.store(WeftStatus::NOTHING));
        return Ok(true);
    }
    let job = living.job()?;
    collect(job);
    if living.ended().is_none() {
        job.packets.poll();
        collect(job);
    } else {
        job.endpoint().waiting().attend();
    }
    let ended = living.ended();
    drop(living);
    match ended {
        Some(at) => list.take(at)?.tell(status).map(|()| true),
        None => Ok(false),
    }
}

/// Waits until one request of a list has ended; stores its index in the list and its status, and
/// sets the entry to null. Null entries are ignored.
///
/// # Errors
/// There is no request, an entry is none, an upcall runs, or the operation failed.
pub(crate) fn wait_any(
    requests: Given<*mut WeftRequest>,
    count: usize,
    at: Option<Out<usize>>,
    status: Option<Out<WeftStatus>>,
) -> Result<(), Fault> {
    let list = Handles::new(requests, count)?;
    let living = Living::of(&list)?;
    wait_until(living.job()?, || living.ended().is_some(), living.any(), None)?;
    let place = living.ended().unwrap_or_default();
    drop(living);
    at.iter().for_each(|at| at.store(place));
    list.take(place)?.tell(status)
}

/// Waits until all requests of a list have ended; stores their statuses, in the order of the list,
/// and sets the entries to null.
///
/// # Errors
/// An entry is no request, an upcall runs, or an operation failed: the error is that of the first,
/// and the statuses have the codes of the others.
pub(crate) fn wait_all(
    requests: Given<*mut WeftRequest>,
    count: usize,
    statuses: Given<WeftStatus>,
) -> Result<(), Fault> {
    let list = Handles::new(requests, count)?;
    let living = Living::of(&list)?;
    if living.0.is_empty() {
        return Ok(());
    }
    let statuses = (!statuses.is_null()).then(|| statuses.values("statuses", count)).transpose()?;
    let job = living.job()?;
    for (_, request) in &living.0 {
        let any = request.is_any.then_some(&**request);
        wait_until(job, || request.is_done(), any, None)?;
    }
    let places: Vec<usize> = living.0.into_iter().map(|(place, _)| place).collect();
    let mut first = Ok(());
    for place in places {
        let outcome = list.take(place)?.outcome()?;
        statuses.iter().for_each(|statuses| statuses.put(place, &[outcome.status]));
        first = first.and(outcome.result());
    }
    first
}

//! Counters of completions.

use super::abi::*;
use super::domain::{Domain, DomainObject, Others};
use super::worker::{Poller, Worker};
use super::{call_int, give, object, take};
use libc::{c_int, c_void};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Counter {
    domain: Arc<Domain>,
    value: AtomicU64,
    errors: AtomicU64,
    /// Errors that the caller has been informed of.
    told: AtomicU64,
    workers: RefCell<Vec<Weak<Worker>>>,
    poller: Poller,
    others: Others,
}

impl Counter {
    #[inline]
    pub fn count(&self, ok: bool) {
        let which = if ok { &self.value } else { &self.errors };
        which.fetch_add(1, Ordering::Relaxed);
        self.poller.news();
    }

    /// Counts several operations that ended well.
    pub fn add_up(&self, count: u64) {
        if count > 0 {
            self.value.fetch_add(count, Ordering::Relaxed);
            self.poller.news();
        }
    }

    fn progress(&self) {
        self.poller.is_back();
        let workers: Vec<Weak<Worker>> = self.workers.borrow().clone();
        workers.iter().filter_map(Weak::upgrade).for_each(|worker| {
            worker.progress();
        });
    }

    pub fn join(&self, worker: &Rc<Worker>) {
        if !self.workers.borrow().iter().any(|p| p.as_ptr() == Rc::as_ptr(worker)) {
            self.workers.borrow_mut().push(Rc::downgrade(worker));
            self.poller.watch(worker);
        }
    }

    pub fn try_wait(&self) -> Result<(), c_int> {
        let _inside = self.domain.lock.enter()?;
        self.poller.lend(&self.workers)
    }
}

#[repr(C)]
pub struct CntrObject {
    head: FidCntr,
    wait: c_int,
    pub counter: Rc<Counter>,
}

static FID: FiOps = FiOps { close, control, ..FiOps::NONE };
static OPS: FiOpsCntr =
    FiOpsCntr { read, readerr, add, set, wait, adderr, seterr, ..FiOpsCntr::NONE };

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: domain, attributes and out are the caller's, as `fi_cntr_open` says.
    call_int(|| unsafe {
        let domain = object::<DomainObject>(domain.cast(), class::DOMAIN)?.domain.clone();
        let (wait, events) =
            attr.as_ref().map_or((WAIT_NONE, CNTR_COMPLETIONS), |a| (a.wait_obj, a.events));
        if events != CNTR_COMPLETIONS {
            // Counters of bytes come with versions later than 1.17.
            return Err(err::ENOSYS);
        }
        if !matches!(wait, WAIT_NONE | WAIT_UNSPEC | WAIT_FD | WAIT_YIELD) {
            return Err(err::ENOSYS);
        }
        let fid = Fid { fclass: class::CNTR, context, ops: &FID };
        let counter = Rc::new(Counter {
            domain,
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            told: AtomicU64::new(0),
            workers: RefCell::default(),
            poller: Poller::new(true)?,
            others: Others::default(),
        });
        give(CntrObject { head: FidCntr { fid, ops: &OPS }, wait, counter }, out)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is what the command says, as `fi_control` has it.
    call_int(|| unsafe {
        let object = object::<CntrObject>(fid, class::CNTR)?;
        let arg = arg.cast::<c_int>().as_mut().ok_or(err::EINVAL)?;
        *arg = match command {
            control::GETWAIT => object.counter.poller.fd().ok_or(err::ENOSYS)?,
            control::GETWAITOBJ => object.wait,
            _ => return Err(err::ENOSYS),
        };
        Ok(0)
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<CntrObject>(fid, class::CNTR)?;
        let domain = object.counter.domain.clone();
        let _inside = domain.lock.enter()?;
        if Rc::strong_count(&object.counter) > 1 {
            return Err(err::EBUSY);
        }
        take::<CntrObject>(fid);
        Ok(0)
    })
}

unsafe fn counter<'a>(cntr: *mut FidCntr) -> Result<&'a Counter, c_int> {
    // SAFETY: a counter of the caller's.
    unsafe { object::<CntrObject>(cntr.cast(), class::CNTR).map(|o| &*o.counter) }
}

/// Makes progress and returns a number of the counter: a caller may do nothing but read it.
unsafe fn number(cntr: *mut FidCntr, which: impl Fn(&Counter) -> &AtomicU64) -> u64 {
    let mut value = 0;
    // SAFETY: a counter of the caller's.
    call_int(|| unsafe {
        let counter = counter(cntr)?;
        value = which(counter).load(Ordering::Relaxed);
        let _inside = counter.domain.lock.enter()?;
        counter.progress();
        counter.others.polled(&counter.domain, &counter.workers);
        value = which(counter).load(Ordering::Relaxed);
        Ok(0)
    });
    value
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: a counter of the caller's, here and below.
    unsafe { number(cntr, |c| &c.value) }
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: see `read`.
    unsafe {
        let errors = number(cntr, |c| &c.errors);
        if let Ok(counter) = counter(cntr) {
            counter.told.store(errors, Ordering::Relaxed);
        }
        errors
    }
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: see `read`.
    call_int(|| unsafe {
        counter(cntr)?.value.fetch_add(value, Ordering::Relaxed);
        counter(cntr)?.poller.wake();
        Ok(0)
    })
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: see `read`.
    call_int(|| unsafe {
        counter(cntr)?.errors.fetch_add(value, Ordering::Relaxed);
        counter(cntr)?.poller.wake();
        Ok(0)
    })
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: see `read`.
    call_int(|| unsafe {
        counter(cntr)?.value.store(value, Ordering::Relaxed);
        counter(cntr)?.poller.wake();
        Ok(0)
    })
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: see `read`.
    call_int(|| unsafe {
        counter(cntr)?.errors.store(value, Ordering::Relaxed);
        counter(cntr)?.told.store(value, Ordering::Relaxed);
        counter(cntr)?.poller.wake();
        Ok(0)
    })
}

/// Waits for the threshold. Also returns an error if an operation failed and the caller was not
/// informed: the counter would never reach the threshold.
unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: see `read`.
    call_int(|| unsafe {
        let counter = counter(cntr)?;
        let start = Instant::now();
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        loop {
            {
                let _inside = counter.domain.lock.enter()?;
                counter.progress();
                counter.others.waits(&counter.domain, &counter.workers);
            }
            if counter.value.load(Ordering::Relaxed) >= threshold {
                return Ok(0);
            }
            let errors = counter.errors.load(Ordering::Relaxed);
            if counter.told.swap(errors, Ordering::Relaxed) != errors {
                return Err(err::EAVAIL);
            }
            let left = match limit {
                Some(limit) => limit.checked_sub(start.elapsed()).ok_or(err::ETIMEDOUT)?,
                None => Duration::from_secs(60),
            };
            let left = counter.others.nap(&counter.domain, &counter.workers, left);
            counter.poller.wait(&counter.domain.lock, &counter.workers, left);
        }
    })
}

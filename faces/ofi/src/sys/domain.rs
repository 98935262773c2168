//! Fabrics and domains.

use super::abi::*;
use super::{atomic, av, call_int, cntr, cq, ep, eq, give, mr, object, take, watchdog};
use crate::lock::Lock;
use crate::offer::Registration;
use crate::sys::worker::Worker;
use libc::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// A fabric; callers open domains and event queues from it.
#[repr(C)]
pub struct Fabric {
    head: FidFabric,
}

static FABRIC_FID: FiOps = FiOps { close: close_fabric, ..FiOps::NONE };
static FABRIC: FiOpsFabric =
    FiOpsFabric { domain: open, domain2: open2, eq_open: eq::open, trywait, ..FiOpsFabric::NONE };

impl Fabric {
    pub fn new(api_version: u32, context: *mut c_void) -> Fabric {
        let fid = Fid { fclass: class::FABRIC, context, ops: &FABRIC_FID };
        Fabric { head: FidFabric { fid, ops: &FABRIC, api_version } }
    }
}

unsafe extern "C" fn close_fabric(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        object::<Fabric>(fid, class::FABRIC)?;
        take::<Fabric>(fid);
        Ok(0)
    })
}

/// Looks at a queue in vain, or at a counter, until the domain's other endpoints have their turn.
const OTHERS_EVERY: u8 = 16;
/// The longest sleep of a caller while the domain has other endpoints, which may not wake it.
const OTHERS_MOST: Duration = Duration::from_millis(20);

/// Decides when the endpoints that do not report to a queue or counter have their turn.
#[derive(Default)]
pub struct Others(Cell<u8>);

impl Others {
    /// Gives them their turn if it is due. `reporting` are the endpoints that report.
    #[inline]
    pub fn polled(&self, domain: &Domain, reporting: &RefCell<Vec<Weak<Worker>>>) -> bool {
        self.0.set((self.0.get() + 1) % OTHERS_EVERY);
        self.0.get() == 0 && self.waits(domain, reporting)
    }

    /// Gives them their turn, as the caller is about to sleep.
    pub fn waits(&self, domain: &Domain, reporting: &RefCell<Vec<Weak<Worker>>>) -> bool {
        domain.has_others(reporting) && domain.progress_others(reporting)
    }

    /// Returns the time for which the caller may sleep.
    pub fn nap(
        &self,
        domain: &Domain,
        reporting: &RefCell<Vec<Weak<Worker>>>,
        left: Duration,
    ) -> Duration {
        if domain.has_others(reporting) {
            left.min(OTHERS_MOST)
        } else {
            left
        }
    }
}

/// State shared by the objects of a domain.
pub struct Domain {
    pub lock: Lock,
    /// Version of the interface the caller was written for.
    pub api: u32,
    pub workers: RefCell<Vec<Weak<Worker>>>,
    /// True if the caller asked for progress without calls (`FI_PROGRESS_AUTO`).
    pub is_auto: bool,
    /// Rules of the caller's memory registration.
    pub memory: Registration,
    /// The next key that the provider chooses.
    next_key: Cell<u64>,
    /// Registered memory by key, for endpoints yet to be opened.
    pub regions: RefCell<BTreeMap<u64, Rc<mr::Region>>>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        watchdog::remove(self);
    }
}

impl Domain {
    /// Returns a key that no registered memory has.
    pub fn fresh_key(&self) -> u64 {
        loop {
            let key = self.next_key.get();
            self.next_key.set(key.wrapping_add(1));
            if key != KEY_NONE && !self.regions.borrow().contains_key(&key) {
                return key;
            }
        }
    }

    /// True if there are open endpoints that do not report to a queue or counter with these.
    pub fn has_others(&self, reporting: &RefCell<Vec<Weak<Worker>>>) -> bool {
        let reporting = reporting.borrow().iter().filter(|one| one.strong_count() > 0).count();
        self.workers.borrow().len() > reporting
    }

    /// Makes progress on the endpoints that do not report to a queue or counter with these: its
    /// caller may wait for what they do, and never look at theirs. True if anything happened.
    #[cold]
    pub fn progress_others(&self, reporting: &RefCell<Vec<Weak<Worker>>>) -> bool {
        let mut did = false;
        self.each_port(|worker| {
            let reports = reporting.borrow().iter().any(|one| one.as_ptr() == Rc::as_ptr(worker));
            did |= !reports && worker.progress();
        });
        did
    }

    /// Calls `f` for each open endpoint.
    pub fn each_port(&self, mut f: impl FnMut(&Rc<Worker>)) {
        let workers: Vec<Rc<Worker>> =
            self.workers.borrow().iter().filter_map(Weak::upgrade).collect();
        workers.iter().for_each(&mut f);
    }
}

#[repr(C)]
pub struct DomainObject {
    head: FidDomain,
    pub domain: Arc<Domain>,
}

static DOMAIN_FID: FiOps = FiOps { close, bind, ..FiOps::NONE };
static DOMAIN: FiOpsDomain = FiOpsDomain {
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    endpoint2: ep::open2,
    cntr_open: cntr::open,
    query_atomic: atomic::query,
    ..FiOpsDomain::NONE
};

unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: fabric, info and out are the caller's, as `fi_domain` says.
    call_int(|| unsafe {
        let fabric = object::<Fabric>(fabric.cast(), class::FABRIC)?;
        let attr = info.as_ref().ok_or(err::EINVAL)?.domain_attr.as_ref().ok_or(err::EINVAL)?;
        let alone = matches!(attr.threading, THREAD_DOMAIN);
        weft_sys::forks::watch();
        let fid = Fid { fclass: class::DOMAIN, context, ops: &DOMAIN_FID };
        // Several threads count references, without the lock inside the domain.
        #[allow(clippy::arc_with_non_send_sync)]
        let domain = Arc::new(Domain {
            lock: Lock::new(!alone),
            api: fabric.head.api_version,
            is_auto: [attr.control_progress, attr.data_progress].contains(&PROGRESS_AUTO),
            memory: Registration::of(attr.mr_mode),
            next_key: Cell::new(1),
            workers: RefCell::default(),
            regions: RefCell::default(),
        });
        give(DomainObject { head: FidDomain { fid, ops: &DOMAIN, mr: &mr::OPS }, domain }, out)
    })
}

unsafe extern "C" fn open2(
    fabric: *mut FidFabric,
    info: *mut Info,
    out: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match flags {
        // SAFETY: as for `open`.
        0 => unsafe { open(fabric, info, out, context) },
        _ => -err::EBADFLAGS,
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<DomainObject>(fid, class::DOMAIN)?;
        if Arc::strong_count(&object.domain) > 1 {
            return Err(err::EBUSY);
        }
        take::<DomainObject>(fid);
        Ok(0)
    })
}

/// Binds an event queue, to which a domain never reports anything. Memory is registered at once, so
/// a caller that wants a report of that (`FI_REG_MR`) would wait in vain and is refused.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: both are the caller's.
    call_int(|| unsafe {
        object::<DomainObject>(fid, class::DOMAIN)?;
        object::<eq::EqObject>(other, class::EQ)?;
        match flags {
            0 => Ok(0),
            cap::REG_MR => Err(err::ENOSYS),
            _ => Err(err::EBADFLAGS),
        }
    })
}

/// Returns 0 if a caller may sleep on the descriptors of these objects.
unsafe extern "C" fn trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    // SAFETY: `fids` points to `count` objects of this provider.
    call_int(|| unsafe {
        for i in 0..usize::try_from(count).map_err(|_| err::EINVAL)? {
            let fid = *fids.add(i);
            match fid.as_ref().ok_or(err::EINVAL)?.fclass {
                class::CQ => object::<cq::CqObject>(fid, class::CQ)?.cq.try_wait()?,
                class::CNTR => object::<cntr::CntrObject>(fid, class::CNTR)?.counter.try_wait()?,
                class::EQ => object::<eq::EqObject>(fid, class::EQ)?.try_wait()?,
                _ => return Err(err::ENOSYS),
            }
        }
        Ok(0)
    })
}

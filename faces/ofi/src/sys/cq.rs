//! Completion queues.

use super::abi::*;
use super::domain::{Domain, DomainObject, Others};
use super::worker::{looking, Worker};
use super::{call, call_int, give, object, take, yields, Answer};
use crate::looks::Looks;
use libc::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A completion without error.
#[derive(Clone, Copy)]
pub struct Entry {
    pub fields: CqTaggedEntry,
    /// The sender's number in the receiver's address vector.
    pub source: u64,
}

/// A completion with an error.
#[derive(Clone)]
pub struct Failure {
    pub fields: CqTaggedEntry,
    pub source: u64,
    /// Bytes that did not fit.
    pub olen: usize,
    pub error: c_int,
    /// A sentence for people.
    pub text: String,
}

pub struct Cq {
    pub domain: Arc<Domain>,
    format: c_int,
    wait: c_int,
    entries: RefCell<VecDeque<Entry>>,
    failures: RefCell<VecDeque<Failure>>,
    /// Texts of the last failures, by the number returned as `prov_errno`.
    texts: RefCell<VecDeque<(c_int, String)>>,
    next_text: Cell<c_int>,
    pub workers: RefCell<Vec<Weak<Worker>>>,
    signal: AtomicBool,
    idle: super::worker::Idle,
    poller: super::worker::Poller,
    others: Others,
}

/// Failures whose text is kept.
const TEXTS: usize = 16;

impl Cq {
    #[inline]
    pub fn add(&self, entry: Entry) {
        self.entries.borrow_mut().push_back(entry);
        self.poller.news();
    }

    pub fn fail(&self, failure: Failure) {
        self.failures.borrow_mut().push_back(failure);
        self.poller.news();
    }

    fn has_events(&self) -> bool {
        !self.entries.borrow().is_empty() || !self.failures.borrow().is_empty()
    }

    /// Makes progress on every endpoint that reports here.
    #[inline]
    fn progress(&self) -> bool {
        let mut did = false;
        for i in 0.. {
            // The borrow ends before progress: a handler may open an endpoint.
            let worker = match self.workers.borrow().get(i) {
                Some(worker) => worker.upgrade(),
                None => break,
            };
            did |= worker.is_some_and(|worker| worker.progress());
        }
        did
    }

    /// Posts all receives to the engine, since the caller is about to sleep.
    fn flush(&self) {
        self.workers.borrow().iter().filter_map(Weak::upgrade).for_each(|worker| worker.post_all());
    }

    pub fn join(&self, worker: &Rc<Worker>) {
        let known = self.workers.borrow().iter().any(|p| p.as_ptr() == Rc::as_ptr(worker));
        if !known {
            self.workers.borrow_mut().push(Rc::downgrade(worker));
            self.poller.watch(worker);
        }
    }

    pub fn leave(&self, worker: &Worker) {
        self.workers.borrow_mut().retain(|p| !std::ptr::eq(p.as_ptr(), worker));
    }

    fn size(&self) -> usize {
        match self.format {
            CQ_CONTEXT => 8,
            CQ_MSG => 24,
            CQ_DATA => 40,
            _ => size_of::<CqTaggedEntry>(),
        }
    }

    /// Returns up to `count` entries.
    ///
    /// # Safety
    /// `buf` has room for `count` entries of the queue's format; `sources`, if not null, for as
    /// many numbers.
    unsafe fn read(&self, buf: *mut c_void, count: usize, sources: *mut u64) -> Answer {
        let mut entries = self.entries.borrow_mut();
        if !self.failures.borrow().is_empty() && (entries.is_empty() || count == 0) {
            return Err(err::EAVAIL);
        }
        let size = self.size();
        let mut given = 0;
        while given < count {
            let Some(entry) = entries.pop_front() else { break };
            // SAFETY: promised by the caller; the longest format begins with all others.
            unsafe {
                let from = (&raw const entry.fields).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, buf.cast::<u8>().add(given * size), size);
                if !sources.is_null() {
                    *sources.add(given) = entry.source;
                }
            }
            given += 1;
        }
        match given {
            0 => Err(err::EAGAIN),
            n => Ok(n as isize),
        }
    }

    /// Makes progress, then returns entries.
    ///
    /// # Safety
    /// The caller keeps the rules of `read`.
    #[inline]
    unsafe fn poll(&self, buf: *mut c_void, count: usize, sources: *mut u64) -> Answer {
        looking(|looks| {
            self.idle.enter(looks);
            let inside = self.domain.lock.enter()?;
            self.poller.is_back();
            let known = count > 0 && !self.entries.borrow().is_empty();
            let found = known
                || self.progress()
                || self.others.polled(&self.domain, &self.workers)
                || self.has_result();
            // SAFETY: promised by the caller.
            let answer = unsafe { self.read(buf, count, sources) };
            drop(inside);
            match found {
                true => self.idle.something(looks),
                false => self.found_nothing(looks),
            }
            yields::polled(self.idle.yields_itself());
            answer
        })
    }

    /// True if an operation has failed. The answer to a look for a message is none.
    fn has_result(&self) -> bool {
        self.failures.borrow().front().is_some_and(|failure| failure.error != err::ENOMSG)
    }

    /// Gives the core away if a caller that looks in vain is to.
    #[inline]
    fn found_nothing(&self, looks: &Looks) {
        if self.idle.nothing(looks) {
            self.give_core(looks);
        }
    }

    #[cold]
    fn give_core(&self, looks: &Looks) {
        if let Some(limit) = self.idle.hand_over(looks) {
            let woken = self.poller.nap(&self.domain.lock, &self.workers, limit);
            self.idle.slept(looks, woken);
        }
    }

    /// Waits for entries for at most `timeout` milliseconds, or forever if it is negative.
    ///
    /// # Safety
    /// The caller keeps the rules of `read`.
    unsafe fn wait(
        &self,
        buf: *mut c_void,
        count: usize,
        sources: *mut u64,
        timeout: c_int,
    ) -> Answer {
        if self.wait == WAIT_NONE {
            return Err(err::ENOSYS);
        }
        let start = Instant::now();
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        loop {
            {
                let _inside = self.domain.lock.enter()?;
                self.flush();
                self.progress();
                self.others.waits(&self.domain, &self.workers);
                // SAFETY: promised by the caller.
                match unsafe { self.read(buf, count, sources) } {
                    Err(err::EAGAIN) => {}
                    other => return other,
                }
            }
            if self.signal.swap(false, Ordering::AcqRel) {
                return Err(err::EAGAIN);
            }
            let left = match limit {
                Some(limit) => match limit.checked_sub(start.elapsed()) {
                    Some(left) if !left.is_zero() => left,
                    _ => return Err(err::EAGAIN),
                },
                None => Duration::from_secs(60),
            };
            let left = self.others.nap(&self.domain, &self.workers, left);
            self.poller.wait(&self.domain.lock, &self.workers, left);
        }
    }

    pub fn try_wait(&self) -> Result<(), c_int> {
        let _inside = self.domain.lock.enter()?;
        self.flush();
        self.progress();
        if self.has_events() {
            return Err(err::EAGAIN);
        }
        self.poller.lend(&self.workers)
    }
}

#[repr(C)]
pub struct CqObject {
    head: FidCq,
    pub cq: Rc<Cq>,
}

static FID: FiOps = FiOps { close, control, ..FiOps::NONE };
static OPS: FiOpsCq =
    FiOpsCq { read, readfrom, readerr, sread, sreadfrom, signal, strerror, ..FiOpsCq::NONE };

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: domain, attributes and out are the caller's, as `fi_cq_open` says.
    call_int(|| unsafe {
        let domain = object::<DomainObject>(domain.cast(), class::DOMAIN)?.domain.clone();
        let attr = attr.as_ref().ok_or(err::EINVAL)?;
        if !matches!(attr.wait_obj, WAIT_NONE | WAIT_UNSPEC | WAIT_FD | WAIT_YIELD) {
            return Err(err::ENOSYS);
        }
        let fid = Fid { fclass: class::CQ, context, ops: &FID };
        let cq = Rc::new(Cq {
            domain,
            format: attr.format,
            wait: attr.wait_obj,
            entries: RefCell::default(),
            failures: RefCell::default(),
            texts: RefCell::default(),
            next_text: Cell::new(1),
            workers: RefCell::default(),
            signal: AtomicBool::new(false),
            idle: super::worker::idle(),
            poller: super::worker::Poller::new(attr.wait_obj != WAIT_NONE)?,
            others: Others::default(),
        });
        give(CqObject { head: FidCq { fid, ops: &OPS }, cq }, out)
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<CqObject>(fid, class::CQ)?;
        let domain = object.cq.domain.clone();
        let _inside = domain.lock.enter()?;
        if Rc::strong_count(&object.cq) > 1 {
            return Err(err::EBUSY);
        }
        take::<CqObject>(fid);
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is what the command says, as `fi_control` has it.
    call_int(|| unsafe {
        let cq = &object::<CqObject>(fid, class::CQ)?.cq;
        if arg.is_null() {
            return Err(err::EINVAL);
        }
        match command {
            control::GETWAIT => *arg.cast::<c_int>() = cq.poller.fd().ok_or(err::ENOSYS)?,
            control::GETWAITOBJ => *arg.cast::<c_int>() = cq.wait,
            _ => return Err(err::ENOSYS),
        }
        Ok(0)
    })
}

#[inline]
unsafe fn queue<'a>(cq: *mut FidCq) -> Result<&'a Cq, c_int> {
    // SAFETY: a queue of the caller's.
    unsafe { object::<CqObject>(cq.cast(), class::CQ).map(|o| &*o.cq) }
}

unsafe extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: as `fi_cq_read` says, here and below.
    call(|| unsafe { queue(cq)?.poll(buf, count, std::ptr::null_mut()) })
}

unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: see `read`.
    call(|| unsafe { queue(cq)?.poll(buf, count, sources) })
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: see `read`.
    call(|| unsafe { queue(cq)?.wait(buf, count, std::ptr::null_mut(), timeout) })
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: see `read`.
    call(|| unsafe { queue(cq)?.wait(buf, count, sources, timeout) })
}

unsafe extern "C" fn readerr(cq: *mut FidCq, out: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: `out` has the fields of the version the caller was written for.
    call(|| unsafe {
        let cq = queue(cq)?;
        let _inside = cq.domain.lock.enter()?;
        let f = cq.failures.borrow_mut().pop_front().ok_or(err::EAGAIN)?;
        let number = cq.next_text.get();
        cq.next_text.set(number.wrapping_add(1).max(1));
        let mut texts = cq.texts.borrow_mut();
        if texts.len() == TEXTS {
            texts.pop_front();
        }
        texts.push_back((number, f.text.clone()));
        let out = out.as_mut().ok_or(err::EINVAL)?;
        out.op_context = f.fields.op_context;
        out.flags = f.fields.flags;
        out.len = f.fields.len;
        out.buf = f.fields.buf;
        out.data = f.fields.data;
        out.tag = f.fields.tag;
        out.olen = f.olen;
        out.err = f.error;
        out.prov_errno = number;
        if cq.domain.api >= version(1, 5) {
            // There is no error data; the buffer, if one was given, stays unchanged.
            out.err_data_size = 0;
        }
        if cq.domain.api >= version(1, 20) {
            out.src_addr = f.source;
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    // SAFETY: a queue of the caller's.
    call_int(|| unsafe {
        let cq = queue(cq)?;
        cq.signal.store(true, Ordering::Release);
        cq.poller.wake();
        Ok(0)
    })
}

unsafe extern "C" fn strerror(
    cq: *mut FidCq,
    number: c_int,
    _data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: a queue of the caller's, and its buffer.
    unsafe {
        let text = queue(cq).ok().and_then(|cq| {
            let _inside = cq.domain.lock.enter().ok()?;
            let texts = cq.texts.borrow();
            texts.iter().find(|(n, _)| *n == number).map(|(_, text)| text.clone())
        });
        copy_text(text.as_deref().unwrap_or("unknown"), buf, len)
    }
}

/// Copies a text to the caller; returns a pointer to a readable copy.
///
/// # Safety
/// `buf` is null or has room for `len` bytes.
pub unsafe fn copy_text(text: &str, buf: *mut c_char, len: usize) -> *const c_char {
    if buf.is_null() || len == 0 {
        return c"see the error number".as_ptr();
    }
    let fits = text.len().min(len - 1);
    // SAFETY: promised by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, fits);
        *buf.add(fits) = 0;
    }
    buf
}

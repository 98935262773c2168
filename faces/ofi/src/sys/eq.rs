//! Event queues: results of control operations.

use super::abi::*;
use super::{call, call_int, give, object, take};
use crate::lock::Mark;
use libc::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft::memory::{copied, seems_mapped};

struct Event {
    number: u32,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    failures: VecDeque<EqErrEntry>,
}

/// Has a lock of its own: it belongs to a fabric, and domains of several threads report to it.
#[derive(Default)]
pub struct Eq {
    state: Mutex<State>,
    came: Condvar,
}

impl Eq {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a control operation that succeeded.
    pub fn add(&self, number: u32, fid: *mut Fid, context: *mut c_void, data: u64) {
        let entry = EqEntry { fid, context, data };
        let bytes = (&raw const entry).cast::<u8>();
        // SAFETY: an entry consists of three words without gaps.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, size_of::<EqEntry>()) }.to_vec();
        self.lock().events.push_back(Event { number, bytes });
        self.came.notify_all();
    }

    /// Reports a control operation that failed.
    pub fn fail(&self, fid: *mut Fid, context: *mut c_void, data: u64, error: c_int) {
        self.lock().failures.push_back(EqErrEntry {
            fid,
            context,
            data,
            err: error,
            prov_errno: 0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        });
        self.came.notify_all();
    }
}

#[repr(C)]
pub struct EqObject {
    head: FidEq,
    pub events: Arc<Eq>,
}

impl EqObject {
    pub fn try_wait(&self) -> Result<(), c_int> {
        let _mark = Mark::set()?;
        let state = self.events.lock();
        match state.events.is_empty() && state.failures.is_empty() {
            true => Ok(()),
            false => Err(err::EAGAIN),
        }
    }
}

static FID: FiOps = FiOps { close, ..FiOps::NONE };
static OPS: FiOpsEq = FiOpsEq { read, readerr, write, sread, strerror, ..FiOpsEq::NONE };

pub unsafe extern "C" fn open(
    _fabric: *mut FidFabric,
    attr: *mut EqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: attributes and out are the caller's.
    call_int(|| unsafe {
        let wait = attr.as_ref().map_or(WAIT_NONE, |a| a.wait_obj);
        if !matches!(wait, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD) {
            return Err(err::ENOSYS);
        }
        let fid = Fid { fclass: class::EQ, context, ops: &FID };
        give(EqObject { head: FidEq { fid, ops: &OPS }, events: Arc::default() }, out)
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<EqObject>(fid, class::EQ)?;
        if Arc::strong_count(&object.events) > 1 {
            return Err(err::EBUSY);
        }
        take::<EqObject>(fid);
        Ok(0)
    })
}

/// Returns the oldest event, if there is one.
///
/// # Safety
/// `buf` has room for `len` bytes, `event` for a number.
unsafe fn next(
    state: &mut State,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    peek: bool,
) -> Result<isize, c_int> {
    if !state.failures.is_empty() {
        return Err(err::EAVAIL);
    }
    let first = state.events.front().ok_or(err::EAGAIN)?;
    if first.bytes.len() > len {
        return Err(err::ETOOSMALL);
    }
    // SAFETY: promised by the caller; the length was checked.
    unsafe {
        if !event.is_null() {
            *event = first.number;
        }
        std::ptr::copy_nonoverlapping(first.bytes.as_ptr(), buf.cast(), first.bytes.len());
    }
    let size = first.bytes.len() as isize;
    if !peek {
        state.events.pop_front();
    }
    Ok(size)
}

unsafe extern "C" fn read(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: as `fi_eq_read` says.
    call(|| unsafe {
        let events = &object::<EqObject>(eq.cast(), class::EQ)?.events;
        let _mark = Mark::set()?;
        let mut state = events.lock();
        next(&mut state, event, buf, len, flags & cap::PEEK != 0)
    })
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: as `fi_eq_sread` says.
    call(|| unsafe {
        let events = &object::<EqObject>(eq.cast(), class::EQ)?.events;
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        let start = std::time::Instant::now();
        let _mark = Mark::set()?;
        let mut state = events.lock();
        loop {
            match next(&mut state, event, buf, len, flags & cap::PEEK != 0) {
                Err(err::EAGAIN) => {}
                other => return other,
            }
            let left = match limit {
                Some(limit) => limit.checked_sub(start.elapsed()).ok_or(err::EAGAIN)?,
                None => Duration::from_secs(60),
            };
            let waited = events.came.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    })
}

unsafe extern "C" fn readerr(eq: *mut FidEq, out: *mut EqErrEntry, _flags: u64) -> isize {
    // SAFETY: as `fi_eq_readerr` says.
    call(|| unsafe {
        let events = &object::<EqObject>(eq.cast(), class::EQ)?.events;
        let _mark = Mark::set()?;
        let failure = events.lock().failures.pop_front().ok_or(err::EAGAIN)?;
        *out.as_mut().ok_or(err::EINVAL)? = failure;
        Ok(size_of::<EqErrEntry>() as isize)
    })
}

unsafe extern "C" fn write(
    eq: *mut FidEq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: as `fi_eq_write` says.
    call(|| unsafe {
        let events = &object::<EqObject>(eq.cast(), class::EQ)?.events;
        if buf.is_null() && len > 0 || !seems_mapped(buf, len) {
            return Err(err::EFAULT);
        }
        let bytes = match len {
            0 => Vec::new(),
            len => copied(std::slice::from_raw_parts(buf.cast::<u8>(), len)).ok_or(err::ENOMEM)?,
        };
        let _mark = Mark::set()?;
        events.lock().events.push_back(Event { number: event, bytes });
        events.came.notify_all();
        Ok(len as isize)
    })
}

unsafe extern "C" fn strerror(
    _eq: *mut FidEq,
    _error: c_int,
    _data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `buf` has room for `len` bytes.
    unsafe { super::cq::copy_text("see the error number", buf, len) }
}

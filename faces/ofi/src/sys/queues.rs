//! Completion queues, counters and event queues.

use super::{close, give, object, told};
use crate::abi::*;
use crate::call::call;
use crate::events::Events;
use crate::memory::Borrowed;
use crate::queue::Room;
use crate::worker::{Counter, Domain, Queue};
use libc::{c_char, c_int};
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;

static CQ_FID: FiOps = FiOps { close: close::<Rc<Queue>>, control: cq_control, ..FiOps::NONE };
static CQ: FiOpsCq = FiOpsCq {
    read: cq_read,
    readfrom: cq_readfrom,
    readerr: cq_readerr,
    sread: cq_sread,
    sreadfrom: cq_sreadfrom,
    signal: cq_signal,
    strerror: cq_strerror,
    ..FiOpsCq::NONE
};

static CNTR_FID: FiOps =
    FiOps { close: close::<Rc<Counter>>, control: cntr_control, ..FiOps::NONE };
static CNTR: FiOpsCntr = FiOpsCntr {
    read: cntr_read,
    readerr: cntr_readerr,
    add: cntr_add,
    set: cntr_set,
    wait: cntr_wait,
    adderr: cntr_adderr,
    seterr: cntr_seterr,
    ..FiOpsCntr::NONE
};

static EQ_FID: FiOps = FiOps { close: close::<Arc<Events>>, ..FiOps::NONE };
static EQ: FiOpsEq = FiOpsEq {
    read: eq_read,
    readerr: eq_readerr,
    write: eq_write,
    sread: eq_sread,
    strerror: eq_strerror,
    ..FiOpsEq::NONE
};

entries! { outside Arc<Domain>:
    fn cq_open(domain: FidDomain, attr: *mut CqAttr, out: Out<FidCq>, context: Ptr) -> c_int {
        let attr = attr.as_ref().ok_or(err::EINVAL)?;
        let queue = Rc::new(Queue::new(domain.clone(), attr.format, attr.wait_obj)?);
        let fid = Fid { fclass: class::CQ, context, ops: &CQ_FID };
        give(FidCq { fid, ops: &CQ }, queue, out)
    }

    fn cntr_open(domain: FidDomain, attr: *mut CntrAttr, out: Out<FidCntr>, context: Ptr)
            -> c_int {
        let (wait, events) =
            attr.as_ref().map_or((WAIT_NONE, CNTR_COMPLETIONS), |a| (a.wait_obj, a.events));
        if events != CNTR_COMPLETIONS {
            // Counters of bytes come with versions later than 1.17.
            return Err(err::ENOSYS);
        }
        let counter = Rc::new(Counter::new(domain.clone(), wait)?);
        let fid = Fid { fclass: class::CNTR, context, ops: &CNTR_FID };
        give(FidCntr { fid, ops: &CNTR }, counter, out)
    }
}

/// Has the number of a command of `fi_control` stored.
unsafe fn store(arg: Ptr, number: Result<c_int, c_int>) -> Result<c_int, c_int> {
    // SAFETY: `arg` is what the command says, as `fi_control` has it.
    let arg = unsafe { arg.cast::<c_int>().as_mut() }.ok_or(err::EINVAL)?;
    *arg = number?;
    Ok(0)
}

entries! { outside Rc<Queue>:
    fn cq_control(cq: Fid, command: c_int, arg: Ptr) -> c_int {
        store(arg, cq.reports.control(command))
    }

    fn cq_read(cq: FidCq, buf: Ptr, count: usize) -> isize {
        cq.poll(&Room::new(buf, count, null_mut()))
    }

    fn cq_readfrom(cq: FidCq, buf: Ptr, count: usize, sources: *mut u64) -> isize {
        cq.poll(&Room::new(buf, count, sources))
    }

    fn cq_sread(cq: FidCq, buf: Ptr, count: usize, _condition: Const, timeout: c_int) -> isize {
        cq.wait(&Room::new(buf, count, null_mut()), timeout)
    }

    fn cq_sreadfrom(cq: FidCq, buf: Ptr, count: usize, sources: *mut u64, _condition: Const,
            timeout: c_int) -> isize {
        cq.wait(&Room::new(buf, count, sources), timeout)
    }

    fn cq_signal(cq: FidCq) -> c_int {
        cq.signal();
        Ok(0)
    }
}

entries! { inside Rc<Queue>:
    fn cq_readerr(cq: FidCq, out: *mut CqErrEntry, _flags: u64) -> isize {
        // The structure has the fields of the version the caller was written for.
        cq.read_failure(out.as_mut().ok_or(err::EINVAL)?)
    }
}

unsafe extern "C" fn cq_strerror(
    cq: *mut FidCq,
    number: c_int,
    _data: Const,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: a queue of the caller's, and its buffer.
    unsafe {
        let text = object::<Rc<Queue>>(cq.cast()).ok().and_then(|cq| {
            let _inside = cq.reports.domain.lock.enter().ok()?;
            cq.text(number)
        });
        told(text.as_deref().unwrap_or("unknown"), buf, len)
    }
}

entries! { outside Rc<Counter>:
    fn cntr_control(cntr: Fid, command: c_int, arg: Ptr) -> c_int {
        store(arg, cntr.reports.control(command))
    }

    fn cntr_read(cntr: FidCntr) -> u64 {
        Ok(cntr.value())
    }

    fn cntr_readerr(cntr: FidCntr) -> u64 {
        Ok(cntr.errors())
    }

    fn cntr_add(cntr: FidCntr, value: u64) -> c_int {
        cntr.add(value, 0);
        Ok(0)
    }

    fn cntr_adderr(cntr: FidCntr, value: u64) -> c_int {
        cntr.add(0, value);
        Ok(0)
    }

    fn cntr_set(cntr: FidCntr, value: u64) -> c_int {
        cntr.set(value);
        Ok(0)
    }

    fn cntr_seterr(cntr: FidCntr, value: u64) -> c_int {
        cntr.set_errors(value);
        Ok(0)
    }

    fn cntr_wait(cntr: FidCntr, threshold: u64, timeout: c_int) -> c_int {
        cntr.wait(threshold, timeout)
    }
}

pub unsafe extern "C" fn eq_open(
    _fabric: *mut FidFabric,
    attr: *mut EqAttr,
    out: Out<FidEq>,
    context: Ptr,
) -> c_int {
    // SAFETY: attributes and out are the caller's.
    call(|| unsafe {
        let wait = attr.as_ref().map_or(WAIT_NONE, |a| a.wait_obj);
        if !matches!(wait, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD) {
            return Err(err::ENOSYS);
        }
        let fid = Fid { fclass: class::EQ, context, ops: &EQ_FID };
        give(FidEq { fid, ops: &EQ }, Arc::<Events>::default(), out)
    })
}

/// Stores the number of an event, and answers its length.
unsafe fn came(event: *mut u32, (number, len): (u32, usize)) -> Result<isize, c_int> {
    // SAFETY: `event` is null or the caller's, as `fi_eq_read` says.
    if let Some(event) = unsafe { event.as_mut() } {
        *event = number;
    }
    Ok(len as isize)
}

entries! { outside Arc<Events>:
    fn eq_read(eq: FidEq, event: *mut u32, buf: Ptr, len: usize, flags: u64) -> isize {
        came(event, eq.read(Borrowed::new(buf, len), flags & cap::PEEK != 0)?)
    }

    fn eq_sread(eq: FidEq, event: *mut u32, buf: Ptr, len: usize, timeout: c_int, flags: u64)
            -> isize {
        came(event, eq.wait(Borrowed::new(buf, len), flags & cap::PEEK != 0, timeout)?)
    }

    fn eq_readerr(eq: FidEq, out: *mut EqErrEntry, _flags: u64) -> isize {
        let out = out.as_mut().ok_or(err::EINVAL)?;
        *out = eq.read_failure()?;
        Ok(size_of::<EqErrEntry>() as isize)
    }

    fn eq_write(eq: FidEq, event: u32, buf: Const, len: usize, _flags: u64) -> isize {
        Ok(eq.write(event, Borrowed::new(buf, len))? as isize)
    }
}

unsafe extern "C" fn eq_strerror(
    _eq: *mut FidEq,
    _error: c_int,
    _data: Const,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `buf` has room for `len` bytes.
    unsafe { told("see the error number", buf, len) }
}

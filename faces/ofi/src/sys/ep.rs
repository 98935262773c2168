//! Endpoints: opening, binding and options; `worker` carries out their operations.

use super::abi::*;
use super::av::{copy_name, AvObject};
use super::cntr::CntrObject;
use super::cq::CqObject;
use super::domain::DomainObject;
use super::worker::{Defaults, Worker};
use super::{atomic, call, call_int, give, msg, object, rma, tagged, take};
use libc::{c_int, c_void};
use std::rc::Rc;

#[repr(C)]
pub struct EpObject {
    head: FidEp,
    worker: Rc<Worker>,
}

static FID: FiOps = FiOps { close, bind, control, ..FiOps::NONE };
static OPS: FiOpsEp = FiOpsEp { cancel, getopt, setopt, ..FiOpsEp::NONE };
static CM: FiOpsCm = FiOpsCm { getname, ..FiOpsCm::NONE };

/// Returns the worker of a caller's endpoint.
///
/// # Safety
/// `ep` is an endpoint of this provider.
#[inline]
pub unsafe fn worker<'a>(ep: *mut FidEp) -> Result<&'a Rc<Worker>, c_int> {
    // SAFETY: promised by the caller.
    unsafe { object::<EpObject>(ep.cast(), class::EP).map(|o| &o.worker) }
}

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: domain, info and out are the caller's, as `fi_endpoint` says.
    call_int(|| unsafe {
        let domain = object::<DomainObject>(domain.cast(), class::DOMAIN)?.domain.clone();
        let info = info.as_ref().ok_or(err::EINVAL)?;
        let _inside = domain.lock.enter()?;
        let defaults = Defaults {
            tx: info.tx_attr.as_ref().map_or(0, |a| a.op_flags),
            rx: info.rx_attr.as_ref().map_or(0, |a| a.op_flags),
            directed: info.caps & cap::DIRECTED_RECV != 0,
            events: info.caps & cap::RMA_EVENT != 0,
        };
        let worker = Worker::open(domain.clone(), defaults).map_err(|why| {
            log::error!("no endpoint: {why}");
            err::EIO
        })?;
        domain.workers.borrow_mut().push(Rc::downgrade(&worker));
        for region in domain.regions.borrow().values() {
            worker.expose(region);
        }
        let head = FidEp {
            fid: Fid { fclass: class::EP, context, ops: &FID },
            ops: &OPS,
            cm: &CM,
            msg: &msg::OPS,
            rma: &rma::OPS,
            tagged: &tagged::OPS,
            atomic: &atomic::OPS,
            collective: std::ptr::null(),
        };
        give(EpObject { head, worker }, out)
    })
}

pub unsafe extern "C" fn open2(
    domain: *mut FidDomain,
    info: *mut Info,
    out: *mut *mut FidEp,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    match flags {
        // SAFETY: as for `open`.
        0 => unsafe { open(domain, info, out, context) },
        _ => -err::EBADFLAGS,
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    if weft_sys::forks::is_child() {
        // The object is the parent's endpoint; the child owns nothing of it.
        return 0;
    }
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<EpObject>(fid, class::EP)?;
        let domain = object.worker.domain.clone();
        let _inside = domain.lock.enter()?;
        object.worker.close();
        let own = Rc::as_ptr(&object.worker);
        domain.workers.borrow_mut().retain(|p| p.as_ptr() != own);
        take::<EpObject>(fid);
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: both are the caller's.
    call_int(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let _inside = worker.domain.lock.enter()?;
        match other.as_ref().ok_or(err::EINVAL)?.fclass {
            class::AV => worker.use_vector(&object::<AvObject>(other, class::AV)?.av),
            class::CQ => worker.use_queue(&object::<CqObject>(other, class::CQ)?.cq, flags)?,
            class::CNTR => {
                worker.use_counter(&object::<CntrObject>(other, class::CNTR)?.counter, flags)?;
            }
            class::EQ => {}
            _ => return Err(err::EINVAL),
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is what the command says.
    call_int(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let _inside = worker.domain.lock.enter()?;
        match command {
            control::ENABLE => worker.enable()?,
            control::GETOPSFLAG | control::SETOPSFLAG => {
                let flags = arg.cast::<u64>().as_mut().ok_or(err::EINVAL)?;
                worker.default_flags(flags, command == control::SETOPSFLAG)?;
            }
            _ => return Err(err::ENOSYS),
        }
        Ok(0)
    })
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: an endpoint of the caller's.
    call(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let _inside = worker.domain.lock.enter()?;
        worker.cancel(context);
        Ok(0)
    })
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: `value` has room for `*len` bytes.
    call_int(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let room = len.as_mut().ok_or(err::EINVAL)?;
        let number = match (level, name) {
            (OPT_ENDPOINT, OPT_MIN_MULTI_RECV) => worker.min_multi_recv(),
            (OPT_ENDPOINT, OPT_CM_DATA_SIZE) => 0,
            _ => return Err(libc::ENOPROTOOPT),
        };
        if *room < size_of::<usize>() {
            return Err(err::ETOOSMALL);
        }
        value.cast::<usize>().write_unaligned(number);
        *room = size_of::<usize>();
        Ok(0)
    })
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: `value` has `len` bytes.
    call_int(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let _inside = worker.domain.lock.enter()?;
        match (level, name) {
            (OPT_ENDPOINT, OPT_MIN_MULTI_RECV) if len == size_of::<usize>() => {
                worker.set_min_multi_recv(value.cast::<usize>().read_unaligned());
                Ok(0)
            }
            // Permissions without effect: the provider supports no memory of graphics cards.
            (OPT_ENDPOINT, OPT_FI_HMEM_P2P | OPT_CUDA_API_PERMITTED) => Ok(0),
            (OPT_ENDPOINT, OPT_SHARED_MEMORY_PERMITTED) if len >= 1 => {
                match value.cast::<u8>().read() {
                    0 => Err(err::EOPNOTSUPP),
                    _ => Ok(0),
                }
            }
            _ => Err(libc::ENOPROTOOPT),
        }
    })
}

unsafe extern "C" fn getname(fid: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: `out` has room for `*len` bytes.
    call_int(|| unsafe {
        let worker = &object::<EpObject>(fid, class::EP)?.worker;
        let _inside = worker.domain.lock.enter()?;
        copy_name(&worker.name(), out, len, true)
    })
}

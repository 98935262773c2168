//! Fabrics, domains, address vectors and registered memory.

use super::objects::{Fabric, Object, Registered};
use super::{atomic, close, collective, copy_text, ep, give, object, queues, room};
use crate::abi::*;
use crate::addresses::text_of;
use crate::call::call;
use crate::events::Events;
use crate::memory::{list, Borrowed};
use crate::name::{Name, LEN};
use crate::worker::{Addresses, Counter, Domain, Queue};
use libc::{c_char, c_int};
use std::rc::Rc;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

static FABRIC_FID: FiOps = FiOps { close: close::<Fabric>, ..FiOps::NONE };
static FABRIC: FiOpsFabric = FiOpsFabric {
    domain: open,
    domain2: open2,
    eq_open: queues::eq_open,
    trywait,
    ..FiOpsFabric::NONE
};

static DOMAIN_FID: FiOps = FiOps { close: close::<Arc<Domain>>, bind: bind_domain, ..FiOps::NONE };
static DOMAIN: FiOpsDomain = FiOpsDomain {
    av_open,
    cq_open: queues::cq_open,
    endpoint: ep::open,
    endpoint2: ep::open2,
    cntr_open: queues::cntr_open,
    query_atomic: atomic::query,
    query_collective: collective::query,
    ..FiOpsDomain::NONE
};

static AV_FID: FiOps = FiOps { close: close::<Rc<Addresses>>, bind: bind_av, ..FiOps::NONE };
static AV: FiOpsAv =
    FiOpsAv { insert, remove, lookup, straddr, av_set: collective::av_set, ..FiOpsAv::NONE };

static MR_FID: FiOps =
    FiOps { close: close::<Registered>, bind: bind_mr, control: control_mr, ..FiOps::NONE };
static MR: FiOpsMr = FiOpsMr { reg, regv, regattr, ..FiOpsMr::NONE };

pub unsafe extern "C" fn fabric(attr: *mut FabricAttr, out: Out<FidFabric>, context: Ptr) -> c_int {
    // SAFETY: the attributes are the caller's, `out` has room for a pointer.
    call(|| unsafe {
        let api_version = attr.as_ref().ok_or(err::EINVAL)?.api_version;
        let fid = Fid { fclass: class::FABRIC, context, ops: &FABRIC_FID };
        give(FidFabric { fid, ops: &FABRIC, api_version }, Fabric { api: api_version }, out)
    })
}

entries! { outside Fabric:
    fn open(fabric: FidFabric, info: *mut Info, out: Out<FidDomain>, context: Ptr) -> c_int {
        let attr = info.as_ref().ok_or(err::EINVAL)?.domain_attr.as_ref().ok_or(err::EINVAL)?;
        let progress = [attr.control_progress, attr.data_progress];
        // Several threads count references, without the lock inside the domain.
        #[allow(clippy::arc_with_non_send_sync)]
        let domain = Arc::new(Domain::new(fabric.api, attr.threading, progress, attr.mr_mode));
        let fid = Fid { fclass: class::DOMAIN, context, ops: &DOMAIN_FID };
        give(FidDomain { fid, ops: &DOMAIN, mr: &MR }, domain, out)
    }
}

flagged!(open2 is open: FidFabric, FidDomain);

/// Returns 0 if a caller may sleep on the descriptors of these objects.
unsafe extern "C" fn trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    // SAFETY: `fids` points to `count` objects of this provider.
    call(|| unsafe {
        for i in 0..usize::try_from(count).map_err(|_| err::EINVAL)? {
            let fid = *fids.add(i);
            match fid.as_ref().ok_or(err::EINVAL)?.fclass {
                <Rc<Queue>>::CLASS => object::<Rc<Queue>>(fid)?.try_wait()?,
                <Rc<Counter>>::CLASS => object::<Rc<Counter>>(fid)?.try_wait()?,
                <Arc<Events>>::CLASS => object::<Arc<Events>>(fid)?.try_wait()?,
                _ => return Err(err::ENOSYS),
            }
        }
        Ok(0)
    })
}

entries! { outside Arc<Domain>:
    /// Binds an event queue, to which a domain never reports anything. Memory is registered at
    /// once, so a caller that wants a report of that (`FI_REG_MR`) would wait in vain and is
    /// refused.
    fn bind_domain(_domain: Fid, other: *mut Fid, flags: u64) -> c_int {
        object::<Arc<Events>>(other)?;
        match flags {
            0 => Ok(0),
            cap::REG_MR => Err(err::ENOSYS),
            _ => Err(err::EBADFLAGS),
        }
    }

    fn av_open(domain: FidDomain, attr: *mut AvAttr, out: Out<FidAv>, context: Ptr) -> c_int {
        let av = Addresses::new(domain.clone(), attr.as_ref().ok_or(err::EINVAL)?)?;
        let fid = Fid { fclass: class::AV, context, ops: &AV_FID };
        give(FidAv { fid, ops: &AV }, Rc::new(av), out)
    }
}

/// Returns the elements of a caller's list, which may be long.
///
/// # Errors
/// `FI_EINVAL`: the memory is null, or so many elements are longer than memory, or so long that
/// they are checked, and not memory of this process.
///
/// # Safety
/// There are so many elements, until the call returns.
unsafe fn elements<'a, T>(list: *const T, count: usize) -> Result<&'a [T], c_int> {
    let len = count.checked_mul(size_of::<T>()).ok_or(err::EINVAL)?;
    // SAFETY: promised by the caller.
    unsafe {
        match len == 0 || !list.is_null() && Borrowed::new(list.cast(), len).seems_mapped() {
            true if len == 0 => Ok(&[]),
            true => Ok(from_raw_parts(list, count)),
            false => Err(err::EINVAL),
        }
    }
}

/// Returns a caller's list to fill, if it has one.
///
/// # Safety
/// The list is null or has room for so many elements, until the call returns.
unsafe fn places<'a, T>(list: *mut T, count: usize) -> Option<&'a mut [T]> {
    // SAFETY: promised by the caller.
    (!list.is_null()).then(|| unsafe { from_raw_parts_mut(list, count) })
}

entries! { inside Rc<Addresses>:
    fn bind_av(av: Fid, other: *mut Fid, _flags: u64) -> c_int {
        av.use_events(object::<Arc<Events>>(other)?.clone());
        Ok(0)
    }

    fn remove(av: FidAv, numbers: *mut u64, count: usize, _flags: u64) -> c_int {
        av.remove(elements(numbers, count)?)
    }

    fn lookup(av: FidAv, number: u64, out: Ptr, len: *mut usize) -> c_int {
        let (room, len) = room(out, len)?;
        *len = av.look_up(number, room)?;
        Ok(0)
    }
}

unsafe extern "C" fn insert(
    fid: *mut FidAv,
    names: Const,
    count: usize,
    out: *mut u64,
    flags: u64,
    context: Ptr,
) -> c_int {
    // SAFETY: `names` points to `count` names, `out` is null or has room for as many numbers, as
    // `fi_av_insert` says; with FI_SYNC_ERR the context has room for as many errors.
    unsafe {
        super::inside::<Rc<Addresses>, c_int>(fid.cast(), |av| {
            let names: &[Name] = elements(names.cast(), count)?;
            let errors = if flags & cap::SYNC_ERR != 0 { context } else { std::ptr::null_mut() };
            let errors = places(errors.cast::<c_int>(), count);
            av.insert(names, places(out, count), errors, (fid.cast(), context))
        })
    }
}

unsafe extern "C" fn straddr(
    _av: *mut FidAv,
    bytes: Const,
    out: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `bytes` is a name, `out` has room for `*len` bytes, as `fi_av_straddr` says.
    if let (Some(name), Some(len)) = unsafe { (bytes.cast::<[u8; LEN]>().as_ref(), len.as_mut()) } {
        let text = text_of(name);
        // SAFETY: see above.
        unsafe { copy_text(&text, out, *len) };
        *len = text.len() + 1;
    }
    out
}

/// Registers one piece of memory.
///
/// # Safety
/// The caller keeps the rules of `fi_mr_reg`: out is the caller's, and any part of the memory that
/// a peer uses exists until the region is closed.
unsafe fn register(
    domain: &Arc<Domain>,
    memory: Borrowed,
    (access, requested): (u64, u64),
    out: Out<FidMr>,
    context: Ptr,
) -> Result<c_int, c_int> {
    let region = domain.register(memory, access, requested)?;
    let fid = Fid { fclass: class::MR, context, ops: &MR_FID };
    let head = FidMr { fid, mem_desc: std::ptr::null_mut(), key: region.key };
    // SAFETY: promised by the caller.
    unsafe { give(head, Registered { domain: domain.clone(), region }, out) }
}

/// Returns the one piece of memory in a list.
///
/// # Safety
/// `iov` points to `count` structures.
unsafe fn only(iov: Iov, count: usize) -> Result<Borrowed, c_int> {
    // SAFETY: promised by the caller.
    match unsafe { list(iov.cast(), count)? } {
        [one] => Ok(*one),
        _ => Err(err::EINVAL),
    }
}

entries! { inside Arc<Domain>:
    fn reg(domain: Fid, buf: Const, len: usize, access: u64, _offset: u64, key: u64, _flags: u64,
            out: Out<FidMr>, context: Ptr) -> c_int {
        register(domain, Borrowed::new(buf, len), (access, key), out, context)
    }

    fn regv(domain: Fid, iov: Iov, count: usize, access: u64, _offset: u64, key: u64, _flags: u64,
            out: Out<FidMr>, context: Ptr) -> c_int {
        register(domain, only(iov, count)?, (access, key), out, context)
    }

    fn regattr(domain: Fid, attr: *const MrAttr, _flags: u64, out: Out<FidMr>) -> c_int {
        let a = attr.as_ref().ok_or(err::EINVAL)?;
        // Structures of older callers end before this field.
        if domain.api >= version(1, 9) && a.iface != 0 {
            // Memory of a graphics card is not supported.
            return Err(err::ENOSYS);
        }
        let memory = only(a.mr_iov, a.iov_count)?;
        register(domain, memory, (a.access, a.requested_key), out, a.context)
    }
}

entries! { inside Registered:
    fn bind_mr(memory: Fid, other: *mut Fid, flags: u64) -> c_int {
        // Binding to an endpoint does nothing: all endpoints of the domain serve the region.
        if other.as_ref().ok_or(err::EINVAL)?.fclass == class::CNTR {
            object::<Rc<Counter>>(other)?.count_region(&memory.region, flags);
        }
        Ok(0)
    }
}

unsafe extern "C" fn control_mr(_fid: *mut Fid, command: c_int, _arg: Ptr) -> c_int {
    match command {
        control::ENABLE => 0,
        _ => -err::ENOSYS,
    }
}

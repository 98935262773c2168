//! Registered memory.

use super::abi::*;
use super::cntr::{CntrObject, Counter};
use super::domain::{Domain, DomainObject};
use super::{call_int, give, object, pieces, take};
use libc::{c_int, c_void, iovec};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::engine::Rights;

/// Memory that peers may use under a key.
pub struct Region {
    pub key: u64,
    /// The address or offset by which peers name the first byte.
    pub first: u64,
    pub start: *mut u8,
    pub len: usize,
    pub rights: Rights,
    /// Counters of the writes and the reads of peers.
    pub counters: RefCell<[Option<Rc<Counter>>; 2]>,
}

#[repr(C)]
pub struct MrObject {
    head: FidMr,
    domain: Arc<Domain>,
    region: Rc<Region>,
}

static FID: FiOps = FiOps { close, bind, control, ..FiOps::NONE };
pub static OPS: FiOpsMr = FiOpsMr { reg, regv, regattr, ..FiOpsMr::NONE };

/// Registers one piece of memory.
///
/// # Safety
/// The caller keeps the rules of `fi_mr_reg`: domain and out are the caller's, and any part of the
/// memory that a peer uses exists until the region is closed.
unsafe fn register(
    domain: *mut Fid,
    (start, len): (*mut u8, usize),
    access: u64,
    requested: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> Result<c_int, c_int> {
    // SAFETY: promised by the caller.
    let domain = unsafe { &object::<DomainObject>(domain, class::DOMAIN)?.domain }.clone();
    let _inside = domain.lock.enter()?;
    let rights =
        Rights { read: access & cap::REMOTE_READ != 0, write: access & cap::REMOTE_WRITE != 0 };
    let taken = |key| domain.regions.borrow().contains_key(&key);
    let remote = rights.read || rights.write;
    // Memory registered for local use needs no key; callers give all of it the same one.
    let key = match remote {
        false => KEY_NONE,
        true if domain.memory.own_keys => domain.fresh_key(),
        true => requested,
    };
    if remote && key == KEY_NONE {
        return Err(err::EKEYREJECTED);
    }
    if remote && taken(key) {
        return Err(err::ENOKEY);
    }
    let first = if domain.memory.by_address { start as u64 } else { 0 };
    let region = Rc::new(Region { key, first, start, len, rights, counters: RefCell::default() });
    if remote {
        domain.each_port(|worker| worker.expose(&region));
        domain.regions.borrow_mut().insert(key, region.clone());
    }
    let fid = Fid { fclass: class::MR, context, ops: &FID };
    let mem_desc = std::ptr::null_mut();
    let head = FidMr { fid, mem_desc, key };
    let domain = domain.clone();
    // SAFETY: promised by the caller.
    unsafe { give(MrObject { head, domain, region }, out) }
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as `fi_mr_reg` says.
    call_int(|| unsafe {
        register(domain, (buf.cast_mut().cast(), len), access, key, out, context)
    })
}

/// Returns the one piece of memory in a list.
///
/// # Safety
/// `iov` points to `count` structures.
unsafe fn only(iov: *const iovec, count: usize) -> Result<(*mut u8, usize), c_int> {
    // SAFETY: promised by the caller.
    match unsafe { pieces(iov, count)? } {
        [one] => Ok((one.iov_base.cast(), one.iov_len)),
        _ => Err(err::EINVAL),
    }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as `fi_mr_regv` says.
    call_int(|| unsafe { register(domain, only(iov, count)?, access, key, out, context) })
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    out: *mut *mut FidMr,
) -> c_int {
    // SAFETY: as `fi_mr_regattr` says.
    call_int(|| unsafe {
        let domain_of = object::<DomainObject>(domain, class::DOMAIN)?;
        let a = attr.as_ref().ok_or(err::EINVAL)?;
        // Structures of older callers end before this field.
        if domain_of.domain.api >= version(1, 9) && a.iface != 0 {
            // Memory of a graphics card is not supported.
            return Err(err::ENOSYS);
        }
        let memory = only(a.mr_iov, a.iov_count)?;
        register(domain, memory, a.access, a.requested_key, out, a.context)
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<MrObject>(fid, class::MR)?;
        let domain = object.domain.clone();
        let _inside = domain.lock.enter()?;
        let key = object.region.key;
        if key != KEY_NONE {
            domain.each_port(|worker| worker.hide(key));
            domain.regions.borrow_mut().remove(&key);
        }
        take::<MrObject>(fid);
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: both are the caller's.
    call_int(|| unsafe {
        let object = object::<MrObject>(fid, class::MR)?;
        let _inside = object.domain.lock.enter()?;
        // Binding to an endpoint does nothing: all endpoints of the domain serve the region.
        if other.as_ref().ok_or(err::EINVAL)?.fclass == class::CNTR {
            let counter = &super::object::<CntrObject>(other, class::CNTR)?.counter;
            let sides = [cap::REMOTE_WRITE, cap::REMOTE_READ];
            for (slot, side) in object.region.counters.borrow_mut().iter_mut().zip(sides) {
                if flags & side != 0 {
                    *slot = Some(counter.clone());
                }
            }
            // A wait on the counter makes progress on all endpoints that serve the region.
            object.domain.each_port(|worker| counter.join(worker));
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(_fid: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    match command {
        control::ENABLE => 0,
        _ => -err::ENOSYS,
    }
}

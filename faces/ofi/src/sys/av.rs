//! Address vectors.

use super::abi::*;
use super::domain::{Domain, DomainObject};
use super::eq::{Eq, EqObject};
use super::{call_int, give, object, take};
use crate::name::{self, NameError};
use crate::vector::Vector;
use libc::{c_char, c_int, c_void};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use weft::memory::seems_mapped;

pub struct Av {
    pub domain: Arc<Domain>,
    pub vector: RefCell<Vector>,
    events: RefCell<Option<Arc<Eq>>>,
    is_async: bool,
}

#[repr(C)]
pub struct AvObject {
    head: FidAv,
    pub av: Rc<Av>,
}

static FID: FiOps = FiOps { close, bind, ..FiOps::NONE };
static OPS: FiOpsAv = FiOpsAv { insert, remove, lookup, straddr, ..FiOpsAv::NONE };

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: domain, attributes and out are the caller's, as `fi_av_open` says.
    call_int(|| unsafe {
        let domain = object::<DomainObject>(domain.cast(), class::DOMAIN)?.domain.clone();
        let attr = attr.as_ref().ok_or(err::EINVAL)?;
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
            // Neither vectors shared between processes nor several receive contexts are offered.
            return Err(err::ENOSYS);
        }
        let fid = Fid { fclass: class::AV, context, ops: &FID };
        let av = Rc::new(Av {
            domain,
            vector: RefCell::default(),
            events: RefCell::default(),
            is_async: attr.flags & cap::COMPLETION != 0,
        });
        give(AvObject { head: FidAv { fid, ops: &OPS }, av }, out)
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's caller closes what it opened, once.
    call_int(|| unsafe {
        let object = object::<AvObject>(fid, class::AV)?;
        let domain = object.av.domain.clone();
        let _inside = domain.lock.enter()?;
        if Rc::strong_count(&object.av) > 1 {
            return Err(err::EBUSY);
        }
        take::<AvObject>(fid);
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: both are the caller's.
    call_int(|| unsafe {
        let av = &object::<AvObject>(fid, class::AV)?.av;
        let events = object::<EqObject>(other, class::EQ)?.events.clone();
        let _inside = av.domain.lock.enter()?;
        *av.events.borrow_mut() = Some(events);
        Ok(0)
    })
}

/// # Errors
/// `FI_EINVAL`: the memory is null, or so many entries are longer than memory, or so long that they
/// are checked, and not memory of this process.
fn check_list<T>(list: *const T, count: usize, each: usize) -> Result<(), c_int> {
    let len = count.checked_mul(each).ok_or(err::EINVAL)?;
    match len == 0 || !list.is_null() && seems_mapped(list.cast(), len) {
        true => Ok(()),
        false => Err(err::EINVAL),
    }
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    names: *const c_void,
    count: usize,
    out: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `names` points to `count` names, `out` is null or has room for as many numbers, as
    // `fi_av_insert` says; with FI_SYNC_ERR the context has room for as many errors.
    call_int(|| unsafe {
        let object = object::<AvObject>(av.cast(), class::AV)?;
        let _inside = object.av.domain.lock.enter()?;
        let events = object.av.events.borrow().clone();
        if object.av.is_async && events.is_none() {
            return Err(err::ENOEQ);
        }
        let mut vector = object.av.vector.borrow_mut();
        check_list(names, count, name::LEN)?;
        let (mut good, mut other) = (0, false);
        for i in 0..count {
            let bytes = names.cast::<u8>().add(i * name::LEN);
            let inserted = vector.insert(std::slice::from_raw_parts(bytes, name::LEN));
            let number = match &inserted {
                Ok(number) => {
                    good += 1;
                    *number
                }
                Err(why) => {
                    log::error!("address {i} of {count}: {why}");
                    other |= matches!(why, NameError::Version(_) | NameError::Key);
                    ADDR_NONE
                }
            };
            if !out.is_null() {
                *out.add(i) = number;
            }
            if flags & cap::SYNC_ERR != 0 && !context.is_null() {
                let error = if inserted.is_ok() { 0 } else { err::EINVAL };
                *context.cast::<c_int>().add(i) = error;
            } else if let (Some(events), true) = (&events, inserted.is_err()) {
                events.fail(av.cast(), context, i as u64, err::EINVAL);
            }
        }
        match events {
            Some(events) if object.av.is_async => {
                events.add(EVENT_AV_COMPLETE, av.cast(), context, good as u64);
                Ok(0)
            }
            // MPIs do not check the count of inserted names: ranks of mixed versions or keys would
            // wait forever.
            _ if other && flags & cap::SYNC_ERR == 0 => Err(err::EINVAL),
            _ => Ok(good),
        }
    })
}

unsafe extern "C" fn remove(av: *mut FidAv, numbers: *mut u64, count: usize, _: u64) -> c_int {
    // SAFETY: `numbers` points to `count` numbers, as `fi_av_remove` says.
    call_int(|| unsafe {
        let object = object::<AvObject>(av.cast(), class::AV)?;
        let _inside = object.av.domain.lock.enter()?;
        check_list(numbers, count, size_of::<u64>())?;
        let mut vector = object.av.vector.borrow_mut();
        for i in 0..count {
            if !vector.remove(*numbers.add(i)) {
                return Err(err::EINVAL);
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn lookup(
    av: *mut FidAv,
    number: u64,
    out: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: `out` has room for `*len` bytes, as `fi_av_lookup` says.
    call_int(|| unsafe {
        let object = object::<AvObject>(av.cast(), class::AV)?;
        let _inside = object.av.domain.lock.enter()?;
        let vector = object.av.vector.borrow();
        let name = vector.name(number).ok_or(err::EINVAL)?;
        copy_name(name, out, len, false)
    })
}

/// Copies as much of a name as fits to the caller, and stores its length.
///
/// # Safety
/// `len` is null or points to the size of the memory at `out`.
pub unsafe fn copy_name(
    name: &name::Name,
    out: *mut c_void,
    len: *mut usize,
    whole: bool,
) -> Result<c_int, c_int> {
    // SAFETY: promised by the caller.
    unsafe {
        let room = len.as_mut().ok_or(err::EINVAL)?;
        let fits = (*room).min(name.len());
        let short = fits < name.len();
        if !out.is_null() {
            std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), fits);
        }
        *room = name.len();
        match short && whole {
            true => Err(err::ETOOSMALL),
            false => Ok(0),
        }
    }
}

unsafe extern "C" fn straddr(
    _av: *mut FidAv,
    bytes: *const c_void,
    out: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    if bytes.is_null() || len.is_null() {
        return out;
    }
    // SAFETY: `bytes` is a name, `out` has room for `*len` bytes, as `fi_av_straddr` says.
    unsafe {
        let text = match name::decode(std::slice::from_raw_parts(bytes.cast(), name::LEN)) {
            Ok(address) => format!("weft://{address}"),
            Err(why) => format!("weft://? ({why})"),
        };
        let fits = text.len().min((*len).saturating_sub(1));
        if *len > 0 && !out.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, fits);
            *out.add(fits) = 0;
        }
        *len = text.len() + 1;
    }
    out
}

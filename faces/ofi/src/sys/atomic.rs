//! Atomic operations: the functions that callers call.

use crate::abi::*;
use crate::atomic::Form;
use crate::call::{call, Answer};
use crate::memory::{list, Elements};
use crate::worker::{most, AtomicCall, Worker};
use libc::c_int;
use std::ptr::null_mut;
use std::rc::Rc;

pub static OPS: FiOpsAtomic = FiOpsAtomic {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..FiOpsAtomic::NONE
};

/// Elements of a caller: operands, values to compare with, and memory for results.
struct Local<'a> {
    operands: &'a [Elements],
    compares: &'a [Elements],
    results: &'a [Elements],
}

/// The other parameters of a call without a structure: peer, address and key, numbers of the type
/// and the operator, context; flags as in [`AtomicCall`].
type Rest = (u64, (u64, u64), (c_int, c_int), Ptr, Option<u64>);

/// Starts an operation on one piece of a peer's memory, with as many elements as the results or
/// operands have.
fn one(ep: &Worker, form: Form, local: &Local<'_>, rest: Rest) -> Answer {
    let (to, (addr, key), numbers, context, flags) = rest;
    let of = if form == Form::Fetch { local.results } else { local.operands };
    let count = of.iter().map(|piece| piece.count()).fold(0, usize::saturating_add);
    start(ep, form, local, &[RmaIoc { addr, count, key }], (to, numbers, context, flags))
}

fn start(
    ep: &Worker,
    form: Form,
    &Local { operands, compares, results }: &Local<'_>,
    remote: &[RmaIoc],
    (to, numbers, context, flags): (u64, (c_int, c_int), Ptr, Option<u64>),
) -> Answer {
    let all = AtomicCall { form, numbers, to, operands, compares, results, remote, context, flags };
    ep.atomic(&all)
}

/// Starts an operation that a structure describes.
///
/// # Safety
/// The structure's lists are as long as it says.
unsafe fn described(
    ep: &Worker,
    form: Form,
    m: *const MsgAtomic,
    compares: &[Elements],
    results: &[Elements],
    flags: u64,
) -> Answer {
    // SAFETY: promised by the caller.
    let (m, operands, remote) = unsafe {
        let m = m.as_ref().ok_or(err::EINVAL)?;
        (m, Elements::list(m.msg_iov, m.iov_count)?, list(m.rma_iov, m.rma_iov_count)?)
    };
    let local = Local { operands, compares, results };
    start(ep, form, &local, remote, (m.addr, (m.datatype, m.op), m.context, Some(flags)))
}

entries! { inside Rc<Worker>:
    fn write(ep: FidEp, buf: Const, count: usize, _desc: Ptr, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: Ptr) -> isize {
        let operands = &[Elements::new(buf, count)];
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Write, &Local { operands, compares: &[], results: &[] }, rest)
    }

    fn writev(ep: FidEp, iov: *const Ioc, _desc: Descs, count: usize, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: Ptr) -> isize {
        let operands = Elements::list(iov, count)?;
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Write, &Local { operands, compares: &[], results: &[] }, rest)
    }

    fn writemsg(ep: FidEp, msg: *const MsgAtomic, flags: u64) -> isize {
        described(ep, Form::Write, msg, &[], &[], flags)
    }

    fn inject(ep: FidEp, buf: Const, count: usize, to: u64, addr: u64, key: u64, datatype: c_int,
            op: c_int) -> isize {
        let operands = &[Elements::new(buf, count)];
        let rest = (to, (addr, key), (datatype, op), null_mut(), None);
        one(ep, Form::Write, &Local { operands, compares: &[], results: &[] }, rest)
    }

    fn readwrite(ep: FidEp, buf: Const, count: usize, _desc: Ptr, result: Ptr, _result_desc: Ptr,
            to: u64, addr: u64, key: u64, datatype: c_int, op: c_int, context: Ptr) -> isize {
        let operands = &[Elements::new(buf, count)];
        let results = &[Elements::new(result, count)];
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Fetch, &Local { operands, compares: &[], results }, rest)
    }

    fn readwritev(ep: FidEp, iov: *const Ioc, _desc: Descs, count: usize, resultv: *mut Ioc,
            _result_desc: Descs, result_count: usize, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: Ptr) -> isize {
        let operands = Elements::list(iov, count)?;
        let results = Elements::list(resultv, result_count)?;
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Fetch, &Local { operands, compares: &[], results }, rest)
    }

    fn readwritemsg(ep: FidEp, msg: *const MsgAtomic, resultv: *mut Ioc, _result_desc: Descs,
            result_count: usize, flags: u64) -> isize {
        described(ep, Form::Fetch, msg, &[], Elements::list(resultv, result_count)?, flags)
    }

    fn compwrite(ep: FidEp, buf: Const, count: usize, _desc: Ptr, compare: Const,
            _compare_desc: Ptr, result: Ptr, _result_desc: Ptr, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: Ptr) -> isize {
        let [operands, compares, results] =
            &[buf, compare, result].map(|at| [Elements::new(at, count)]);
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Compare, &Local { operands, compares, results }, rest)
    }

    fn compwritev(ep: FidEp, iov: *const Ioc, _desc: Descs, count: usize, comparev: *const Ioc,
            _compare_desc: Descs, compare_count: usize, resultv: *mut Ioc, _result_desc: Descs,
            result_count: usize, to: u64, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: Ptr) -> isize {
        let operands = Elements::list(iov, count)?;
        let compares = Elements::list(comparev, compare_count)?;
        let results = Elements::list(resultv, result_count)?;
        let rest = (to, (addr, key), (datatype, op), context, Some(ep.tx_flags()));
        one(ep, Form::Compare, &Local { operands, compares, results }, rest)
    }

    fn compwritemsg(ep: FidEp, msg: *const MsgAtomic, comparev: *const Ioc, _compare_desc: Descs,
            compare_count: usize, resultv: *mut Ioc, _result_desc: Descs, result_count: usize,
            flags: u64) -> isize {
        let compares = Elements::list(comparev, compare_count)?;
        let results = Elements::list(resultv, result_count)?;
        described(ep, Form::Compare, msg, compares, results, flags)
    }
}

/// The functions that store the most elements an operation of a form may have; an error if there is
/// no such operation.
macro_rules! questions {
    ($($name:ident: $form:ident,)*) => {$(
        unsafe extern "C" fn $name(
            _: *mut FidEp,
            datatype: c_int,
            op: c_int,
            count: *mut usize,
        ) -> c_int {
            // SAFETY: `count` is the caller's.
            call(|| unsafe {
                let (most, _) = most(Form::$form, (datatype, op))?;
                *count.as_mut().ok_or(err::EINVAL)? = most;
                Ok(0)
            })
        }
    )*};
}

questions! {
    writevalid: Write,
    readwritevalid: Fetch,
    compwritevalid: Compare,
}

/// `fi_query_atomic`.
pub unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    // SAFETY: `attr` is the caller's.
    call(|| unsafe {
        let form = match flags {
            0 => Form::Write,
            cap::FETCH_ATOMIC => Form::Fetch,
            cap::COMPARE_ATOMIC => Form::Compare,
            // Receive buffers as targets, and fetching and comparing at once, are not offered.
            _ => return Err(err::EOPNOTSUPP),
        };
        let (count, size) = most(form, (datatype, op))?;
        *attr.as_mut().ok_or(err::EINVAL)? = AtomicAttr { count, size };
        Ok(0)
    })
}

//! Atomic operations: the functions that callers call.

use super::abi::*;
use super::ep::worker;
use super::rma::remote_pieces;
use super::worker::AtomicOp;
use super::{call, call_int, Answer};
use crate::atomic::{is_valid, Datatype, Form, Operator, Piece, Request, LONGEST};
use libc::{c_int, c_void};

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

/// Returns the type and operator with these numbers, if an operation of this form exists.
fn kind(form: Form, datatype: c_int, op: c_int) -> Result<(Datatype, Operator), c_int> {
    let datatype = Datatype::from_number(i64::from(datatype)).ok_or(err::EOPNOTSUPP)?;
    let operator = Operator::from_number(i64::from(op)).ok_or(err::EOPNOTSUPP)?;
    match is_valid(form, datatype, operator) {
        true => Ok((datatype, operator)),
        false => Err(err::EOPNOTSUPP),
    }
}

/// An atomic operation as a caller describes it.
struct Call<'a> {
    form: Form,
    datatype: c_int,
    op: c_int,
    to: u64,
    operands: &'a [Ioc],
    compares: &'a [Ioc],
    results: &'a [Ioc],
    remote: &'a [RmaIoc],
    context: *mut c_void,
    /// `None` for the default flags of the endpoint.
    flags: Option<u64>,
    injected: bool,
}

/// # Safety
/// `iov` points to `count` structures.
unsafe fn local<'a>(iov: *const Ioc, count: usize) -> Result<&'a [Ioc], c_int> {
    match count {
        0 => Ok(&[]),
        // SAFETY: promised by the caller.
        _ => unsafe { remote_pieces(iov, count) },
    }
}

/// Copies the elements of all pieces, of at most `most` bytes.
///
/// # Safety
/// Each piece has its count of elements of `size` bytes.
unsafe fn gather(pieces: &[Ioc], size: usize) -> Result<Vec<u8>, c_int> {
    let mut out = Vec::new();
    for piece in pieces {
        let len = piece.count.checked_mul(size).filter(|len| *len <= LONGEST);
        let len = len.ok_or(err::EMSGSIZE)?;
        if len > 0 && piece.addr.is_null() {
            return Err(err::EINVAL);
        }
        if len > 0 {
            // SAFETY: promised by the caller.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.addr.cast(), len) });
        }
    }
    Ok(out)
}

/// # Safety
/// The caller keeps the rules of `fi_atomic` and the other calls: operands and values to compare
/// with can be read, and results written, until the completion.
unsafe fn start(ep: *mut FidEp, c: &Call<'_>) -> Answer {
    // SAFETY: promised by the caller.
    unsafe {
        let (datatype, operator) = kind(c.form, c.datatype, c.op)?;
        let size = datatype.size();
        let most = (LONGEST / size) as u32;
        let piece = |r: &RmaIoc| {
            let count = u32::try_from(r.count).ok().filter(|count| *count <= most);
            Ok(Piece { key: r.key, offset: r.addr, count: count.ok_or(err::EMSGSIZE)? })
        };
        let pieces = c.remote.iter().map(piece).collect::<Result<Vec<Piece>, c_int>>()?;
        let operands = match operator {
            Operator::Read => Vec::new(),
            _ => gather(c.operands, size)?,
        };
        let compares = gather(c.compares, size)?;
        let result = |r: &Ioc| (r.addr.cast::<u8>(), r.count.saturating_mul(size));
        let results: Vec<(*mut u8, usize)> = c.results.iter().map(result).collect();
        if results.iter().any(|&(start, len)| start.is_null() && len > 0) {
            return Err(err::EINVAL);
        }
        let worker = worker(ep)?;
        let buf = c.results.first().or(c.operands.first()).map_or(std::ptr::null_mut(), |p| p.addr);
        worker.atomic(AtomicOp {
            to: c.to,
            request: Request {
                form: c.form,
                datatype,
                operator,
                pieces,
                operands: &operands,
                compares: &compares,
            },
            results,
            buf: buf.cast(),
            context: c.context,
            flags: c.flags.unwrap_or_else(|| worker.tx_flags()),
            injected: c.injected,
        })
    }
}

fn ioc(addr: *const c_void, count: usize) -> Ioc {
    Ioc { addr: addr.cast_mut(), count }
}

/// Returns one piece of a peer's memory, with as many elements as the local pieces.
fn there(addr: u64, key: u64, of: &[Ioc]) -> RmaIoc {
    RmaIoc { addr, count: of.iter().map(|p| p.count).fold(0, usize::saturating_add), key }
}

/// Returns the description of a call without flags.
#[allow(clippy::too_many_arguments)]
fn simple<'a>(
    form: Form,
    (datatype, op): (c_int, c_int),
    to: u64,
    operands: &'a [Ioc],
    compares: &'a [Ioc],
    results: &'a [Ioc],
    remote: &'a [RmaIoc],
    context: *mut c_void,
) -> Call<'a> {
    Call {
        form,
        datatype,
        op,
        to,
        operands,
        compares,
        results,
        remote,
        context,
        flags: None,
        injected: false,
    }
}

/// Returns the description of a call with a message structure.
///
/// # Safety
/// The structure's lists are as long as it says.
unsafe fn message<'a>(
    form: Form,
    m: &'a MsgAtomic,
    compares: &'a [Ioc],
    results: &'a [Ioc],
    flags: u64,
) -> Result<Call<'a>, c_int> {
    // SAFETY: promised by the caller.
    unsafe {
        Ok(Call {
            form,
            datatype: m.datatype,
            op: m.op,
            to: m.addr,
            operands: local(m.msg_iov, m.iov_count)?,
            compares,
            results,
            remote: remote_pieces(m.rma_iov, m.rma_iov_count)?,
            context: m.context,
            flags: Some(flags),
            injected: false,
        })
    }
}

entries! {
    fn write(ep, buf: *const c_void, count: usize, _desc: *mut c_void, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: *mut c_void) {
        let operands = [ioc(buf, count)];
        let remote = [there(addr, key, &operands)];
        let kind = (datatype, op);
        start(ep, &simple(Form::Write, kind, to, &operands, &[], &[], &remote, context))
    }

    fn writev(ep, iov: *const Ioc, _desc: *mut *mut c_void, count: usize, to: u64, addr: u64,
            key: u64, datatype: c_int, op: c_int, context: *mut c_void) {
        let operands = local(iov, count)?;
        let remote = [there(addr, key, operands)];
        let kind = (datatype, op);
        start(ep, &simple(Form::Write, kind, to, operands, &[], &[], &remote, context))
    }

    fn writemsg(ep, msg: *const MsgAtomic, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        start(ep, &message(Form::Write, m, &[], &[], flags)?)
    }

    fn inject(ep, buf: *const c_void, count: usize, to: u64, addr: u64, key: u64, datatype: c_int,
            op: c_int) {
        let operands = [ioc(buf, count)];
        let remote = [there(addr, key, &operands)];
        let none = std::ptr::null_mut();
        let kind = (datatype, op);
        let of = simple(Form::Write, kind, to, &operands, &[], &[], &remote, none);
        start(ep, &Call { flags: Some(0), injected: true, ..of })
    }

    fn readwrite(ep, buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void,
            _result_desc: *mut c_void, to: u64, addr: u64, key: u64, datatype: c_int, op: c_int,
            context: *mut c_void) {
        let (operands, results) = ([ioc(buf, count)], [ioc(result, count)]);
        let remote = [there(addr, key, &results)];
        let kind = (datatype, op);
        start(ep, &simple(Form::Fetch, kind, to, &operands, &[], &results, &remote, context))
    }

    fn readwritev(ep, iov: *const Ioc, _desc: *mut *mut c_void, count: usize, resultv: *mut Ioc,
            _result_desc: *mut *mut c_void, result_count: usize, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: *mut c_void) {
        let operands = local(iov, count)?;
        let results = local(resultv, result_count)?;
        let remote = [there(addr, key, results)];
        let kind = (datatype, op);
        start(ep, &simple(Form::Fetch, kind, to, operands, &[], results, &remote, context))
    }

    fn readwritemsg(ep, msg: *const MsgAtomic, resultv: *mut Ioc, _result_desc: *mut *mut c_void,
            result_count: usize, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let results = local(resultv, result_count)?;
        start(ep, &message(Form::Fetch, m, &[], results, flags)?)
    }

    fn compwrite(ep, buf: *const c_void, count: usize, _desc: *mut c_void, compare: *const c_void,
            _compare_desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, to: u64,
            addr: u64, key: u64, datatype: c_int, op: c_int, context: *mut c_void) {
        let (operands, compares, results) =
            ([ioc(buf, count)], [ioc(compare, count)], [ioc(result, count)]);
        let remote = [there(addr, key, &operands)];
        let kind = (datatype, op);
        let form = Form::Compare;
        start(ep, &simple(form, kind, to, &operands, &compares, &results, &remote, context))
    }

    fn compwritev(ep, iov: *const Ioc, _desc: *mut *mut c_void, count: usize, comparev: *const Ioc,
            _compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut Ioc,
            _result_desc: *mut *mut c_void, result_count: usize, to: u64, addr: u64, key: u64,
            datatype: c_int, op: c_int, context: *mut c_void) {
        let operands = local(iov, count)?;
        let compares = local(comparev, compare_count)?;
        let results = local(resultv, result_count)?;
        let remote = [there(addr, key, operands)];
        let kind = (datatype, op);
        start(ep, &simple(Form::Compare, kind, to, operands, compares, results, &remote, context))
    }

    fn compwritemsg(ep, msg: *const MsgAtomic, comparev: *const Ioc,
            _compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut Ioc,
            _result_desc: *mut *mut c_void, result_count: usize, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let compares = local(comparev, compare_count)?;
        let results = local(resultv, result_count)?;
        start(ep, &message(Form::Compare, m, compares, results, flags)?)
    }
}

/// Stores the most elements that an operation may have; an error if there is no such operation.
fn valid(form: Form, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: `count` is the caller's.
    call_int(|| unsafe {
        let (datatype, _) = kind(form, datatype, op)?;
        *count.as_mut().ok_or(err::EINVAL)? = LONGEST / datatype.size();
        Ok(0)
    })
}

/// The functions that ask for operations of a form.
macro_rules! questions {
    ($($name:ident: $form:ident,)*) => {$(
        unsafe extern "C" fn $name(
            _: *mut FidEp,
            datatype: c_int,
            op: c_int,
            count: *mut usize,
        ) -> c_int {
            valid(Form::$form, datatype, op, count)
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
    call_int(|| unsafe {
        let form = match flags {
            0 => Form::Write,
            cap::FETCH_ATOMIC => Form::Fetch,
            cap::COMPARE_ATOMIC => Form::Compare,
            // Receive buffers as targets, and fetching and comparing at once, are not offered.
            _ => return Err(err::EOPNOTSUPP),
        };
        let (datatype, _) = kind(form, datatype, op)?;
        let attr = attr.as_mut().ok_or(err::EINVAL)?;
        *attr = AtomicAttr { count: LONGEST / datatype.size(), size: datatype.size() };
        Ok(0)
    })
}

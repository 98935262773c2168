//! Remote memory: reads and writes.

use crate::abi::*;
use crate::call::Answer;
use crate::memory::{list, Borrowed, Pieces};
use crate::worker::{RemoteOp, Worker};
use std::ptr::null_mut;
use std::rc::Rc;

pub static OPS: FiOpsRma = FiOpsRma {
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
    ..FiOpsRma::NONE
};

/// Starts a read or write of one remote piece.
fn one(ep: &Worker, local: Pieces<'_>, (addr, key): (u64, u64), op: RemoteOp) -> Answer {
    ep.transfer(local, &[RmaIov { addr, len: local.len(), key }], &op)
}

/// Starts a read or write that a structure describes.
///
/// # Safety
/// The lists are as long as it says.
unsafe fn described(ep: &Worker, m: *const MsgRma, read: bool, flags: u64) -> Answer {
    // SAFETY: promised by the caller.
    let (m, local, remote) = unsafe {
        let m = m.as_ref().ok_or(err::EINVAL)?;
        (m, list(m.msg_iov.cast(), m.iov_count)?, list(m.rma_iov, m.rma_iov_count)?)
    };
    let data = (!read && flags & cap::REMOTE_CQ_DATA != 0).then_some(m.data);
    let op = RemoteOp { to: m.addr, read, data, context: m.context, flags: Some(flags) };
    ep.transfer(Pieces::of(local), remote, &op)
}

/// Returns an operation with the default flags of an endpoint.
fn usual(ep: &Worker, to: u64, read: bool, context: Ptr) -> RemoteOp {
    RemoteOp { to, read, data: None, context, flags: Some(ep.tx_flags()) }
}

/// Returns a write from a copy.
fn copied(to: u64, data: Option<u64>) -> RemoteOp {
    RemoteOp { to, read: false, data, context: null_mut(), flags: None }
}

/// Defines the functions that reads and writes have in common.
macro_rules! both {
    ($($one:ident, $vector:ident, $message:ident: $buf:ty, $read:literal;)*) => {
        entries! { inside Rc<Worker>: $(
            fn $one(ep: FidEp, buf: $buf, len: usize, _desc: Ptr, to: u64, addr: u64, key: u64,
                    context: Ptr) -> isize {
                let local = Pieces::One(Borrowed::new(buf, len));
                one(ep, local, (addr, key), usual(ep, to, $read, context))
            }

            fn $vector(ep: FidEp, iov: Iov, _desc: Descs, count: usize, to: u64, addr: u64,
                    key: u64, context: Ptr) -> isize {
                let local = Pieces::of(list(iov.cast(), count)?);
                one(ep, local, (addr, key), usual(ep, to, $read, context))
            }

            fn $message(ep: FidEp, msg: *const MsgRma, flags: u64) -> isize {
                described(ep, msg, $read, flags)
            }
        )* }
    };
}

both! {
    read, readv, readmsg: Ptr, true;
    write, writev, writemsg: Const, false;
}

entries! { inside Rc<Worker>:
    fn inject(ep: FidEp, buf: Const, len: usize, to: u64, addr: u64, key: u64) -> isize {
        one(ep, Pieces::One(Borrowed::new(buf, len)), (addr, key), copied(to, None))
    }

    fn writedata(ep: FidEp, buf: Const, len: usize, _desc: Ptr, data: u64, to: u64, addr: u64,
            key: u64, context: Ptr) -> isize {
        let op = RemoteOp { data: Some(data), ..usual(ep, to, false, context) };
        one(ep, Pieces::One(Borrowed::new(buf, len)), (addr, key), op)
    }

    fn injectdata(ep: FidEp, buf: Const, len: usize, data: u64, to: u64, addr: u64, key: u64)
            -> isize {
        one(ep, Pieces::One(Borrowed::new(buf, len)), (addr, key), copied(to, Some(data)))
    }
}

//! Remote memory: reads and writes.

use super::abi::*;
use super::ep::worker;
use super::worker::{Pieces, RemoteOp};
use super::{call, pieces};
use libc::{c_int, c_void, iovec};

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

/// Returns the remote pieces of an operation.
///
/// # Safety
/// `iov` points to `count` structures.
pub unsafe fn remote_pieces<'a, T>(iov: *const T, count: usize) -> Result<&'a [T], c_int> {
    if iov.is_null() || count == 0 || count > crate::offer::PIECES {
        return Err(err::EINVAL);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

/// Starts a read or write of one remote piece.
///
/// # Safety
/// The caller keeps the rules of `fi_read` and `fi_write` for the buffer.
unsafe fn one(
    ep: *mut FidEp,
    local: Pieces<'_>,
    (addr, key): (u64, u64),
    op: impl FnOnce(u64) -> RemoteOp,
) -> super::Answer {
    // SAFETY: promised by the caller.
    unsafe {
        let worker = worker(ep)?;
        let iov = RmaIov { addr, len: local.len(), key };
        worker.transfer(local, &[iov], &op(worker.tx_flags()))
    }
}

fn plain(to: u64, read: bool, context: *mut c_void, flags: u64) -> RemoteOp {
    RemoteOp { to, read, data: None, context, flags, injected: false }
}

entries! {
    fn read(ep, buf: *mut c_void, len: usize, _desc: *mut c_void, to: u64, addr: u64, key: u64,
            context: *mut c_void) {
        one(ep, Pieces::one(buf, len), (addr, key), |flags| plain(to, true, context, flags))
    }

    fn readv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, addr: u64,
            key: u64, context: *mut c_void) {
        let local = Pieces::many(pieces(iov, count)?);
        one(ep, local, (addr, key), |flags| plain(to, true, context, flags))
    }

    fn readmsg(ep, msg: *const MsgRma, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let local = Pieces::many(pieces(m.msg_iov, m.iov_count)?);
        let remote = remote_pieces(m.rma_iov, m.rma_iov_count)?;
        worker(ep)?.transfer(local, remote, &plain(m.addr, true, m.context, flags))
    }

    fn write(ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, addr: u64, key: u64,
            context: *mut c_void) {
        let local = Pieces::one(buf.cast_mut(), len);
        one(ep, local, (addr, key), |flags| plain(to, false, context, flags))
    }

    fn writev(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, addr: u64,
            key: u64, context: *mut c_void) {
        let local = Pieces::many(pieces(iov, count)?);
        one(ep, local, (addr, key), |flags| plain(to, false, context, flags))
    }

    fn writemsg(ep, msg: *const MsgRma, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let local = Pieces::many(pieces(m.msg_iov, m.iov_count)?);
        let remote = remote_pieces(m.rma_iov, m.rma_iov_count)?;
        let data = (flags & cap::REMOTE_CQ_DATA != 0).then_some(m.data);
        let op = RemoteOp { data, ..plain(m.addr, false, m.context, flags) };
        worker(ep)?.transfer(local, remote, &op)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64, addr: u64, key: u64) {
        let local = Pieces::one(buf.cast_mut(), len);
        let none = std::ptr::null_mut();
        one(ep, local, (addr, key), |_| RemoteOp { injected: true, ..plain(to, false, none, 0) })
    }

    fn writedata(ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64,
            addr: u64, key: u64, context: *mut c_void) {
        let local = Pieces::one(buf.cast_mut(), len);
        one(ep, local, (addr, key), |flags| RemoteOp {
            data: Some(data),
            ..plain(to, false, context, flags)
        })
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, addr: u64, key: u64) {
        let local = Pieces::one(buf.cast_mut(), len);
        let none = std::ptr::null_mut();
        one(ep, local, (addr, key), |_| RemoteOp {
            data: Some(data),
            injected: true,
            ..plain(to, false, none, 0)
        })
    }
}

//! Tagged messages.

use super::abi::*;
use super::ep::worker;
use super::worker::{Pieces, RecvOp, SendOp};
use super::{call, pieces};
use libc::{c_void, iovec};

pub static OPS: FiOpsTagged = FiOpsTagged {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..FiOpsTagged::NONE
};

entries! {
    fn recv(ep, buf: *mut c_void, len: usize, _desc: *mut c_void, source: u64, tag: u64,
            ignore: u64, context: *mut c_void) {
        let worker = worker(ep)?;
        let op = RecvOp { source, tag, ignore, context, flags: worker.rx_flags(), untagged: false };
        worker.recv(Pieces::one(buf, len), &op)
    }

    fn recvv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, source: u64, tag: u64,
            ignore: u64, context: *mut c_void) {
        let worker = worker(ep)?;
        let op = RecvOp { source, tag, ignore, context, flags: worker.rx_flags(), untagged: false };
        worker.recv(Pieces::many(pieces(iov, count)?), &op)
    }

    fn recvmsg(ep, msg: *const MsgTagged, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let op = RecvOp {
            source: m.addr,
            tag: m.tag,
            ignore: m.ignore,
            context: m.context,
            flags,
            untagged: false,
        };
        worker(ep)?.recv(Pieces::many(pieces(m.msg_iov, m.iov_count)?), &op)
    }

    fn send(ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, tag: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        let flags = worker.tx_flags();
        let op = SendOp { to, tag, data: None, context, flags, untagged: false };
        worker.send(Pieces::one(buf.cast_mut(), len), &op)
    }

    fn senddata(ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64,
            tag: u64, context: *mut c_void) {
        let worker = worker(ep)?;
        let flags = worker.tx_flags();
        let op = SendOp { to, tag, data: Some(data), context, flags, untagged: false };
        worker.send(Pieces::one(buf.cast_mut(), len), &op)
    }

    fn sendv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, tag: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        let flags = worker.tx_flags();
        let op = SendOp { to, tag, data: None, context, flags, untagged: false };
        worker.send(Pieces::many(pieces(iov, count)?), &op)
    }

    fn sendmsg(ep, msg: *const MsgTagged, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let data = (flags & cap::REMOTE_CQ_DATA != 0).then_some(m.data);
        let op =
            SendOp { to: m.addr, tag: m.tag, data, context: m.context, flags, untagged: false };
        worker(ep)?.send(Pieces::many(pieces(m.msg_iov, m.iov_count)?), &op)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64, tag: u64) {
        worker(ep)?.inject(buf.cast(), len, to, tag, None, false)
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, tag: u64) {
        worker(ep)?.inject(buf.cast(), len, to, tag, Some(data), false)
    }
}

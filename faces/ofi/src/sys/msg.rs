//! Messages without tags.

use super::abi::*;
use super::ep::worker;
use super::worker::{Pieces, RecvOp, SendOp};
use super::{call, pieces};
use libc::{c_void, iovec};

pub static OPS: FiOpsMsg = FiOpsMsg {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..FiOpsMsg::NONE
};

fn receive(source: u64, context: *mut c_void, flags: u64) -> RecvOp {
    RecvOp { source, tag: 0, ignore: u64::MAX, context, flags, untagged: true }
}

fn message(to: u64, data: Option<u64>, context: *mut c_void, flags: u64) -> SendOp {
    SendOp { to, tag: 0, data, context, flags, untagged: true }
}

entries! {
    fn recv(ep, buf: *mut c_void, len: usize, _desc: *mut c_void, source: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        worker.recv(Pieces::one(buf, len), &receive(source, context, worker.rx_flags()))
    }

    fn recvv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, source: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        let op = receive(source, context, worker.rx_flags());
        worker.recv(Pieces::many(pieces(iov, count)?), &op)
    }

    fn recvmsg(ep, msg: *const Msg, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let op = receive(m.addr, m.context, flags);
        worker(ep)?.recv(Pieces::many(pieces(m.msg_iov, m.iov_count)?), &op)
    }

    fn send(ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, context: *mut c_void) {
        let worker = worker(ep)?;
        let op = message(to, None, context, worker.tx_flags());
        worker.send(Pieces::one(buf.cast_mut(), len), &op)
    }

    fn senddata(ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        let op = message(to, Some(data), context, worker.tx_flags());
        worker.send(Pieces::one(buf.cast_mut(), len), &op)
    }

    fn sendv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64,
            context: *mut c_void) {
        let worker = worker(ep)?;
        let op = message(to, None, context, worker.tx_flags());
        worker.send(Pieces::many(pieces(iov, count)?), &op)
    }

    fn sendmsg(ep, msg: *const Msg, flags: u64) {
        let m = msg.as_ref().ok_or(err::EINVAL)?;
        let data = (flags & cap::REMOTE_CQ_DATA != 0).then_some(m.data);
        let op = message(m.addr, data, m.context, flags);
        worker(ep)?.send(Pieces::many(pieces(m.msg_iov, m.iov_count)?), &op)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64) {
        worker(ep)?.inject(buf.cast(), len, to, 0, None, true)
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64) {
        worker(ep)?.inject(buf.cast(), len, to, 0, Some(data), true)
    }
}

//! Messages, with and without tags.

/// Defines the functions of messages with the tags of their kind, and the table of them.
macro_rules! messages {
    ($module:ident, $table:ident, $message:ident, ($($tag:ident, $ignore:ident)?)) => {
        pub mod $module {
            use crate::abi::*;
            use crate::memory::{list, Borrowed, Pieces};
            use crate::worker::{RecvOp, SendOp, Tags, Worker};
            use std::rc::Rc;

            pub static OPS: $table = $table {
                recv,
                recvv,
                recvmsg,
                send,
                sendv,
                sendmsg,
                inject,
                senddata,
                injectdata,
                ..$table::NONE
            };

            entries! { inside Rc<Worker>:
                fn recv(ep: FidEp, buf: Ptr, len: usize, _desc: Ptr, source: u64,
                        $($tag: u64, $ignore: u64,)? context: Ptr) -> isize {
                    let tags = Tags::of(&[$($tag, $ignore)?]);
                    let op = RecvOp { source, tags, context, flags: ep.rx_flags() };
                    ep.recv(Pieces::One(Borrowed::new(buf, len)), &op)
                }

                fn recvv(ep: FidEp, iov: Iov, _desc: Descs, count: usize, source: u64,
                        $($tag: u64, $ignore: u64,)? context: Ptr) -> isize {
                    let tags = Tags::of(&[$($tag, $ignore)?]);
                    let op = RecvOp { source, tags, context, flags: ep.rx_flags() };
                    ep.recv(Pieces::of(list(iov.cast(), count)?), &op)
                }

                fn recvmsg(ep: FidEp, msg: *const $message, flags: u64) -> isize {
                    let m = msg.as_ref().ok_or(err::EINVAL)?;
                    let tags = Tags::of(&[$(m.$tag, m.$ignore)?]);
                    let op = RecvOp { source: m.addr, tags, context: m.context, flags };
                    ep.recv(Pieces::of(list(m.msg_iov.cast(), m.iov_count)?), &op)
                }

                fn send(ep: FidEp, buf: Const, len: usize, _desc: Ptr, to: u64, $($tag: u64,)?
                        context: Ptr) -> isize {
                    let tags = Tags::of(&[$($tag)?]);
                    let op = SendOp { to, tags, data: None, context, flags: ep.tx_flags() };
                    ep.send(Pieces::One(Borrowed::new(buf, len)), &op)
                }

                fn senddata(ep: FidEp, buf: Const, len: usize, _desc: Ptr, data: u64, to: u64,
                        $($tag: u64,)? context: Ptr) -> isize {
                    let tags = Tags::of(&[$($tag)?]);
                    let op = SendOp { to, tags, data: Some(data), context, flags: ep.tx_flags() };
                    ep.send(Pieces::One(Borrowed::new(buf, len)), &op)
                }

                fn sendv(ep: FidEp, iov: Iov, _desc: Descs, count: usize, to: u64, $($tag: u64,)?
                        context: Ptr) -> isize {
                    let tags = Tags::of(&[$($tag)?]);
                    let op = SendOp { to, tags, data: None, context, flags: ep.tx_flags() };
                    ep.send(Pieces::of(list(iov.cast(), count)?), &op)
                }

                fn sendmsg(ep: FidEp, msg: *const $message, flags: u64) -> isize {
                    let m = msg.as_ref().ok_or(err::EINVAL)?;
                    let data = (flags & cap::REMOTE_CQ_DATA != 0).then_some(m.data);
                    let tags = Tags::of(&[$(m.$tag)?]);
                    let op = SendOp { to: m.addr, tags, data, context: m.context, flags };
                    ep.send(Pieces::of(list(m.msg_iov.cast(), m.iov_count)?), &op)
                }

                fn inject(ep: FidEp, buf: Const, len: usize, to: u64, $($tag: u64)?) -> isize {
                    ep.inject(Borrowed::new(buf, len), to, Tags::of(&[$($tag)?]), None)
                }

                fn injectdata(ep: FidEp, buf: Const, len: usize, data: u64, to: u64, $($tag: u64)?)
                        -> isize {
                    ep.inject(Borrowed::new(buf, len), to, Tags::of(&[$($tag)?]), Some(data))
                }
            }
        }
    };
}

messages!(msg, FiOpsMsg, Msg, ());
messages!(tagged, FiOpsTagged, MsgTagged, (tag, ignore));

//! Endpoints: opening, binding and options.

use super::objects::Object;
use super::{atomic, close, collective, give, messages, object, rma, room};
use crate::abi::*;
use crate::events::Events;
use crate::worker::{Addresses, Counter, Defaults, Domain, Queue, Worker};
use libc::c_int;
use std::rc::Rc;
use std::sync::Arc;

static FID: FiOps = FiOps { close: close_here, bind, control, ..FiOps::NONE };
static OPS: FiOpsEp = FiOpsEp { cancel, getopt, setopt, ..FiOpsEp::NONE };
static CM: FiOpsCm = FiOpsCm { getname, join: collective::join, ..FiOpsCm::NONE };

entries! { inside Arc<Domain>:
    fn open(domain: FidDomain, info: *mut Info, out: Out<FidEp>, context: Ptr) -> c_int {
        let info = info.as_ref().ok_or(err::EINVAL)?;
        let tx = info.tx_attr.as_ref().map_or(0, |a| a.op_flags);
        let rx = info.rx_attr.as_ref().map_or(0, |a| a.op_flags);
        let worker = Worker::open(domain, &Defaults { flags: [tx, rx], caps: info.caps })?;
        let head = FidEp {
            fid: Fid { fclass: class::EP, context, ops: &FID },
            ops: &OPS,
            cm: &CM,
            msg: &messages::msg::OPS,
            rma: &rma::OPS,
            tagged: &messages::tagged::OPS,
            atomic: &atomic::OPS,
            collective: &collective::OPS,
        };
        give(head, worker, out)
    }
}

flagged!(open2 is open: FidDomain, FidEp);

unsafe extern "C" fn close_here(fid: *mut Fid) -> c_int {
    match weft_sys::forks::is_child() {
        // The object is the parent's endpoint; the child owns nothing of it.
        true => 0,
        // SAFETY: libfabric's caller closes what it opened, once.
        false => unsafe { close::<Rc<Worker>>(fid) },
    }
}

entries! { inside Rc<Worker>:
    fn bind(ep: Fid, other: *mut Fid, flags: u64) -> c_int {
        match other.as_ref().ok_or(err::EINVAL)?.fclass {
            <Rc<Addresses>>::CLASS => ep.use_vector(object::<Rc<Addresses>>(other)?),
            <Rc<Queue>>::CLASS => ep.use_queue(object(other)?, flags)?,
            <Rc<Counter>>::CLASS => ep.use_counter(object(other)?, flags)?,
            <Arc<Events>>::CLASS => ep.use_events(object::<Arc<Events>>(other)?),
            _ => return Err(err::EINVAL),
        }
        Ok(0)
    }

    fn control(ep: Fid, command: c_int, arg: Ptr) -> c_int {
        match command {
            control::ENABLE => ep.enable()?,
            control::GETOPSFLAG | control::SETOPSFLAG => {
                let flags = arg.cast::<u64>().as_mut().ok_or(err::EINVAL)?;
                ep.default_flags(flags, command == control::SETOPSFLAG)?;
            }
            _ => return Err(err::ENOSYS),
        }
        Ok(0)
    }

    fn cancel(ep: Fid, context: Ptr) -> isize {
        ep.cancel(context);
        Ok(0)
    }

    fn getopt(ep: Fid, level: c_int, name: c_int, value: Ptr, len: *mut usize) -> c_int {
        let room = len.as_mut().filter(|_| !value.is_null()).ok_or(err::EINVAL)?;
        let number = ep.option(level, name)?;
        if *room < size_of::<usize>() {
            return Err(err::ETOOSMALL);
        }
        value.cast::<usize>().write_unaligned(number);
        *room = size_of::<usize>();
        Ok(0)
    }

    fn setopt(ep: Fid, level: c_int, name: c_int, value: Const, len: usize) -> c_int {
        let len = if value.is_null() { 0 } else { len };
        let word = (len == size_of::<usize>()).then(|| value.cast::<usize>().read_unaligned());
        let byte = (len > 0).then(|| value.cast::<u8>().read());
        ep.set_option(level, name, word, byte)
    }

    fn getname(ep: Fid, out: Ptr, len: *mut usize) -> c_int {
        let (room, len) = room(out, len)?;
        let name = ep.name();
        room.write(&name);
        match std::mem::replace(len, name.len()) < name.len() {
            true => Err(err::ETOOSMALL),
            false => Ok(0),
        }
    }
}

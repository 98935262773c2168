//! Collective operations: address sets, groups, and the functions that callers call.

use super::objects::Object;
use super::{close, give, object};
use crate::abi::*;
use crate::atomic::Form;
use crate::call::{call, Answer};
use crate::collective::Kind;
use crate::memory::Elements;
use crate::sets::{Set, MOST};
use crate::worker::{combination, most, Addresses, CollectiveCall, Domain, Worker};
use libc::c_int;
use std::ptr::null;
use std::rc::{Rc, Weak};
use std::sync::Arc;

pub static OPS: FiOpsCollective = FiOpsCollective {
    barrier,
    broadcast,
    allreduce,
    allgather,
    scatter,
    barrier2,
    ..FiOpsCollective::NONE
};

static SET_FID: FiOps = FiOps { close: close::<Members>, ..FiOps::NONE };
static SET: FiOpsAvSet =
    FiOpsAvSet { set_union, intersect, diff, insert, remove, addr, ..FiOpsAvSet::NONE };

static GROUP_FID: FiOps = FiOps { close: close::<Joined>, ..FiOps::NONE };

/// An address set of a caller.
pub struct Members {
    addresses: Rc<Addresses>,
    set: Set,
}

/// A group that an endpoint has joined.
pub struct Joined {
    domain: Arc<Domain>,
    worker: Weak<Worker>,
    group: u32,
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Members {
    const CLASS: usize = class::AV_SET;
    type Head = FidAvSet;

    fn domain(&self) -> Option<&Arc<Domain>> {
        Some(&self.addresses.domain)
    }

    fn close(&self) -> Result<(), c_int> {
        Ok(())
    }
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Joined {
    const CLASS: usize = class::MC;
    type Head = FidMc;

    fn domain(&self) -> Option<&Arc<Domain>> {
        Some(&self.domain)
    }

    fn close(&self) -> Result<(), c_int> {
        self.worker.upgrade().map_or(Ok(()), |worker| worker.leave_group(self.group))
    }
}

entries! { inside Rc<Addresses>:
    fn av_set(av: FidAv, attr: *mut AvSetAttr, out: Out<FidAvSet>, context: Ptr) -> c_int {
        let set = Set::new(attr.as_ref().ok_or(err::EINVAL)?)?;
        let fid = Fid { fclass: class::AV_SET, context, ops: &SET_FID };
        give(FidAvSet { fid, ops: &SET }, Members { addresses: av.clone(), set }, out)
    }
}

entries! { inside Members:
    fn set_union(to: FidAvSet, from: *const FidAvSet) -> c_int {
        to.set.unite(&object::<Members>(from.cast_mut().cast())?.set);
        Ok(0)
    }

    fn intersect(to: FidAvSet, from: *const FidAvSet) -> c_int {
        to.set.keep(&object::<Members>(from.cast_mut().cast())?.set, true);
        Ok(0)
    }

    fn diff(to: FidAvSet, from: *const FidAvSet) -> c_int {
        to.set.keep(&object::<Members>(from.cast_mut().cast())?.set, false);
        Ok(0)
    }

    fn insert(to: FidAvSet, number: u64) -> c_int {
        to.set.insert(number)
    }

    fn remove(from: FidAvSet, number: u64) -> c_int {
        from.set.remove(number)
    }

    /// Any address will do: whoever joins names the set too.
    fn addr(_set: FidAvSet, out: *mut u64) -> c_int {
        *out.as_mut().ok_or(err::EINVAL)? = 0;
        Ok(0)
    }
}

/// Starts an operation: group and root, elements given and memory for the result, numbers of the
/// type and the operator.
fn start(
    ep: &Worker,
    kind: Kind,
    (group, root): (u64, u64),
    (from, to): (Elements, Elements),
    numbers: (c_int, Option<c_int>),
    context: Ptr,
) -> Answer {
    ep.collective(&CollectiveCall { kind, group, root, from, to, numbers, context })
}

entries! { inside Rc<Worker>:
    /// Joins a group of endpoints; other multicast is not offered.
    fn join(ep: FidEp, address: Const, flags: u64, out: Out<FidMc>, context: Ptr) -> c_int {
        let address = address.cast::<CollectiveAddr>().as_ref().ok_or(err::EINVAL)?;
        if flags & cap::COLLECTIVE == 0 {
            return Err(err::ENOSYS);
        }
        if out.is_null() {
            return Err(err::EINVAL);
        }
        let group = ep.group(object::<Members>(address.set.cast())?.set.members())?;
        let fid = Fid { fclass: class::MC, context, ops: &GROUP_FID };
        let (domain, worker) = (ep.domain.clone(), Rc::downgrade(ep));
        let head = FidMc { fid, fi_addr: group.into() };
        give(head, Joined { domain, worker, group }, out)?;
        ep.join(group, out.read_unaligned().cast(), context);
        Ok(0)
    }

    fn barrier(ep: FidEp, group: u64, context: Ptr) -> isize {
        let none = Elements::new(null(), 0);
        start(ep, Kind::Barrier, (group, 0), (none, none), (0, None), context)
    }

    fn barrier2(ep: FidEp, group: u64, _flags: u64, context: Ptr) -> isize {
        let none = Elements::new(null(), 0);
        start(ep, Kind::Barrier, (group, 0), (none, none), (0, None), context)
    }

    fn broadcast(ep: FidEp, buf: Ptr, count: usize, _desc: Ptr, group: u64, root: u64,
            datatype: c_int, _flags: u64, context: Ptr) -> isize {
        let all = Elements::new(buf, count);
        start(ep, Kind::Broadcast, (group, root), (all, all), (datatype, None), context)
    }

    fn allreduce(ep: FidEp, buf: Const, count: usize, _desc: Ptr, result: Ptr, _result_desc: Ptr,
            group: u64, datatype: c_int, op: c_int, _flags: u64, context: Ptr) -> isize {
        let memory = (Elements::new(buf, count), Elements::new(result, count));
        start(ep, Kind::AllReduce, (group, 0), memory, (datatype, Some(op)), context)
    }

    fn allgather(ep: FidEp, buf: Const, count: usize, _desc: Ptr, result: Ptr, _result_desc: Ptr,
            group: u64, datatype: c_int, _flags: u64, context: Ptr) -> isize {
        let all = count.checked_mul(ep.members(group)?).ok_or(err::EMSGSIZE)?;
        let memory = (Elements::new(buf, count), Elements::new(result, all));
        start(ep, Kind::AllGather, (group, 0), memory, (datatype, None), context)
    }

    fn scatter(ep: FidEp, buf: Const, count: usize, _desc: Ptr, result: Ptr, _result_desc: Ptr,
            group: u64, root: u64, datatype: c_int, _flags: u64, context: Ptr) -> isize {
        let all = count.checked_mul(ep.members(group)?).ok_or(err::EMSGSIZE)?;
        let memory = (Elements::new(buf, all), Elements::new(result, count));
        start(ep, Kind::Scatter, (group, root), memory, (datatype, None), context)
    }
}

/// `fi_query_collective`.
pub unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    kind: c_int,
    attr: *mut CollectiveAttr,
    _flags: u64,
) -> c_int {
    // SAFETY: `attr` is the caller's.
    call(|| unsafe {
        let attr = attr.as_mut().filter(|attr| attr.mode == 0).ok_or(err::EINVAL)?;
        let kind = Kind::from_number(i64::from(kind)).ok_or(err::ENOSYS)?;
        if kind == Kind::AllReduce {
            combination((attr.datatype, Some(attr.op)))?;
            let (count, size) = most(Form::Fetch, (attr.datatype, attr.op))?;
            attr.datatype_attr = AtomicAttr { count, size };
        }
        attr.max_members = MOST;
        Ok(0)
    })
}

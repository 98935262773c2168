//! Virtual interfaces, and protection tags.

use crate::calls::{call, vi as calls};
use crate::code::{Code, Phase};
use crate::handle::Handle;
use crate::raw::{Boolean, ViAttributes};
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Code;
    /// Makes a virtual interface.
    fn VipCreateVi(
        nic: Handle, attributes: Place<ViAttributes>, send_queue: Handle, recv_queue: Handle,
        vi: Place<Handle>,
    ) {
        calls::create(nic, attributes, [send_queue, recv_queue], vi)
    }

    /// Ends a virtual interface that is not connected and whose queues are empty.
    fn VipDestroyVi(vi: Handle) {
        calls::destroy(vi)
    }

    /// Changes the attributes of an idle virtual interface.
    fn VipSetViAttributes(vi: Handle, attributes: Place<ViAttributes>) {
        calls::set(vi, attributes)
    }

    /// Stores state and attributes of a virtual interface, and true for each empty queue; a pointer
    /// that is null is not wanted.
    fn VipQueryVi(
        vi: Handle, phase: Place<Phase>, attributes: Place<ViAttributes>,
        send_empty: Place<Boolean>, recv_empty: Place<Boolean>,
    ) {
        calls::query(vi, phase, attributes, [send_empty, recv_empty])
    }

    /// Makes a protection tag.
    fn VipCreatePtag(nic: Handle, tag: Place<Handle>) {
        calls::create_tag(nic, tag)
    }

    /// Ends a protection tag that is not in use.
    fn VipDestroyPtag(nic: Handle, tag: Handle) {
        calls::destroy_tag(nic, tag)
    }
}

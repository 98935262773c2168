//! Completion queues.

use crate::calls::{call, queue as calls};
use crate::code::Code;
use crate::handle::Handle;
use crate::raw::{Boolean, QueueHandler};
use std::ffi::c_ulong;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Code;
    /// Makes a completion queue.
    fn VipCreateCQ(nic: Handle, entries: c_ulong, queue: Place<Handle>) {
        calls::create(nic, entries, queue)
    }

    /// Ends a completion queue that no virtual interface uses.
    fn VipDestroyCQ(queue: Handle) {
        calls::destroy(queue)
    }

    /// Changes the number of entries of a completion queue.
    fn VipResizeCQ(queue: Handle, entries: c_ulong) {
        calls::resize(queue, entries)
    }

    /// Takes the first entry of a completion queue.
    fn VipCQDone(queue: Handle, vi: Place<Handle>, received: Place<Boolean>) {
        calls::take(queue, None, vi, received)
    }

    /// Waits for an entry of a completion queue, and takes it.
    fn VipCQWait(queue: Handle, time: c_ulong, vi: Place<Handle>, received: Place<Boolean>) {
        calls::take(queue, Some(time), vi, received)
    }

    /// Lets a handler wait for the next entry of a completion queue.
    fn VipCQNotify(queue: Handle, context: usize, handler: Option<QueueHandler>) {
        calls::notify(queue, context, handler)
    }
}

//! Descriptors: posting, and their ends.

use crate::calls::call;
use crate::calls::data::{self, Out};
use crate::code::Code;
use crate::handle::Handle;
use crate::raw::WorkHandler;
use crate::state::Direction;
use std::ffi::c_ulong;

weft_ffi::exports! { call -> Code;
    /// Posts a descriptor to the send queue.
    fn VipPostSend(vi: Handle, descriptor: usize, memory: u32) {
        data::post_send(vi, descriptor, memory)
    }

    /// Posts a descriptor to the receive queue.
    fn VipPostRecv(vi: Handle, descriptor: usize, memory: u32) {
        data::post_recv(vi, descriptor, memory)
    }

    /// Takes the first descriptor of the send queue, if it is complete.
    fn VipSendDone(vi: Handle, descriptor: Out) {
        data::done(vi, Direction::Send, descriptor)
    }

    /// Takes the first descriptor of the receive queue, if it is complete.
    fn VipRecvDone(vi: Handle, descriptor: Out) {
        data::done(vi, Direction::Recv, descriptor)
    }

    /// Waits until the first descriptor of the send queue is complete, and takes it.
    fn VipSendWait(vi: Handle, time: c_ulong, descriptor: Out) {
        data::wait(vi, Direction::Send, time, descriptor)
    }

    /// Waits until the first descriptor of the receive queue is complete, and takes it.
    fn VipRecvWait(vi: Handle, time: c_ulong, descriptor: Out) {
        data::wait(vi, Direction::Recv, time, descriptor)
    }

    /// Lets a handler wait for the next complete descriptor of the send queue.
    fn VipSendNotify(vi: Handle, context: usize, handler: Option<WorkHandler>) {
        data::notify(vi, Direction::Send, context, handler)
    }

    /// Lets a handler wait for the next complete descriptor of the receive queue.
    fn VipRecvNotify(vi: Handle, context: usize, handler: Option<WorkHandler>) {
        data::notify(vi, Direction::Recv, context, handler)
    }
}

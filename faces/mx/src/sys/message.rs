//! Sends, receives, and looking for messages.

use crate::address::Addr;
use crate::calls::{call, message};
use crate::code::Return;
use crate::handle::Handle;
use crate::memory::Segment;
use crate::status::Status;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Return;
    /// Starts a send. Without a place for the request it is forgotten.
    unsafe fn mx_isend[endpoint](
        list: Place<Segment>, count: u32, to: Addr, bits: u64, context: usize,
        request: Place<Handle>,
    ) {
        // SAFETY: promised by the caller.
        let list = unsafe { list.list(count as usize) };
        message::send(endpoint, list, (to, bits, false), context, request)
    }

    /// Starts a send that completes when a receive has matched it.
    unsafe fn mx_issend[endpoint](
        list: Place<Segment>, count: u32, to: Addr, bits: u64, context: usize,
        request: Place<Handle>,
    ) {
        // SAFETY: promised by the caller.
        let list = unsafe { list.list(count as usize) };
        message::send(endpoint, list, (to, bits, true), context, request)
    }

    /// Starts a receive.
    unsafe fn mx_irecv[endpoint](
        list: Place<Segment>, count: u32, bits: u64, mask: u64, context: usize,
        request: Place<Handle>,
    ) {
        // SAFETY: promised by the caller.
        let list = unsafe { list.list(count as usize) };
        message::receive(endpoint, list, (bits, mask), context, request)
    }

    /// Looks for a message that no receive has taken.
    fn mx_iprobe[endpoint](bits: u64, mask: u64, status: Place<Status>, result: Place<u32>) {
        message::probe(endpoint, (bits, mask), None, (status, result))
    }

    /// Waits for a message that no receive has taken.
    fn mx_probe[endpoint](
        ms: u32, bits: u64, mask: u64, status: Place<Status>, result: Place<u32>,
    ) {
        message::probe(endpoint, (bits, mask), Some(ms), (status, result))
    }
}

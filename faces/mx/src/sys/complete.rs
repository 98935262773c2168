//! The ends of requests: testing, waiting, looking, cancelling, forgetting.

use crate::calls::{call, complete};
use crate::code::Return;
use crate::handle::Handle;
use crate::status::Status;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Return;
    /// Stores the status of a request that has completed, and frees it.
    fn mx_test[endpoint](request: Place<Handle>, status: Place<Status>, result: Place<u32>) {
        complete::ended(endpoint, request, None, status, result)
    }

    /// Waits for a request, stores its status when it has completed, and frees it. The result is 0
    /// if the time is over.
    fn mx_wait[endpoint](
        request: Place<Handle>, ms: u32, status: Place<Status>, result: Place<u32>,
    ) {
        complete::ended(endpoint, request, Some(ms), status, result)
    }

    /// Stores the status of a request that has completed and whose match bits match, and frees it.
    fn mx_test_any[endpoint](bits: u64, mask: u64, status: Place<Status>, result: Place<u32>) {
        complete::any_ended(endpoint, (bits, mask), None, (status, result))
    }

    /// Waits for a request whose match bits match, stores its status when it has completed, and
    /// frees it. The result is 0 if the time is over.
    fn mx_wait_any[endpoint](
        ms: u32, bits: u64, mask: u64, status: Place<Status>, result: Place<u32>,
    ) {
        complete::any_ended(endpoint, (bits, mask), Some(ms), (status, result))
    }

    /// Stores the handle of the oldest request that has completed, and leaves it.
    fn mx_ipeek[endpoint](request: Place<Handle>, result: Place<u32>) {
        complete::peek(endpoint, None, request, result)
    }

    /// Waits until a request has completed, stores the handle of the oldest one, and leaves it. The
    /// result is 0 if the time is over.
    fn mx_peek[endpoint](ms: u32, request: Place<Handle>, result: Place<u32>) {
        complete::peek(endpoint, Some(ms), request, result)
    }

    /// Says if the memory of a send can be used again: it has completed, and keeps its handle.
    fn mx_ibuffered[endpoint](request: Place<Handle>, result: Place<u32>) {
        complete::buffered(endpoint, request, result)
    }

    /// Stores the program's context of a request.
    fn mx_context(request: Place<Handle>, context: Place<usize>) {
        complete::context(request, context)
    }

    /// Cancels a receive that has matched no message, or a request to connect without an answer.
    /// The result is 1 if it did, and the request is gone.
    fn mx_cancel[endpoint](request: Place<Handle>, result: Place<u32>) {
        complete::cancel(endpoint, request, result)
    }

    /// Forgets a request: it goes on, and no call sees its end.
    fn mx_forget[endpoint](request: Place<Handle>) {
        complete::forget(endpoint, request)
    }

    /// Sets the time after which a request ends, or with a null request those that begin later.
    fn mx_set_request_timeout[endpoint](request: Handle, ms: u32) {
        complete::set_timeout(endpoint, request, ms)
    }
}

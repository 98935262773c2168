//! Endpoints: opening, closing, waking, progress, addresses.

use crate::address::Addr;
use crate::calls::{call, endpoint as calls};
use crate::code::Return;
use crate::handle::Handle;
use crate::open::{Handler, OnUnexpected};
use crate::params::Param;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Return;
    /// Opens an endpoint.
    unsafe fn mx_open_endpoint(
        board: u32, number: u32, key: u32, list: Place<Param>, count: u32, endpoint: Place<Handle>,
    ) {
        // SAFETY: promised by the caller.
        let params = unsafe { list.list(count as usize) };
        calls::open(board, number, key, params, endpoint)
    }

    /// Closes an endpoint: what was sent arrives, and its requests are gone.
    fn mx_close_endpoint[endpoint]() {
        calls::close(endpoint)
    }

    /// Ends all waits of the endpoint without a result.
    fn mx_wakeup[endpoint]() {
        calls::wake(endpoint)
    }

    /// Nothing completes until `mx_reenable_progression`.
    fn mx_disable_progression[endpoint]() {
        calls::disable(endpoint)
    }

    /// Ends `mx_disable_progression`.
    fn mx_reenable_progression[endpoint]() {
        calls::enable(endpoint)
    }

    /// Makes progress.
    fn mx_progress[endpoint]() {
        calls::progress(endpoint)
    }

    /// Sets the handler of messages that come before their receives; none with null.
    fn mx_register_unexp_handler[endpoint](handler: Option<Handler>, context: usize) {
        calls::on_unexpected(endpoint, handler.map(|handler| OnUnexpected { handler, context }))
    }

    /// Stores the endpoint's own address.
    fn mx_get_endpoint_addr[endpoint](addr: Place<Addr>) {
        calls::address(endpoint, addr)
    }

    /// Stores the network interface and the number of an address.
    fn mx_decompose_endpoint_addr(addr: Addr, nic: Place<u64>, number: Place<u32>) {
        calls::take_apart(addr, nic, number)
    }

    /// Stores the NIC, the number and the session of an endpoint's address; the session differs
    /// where an endpoint was opened anew.
    fn mx_decompose_endpoint_addr2(
        addr: Addr, nic: Place<u64>, number: Place<u32>, session: Place<u32>,
    ) {
        calls::session(addr, session)?;
        calls::take_apart(addr, nic, number)
    }

    /// Keeps a context of the program with an address.
    fn mx_set_endpoint_addr_context(addr: Addr, context: usize) {
        calls::set_context(addr, context)
    }

    /// Stores the context of an address; null if none was set.
    fn mx_get_endpoint_addr_context(addr: Addr, context: Place<usize>) {
        calls::context(addr, context)
    }
}

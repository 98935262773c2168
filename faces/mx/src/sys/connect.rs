//! Connections.

use crate::address::Addr;
use crate::calls::call;
use crate::calls::connect::{self, Wanted};
use crate::code::Return;
use crate::handle::Handle;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Return;
    /// Connects to an endpoint, and stores its address.
    fn mx_connect[endpoint](nic: u64, number: u32, key: u32, ms: u32, addr: Place<Addr>) {
        connect::connect(endpoint, Wanted { nic, number, key }, ms, addr)
    }

    /// Starts a request to connect. The address is the source in its status.
    fn mx_iconnect[endpoint](
        nic: u64, number: u32, key: u32, bits: u64, context: usize, request: Place<Handle>,
    ) {
        connect::begin_connect(endpoint, Wanted { nic, number, key }, (bits, context), request)
    }

    /// Ends the connection with an endpoint: what was not sent ends, what was not received is
    /// dropped, and the address is of no use.
    fn mx_disconnect[endpoint](addr: Addr) {
        connect::disconnect(endpoint, addr)
    }
}

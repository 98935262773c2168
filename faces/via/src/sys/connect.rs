//! Connections.

use crate::calls::{call, connect};
use crate::code::Code;
use crate::handle::Handle;
use crate::raw::{RawAddress, ViAttributes};
use std::ffi::c_ulong;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Code;
    /// Waits until a request for a connection comes to an address.
    fn VipConnectWait(
        nic: Handle, local: RawAddress, time: c_ulong, remote: RawAddress,
        wanted: Place<ViAttributes>, conn: Place<Handle>,
    ) {
        connect::wait(nic, local, time, (remote, wanted), conn)
    }

    /// Accepts a request for a virtual interface.
    fn VipConnectAccept(conn: Handle, vi: Handle) {
        connect::accept(conn, vi)
    }

    /// Rejects a request.
    fn VipConnectReject(conn: Handle) {
        connect::reject(conn)
    }

    /// Requests a connection with an address, and waits for the answer.
    fn VipConnectRequest(
        vi: Handle, local: RawAddress, remote: RawAddress, time: c_ulong,
        wanted: Place<ViAttributes>,
    ) {
        connect::request(vi, (local, remote), time, wanted)
    }

    /// Requests a connection with one that requests it, too. The call does not wait.
    fn VipConnectPeerRequest(vi: Handle, local: RawAddress, remote: RawAddress, time: c_ulong) {
        connect::request_peer(vi, (local, remote), time)
    }

    /// Looks if a request has met another.
    fn VipConnectPeerDone(vi: Handle, wanted: Place<ViAttributes>) {
        connect::peer_done(vi, wanted)
    }

    /// Waits until a request has met another, or its time is over.
    fn VipConnectPeerWait(vi: Handle, wanted: Place<ViAttributes>) {
        connect::peer_wait(vi, wanted)
    }

    /// Ends a connection, or a request for one, and flushes both queues.
    fn VipDisconnect(vi: Handle) {
        connect::disconnect(vi)
    }
}

//! The only module that lets an endpoint move between threads.

use super::SharedEndpoint;
use crate::endpoint::Endpoint;
use crate::selflink::SelfLink;
use weft_link::{ShmLink, UdpLink};

/// An endpoint of which no other clone exists.
pub(super) struct SoleEndpoint(Endpoint);

// SAFETY: only `SoleEndpoint::new` makes `SoleEndpoint`, from an endpoint that a job has just
// opened. The links named in `links_are_send` can move between threads. Those of packet sockets,
// of XDP and of the agent hold pointers into their own mappings, which any thread may use, and
// count references to objects that only their endpoint has (a queue opened for one endpoint,
// services handed only to the endpoint). All of them, and the endpoint's reference count, are used
// only under the mutex of `SharedEndpoint`, because no clone and no future of the endpoint leaves
// it; handlers must be `Send`.
unsafe impl Send for SoleEndpoint {}

/// These links can move between threads by themselves; else this fails to compile.
const fn links_are_send() {
    const fn send<T: Send>() {}
    send::<SelfLink>();
    send::<ShmLink>();
    send::<UdpLink>();
}

impl SoleEndpoint {
    /// Takes over an endpoint made by `job::open_endpoint`.
    pub fn new(endpoint: Endpoint) -> SoleEndpoint {
        const { links_are_send() };
        assert!(
            endpoint.is_sole(),
            "an endpoint that is shared between threads has no other handle"
        );
        SoleEndpoint(endpoint)
    }

    pub fn get(&self) -> &Endpoint {
        &self.0
    }
}

impl SharedEndpoint {
    /// Calls `f` with the endpoint, under its lock: for clients of the port.
    ///
    /// # Safety
    /// When `f` has returned, only the endpoint itself holds clones of it; and every value that the
    /// endpoint got from `f` (handlers, clients) may move between threads and be used by the thread
    /// that makes progress.
    pub unsafe fn with_endpoint<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R {
        self.with(f)
    }
}

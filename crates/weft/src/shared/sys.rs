//! The one place that lets an endpoint move between threads.

use super::SharedEndpoint;
use crate::endpoint::Endpoint;
use crate::selflink::SelfLink;
use weft_link::{ShmLink, UdpLink};

/// An endpoint nobody else holds a clone of.
pub(super) struct Owned(Endpoint);

// SAFETY: `Owned` is made by `Owned::new` only, from an endpoint that was just opened by a job. The
// links named in `links_are_send` can move between threads; those of packet sockets, of XDP and of
// the agent hold pointers into mappings of their own, which any thread may use, and count
// references to things that nobody but their endpoint has (a queue that was opened for one
// endpoint, services that are handed to the endpoint alone). All of them and the count of the
// endpoint are touched under the mutex of `SharedEndpoint` only, because no clone and no future of
// the endpoint leaves it; handlers are required to be `Send`.
unsafe impl Send for Owned {}

/// These links can move between threads by themselves; else this fails to compile.
const fn links_are_send() {
    const fn send<T: Send>() {}
    send::<SelfLink>();
    send::<ShmLink>();
    send::<UdpLink>();
}

impl Owned {
    /// Takes over an endpoint made by `job::open_endpoint`.
    pub fn new(endpoint: Endpoint) -> Owned {
        const { links_are_send() };
        assert!(
            endpoint.is_sole(),
            "an endpoint that is shared between threads has no other handle"
        );
        Owned(endpoint)
    }

    pub fn get(&self) -> &Endpoint {
        &self.0
    }
}

impl SharedEndpoint {
    /// Calls `f` with the endpoint, under its lock: for clients of the port.
    ///
    /// # Safety
    /// When `f` has returned, nothing but the endpoint itself holds a clone of it, and whatever the
    /// endpoint holds that came from `f` (handlers, clients) may move between threads and be used
    /// by the thread that makes progress.
    pub unsafe fn with_endpoint<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R {
        self.with(f)
    }
}

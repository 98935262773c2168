//! Calls with memory that their caller lends or promises, and with descriptors.

pub(crate) mod expect;
pub(crate) mod lent;
pub(crate) mod raw;

use super::Endpoint;
use crate::reactor::Handle;
use std::os::fd::BorrowedFd;

impl Endpoint {
    /// Returns the endpoint of a reactor.
    #[inline]
    pub(crate) fn of(reactor: &Handle) -> &Endpoint {
        // SAFETY: an endpoint is a handle of its reactor and nothing else, by `repr(transparent)`.
        unsafe { &*std::ptr::from_ref(reactor).cast() }
    }

    /// A descriptor that becomes readable when `progress` has something to do, for the caller's own
    /// `epoll` or `poll`: level-triggered, and never read. Before each sleep `prepare_wait` must
    /// return true; after it call `finish_wait`, whatever ended the sleep; then call `progress`
    /// until it has nothing more to do. Example: `examples/epoll.rs`.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.reactor.borrow().waiter.fd()?;
        // SAFETY: this handle keeps the owner of the descriptor alive, and the owner never changes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

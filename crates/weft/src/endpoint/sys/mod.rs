//! Calls with memory borrowed from their caller or promised by it, and with descriptors.

pub(crate) mod borrowed;
pub(crate) mod expect;
pub(crate) mod placed;
pub(crate) mod posted;
pub(crate) mod registration;

use super::{Endpoint, Waiting};
use crate::reactor::Handle;
use std::os::fd::BorrowedFd;

impl Endpoint {
    /// Returns the endpoint of a reactor.
    #[inline]
    pub(crate) fn of(reactor: &Handle) -> &Endpoint {
        // SAFETY: an endpoint is a handle of its reactor and nothing else, by `repr(transparent)`.
        unsafe { &*std::ptr::from_ref(reactor).cast() }
    }
}

impl<'a> Waiting<'a> {
    /// A descriptor that becomes readable when `progress` has something to do, for the caller's own
    /// `epoll` or `poll`: level-triggered, and never read. Before each sleep
    /// [`prepare`](Self::prepare) must return true; after it call [`finish`](Self::finish),
    /// whatever ended the sleep; then call `progress` until it has nothing more to do. Example:
    /// `examples/epoll.rs`.
    pub fn fd(self) -> Option<BorrowedFd<'a>> {
        let fd = self.reactor.borrow().waiter.fd()?;
        // SAFETY: this handle keeps the owner of the descriptor alive, and the owner never changes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

//! Descriptors of foreign processes, wrapped so that a thread closes them.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};

/// A descriptor, or an object with one, of a process of another user: one that it passed, or a
/// connection to it. A thread closes it, unless it can be closed at once.
pub struct Foreign<T: Into<OwnedFd> + AsFd = OwnedFd> {
    content: ManuallyDrop<T>,
    user: u32,
    is_connection: bool,
}

impl<T: Into<OwnedFd> + AsFd> Foreign<T> {
    /// Wraps what a process of this user has passed.
    pub fn new(content: T, user: u32) -> Foreign<T> {
        Foreign { content: ManuallyDrop::new(content), user, is_connection: false }
    }

    /// Wraps a connection to a process of this user. When it is dropped it ends for both sides,
    /// also where there is another descriptor of it.
    pub fn connection(content: T, user: u32) -> Foreign<T> {
        Foreign::new(content, user).into_connection()
    }

    /// Takes what was passed for a connection, of which there is no other use.
    pub fn into_connection(mut self) -> Foreign<T> {
        self.is_connection = true;
        // A byte out of band may carry a descriptor, which the kernel would close on the thread
        // that reads past it. Sockets of messages have no such bytes.
        let _ = rustix::net::sockopt::set_socket_oobinline(self.content.as_fd(), true);
        self
    }

    /// Takes the content out. The caller has seen that it is closed at once ([`crate::memory`]), or
    /// closes it on a thread that serves nobody.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the wrapper is not dropped, so nothing uses the content after this.
        unsafe { ManuallyDrop::take(&mut this.content) }
    }

    /// Returns the user.
    pub fn user(&self) -> u32 {
        self.user
    }

    pub(super) fn content(&self) -> &T {
        &self.content
    }
}

impl<T: Into<OwnedFd> + AsFd> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: it is being dropped, so nothing uses the content after this.
        let content = unsafe { ManuallyDrop::take(&mut self.content) };
        super::end(content.into(), self.user, self.is_connection);
    }
}

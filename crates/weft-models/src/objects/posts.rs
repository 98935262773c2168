//! The operations that a rank has posted and that are not done.

use super::entry::Entry;
use crate::net::Net;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Most operations that are posted and not done, and most of their bytes if they are several.
const POSTED_MAX: u64 = 1 << 14;
const POSTED_BYTES: usize = 1 << 20;

/// An object, and the bytes of an operation on it.
pub(super) type Post<N> = (Rc<Entry<N>>, Vec<u8>);

/// The posts of a rank.
pub(super) struct Posts<N: Net> {
    /// Operations that are not done; of those, the ones that are in the order already.
    count: Cell<u64>,
    piped: Cell<u64>,
    /// Bytes of posts that are neither done nor in the order.
    bytes: Cell<usize>,
    /// Posts that have to be done one after the other, and true while a task does that.
    queue: RefCell<VecDeque<Post<N>>>,
    is_served: Cell<bool>,
}

impl<N: Net> Default for Posts<N> {
    fn default() -> Posts<N> {
        Posts {
            count: Cell::new(0),
            piped: Cell::new(0),
            bytes: Cell::new(0),
            queue: RefCell::default(),
            is_served: Cell::new(false),
        }
    }
}

impl<N: Net> Posts<N> {
    /// True if all are done.
    pub fn are_done(&self) -> bool {
        self.count.get() == 0
    }

    /// True if a post of so many bytes is one too many.
    pub fn are_too_many(&self, len: usize) -> bool {
        let queued = self.bytes.get();
        queued > 0 && queued + len > POSTED_BYTES || self.count.get() >= POSTED_MAX
    }

    /// True if none waits for others: the next one may go into the order at once.
    pub fn may_pipe(&self) -> bool {
        !self.is_served.get() && self.queue.borrow().is_empty()
    }

    /// True if one waits for others.
    pub fn are_waiting(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Counts a post that goes into the order at once.
    pub fn pipe(&self) {
        self.count.set(self.count.get() + 1);
        self.piped.set(self.piped.get() + 1);
    }

    /// Counts the end of a post that was in the order.
    pub fn end_piped(&self) {
        self.count.set(self.count.get() - 1);
        self.piped.set(self.piped.get() - 1);
    }

    /// True if posts are in the order.
    pub fn are_piped(&self) -> bool {
        self.piped.get() > 0
    }

    /// Queues a post. True if a task is to be made that does the posts.
    pub fn push(&self, entry: &Rc<Entry<N>>, op: Vec<u8>) -> bool {
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + op.len());
        self.queue.borrow_mut().push_back((Rc::clone(entry), op));
        !self.is_served.replace(true)
    }

    /// Returns the object of the next post.
    pub fn next_object(&self) -> Option<Rc<Entry<N>>> {
        self.queue.borrow().front().map(|(entry, _)| Rc::clone(entry))
    }

    /// Takes the next post.
    pub fn pop(&self) -> Option<Post<N>> {
        self.queue.borrow_mut().pop_front()
    }

    /// Counts the end of a post of so many bytes that was taken.
    pub fn end(&self, len: usize) {
        self.bytes.set(self.bytes.get() - len);
        self.count.set(self.count.get() - 1);
    }

    /// Notes that the task which does the posts has ended: those that are left are dropped.
    pub fn end_task(&self) {
        self.queue.take().iter().for_each(|(_, op)| self.end(op.len()));
        self.is_served.set(false);
    }
}

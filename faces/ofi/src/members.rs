//! The endpoints that report to a queue or counter, or belong to a domain.

use crate::mover::Step;
use crate::region::Region;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};

/// An endpoint, as the objects see it that make progress on it.
pub trait Member {
    /// Makes progress, and reports operations that ended. True if anything happened.
    fn progress(&self) -> bool;
    /// Makes progress for an absent caller, without reports. True if anything happened.
    fn progress_for_caller(&self) -> bool;
    /// Posts receives that are not posted yet, for a caller that is about to sleep.
    fn post_all(&self);
    /// Prepares for the caller's sleep on the descriptor; false if there is work.
    fn prepare_wait(&self) -> bool;
    /// Reverts `prepare_wait`.
    fn finish_wait(&self);
    /// Returns a descriptor that becomes readable when there is work.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Lets peers use a region.
    fn expose(&self, region: &Region);
    /// Reverts `expose`.
    fn hide(&self, key: u64);
    /// Does a step of a move of this process to another host. Returns the number of peers that it
    /// leaves without news.
    fn step(&self, step: &Step) -> Result<usize, String>;
}

/// A list of endpoints, which it does not keep open.
pub struct Members<M>(RefCell<Vec<Weak<M>>>);

impl<M> Default for Members<M> {
    fn default() -> Members<M> {
        Members(RefCell::default())
    }
}

impl<M: Member> Members<M> {
    /// Adds an endpoint; false if it is there already.
    pub fn join(&self, member: &Rc<M>) -> bool {
        let is_new = !self.has(member);
        if is_new {
            self.0.borrow_mut().push(Rc::downgrade(member));
        }
        is_new
    }

    /// Removes an endpoint.
    pub fn leave(&self, member: &M) {
        self.0.borrow_mut().retain(|one| !std::ptr::eq(one.as_ptr(), member));
    }

    /// Returns true if the endpoint is one of them.
    pub fn has(&self, member: &M) -> bool {
        self.0.borrow().iter().any(|one| std::ptr::eq(one.as_ptr(), member))
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns the number of those that are open.
    pub fn count(&self) -> usize {
        self.0.borrow().iter().filter(|one| one.strong_count() > 0).count()
    }

    /// Returns those that are open.
    pub fn open(&self) -> Vec<Rc<M>> {
        self.0.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes progress on all of them. True if anything happened.
    #[inline]
    pub fn progress(&self) -> bool {
        let mut did = false;
        for i in 0.. {
            // The borrow ends before progress: a handler may open an endpoint.
            let member = match self.0.borrow().get(i) {
                Some(member) => member.upgrade(),
                None => break,
            };
            did |= member.is_some_and(|member| member.progress());
        }
        did
    }

    /// Posts all receives to the engine, since the caller is about to sleep.
    pub fn post_all(&self) {
        self.open().iter().for_each(|member| member.post_all());
    }

    /// Returns true if a caller may sleep now; the endpoints then make the descriptor readable.
    pub fn prepare(&self) -> bool {
        let open = self.open();
        let may = open.iter().all(|member| member.prepare_wait());
        if !may {
            open.iter().for_each(|member| member.finish_wait());
        }
        may
    }

    /// Notes that a caller sleeps no more.
    pub fn finish(&self) {
        self.open().iter().for_each(|member| member.finish_wait());
    }
}

/// An endpoint for tests, which counts what it is asked for.
#[cfg(test)]
#[derive(Default)]
pub struct Counted {
    pub looks: std::cell::Cell<u32>,
    /// True if it has work.
    pub works: std::cell::Cell<bool>,
    pub exposed: RefCell<Vec<u64>>,
}

#[cfg(test)]
impl Member for Counted {
    fn progress(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.works.get()
    }

    fn progress_for_caller(&self) -> bool {
        self.works.get()
    }

    fn post_all(&self) {}

    fn prepare_wait(&self) -> bool {
        !self.works.get()
    }

    fn finish_wait(&self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn expose(&self, region: &Region) {
        self.exposed.borrow_mut().push(region.key);
    }

    fn step(&self, _step: &Step) -> Result<usize, String> {
        Ok(0)
    }
    fn hide(&self, key: u64) {
        self.exposed.borrow_mut().retain(|one| *one != key);
    }
}

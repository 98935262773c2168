//! One region at one rank: its copy, and the operations of this rank on it.

use super::home::Directory;
use super::item::Item;
use super::{Access, RegionCause, RegionError, RegionId};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use weft_core::Instant;

/// The copy of a region, whatever its type.
pub(super) trait Store {
    /// Bytes of the region.
    fn len(&self) -> usize;
    /// Number of items, and the name of their type.
    fn shape(&self) -> (u64, String);
    fn save(&self, to: &mut Vec<u8>);
    /// False if the bytes are not as many as the region has.
    fn load(&self, bytes: &[u8]) -> bool;
    fn as_any(self: Rc<Self>) -> Rc<dyn Any>;
}

pub(super) struct Typed<T> {
    /// Borrowed while an operation uses them.
    pub items: RefCell<Vec<T>>,
    pub count: usize,
}

impl<T: Item> Typed<T> {
    pub fn new(items: Vec<T>) -> Rc<Typed<T>> {
        Rc::new(Typed { count: items.len(), items: RefCell::new(items) })
    }
}

impl<T: Item> Store for Typed<T> {
    fn len(&self) -> usize {
        self.count * T::SIZE
    }

    fn shape(&self) -> (u64, String) {
        (self.count as u64, T::name())
    }

    fn save(&self, to: &mut Vec<u8>) {
        T::put_all(&self.items.borrow(), to);
    }

    fn load(&self, bytes: &[u8]) -> bool {
        let mut items = self.items.borrow_mut();
        if bytes.len() != items.len() * T::SIZE {
            return false;
        }
        T::get_all(&mut items, bytes);
        true
    }

    fn as_any(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }
}

/// An operation that waits.
struct Waiter {
    ticket: u64,
    access: Access,
    waker: Option<Waker>,
}

/// The next thing to do for a region.
pub(super) enum Step {
    /// Wake an operation that has begun.
    Wake(Option<Waker>),
    /// Tell the home that the copy is given up, or only read from now on.
    Ack {
        kept: bool,
        written: bool,
    },
    /// Ask the home.
    Ask(Access),
    Done,
}

/// The operations of a rank on a region.
#[derive(Default)]
pub(super) struct Local {
    /// The access that the copy allows; `None` without a copy.
    pub copy: Option<Access>,
    pub readers: usize,
    pub writing: bool,
    waiters: VecDeque<Waiter>,
    /// Operations that have begun, before their futures know.
    begun: Vec<u64>,
    next: u64,
    /// The access for which the home has been asked.
    pub asked: Option<Access>,
    /// The home wants this access to be left.
    revoked: Option<Option<Access>>,
}

impl Local {
    /// Returns the operations of the home of a new region, which has the only copy.
    pub fn of_home() -> Local {
        Local { copy: Some(Access::Write), ..Local::default() }
    }

    fn is_free(&self, access: Access) -> bool {
        !self.writing && (access == Access::Read || self.readers == 0)
    }

    fn begin(&mut self, access: Access) {
        match access {
            Access::Read => self.readers += 1,
            Access::Write => self.writing = true,
        }
    }

    /// Begins an operation at once, if nothing is in its way.
    pub fn try_begin(&mut self, access: Access) -> bool {
        let may = self.copy >= Some(access) && self.waiters.is_empty() && self.revoked.is_none();
        let begins = may && self.is_free(access);
        if begins {
            self.begin(access);
        }
        begins
    }

    /// Lets an operation wait for its turn; returns its ticket.
    pub fn wait(&mut self, access: Access) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.waiters.push_back(Waiter { ticket, access, waker: None });
        ticket
    }

    /// True if an operation that waited has begun; else its waker is kept.
    pub fn has_begun(&mut self, ticket: u64, waker: &Waker) -> bool {
        if self.take_begun(ticket) {
            return true;
        }
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.waker = Some(waker.clone());
        }
        false
    }

    /// Gives up an operation that waits. True if it has begun: then it has to end.
    pub fn give_up(&mut self, ticket: u64) -> bool {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
        self.take_begun(ticket)
    }

    fn take_begun(&mut self, ticket: u64) -> bool {
        let at = self.begun.iter().position(|&begun| begun == ticket);
        at.map(|at| self.begun.swap_remove(at)).is_some()
    }

    pub fn end(&mut self, access: Access) {
        match access {
            Access::Read => self.readers -= 1,
            Access::Write => self.writing = false,
        }
    }

    pub fn is_used(&self) -> bool {
        self.readers > 0 || self.writing
    }

    /// Notes that the home takes the copy, or the right to write it, when no operation is in its
    /// way.
    pub fn revoke(&mut self, left: Option<Access>) {
        self.revoked = Some(left);
    }

    pub fn granted(&mut self, access: Access) {
        self.copy = Some(access);
        self.asked = None;
    }

    /// Returns the next thing to do.
    pub fn step(&mut self) -> Step {
        if let Some(left) = self.revoked {
            if self.writing || left.is_none() && self.readers > 0 {
                return Step::Done;
            }
            self.revoked = None;
            let written = self.copy == Some(Access::Write);
            self.copy = self.copy.min(left);
            return Step::Ack { kept: self.copy.is_some(), written };
        }
        let Some(front) = self.waiters.front() else { return Step::Done };
        let access = front.access;
        if self.copy < Some(access) {
            return match self.asked {
                Some(_) => Step::Done,
                None => {
                    self.asked = Some(access);
                    Step::Ask(access)
                }
            };
        }
        if !self.is_free(access) {
            return Step::Done;
        }
        let Some(front) = self.waiters.pop_front() else { return Step::Done };
        self.begin(access);
        self.begun.push(front.ticket);
        Step::Wake(front.waker)
    }

    /// Takes the wakers of all operations that wait.
    pub fn wakers(&mut self) -> Vec<Waker> {
        self.waiters.iter_mut().filter_map(|waiter| waiter.waker.take()).collect()
    }
}

pub(super) struct Entry {
    pub id: RegionId,
    pub store: Rc<dyn Store>,
    pub local: RefCell<Local>,
    /// The directory, at the home.
    pub home: Option<RefCell<Directory>>,
    /// The reason why the region is of no use any more.
    pub lost: RefCell<Option<RegionCause>>,
    /// Handles of the program.
    pub handles: Cell<usize>,
    /// The time at which the home was asked for the copy, by [`Net::boot_time`](crate::net::Net).
    pub asked_at: Cell<Instant>,
}

impl Entry {
    /// Returns the error of a region that is of no use any more.
    pub fn check(&self) -> Result<(), RegionError> {
        match &*self.lost.borrow() {
            Some(cause) => Err(RegionError { region: self.id, cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn step__a_revocation_waits_for_the_operation_and_later_ones_wait_for_it() {
        let mut local = Local::default();
        let ticket = local.wait(Access::Write);
        assert!(matches!(local.step(), Step::Ask(Access::Write)));
        assert!(matches!(local.step(), Step::Done));
        local.granted(Access::Write);
        assert!(matches!(local.step(), Step::Wake(None)));
        assert!(local.has_begun(ticket, Waker::noop()) && local.is_used());
        local.revoke(None);
        assert!(matches!(local.step(), Step::Done));
        assert!(!local.try_begin(Access::Read));
        local.end(Access::Write);
        assert!(matches!(local.step(), Step::Ack { kept: false, written: true }));
        assert!(matches!(local.step(), Step::Done));
    }

    #[test]
    fn step__readers_go_together_and_a_writer_waits_for_them() {
        let mut local = Local { copy: Some(Access::Write), ..Local::default() };
        assert!(local.try_begin(Access::Read) && local.try_begin(Access::Read));
        let writer = local.wait(Access::Write);
        assert!(!local.try_begin(Access::Read), "a writer that waits comes first");
        assert!(matches!(local.step(), Step::Done));
        local.revoke(Some(Access::Read));
        assert!(matches!(local.step(), Step::Ack { kept: true, written: true }));
        assert!(matches!(local.step(), Step::Ask(Access::Write)));
        assert!(!local.give_up(writer));
    }
}

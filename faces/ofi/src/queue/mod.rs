//! Completion queues.

#[allow(unsafe_code)]
mod sys;

pub use sys::{Entry, Room};

use crate::abi::*;
use crate::call::Answer;
use crate::domain::Domain;
use crate::idle::{looking, Idle};
use crate::looks::Looks;
use crate::members::Member;
use crate::reports::Reports;
use crate::yields;
use libc::c_int;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A completion with an error.
#[derive(Clone)]
pub struct Failure {
    pub fields: CqTaggedEntry,
    pub source: u64,
    /// Bytes that did not fit.
    pub olen: usize,
    pub error: c_int,
    /// A sentence for people.
    pub text: String,
}

impl Failure {
    /// Creates the report of an error, with a sentence for people.
    pub fn new(fields: CqTaggedEntry, error: c_int, text: String) -> Failure {
        Failure { fields, source: ADDR_NONE, olen: 0, error, text }
    }
}

/// A completion queue.
pub struct Queue<M> {
    pub reports: Reports<M>,
    format: c_int,
    entries: RefCell<VecDeque<Entry>>,
    failures: RefCell<VecDeque<Failure>>,
    /// Texts of the last failures, by the number returned as `prov_errno`.
    texts: RefCell<VecDeque<(c_int, String)>>,
    next_text: Cell<c_int>,
    signal: AtomicBool,
    idle: Idle,
}

/// Failures whose text is kept.
const TEXTS: usize = 16;

impl<M: Member> Queue<M> {
    /// Creates a queue of a format, at which callers wait in a `way`.
    pub fn new(domain: Arc<Domain<M>>, format: c_int, way: c_int) -> Result<Queue<M>, c_int> {
        Ok(Queue {
            reports: Reports::new(domain, way, way != WAIT_NONE)?,
            format,
            entries: RefCell::default(),
            failures: RefCell::default(),
            texts: RefCell::default(),
            next_text: Cell::new(1),
            signal: AtomicBool::new(false),
            idle: Idle::of_job(),
        })
    }

    /// Adds a completion.
    #[inline]
    pub fn add(&self, entry: Entry) {
        self.entries.borrow_mut().push_back(entry);
        self.reports.poller.news();
    }

    /// Adds a completion with an error.
    pub fn fail(&self, failure: Failure) {
        self.failures.borrow_mut().push_back(failure);
        self.reports.poller.news();
    }

    fn has_events(&self) -> bool {
        !self.entries.borrow().is_empty() || !self.failures.borrow().is_empty()
    }

    fn size(&self) -> usize {
        match self.format {
            CQ_CONTEXT => 8,
            CQ_MSG => 24,
            CQ_DATA => 40,
            _ => size_of::<CqTaggedEntry>(),
        }
    }

    /// Gives a caller as many entries as have room.
    #[inline]
    fn read(&self, room: &Room) -> Answer {
        let mut entries = self.entries.borrow_mut();
        if !self.failures.borrow().is_empty() && (entries.is_empty() || room.count() == 0) {
            return Err(err::EAVAIL);
        }
        match room.fill(self.size(), || entries.pop_front()) {
            0 => Err(err::EAGAIN),
            n => Ok(n as isize),
        }
    }

    /// Makes progress, then gives a caller entries.
    #[inline]
    pub fn poll(&self, room: &Room) -> Answer {
        looking(|looks| {
            self.idle.enter(looks);
            let inside = self.reports.domain.lock.enter()?;
            self.reports.poller.is_back();
            let known = room.count() > 0 && !self.entries.borrow().is_empty();
            let found = known
                || self.reports.progress()
                || self.reports.progress_others()
                || self.has_result();
            let answer = self.read(room);
            drop(inside);
            match found {
                true => self.idle.something(looks),
                false => self.found_nothing(looks),
            }
            yields::polled(self.idle.yields_itself());
            answer
        })
    }

    /// True if an operation has failed. The answer to a look for a message is none.
    fn has_result(&self) -> bool {
        self.failures.borrow().front().is_some_and(|failure| failure.error != err::ENOMSG)
    }

    /// Gives the core away if a caller that looks in vain is to.
    #[inline]
    fn found_nothing(&self, looks: &Looks) {
        if self.idle.nothing(looks) {
            self.give_core(looks);
        }
    }

    #[cold]
    fn give_core(&self, looks: &Looks) {
        if let Some(limit) = self.idle.hand_over(looks) {
            let woken = self.reports.nap(limit);
            self.idle.slept(looks, woken);
        }
    }

    /// Waits for entries for at most `timeout` milliseconds, or forever if it is negative.
    pub fn wait(&self, room: &Room, timeout: c_int) -> Answer {
        if self.reports.way == WAIT_NONE {
            return Err(err::ENOSYS);
        }
        let found = self.reports.wait(timeout, || match self.read(room) {
            Err(err::EAGAIN) => {
                let signal = self.signal.swap(false, Ordering::AcqRel);
                signal.then_some(Err(err::EAGAIN))
            }
            other => Some(other),
        })?;
        found.unwrap_or(Err(err::EAGAIN))
    }

    /// Ends a caller's wait.
    pub fn signal(&self) {
        self.signal.store(true, Ordering::Release);
        self.reports.poller.wake();
    }

    /// Prepares the descriptor for a caller that will sleep outside.
    pub fn try_wait(&self) -> Result<(), c_int> {
        let _inside = self.reports.domain.lock.enter()?;
        self.reports.settle();
        if self.has_events() {
            return Err(err::EAGAIN);
        }
        self.reports.lend()
    }

    /// Moves the oldest failure to a caller, whose structure has the fields of its version.
    pub fn read_failure(&self, out: &mut CqErrEntry) -> Answer {
        let f = self.failures.borrow_mut().pop_front().ok_or(err::EAGAIN)?;
        let number = self.next_text.get();
        self.next_text.set(number.wrapping_add(1).max(1));
        let mut texts = self.texts.borrow_mut();
        if texts.len() == TEXTS {
            texts.pop_front();
        }
        texts.push_back((number, f.text));
        out.entry = f.fields;
        out.olen = f.olen;
        out.err = f.error;
        out.prov_errno = number;
        if self.reports.domain.api >= version(1, 5) {
            // There is no error data; the buffer, if one was given, stays unchanged.
            out.err_data_size = 0;
        }
        if self.reports.domain.api >= version(1, 20) {
            out.src_addr = f.source;
        }
        Ok(1)
    }

    /// Returns the text of a failure that was moved to a caller lately.
    pub fn text(&self, number: c_int) -> Option<String> {
        let texts = self.texts.borrow();
        texts.iter().find(|(n, _)| *n == number).map(|(_, text)| text.clone())
    }
}

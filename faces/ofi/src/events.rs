//! Event queues: results of control operations.

use crate::abi::{err, EqErrEntry, Fid};
use crate::lock::Mark;
use crate::memory::Borrowed;
use crate::reports::Limit;
use libc::{c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use weft::memory::copied;

struct Event {
    number: u32,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    failures: VecDeque<EqErrEntry>,
}

/// An event queue. Its lock is its own: it belongs to a fabric, and domains of several threads
/// report to it.
#[derive(Default)]
pub struct Events {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, number: u32, bytes: Vec<u8>) {
        self.lock().events.push_back(Event { number, bytes });
        self.came.notify_all();
    }

    /// Reports a control operation that succeeded.
    pub fn add(&self, number: u32, fid: *mut Fid, context: *mut c_void, data: u64) {
        // The structure `fi_eq_entry`: three words without gaps.
        let words = [fid as u64, context as u64, data];
        self.push(number, words.map(u64::to_ne_bytes).concat());
    }

    /// Reports a control operation that failed.
    pub fn fail(&self, fid: *mut Fid, context: *mut c_void, data: u64, error: c_int) {
        self.lock().failures.push_back(EqErrEntry {
            fid,
            context,
            data,
            err: error,
            prov_errno: 0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        });
        self.came.notify_all();
    }

    /// Gives a caller the oldest event, and its number; returns its length.
    pub fn read(&self, room: Borrowed, peek: bool) -> Result<(u32, usize), c_int> {
        let _mark = Mark::set()?;
        self.lock().next(room, peek)
    }

    /// Waits for an event for at most `timeout` milliseconds, or forever if it is negative.
    pub fn wait(&self, room: Borrowed, peek: bool, timeout: c_int) -> Result<(u32, usize), c_int> {
        let limit = Limit::of(timeout);
        let _mark = Mark::set()?;
        let mut waiting = self.lock();
        loop {
            match waiting.next(room, peek) {
                Err(err::EAGAIN) => {}
                other => return other,
            }
            let left = limit.left().ok_or(err::EAGAIN)?;
            let waited = self.came.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the oldest failure.
    pub fn read_failure(&self) -> Result<EqErrEntry, c_int> {
        let _mark = Mark::set()?;
        self.lock().failures.pop_front().ok_or(err::EAGAIN)
    }

    /// Adds an event of the caller's own; returns its length.
    pub fn write(&self, number: u32, event: Borrowed) -> Result<usize, c_int> {
        if event.is_null() && event.len() > 0 || !event.seems_mapped() {
            return Err(err::EFAULT);
        }
        let bytes = copied(event.bytes()).ok_or(err::ENOMEM)?;
        let _mark = Mark::set()?;
        self.push(number, bytes);
        Ok(event.len())
    }

    /// Returns `Ok` if a caller may sleep.
    pub fn try_wait(&self) -> Result<(), c_int> {
        let _mark = Mark::set()?;
        let waiting = self.lock();
        match waiting.events.is_empty() && waiting.failures.is_empty() {
            true => Ok(()),
            false => Err(err::EAGAIN),
        }
    }
}

impl Waiting {
    /// Gives a caller the oldest event, if there is one, and leaves it here if `peek` says so.
    fn next(&mut self, room: Borrowed, peek: bool) -> Result<(u32, usize), c_int> {
        if !self.failures.is_empty() {
            return Err(err::EAVAIL);
        }
        let first = self.events.front().ok_or(err::EAGAIN)?;
        if first.bytes.len() > room.len() {
            return Err(err::ETOOSMALL);
        }
        room.write(&first.bytes);
        let found = (first.number, first.bytes.len());
        if !peek {
            self.events.pop_front();
        }
        Ok(found)
    }
}

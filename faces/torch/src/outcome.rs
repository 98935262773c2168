//! The end of an operation, as all threads see it.

use crate::fault::Fault;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The result of an operation: the rank that a message came from, where that is a result.
pub type Ended = Result<Option<usize>, Fault>;

#[derive(Default)]
struct End {
    result: Option<Ended>,
    /// Functions of Python that are called after the end.
    calls: Vec<Py<PyAny>>,
}

/// The end of an operation: its result, and the functions that wait for it.
#[derive(Default)]
pub struct Outcome {
    done: AtomicBool,
    end: Mutex<End>,
}

impl Outcome {
    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the operation has ended.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns the result, if the operation has ended.
    pub fn result(&self) -> Option<Ended> {
        match self.is_done() {
            true => self.end().result.clone(),
            false => None,
        }
    }

    /// Ends the operation, unless it has ended. True if functions wait for that.
    pub fn put(&self, result: Ended) -> bool {
        let mut end = self.end();
        if end.result.is_none() {
            end.result = Some(result);
            self.done.store(true, Ordering::Release);
        }
        !end.calls.is_empty()
    }

    /// Has a function called after the end. Returns the function if that was before.
    pub fn on_end(&self, call: Py<PyAny>) -> Option<Py<PyAny>> {
        let mut end = self.end();
        match end.result.is_some() {
            true => Some(call),
            false => {
                end.calls.push(call);
                None
            }
        }
    }

    /// Takes the functions that wait for the end.
    pub fn take_calls(&self) -> Vec<Py<PyAny>> {
        std::mem::take(&mut self.end().calls)
    }
}

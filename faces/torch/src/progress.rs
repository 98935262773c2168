//! The thread of a process group: it makes progress while no caller waits, and calls the functions
//! of Python that wait for ends.

use crate::shared::{Leader, Shared, LOOK};
use pyo3::prelude::*;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time without a call after which the thread makes progress although no operation is under way.
const ABSENT: Duration = Duration::from_millis(10);

/// Starts the thread.
///
/// # Errors
/// The system has no thread left.
pub fn start(shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("weft".into()).spawn(move || run(&shared))
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    let mut seen = 0;
    loop {
        let called = std::mem::take(&mut state.called);
        if !called.is_empty() {
            drop(state);
            for outcome in called {
                call(outcome.take_calls());
            }
            state = shared.lock();
            continue;
        }
        if state.ending {
            return;
        }
        let is_busy = state.inside().is_ok_and(|inside| inside.is_busy());
        let calls = state.calls;
        if state.leader == Leader::Caller || calls != seen && !is_busy {
            // A caller that waits, or has just been here, makes progress by itself.
            seen = calls;
            state.is_idle = true;
            let waited = shared.work.wait_timeout(state, ABSENT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_idle = false;
            continue;
        }
        state.leader = Leader::Own;
        state = shared.lead(state, Leader::Own, LOOK);
        if state.leader == Leader::Own {
            shared.end_of_lead(&mut state);
        }
    }
}

/// Calls functions of Python. Their exceptions are printed.
fn call(calls: Vec<Py<PyAny>>) {
    Python::attach(|py| {
        for call in calls {
            if let Err(error) = call.call0(py) {
                error.write_unraisable(py, Some(call.bind(py)));
            }
        }
    });
}

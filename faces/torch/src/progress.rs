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
        let seen = state.calls;
        let is_idle = state.inside().is_ok_and(|inside| !inside.is_busy());
        if state.leader == Leader::Caller || is_idle {
            // A caller that waits, or has just been here, makes progress by itself.
            state.is_idle = true;
            let waited = shared.work.wait_timeout(state, ABSENT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_idle = false;
            if state.leader == Leader::Caller || state.calls != seen && !is_needed(&mut state) {
                continue;
            }
            if state.ending || !state.called.is_empty() {
                continue;
            }
        }
        state.leader = Leader::Own;
        state = shared.lead(state, Leader::Own, LOOK);
        if state.leader == Leader::Own {
            shared.end_of_lead(&mut state);
        }
    }
}

/// True while an operation is under way.
fn is_needed(state: &mut crate::shared::State) -> bool {
    state.inside().is_ok_and(|inside| inside.is_busy())
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

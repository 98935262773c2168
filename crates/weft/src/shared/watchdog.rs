//! The polling watchdog, after Maquelin and others, "Polling Watchdog: Combining Polling and
//! Interrupts for Efficient Message Handling" (ISCA 1996): while the program polls, nothing
//! interrupts it; if it has not polled for a time, the watchdog polls for it. In the paper the
//! network interface interrupts; here a thread takes the lock that every call takes.

use super::Shared;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// Interval at which the thread checks if the endpoint is gone, while another thread waits in it.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Starts the thread. It ends with the last handle of the endpoint.
pub(super) fn start(shared: &Arc<Shared>, period: Duration) {
    let shared = Arc::clone(shared);
    let started = thread::Builder::new().name("weft watchdog".into()).spawn(move || {
        let mut seen = 0;
        while Arc::strong_count(&shared) > 1 {
            thread::sleep(period);
            let state = match shared.state.try_lock() {
                Ok(state) => state,
                // A panic in a handler leaves the endpoint itself intact.
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if state.leader {
                // Another thread waits, and makes progress for all.
                let waited = shared.progressed.wait_timeout(state, CHECK_EVERY);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            if state.calls == seen {
                // Other handlers are served although one panicked; the panic was reported.
                let polled = catch_unwind(AssertUnwindSafe(|| {
                    state.endpoint.get().waiting().program_computes();
                    state.endpoint.get().progress()
                }));
                polled.map_or_else(std::mem::forget, |_| ());
            }
            seen = state.calls;
        }
    });
    if let Err(error) = started {
        weft_link::warn!("no watchdog: {error}; peers wait until this process polls");
    }
}

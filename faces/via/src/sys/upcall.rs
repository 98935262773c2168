//! Calls of the program's handlers, by the thread of the interface and without its lock: a handler
//! may call every function, also one that closes the interface.

use super::abi::{ErrorDescriptor, ErrorHandler, QueueHandler, WorkHandler};
use super::lock::{OnError, Open};
use crate::code::Fault;
use crate::handle::Kind;
use crate::state::{Direction, ErrorReport, Notify, Upcall};
use std::ffi::c_void;

/// A call, with all handles that it names.
pub struct Call {
    nic: u64,
    to: To,
}

enum To {
    Descriptor(Notify, u64, u64),
    Queue(Notify, u64, Direction),
    Error(OnError, ErrorReport, u64, u64),
}

impl Call {
    /// Finds the handles of a call.
    pub(super) fn of(open: &Open, call: &Upcall) -> Call {
        let state = open.state();
        let vi = |key| state.handle_of(Kind::Vi, key);
        let to = match *call {
            Upcall::Descriptor(notify, key, at) => To::Descriptor(notify, vi(key), at),
            Upcall::Queue(notify, _, key, direction) => To::Queue(notify, vi(key), direction),
            Upcall::Error(report) => {
                let queue = report.queue.map_or(0, |key| state.handle_of(Kind::Cq, key));
                To::Error(open.on_error, report, report.vi.map_or(0, vi), queue)
            }
        };
        Call { nic: state.handle, to }
    }
}

/// Returns a handle as C has it.
fn pointer(handle: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(handle as usize)
}

/// Returns the program's pointer that was kept as a number.
fn kept(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Calls a handler.
pub(super) fn run(call: &Call) {
    let nic = pointer(call.nic);
    match call.to {
        To::Descriptor(notify, vi, at) => {
            // SAFETY: the program gave this handler for such a call.
            let handler =
                unsafe { std::mem::transmute::<*mut c_void, WorkHandler>(kept(notify.handler)) };
            let descriptor = kept(at as usize);
            // SAFETY: as before.
            unsafe { handler(kept(notify.context), nic, pointer(vi), descriptor.cast()) };
        }
        To::Queue(notify, vi, direction) => {
            // SAFETY: as before.
            let handler =
                unsafe { std::mem::transmute::<*mut c_void, QueueHandler>(kept(notify.handler)) };
            let received = i32::from(direction == Direction::Recv);
            // SAFETY: as before.
            unsafe { handler(kept(notify.context), nic, pointer(vi), received) };
        }
        To::Error(on_error, report, vi, queue) => {
            let mut of = ErrorDescriptor {
                nic,
                vi: pointer(vi),
                queue: pointer(queue),
                descriptor: kept(report.descriptor as usize).cast(),
                operation: report.operation.into(),
                resource: report.resource,
                fault: report.fault,
            };
            if on_error.handler == 0 {
                return by_default(&report);
            }
            // SAFETY: as before.
            let handler =
                unsafe { std::mem::transmute::<*mut c_void, ErrorHandler>(kept(on_error.handler)) };
            // SAFETY: as before; the structure lives until the handler returns.
            unsafe { handler(kept(on_error.context), &raw mut of) };
        }
    }
}

/// The default handler: it logs the error.
fn by_default(report: &ErrorReport) {
    let level = match report.fault {
        // The usual end of a connection, too.
        Fault::ConnLost => log::Level::Info,
        _ => log::Level::Error,
    };
    log::log!(
        level,
        "a virtual interface: {:?} ({:?}); the program has no handler (VipErrorCallback)",
        report.fault,
        report.resource
    );
}

//! Calls of the program's handlers, by the thread of the interface and without its lock: a handler
//! may call every function, also one that closes the interface.

use super::{OnError, Open};
use crate::code::Fault;
use crate::handle::{Handle, Kind};
use crate::raw::{ErrorDescriptor, QueueHandler, WorkHandler};
use crate::state::{Direction, ErrorReport, Notify, Upcall};

/// A call, with all handles that it names.
pub struct Call {
    nic: Handle,
    to: To,
}

enum To {
    Descriptor(Notify<WorkHandler>, Handle, u64),
    Queue(Notify<QueueHandler>, Handle, Direction),
    Error(OnError, ErrorReport, Handle, Handle),
}

impl Call {
    /// Finds the handles of a call.
    pub fn of(open: &Open, call: &Upcall) -> Call {
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

    /// Calls the handler.
    pub fn run(self) {
        let nic = self.nic;
        match self.to {
            To::Descriptor(Notify { handler, context }, vi, at) => {
                handler(context, nic, vi, at as usize);
            }
            To::Queue(Notify { handler, context }, vi, direction) => {
                handler(context, nic, vi, i32::from(direction == Direction::Recv));
            }
            To::Error(OnError { handler: Some(handler), context }, report, vi, queue) => {
                let mut of = ErrorDescriptor {
                    nic,
                    vi,
                    queue,
                    descriptor: report.descriptor as usize,
                    operation: report.operation.into(),
                    resource: report.resource,
                    fault: report.fault,
                };
                handler(context, &raw mut of);
            }
            To::Error(_, report, ..) => by_default(&report),
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

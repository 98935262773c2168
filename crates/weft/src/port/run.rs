//! Calls of clients inside progress.

use super::Port;
use crate::endpoint::ports::Call;
use crate::endpoint::Endpoint;

/// Marks a client as busy with a message, until this is dropped: also by a panic.
struct Busy<'a>(&'a Endpoint, usize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.inner.borrow_mut().driver.intake.ports.ended(self.1);
    }
}

impl Endpoint {
    /// Makes all calls of clients that are due. True if there was any.
    pub(crate) fn run_clients(&self) -> bool {
        let mut did = false;
        let mut last: Option<Port> = None;
        loop {
            let next = {
                let core = &mut self.inner.borrow_mut().driver.intake;
                if let Some(panic) = core.ports.panicked() {
                    std::panic::resume_unwind(panic);
                }
                core.ports.next_call()
            };
            let Some((at, number, client, call)) = next else { break };
            did = true;
            let port = match &mut last {
                Some(port) if port.number == number => port,
                other => other.insert(Port { endpoint: self.clone(), number }),
            };
            match call {
                Call::Arrived(message) => {
                    let busy = Busy(self, at);
                    client.arrived(port, message);
                    drop(busy);
                }
                Call::Failed(peer, failure) => client.failed(port, peer, failure),
                Call::Asked(request) => client.asked(port, request),
                Call::Due => client.due(port),
                Call::Poll => client.poll(port),
            }
        }
        let driver = &mut self.inner.borrow_mut().driver;
        if driver.intake.has_work() {
            // The clients' calls may have taken long.
            driver.intake.tick();
            driver.flush();
        }
        did
    }
}

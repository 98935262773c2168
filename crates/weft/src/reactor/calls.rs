//! Calls of clients inside progress.

use super::{Call, Handle};

/// Marks a client as busy with a message, until this is dropped: also by a panic.
struct Busy<'a>(&'a Handle, usize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().receiver.ports.ended(self.1);
    }
}

impl Handle {
    /// Makes all calls of clients that are due. True if there was any.
    pub fn run_clients(&self) -> bool {
        let mut did = false;
        loop {
            let next = {
                let ports = &mut self.borrow_mut().receiver.ports;
                if let Some(panic) = ports.panicked() {
                    std::panic::resume_unwind(panic);
                }
                ports.next_call()
            };
            let Some((at, number, client, call)) = next else { break };
            did = true;
            let busy = matches!(call, Call::Arrived(_)).then(|| Busy(self, at));
            client.upcall(self, number, call);
            drop(busy);
        }
        let reactor = &mut *self.borrow_mut();
        if reactor.receiver.has_work() {
            // The clients' calls may have taken long.
            reactor.receiver.tick();
            reactor.flush();
        }
        did
    }
}

//! A network interface as an open object of `weft-ffi`, which is used under the lock of its slot.

use super::{upcall, Open};
use crate::code::Code;
use weft::Endpoint;
use weft_ffi::sys::lock::{Face, Place};

static PLACE: Place<Open> = Place::new();

// SAFETY: no clone of the endpoint or of the hub leaves the functions of this crate that hold the
// lock.
unsafe impl Face for Open {
    type Code = Code;
    type Call = upcall::Call;
    const CLOSED: Code = Code::InvalidParameter;
    const REFUSED: Code = Code::ErrorResource;
    const TIMEOUT: Code = Code::Timeout;
    const NAME: &'static str = "via";

    fn place() -> &'static Place<Open> {
        &PLACE
    }

    #[inline]
    fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    #[inline]
    fn reap(&mut self) {
        self.take_ended();
    }

    #[inline]
    fn changes(&self) -> u64 {
        self.hub.state.borrow().changes
    }

    fn end(&mut self) {
        self.state().close(&self.port);
    }

    #[inline]
    fn is_call_due(&self) -> bool {
        !self.hub.state.borrow().upcalls.is_empty()
    }

    fn has_handlers(&self) -> bool {
        self.state().has_handlers()
    }

    fn next_call(&mut self) -> Option<upcall::Call> {
        let call = self.state().upcalls.pop_front()?;
        Some(upcall::Call::of(self, &call))
    }

    fn run(call: upcall::Call) {
        call.run();
    }
}

//! An endpoint as an open object of `weft-ffi`, which is used under the lock of its slot.

use super::Open;
use crate::code::{self, Return};
use weft::Endpoint;
use weft_ffi::sys::lock::{Face, Place};

static PLACE: Place<Open> = Place::new();

// SAFETY: no clone of the endpoint or of the key check leaves the functions of this crate that hold
// the lock. Memory of requests is the program's, which lends it to the library.
unsafe impl Face for Open {
    type Code = Return;
    type Call = ();
    const CLOSED: Return = code::BAD_ENDPOINT;
    const REFUSED: Return = code::BUSY;
    const TIMEOUT: Return = code::TIMEOUT;
    const NAME: &'static str = "mx";

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
        self.changes
    }

    #[inline]
    fn progress(&self) -> bool {
        self.make_progress()
    }

    fn before_sleep(&mut self) {
        self.settle_expected();
    }

    fn end(&mut self) {
        self.take_all_back();
    }
}

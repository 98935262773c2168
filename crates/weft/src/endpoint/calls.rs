//! Upcalls that are due.

use super::driver::Upcall;
use super::Endpoint;
use std::collections::VecDeque;

/// Upcalls that are being made. Those behind one that panics are made in the next round.
pub(super) struct Calls<'a> {
    pub endpoint: &'a Endpoint,
    pub left: VecDeque<Upcall>,
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        if !self.left.is_empty() {
            let upcalls = &mut self.endpoint.inner.borrow_mut().driver.core.upcalls;
            self.left.append(upcalls);
            std::mem::swap(&mut self.left, upcalls);
        }
    }
}

//! Active messages on their way to their clients.

use super::Receiver;
use crate::reactor::message::{Arrived, Buffer};
use crate::reactor::regions::Regions;
use std::panic::{catch_unwind, AssertUnwindSafe};
use weft_core::PeerId;
use weft_link::Bytes;

impl Receiver {
    /// Handles an active message without a waiting receive: it waits for its client.
    #[inline]
    pub(super) fn active(&mut self, peer: PeerId, tag: u64, payload: Bytes<'_>) {
        let mut data = self.ports.buffer();
        payload.copy_to(data.resize(payload.len()));
        self.arrived(peer, tag, data);
    }

    #[inline]
    pub(super) fn arrived(&mut self, peer: PeerId, tag: u64, data: Buffer) {
        // The message is acknowledged when the program has seen it.
        self.outcome.ended = true;
        self.engine.matching_mut().handle_active_queued();
        let message = Arrived::new(peer, tag, data);
        let message = match self.ports.at_once.is_empty() {
            true => Some(message),
            false => self.work_at_once(tag as u32, message),
        };
        let Some(message) = message else { return };
        let slot = self.ports.slot((tag >> 24) as u8);
        slot.arrived.push_back(message);
        let is_owed = slot.client.is_some();
        self.ports.owed += usize::from(is_owed);
    }

    /// Runs the work at arrival for a message, if there is any. Returns the message for its client,
    /// if any is left.
    fn work_at_once(&mut self, number: u32, mut message: Arrived) -> Option<Arrived> {
        let Some(work) = self.ports.at_once.get_mut(&number) else { return Some(message) };
        let regions = &mut Regions::new(&self.engine, &mut self.regions);
        let data = message.data.take();
        let argument = message.argument;
        match catch_unwind(AssertUnwindSafe(|| work(regions, argument, data))) {
            Ok(Some(data)) => {
                message.data = Buffer::from(data);
                return Some(message);
            }
            Ok(None) => {}
            Err(panic) => {
                self.ports.panics.push_back(panic);
                self.ports.owed += 1;
            }
        }
        self.engine.peer_mut(message.source).release(message.credit());
        None
    }
}

//! Receiving packets without an upcall.

use super::wire::{tag, Kind};
use super::{Packets, Slot, State};
use crate::endpoint::driver::{Arrived, Core, Driver};
use crate::endpoint::{Inner, Status};
use std::collections::VecDeque;
use weft_core::{OpError, PeerId};
use weft_link::Bytes;

/// Places of a mailbox that are kept while it is empty.
const WAITING_SPARE: usize = 1024;

/// What [`Packets::receive`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: PeerId,
    /// The sender's argument.
    pub argument: u32,
    /// Bytes.
    pub len: usize,
}

impl From<Status> for Received {
    #[inline]
    fn from(s: Status) -> Received {
        // A packet that came has a sender.
        let source = s.source.unwrap_or(PeerId(u32::MAX));
        Received { source, argument: (s.tag >> 32) as u32, len: s.len }
    }
}

impl Core {
    /// A packet that nobody awaits: to be dealt with.
    #[inline]
    pub(crate) fn packet(&mut self, peer: PeerId, tag: u64, payload: Bytes<'_>) {
        // What it acknowledges is sent when the program has seen it.
        self.ended = true;
        self.engine.packet_queued();
        let mut data = self.packet_bufs.pop().unwrap_or_default();
        payload.copy_to(data.resize(payload.len()));
        self.packets.push_back(Arrived { peer, tag, data });
    }
}

impl Packets {
    /// Has packets for handler `number` wait for [`receive`](Self::receive) from now on, instead of
    /// an upcall. They take memory meanwhile, of which there is as much as for messages without a
    /// receive (`WEFT_UNEXPECTED_MAX`); beyond it their senders wait.
    pub fn mailbox(&self, number: u16) {
        self.set(number, Slot::Mailbox(VecDeque::new()));
    }

    /// Receives the next packet for a mailbox, of one peer or of any, into `buffer`. It is looked
    /// for on the link itself and copied once. Progress is made meanwhile, and upcalls run.
    ///
    /// # Errors
    /// The peer failed; the packet is longer than the buffer (`Truncated`, and it is lost); this is
    /// called from an upcall, or `number` is no mailbox (`Refused`). From any peer it waits without
    /// a bound.
    #[inline]
    pub fn receive(
        &self,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Result<Received, OpError> {
        let soon = {
            let inner = &mut *self.endpoint.inner.borrow_mut();
            let slot = inner.packets.as_ref().filter(|state| !state.in_upcall);
            let slot = slot.and_then(|state| state.handlers.get(usize::from(number)));
            let none_waits = matches!(slot, Some(Slot::Mailbox(waiting)) if waiting.is_empty())
                && inner.driver.core.packets.is_empty();
            match none_waits {
                true => inner.await_packet(from, tag(Kind::User, number, 0), buffer),
                false => None,
            }
        };
        match soon {
            Some(result) => result.map(Received::from),
            None => self.receive_slowly(from, number, buffer),
        }
    }

    #[cold]
    fn receive_slowly(
        &self,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Result<Received, OpError> {
        let _watch = from.and_then(|peer| self.endpoint.watch(peer));
        loop {
            // Ahead of its failure: what it sent before counts.
            if let Some(result) = self.try_receive(from, number, buffer) {
                return result;
            }
            if let Some((peer, failure)) =
                from.and_then(|peer| Some((peer, self.endpoint.peer_failure(peer)?)))
            {
                return Err(OpError::Peer { peer, failure });
            }
            if let Some(error) = self.endpoint.end_error() {
                return Err(error);
            }
            self.endpoint.wait(None);
        }
    }

    /// As [`receive`](Self::receive), of what is there already: neither waits nor makes progress.
    #[inline]
    pub fn try_receive(
        &self,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Result<Received, OpError>> {
        let Inner { driver, packets, .. } = &mut *self.endpoint.inner.borrow_mut();
        let state = packets.as_mut()?;
        match state.handlers.get_mut(usize::from(number)) {
            Some(Slot::Mailbox(_)) if state.in_upcall => Some(Err(OpError::Refused)),
            Some(Slot::Mailbox(waiting)) if waiting.is_empty() => None,
            Some(Slot::Mailbox(_)) => state.take_waiting(driver, from, number, buffer),
            _ => Some(Err(OpError::Refused)),
        }
    }
}

impl State {
    #[cold]
    fn take_waiting(
        &mut self,
        driver: &mut Driver,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Result<Received, OpError>> {
        let Slot::Mailbox(waiting) = self.handlers.get_mut(usize::from(number))? else {
            return None;
        };
        let at = waiting.iter().position(|a| from.is_none_or(|from| from == a.peer))?;
        let arrived: Arrived = waiting.remove(at)?;
        if waiting.is_empty() && waiting.capacity() > WAITING_SPARE {
            // A flood took it.
            *waiting = VecDeque::new();
        }
        let (source, argument) = (arrived.peer, (arrived.tag >> 32) as u32);
        let len = arrived.data.len;
        let result = match buffer.get_mut(..len) {
            Some(into) => {
                into.copy_from_slice(arrived.data.get());
                Ok(Received { source, argument, len })
            }
            None => Err(OpError::Truncated { sent: len as u64 }),
        };
        self.settle(driver, arrived);
        Some(result)
    }
}

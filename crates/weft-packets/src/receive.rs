//! Receiving packets without an upcall.

use super::handlers::Slot;
use super::packet::Resource;
use super::wire::{name, Kind};
use super::{Packets, State};
use std::collections::VecDeque;
use weft::port::{Awaits, Port};
use weft::{OpError, PeerId, Status};

/// Capacity of a mailbox that is kept while the mailbox is empty.
const WAITING_SPARE: usize = 1024;

/// A packet that [`Packets::receive`] received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub source: PeerId,
    /// The argument that the sender gave.
    pub argument: u32,
    /// Length in bytes.
    pub len: usize,
}

impl From<Status> for Received {
    #[inline]
    fn from(s: Status) -> Received {
        // A packet that arrived always has a sender.
        let source = s.source.unwrap_or(PeerId(u32::MAX));
        Received { source, argument: (s.tag >> 32) as u32, len: s.len }
    }
}

/// A packet in a mailbox.
pub(super) struct Waiting {
    pub source: PeerId,
    pub argument: u32,
    pub owed: Resource,
}

impl Packets {
    /// Makes handler `number` a mailbox: its packets wait for [`receive`](Self::receive) instead of
    /// an upcall. Waiting packets take memory, at most as much as unexpected messages
    /// (`WEFT_UNEXPECTED_MAX`); beyond that their senders wait. Packets of multicasts that wait
    /// here hold the credit of their tree, and the group with it.
    pub fn mailbox(&self, number: u16) {
        self.set(number, Slot::Mailbox(VecDeque::new()));
    }

    /// Receives the next packet for a mailbox, from one peer or from any, into `buffer`. The packet
    /// is taken straight from the link and copied once. The call makes progress, and upcalls run.
    ///
    /// # Errors
    /// The peer failed; the packet is longer than the buffer (`Truncated`, and the packet is lost);
    /// the call came from an upcall, or `number` is no mailbox (`Refused`). A receive from any peer
    /// waits without a bound.
    #[inline]
    pub fn receive(
        &self,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Result<Received, OpError> {
        let none_waits = {
            let state = self.shared.state.borrow();
            let slot = state.handlers.get(number);
            matches!(slot, Some(Slot::Mailbox(waiting)) if waiting.is_empty())
                && !self.shared.in_upcall.get()
        };
        let soon = match none_waits {
            true => self.port.poll_for(from, name(Kind::User, number, 0).0, buffer),
            false => None,
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
        // A packet that waits here is taken without a look at the network.
        self.endpoint().waiting().attend();
        let _watch = from.and_then(|peer| self.endpoint().peer(peer).watch());
        loop {
            // Before the peer's failure is reported, packets that it sent earlier are received.
            if let Some(result) = self.try_receive(from, number, buffer) {
                return result;
            }
            if let Some((peer, failure)) =
                from.and_then(|peer| Some((peer, self.endpoint().peer(peer).failure()?)))
            {
                return Err(OpError::Peer { peer, failure });
            }
            if let Some(error) = self.endpoint().waiting().end_error() {
                return Err(error);
            }
            self.endpoint().waiting().wait_for(Awaits::Packet(from));
        }
    }

    /// Does what [`receive`](Self::receive) does, with packets that have arrived already: the call
    /// neither waits nor makes progress.
    #[inline]
    pub fn try_receive(
        &self,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Result<Received, OpError>> {
        let state = &mut *self.shared.state.borrow_mut();
        match state.handlers.get_mut(number) {
            Some(Slot::Mailbox(_)) if self.shared.in_upcall.get() => Some(Err(OpError::Refused)),
            Some(Slot::Mailbox(waiting)) if waiting.is_empty() => None,
            Some(Slot::Mailbox(_)) => state.take_waiting(&self.port, from, number, buffer),
            _ => Some(Err(OpError::Refused)),
        }
    }
}

impl State {
    #[cold]
    fn take_waiting(
        &mut self,
        port: &Port,
        from: Option<PeerId>,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Result<Received, OpError>> {
        let Slot::Mailbox(waiting) = self.handlers.get_mut(number)? else {
            return None;
        };
        let at = waiting.iter().position(|a| from.is_none_or(|from| from == a.source))?;
        let packet = waiting.remove(at)?;
        if waiting.is_empty() && waiting.capacity() > WAITING_SPARE {
            // A flood of packets made the queue large: free its memory.
            *waiting = VecDeque::new();
        }
        let (source, argument, data) = (packet.source, packet.argument, packet.owed.bytes());
        let len = data.len();
        let result = match buffer.get_mut(..len) {
            Some(into) => {
                into.copy_from_slice(data);
                Ok(Received { source, argument, len })
            }
            None => Err(OpError::Truncated { sent: len as u64 }),
        };
        packet.owed.settle(self, port);
        Some(result)
    }
}

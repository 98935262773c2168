//! Sending through a port.

use super::{Buffer, Port};
use crate::reactor::ops::Owner;
use crate::reactor::sys::Memory;
use crate::reactor::{error_of, Status, INJECTED_MAX};
use std::ops::Range;
use std::rc::Rc;
use weft_core::choices::Transfer;
use weft_core::engine::types::SendArgs;
use weft_core::{OpError, PeerId};

impl Port {
    #[inline]
    pub(crate) fn tag(&self, number: u32, argument: u32) -> u64 {
        debug_assert!(number < super::NUMBERS);
        u64::from(argument) << 32 | u64::from(self.number) << 24 | u64::from(number)
    }

    #[inline]
    fn args(to: PeerId, tag: u64, data: &[u8]) -> SendArgs {
        SendArgs { inject: false, ..SendArgs::active(to, tag, data.len()) }
    }

    /// Returns the longest message to a peer that fits one packet, in bytes.
    pub fn packet_max(&self, peer: PeerId) -> usize {
        self.reactor.engine().peer(peer).single_max()
    }

    /// Sends a message of one packet, if the link is reliable and ordered and no other message is
    /// queued before it. False if nothing was sent.
    #[inline]
    pub fn send_now(&self, to: PeerId, number: u32, argument: u32, data: &[u8]) -> bool {
        let args = Port::args(to, self.tag(number, argument), data);
        self.reactor.borrow_mut().send_now(&args, data)
    }

    /// Sends a copy of a message of at most 64 KiB, at once or as soon as possible. The call never
    /// waits, so the client must bound how many messages it posts.
    ///
    /// # Errors
    /// The peer failed, or the message is too long (`Refused`).
    pub fn post(&self, to: PeerId, number: u32, argument: u32, data: &[u8]) -> Result<(), OpError> {
        let args = Port::args(to, self.tag(number, argument), data);
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.send_now(&args, data) {
            return Ok(());
        }
        reactor.inject(SendArgs { inject: true, ..args }, data).map_err(error_of)
    }

    /// Sends a copy of a message as [`post`](Port::post) does, but only while few messages wait for
    /// the peer.
    ///
    /// # Errors
    /// `Busy` while more than some hundred messages are queued for the peer; otherwise as
    /// [`post`](Port::post).
    pub fn try_send(
        &self,
        to: PeerId,
        number: u32,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        if self.reactor.engine().peer(to).queued() >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        self.post(to, number, argument, data)
    }

    /// Sends a message from a buffer that the caller has filled; see [`try_send`](Port::try_send)
    /// for other memory. The only copy in this process is into the link's frame.
    ///
    /// # Errors
    /// Returns the errors of [`try_send`](Port::try_send); the buffer is lost then.
    pub fn send_buffer(
        &self,
        to: PeerId,
        number: u32,
        argument: u32,
        mut buffer: Buffer,
    ) -> Result<(), OpError> {
        let tag = self.tag(number, argument);
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.send_now(&Port::args(to, tag, &buffer), &buffer) {
            reactor.receiver.ports.recycle(buffer);
            return Ok(());
        }
        if buffer.len() > reactor.receiver.engine.peer(to).single_max() {
            return Err(OpError::Refused);
        }
        if reactor.receiver.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        let (len, now) = (buffer.len(), reactor.receiver.tick());
        let op =
            reactor.receiver.engine.send(now, SendArgs::active(to, tag, len)).map_err(error_of)?;
        reactor.receiver.ops.insert(op, Owner::Nobody, Memory::Owned(buffer.take()));
        reactor.send_started(to, len);
        Ok(())
    }

    /// Lets later packets for a peer wait and leave in bursts, after a wait for room.
    pub fn keep_coalescing(&self, to: PeerId) {
        self.reactor.borrow_mut().keep_coalescing(to);
    }

    /// Sends part of shared memory as a message of one packet, without a copy in this process
    /// unless transfer `copy` is chosen for the peer. True if the memory is free already.
    ///
    /// # Errors
    /// Returns the errors of [`try_send`](Port::try_send), and `Refused` also if `part` lies
    /// outside the memory or is longer than a packet.
    pub fn gather(
        &self,
        to: PeerId,
        number: u32,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<bool, OpError> {
        let data = memory.get(part.clone()).ok_or(OpError::Refused)?;
        let borrow = || Memory::shared(memory, part).ok_or(OpError::Refused);
        self.send_borrowed(to, self.tag(number, argument), data, borrow)
    }

    /// Sends a message; calls `borrow` for its memory if the memory is not free at once. True if it
    /// is.
    #[inline]
    pub(crate) fn send_borrowed(
        &self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        borrow: impl FnOnce() -> Result<Memory, OpError>,
    ) -> Result<bool, OpError> {
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.send_now(&Port::args(to, tag, data), data) {
            return Ok(true);
        }
        if data.len() > reactor.receiver.engine.peer(to).single_max() {
            return Err(OpError::Refused);
        }
        if reactor.receiver.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        if reactor.receiver.engine.peer(to).transfer() == Transfer::Copy || data.is_empty() {
            let args = SendArgs::active(to, tag, data.len());
            return reactor.inject(args, data).map(|()| true).map_err(error_of);
        }
        reactor.send_borrowed(to, tag, data, borrow()?).map(|()| false).map_err(error_of)
    }

    /// The number of messages that still use the memory they were gathered from.
    pub fn borrowed(&self) -> usize {
        self.reactor.borrow().receiver.ops.borrowed()
    }

    /// Sends queued packets, and asks these peers to acknowledge at once. True if no message uses
    /// memory that it was gathered from.
    pub fn request_acks(&self, peers: &[PeerId]) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.receiver.ops.borrowed() == 0 {
            return true;
        }
        let now = reactor.receiver.tick();
        reactor.flush();
        for &peer in peers {
            reactor.receiver.engine.peer_mut(peer).request_ack(now);
        }
        reactor.flush();
        reactor.receiver.ops.borrowed() == 0
    }

    /// Returns memory of [`gather_at`](Port::gather_at) that is free again, in the order in which
    /// it became free.
    pub fn returned(&self) -> Option<*const u8> {
        let ops = &mut self.reactor.borrow_mut().receiver.ops;
        ops.returned.pop_front().map(|address| address as *const u8)
    }

    /// Forgets all memory that [`returned`](Port::returned) would name.
    pub fn forget_returned(&self) {
        self.reactor.borrow_mut().receiver.ops.returned.clear();
    }

    /// Sends packets that earlier calls have queued.
    pub fn flush(&self) {
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.receiver.has_work() {
            reactor.receiver.tick();
            reactor.flush();
        }
    }

    /// Polls the links briefly for a message of this client with this number, from one peer or from
    /// any, copies it into `buffer`, and gives its credit back. `None` if it did not come, or if
    /// another packet came that must be handled first.
    #[inline]
    pub fn poll_for(
        &self,
        source: Option<PeerId>,
        number: u32,
        buffer: &mut [u8],
    ) -> Option<Result<Status, OpError>> {
        let reactor = &mut *self.reactor.borrow_mut();
        if reactor.receiver.ports.has_arrived(self.number) {
            return None;
        }
        reactor.await_active(source, self.tag(number, 0), buffer)
    }
}

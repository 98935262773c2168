//! Sending through a port.

use super::{Buffer, Port};
use crate::endpoint::error_of;
use crate::endpoint::ops::Owner;
use crate::endpoint::sys::raw::INJECTED_MAX;
use crate::endpoint::sys::Memory;
use crate::endpoint::Status;
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
        self.endpoint.inner.borrow().driver.intake.engine.peer(peer).single_max()
    }

    /// Sends a message of one packet, if the link is reliable and ordered and no other message is
    /// queued before it. False if nothing was sent.
    #[inline]
    pub fn send_now(&self, to: PeerId, number: u32, argument: u32, data: &[u8]) -> bool {
        let args = Port::args(to, self.tag(number, argument), data);
        self.endpoint.inner.borrow_mut().send_now(&args, data)
    }

    /// Sends a copy of a message of at most 64 KiB, at once or as soon as possible. The call never
    /// waits, so the client must bound how many messages it posts.
    ///
    /// # Errors
    /// The peer failed, or the message is too long (`Refused`).
    pub fn post(&self, to: PeerId, number: u32, argument: u32, data: &[u8]) -> Result<(), OpError> {
        let args = Port::args(to, self.tag(number, argument), data);
        let inner = &mut *self.endpoint.inner.borrow_mut();
        if inner.send_now(&args, data) {
            return Ok(());
        }
        inner.driver.inject(SendArgs { inject: true, ..args }, data).map_err(error_of)
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
        if self.endpoint.queued(to) >= INJECTED_MAX {
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
        let inner = &mut *self.endpoint.inner.borrow_mut();
        if inner.send_now(&Port::args(to, tag, &buffer), &buffer) {
            inner.driver.intake.ports.recycle(buffer);
            return Ok(());
        }
        let driver = &mut inner.driver;
        if buffer.len() > driver.intake.engine.peer(to).single_max() {
            return Err(OpError::Refused);
        }
        if driver.intake.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        let (len, now) = (buffer.len(), driver.intake.tick());
        let op =
            driver.intake.engine.send(now, SendArgs::active(to, tag, len)).map_err(error_of)?;
        driver.intake.ops.insert(op, Owner::Nobody, Memory::Owned(buffer.take()));
        driver.send_started(to, len);
        Ok(())
    }

    /// Lets later packets for a peer wait and leave in bursts, after a wait for room.
    pub fn keep_coalescing(&self, to: PeerId) {
        self.endpoint.inner.borrow_mut().driver.keep_coalescing(to);
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
        let lend = || Memory::shared(memory, part).ok_or(OpError::Refused);
        self.lend(to, self.tag(number, argument), data, lend)
    }

    /// Sends a message; calls `lend` for its memory if the memory is not free at once. True if it
    /// is.
    #[inline]
    pub(crate) fn lend(
        &self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        lend: impl FnOnce() -> Result<Memory, OpError>,
    ) -> Result<bool, OpError> {
        let inner = &mut *self.endpoint.inner.borrow_mut();
        if inner.send_now(&Port::args(to, tag, data), data) {
            return Ok(true);
        }
        let driver = &mut inner.driver;
        if data.len() > driver.intake.engine.peer(to).single_max() {
            return Err(OpError::Refused);
        }
        if driver.intake.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        if driver.intake.engine.peer(to).transfer() == Transfer::Copy || data.is_empty() {
            let args = SendArgs::active(to, tag, data.len());
            return driver.inject(args, data).map(|()| true).map_err(error_of);
        }
        driver.lend(to, tag, data, lend()?).map(|()| false).map_err(error_of)
    }

    /// The number of messages that still use the memory they were gathered from.
    pub fn lent(&self) -> usize {
        self.endpoint.inner.borrow().driver.intake.ops.lent()
    }

    /// Sends queued packets, and asks these peers to acknowledge at once. True if no message uses
    /// memory that it was gathered from.
    pub fn request_acks(&self, peers: &[PeerId]) -> bool {
        let driver = &mut self.endpoint.inner.borrow_mut().driver;
        if driver.intake.ops.lent() == 0 {
            return true;
        }
        let now = driver.intake.tick();
        driver.flush();
        for &peer in peers {
            driver.intake.engine.peer_mut(peer).request_ack(now);
        }
        driver.flush();
        driver.intake.ops.lent() == 0
    }

    /// Returns memory of [`gather_at`](Port::gather_at) that is free again, in the order in which
    /// it became free.
    pub fn returned(&self) -> Option<*const u8> {
        let ops = &mut self.endpoint.inner.borrow_mut().driver.intake.ops;
        ops.returned.pop_front().map(|address| address as *const u8)
    }

    /// Forgets all memory that [`returned`](Port::returned) would name.
    pub fn forget_returned(&self) {
        self.endpoint.inner.borrow_mut().driver.intake.ops.returned.clear();
    }

    /// Sends packets that earlier calls have queued.
    pub fn flush(&self) {
        let driver = &mut self.endpoint.inner.borrow_mut().driver;
        if driver.intake.has_work() {
            driver.intake.tick();
            driver.flush();
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
        let inner = &mut *self.endpoint.inner.borrow_mut();
        if inner.driver.intake.ports.has_arrived(self.number) {
            return None;
        }
        inner.await_active(source, self.tag(number, 0), buffer)
    }
}

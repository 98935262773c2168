//! Sending packets.

use super::packet::SendBuffer;
use super::wire::{tag, Kind};
use super::Packets;
use crate::endpoint::driver::{Driver, PacketBuf};
use crate::endpoint::error_of;
use crate::endpoint::ops::Owner;
use crate::endpoint::sys::raw::INJECTED_MAX;
use crate::endpoint::sys::Memory;
use weft_core::engine::packet_args;
use weft_core::{OpError, PeerId};

/// Sends a packet: at once where nothing stands in the way, else a copy of it when it can go.
pub(super) fn post(driver: &mut Driver, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
    if driver.packet_now(to, tag, data) {
        return Ok(());
    }
    driver.inject(packet_args(to, tag, data.len(), true), data).map_err(error_of)
}

fn post_memory(driver: &mut Driver, to: PeerId, tag: u64, memory: Memory) -> Result<(), OpError> {
    let len = memory.len();
    let args = packet_args(to, tag, len, true);
    let now = driver.core.tick();
    let op = driver.core.engine.send(now, args).map_err(error_of)?;
    driver.core.ops.insert(op, Owner::Nobody, memory);
    driver.send_started(to, len);
    Ok(())
}

impl Packets {
    /// Sends a packet to `handler` at a peer. The buffer is free when this returns, whatever
    /// transfer is chosen: the bytes lie in the link's frame and, where it may have to be sent
    /// again or there is no frame yet, in library memory. Without that copy:
    /// [`gather`](Self::gather).
    ///
    /// # Errors
    /// The peer failed, or the packet is longer than [`packet_max`](Self::packet_max) (`Refused`).
    #[inline]
    pub fn send(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        let tag = tag(Kind::User, handler, argument);
        if self.endpoint.inner.borrow_mut().packet_now(to, tag, data) {
            return Ok(());
        }
        self.send_slowly(to, tag, data)
    }

    #[cold]
    fn send_slowly(&self, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
        self.check_len(to, data.len())?;
        loop {
            match self.try_post(to, tag, data) {
                Err(OpError::Busy) => {
                    self.endpoint.wait(None);
                    self.endpoint.inner.borrow_mut().driver.keep_row(to);
                }
                other => return other,
            }
        }
    }

    pub(super) fn check_len(&self, to: PeerId, len: usize) -> Result<(), OpError> {
        match len <= self.packet_max(to) {
            true => Ok(()),
            false => Err(OpError::Refused),
        }
    }

    pub(super) fn try_post(&self, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
        let driver = &mut self.endpoint.inner.borrow_mut().driver;
        if driver.core.engine.queued(to) >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        post(driver, to, tag, data)
    }

    /// Sends a copy of a packet without waiting.
    ///
    /// # Errors
    /// `Busy` while many packets wait for credit or for the link; otherwise as
    /// [`send`](Self::send).
    #[inline]
    pub fn try_send(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        let tag = tag(Kind::User, handler, argument);
        if self.endpoint.inner.borrow_mut().packet_now(to, tag, data) {
            return Ok(());
        }
        self.check_len(to, data.len())?;
        self.try_post(to, tag, data)
    }

    /// As [`send`](Self::send) with transfer `copy`, for programs written as futures.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_async(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        loop {
            match self.try_send(to, handler, argument, data) {
                Err(OpError::Busy) => self.endpoint.sleep(super::BUSY).await,
                other => return other,
            }
        }
    }

    /// Memory for a packet of `len` bytes, for [`send_buffer`](Self::send_buffer): what it holds is
    /// not said.
    pub fn alloc(&self, len: usize) -> SendBuffer {
        let core = &mut self.endpoint.inner.borrow_mut().driver.core;
        let mut buf = core.packet_bufs.pop().unwrap_or_default();
        buf.resize(len);
        SendBuffer { buf }
    }

    /// Sends a packet that was written to a send buffer; it is not copied in this process but into
    /// the link's frame.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send); the buffer is lost with the packet then.
    pub fn send_buffer(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        buffer: SendBuffer,
    ) -> Result<(), OpError> {
        let tag = tag(Kind::User, handler, argument);
        let inner = &mut *self.endpoint.inner.borrow_mut();
        let PacketBuf { mut bytes, len } = buffer.buf;
        if inner.packet_now(to, tag, &bytes[..len]) {
            inner.driver.core.recycle(PacketBuf { bytes, len });
            return Ok(());
        }
        let driver = &mut inner.driver;
        if len > driver.core.engine.single_max(to) {
            return Err(OpError::Refused);
        }
        if driver.core.engine.queued(to) >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        bytes.truncate(len);
        post_memory(driver, to, tag, Memory::Owned(bytes))
    }
}

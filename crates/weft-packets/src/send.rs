//! Sending packets.

use super::packet::SendBuffer;
use super::wire::{name, Kind, Name};
use super::Packets;
use weft::port::{Awaits, Port};
use weft::{OpError, PeerId};

/// Sends a packet at once if possible; else queues a copy of it.
pub(super) fn post(
    port: &Port,
    to: PeerId,
    (number, argument): Name,
    data: &[u8],
) -> Result<(), OpError> {
    port.post(to, number, argument, data)
}

impl Packets {
    /// Sends a packet to `handler` at a peer. The buffer is free when the call returns, whatever
    /// transfer is chosen: the bytes were copied to the link's frame and, where the packet may have
    /// to be retransmitted or no frame is free, to library memory. [`gather`](Self::gather) avoids
    /// that copy.
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
        let (number, _) = name(Kind::User, handler, argument);
        let sent = match self.port.send_now(to, number, argument, data) {
            true => Ok(()),
            false => self.send_slowly(to, (number, argument), data),
        };
        self.endpoint().waiting().attend();
        sent
    }

    #[cold]
    fn send_slowly(&self, to: PeerId, name: Name, data: &[u8]) -> Result<(), OpError> {
        self.check_len(to, data.len())?;
        loop {
            match self.try_post(to, name, data) {
                Err(OpError::Busy) => {
                    self.endpoint().waiting().wait_for(Awaits::Room(Some(to)));
                    self.port.keep_coalescing(to);
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

    pub(super) fn try_post(
        &self,
        to: PeerId,
        (number, argument): Name,
        data: &[u8],
    ) -> Result<(), OpError> {
        self.port.try_send(to, number, argument, data)
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
        let (number, _) = name(Kind::User, handler, argument);
        if self.port.send_now(to, number, argument, data) {
            return Ok(());
        }
        self.check_len(to, data.len())?;
        self.try_post(to, (number, argument), data)
    }

    /// Sends a packet as [`send`](Self::send) does with transfer `copy`, for programs written as
    /// futures.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub async fn send_async(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        loop {
            match self.try_send(to, handler, argument, data) {
                Err(OpError::Busy) => self.endpoint().sleep(super::BUSY).await,
                other => return other,
            }
        }
    }

    /// Returns memory for a packet of `len` bytes, with arbitrary content, for
    /// [`send_buffer`](Self::send_buffer).
    pub fn alloc(&self, len: usize) -> SendBuffer {
        self.port.buffer(len)
    }

    /// Sends a packet that was written to a send buffer. The only copy in this process is into the
    /// link's frame.
    ///
    /// # Errors
    /// Returns the errors of [`try_send`](Self::try_send). The buffer is lost with the packet then.
    pub fn send_buffer(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        buffer: SendBuffer,
    ) -> Result<(), OpError> {
        let (number, _) = name(Kind::User, handler, argument);
        self.port.send_buffer(to, number, argument, buffer)
    }
}

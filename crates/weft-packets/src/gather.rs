//! Sending from memory of the program, which the link takes the bytes from: transfer `gather`, the
//! paper's SDMA.
//!
//! The memory is lent: the call returns when the engine has the packet, and until the link, or
//! where packets are numbered the peer, has its bytes the program must not change them. Shared
//! memory sees to that by itself. Packets keep their order among all packets to a peer, sent in
//! whatever way.

use super::wire::{name, Kind};
use super::Packets;
use std::ops::Range;
use std::rc::Rc;
use weft::port::Awaits;
use weft::{OpError, PeerId};

impl Packets {
    /// Sends part of shared memory as a packet, without a copy in this process. It returns when
    /// the packet is on its way or queued; while more than some hundred are queued for the peer it
    /// makes progress. The memory is in use, which its count of owners shows, until the link has
    /// the bytes or, where packets may have to be sent again, until the peer has acknowledged them:
    /// [`flush`](Self::flush) waits for that.
    ///
    /// While earlier packets to the peer are not acknowledged, those that follow leave in trains;
    /// the last ones with the next call that makes progress.
    ///
    /// With transfer `copy`, of the job or chosen for the peer, the bytes are copied, as by
    /// [`send`](Self::send).
    ///
    /// # Errors
    /// The peer failed; the packet is longer than [`packet_max`](Self::packet_max), or `part` lies
    /// outside of the memory (`Refused`).
    pub fn gather(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), OpError> {
        loop {
            match self.try_gather(to, handler, argument, memory, part.clone()) {
                Err(OpError::Busy) => self.endpoint().wait_for(Awaits::Room(Some(to))),
                other => return other,
            }
        }
    }

    /// As [`gather`](Self::gather), without waiting.
    ///
    /// # Errors
    /// `Busy` while many packets are queued for the peer; otherwise as [`gather`](Self::gather).
    pub fn try_gather(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), OpError> {
        let (number, _) = name(Kind::User, handler, argument);
        if !self.port.gather(to, number, argument, memory, part)? {
            self.note_lent(to);
        }
        Ok(())
    }

    /// Packets were gathered for a peer.
    pub(super) fn note_lent(&self, to: PeerId) {
        self.with(|state| {
            if !state.lent_to.contains(&to) {
                state.lent_to.push(to);
            }
        });
    }

    /// As [`gather`](Self::gather), for programs written as futures.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub async fn gather_async(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), OpError> {
        loop {
            match self.try_gather(to, handler, argument, memory, part.clone()) {
                Err(OpError::Busy) => self.endpoint().sleep(super::BUSY).await,
                other => return other,
            }
        }
    }

    /// Packets that still use memory they were gathered from.
    pub fn lent(&self) -> usize {
        self.port.lent()
    }

    /// Waits until all memory that packets were gathered from is free again: the links have their
    /// bytes and, where they may have to be sent again, the peers, which are asked to acknowledge
    /// them at once.
    ///
    /// # Errors
    /// A peer that packets were gathered for since the last flush failed, and may lack some of
    /// them. The memory is free all the same.
    pub fn flush(&self) -> Result<(), OpError> {
        while !self.hurry() {
            self.endpoint().wait_for(Awaits::Room(None));
        }
        self.flushed()
    }

    /// As [`flush`](Self::flush), for programs written as futures.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_async(&self) -> Result<(), OpError> {
        while !self.hurry() {
            self.endpoint().sleep(super::BUSY).await;
        }
        self.flushed()
    }

    /// Sends what is queued and asks for what is missing. True if nothing is.
    fn hurry(&self) -> bool {
        let state = self.shared.state.borrow();
        self.port.hurry(&state.lent_to)
    }

    fn flushed(&self) -> Result<(), OpError> {
        self.port.forget_returned();
        let lent_to = self.with(|state| std::mem::take(&mut state.lent_to));
        let failed = lent_to.into_iter().find_map(|peer| {
            let failure = self.endpoint().peer_failure(peer)?;
            Some(OpError::Peer { peer, failure })
        });
        failed.map_or(Ok(()), Err)
    }
}

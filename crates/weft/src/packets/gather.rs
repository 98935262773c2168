//! Sending from memory of the program, which the link takes the bytes from: transfer `gather`, the
//! paper's SDMA.
//!
//! The memory is lent: the call returns when the engine has the packet, and until the link, or
//! where packets are numbered the peer, has its bytes the program must not change them. Shared
//! memory sees to that by itself. Packets keep their order among all packets to a peer, sent in
//! whatever way.

use super::wire::{tag, Kind};
use super::Packets;
use crate::choices::Transfer;
use crate::endpoint::error_of;
use crate::endpoint::sys::raw::INJECTED_MAX;
use crate::endpoint::sys::Memory;
use std::ops::Range;
use std::rc::Rc;
use weft_core::{OpError, PeerId};

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
                Err(OpError::Busy) => {
                    self.endpoint.wait(None);
                }
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
        let data = memory.get(part.clone()).ok_or(OpError::Refused)?;
        let lend = || Memory::shared(memory, part).ok_or(OpError::Refused);
        self.lend(to, tag(Kind::User, handler, argument), data, lend).map(|_| ())
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
                Err(OpError::Busy) => self.endpoint.sleep(super::BUSY).await,
                other => return other,
            }
        }
    }

    /// Sends a packet whose memory is given by `lend` if it cannot be given back at once; true if
    /// it could.
    #[inline]
    pub(super) fn lend(
        &self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        lend: impl FnOnce() -> Result<Memory, OpError>,
    ) -> Result<bool, OpError> {
        let copies = {
            let inner = &mut *self.endpoint.inner.borrow_mut();
            if inner.packet_now(to, tag, data) {
                return Ok(true);
            }
            inner.driver.core.engine.transfer_of(to) == Transfer::Copy || data.is_empty()
        };
        self.check_len(to, data.len())?;
        if copies {
            return self.try_post(to, tag, data).map(|()| true);
        }
        let memory = lend()?;
        let inner = &mut *self.endpoint.inner.borrow_mut();
        if inner.driver.core.engine.queued(to) >= INJECTED_MAX {
            return Err(OpError::Busy);
        }
        inner.driver.lend(to, tag, data, memory).map_err(error_of)?;
        if let Some(state) = &mut inner.packets {
            if !state.lent_to.contains(&to) {
                state.lent_to.push(to);
            }
        }
        Ok(false)
    }

    /// Packets that still use memory they were gathered from.
    pub fn lent(&self) -> usize {
        self.endpoint.inner.borrow().driver.core.ops.lent()
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
            self.endpoint.wait(None);
        }
        self.flushed()
    }

    /// As [`flush`](Self::flush), for programs written as futures.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_async(&self) -> Result<(), OpError> {
        while !self.hurry() {
            self.endpoint.sleep(super::BUSY).await;
        }
        self.flushed()
    }

    /// Sends what is queued and asks for what is missing. True if nothing is.
    fn hurry(&self) -> bool {
        let inner = &mut *self.endpoint.inner.borrow_mut();
        let (driver, Some(state)) = (&mut inner.driver, &inner.packets) else { return true };
        if driver.core.ops.lent() == 0 {
            return true;
        }
        let now = driver.core.tick();
        driver.flush();
        for &peer in &state.lent_to {
            driver.core.engine.hurry(now, peer);
        }
        driver.flush();
        driver.core.ops.lent() == 0
    }

    fn flushed(&self) -> Result<(), OpError> {
        let inner = &mut *self.endpoint.inner.borrow_mut();
        let Some(state) = &mut inner.packets else { return Ok(()) };
        inner.driver.core.ops.returned.clear();
        let engine = &inner.driver.core.engine;
        let failed = state.lent_to.drain(..).find_map(|peer| {
            let failure = engine.peer_failure(peer)?;
            Some(OpError::Peer { peer, failure })
        });
        failed.map_or(Ok(()), Err)
    }
}

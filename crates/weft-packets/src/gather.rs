//! Sending straight from memory of the program, without a copy: transfer `gather`, the SDMA
//! transfer of the paper.
//!
//! The call returns when the engine has taken the packet. The memory stays lent until the link has
//! the bytes or, on links whose packets are numbered, until the peer has acknowledged them; until
//! then the program must not change them (an `Rc` ensures this). Gathered packets keep their order
//! among all packets to the peer, whatever transfer those use.

use super::wire::{name, Kind};
use super::Packets;
use std::ops::Range;
use std::rc::Rc;
use weft::port::Awaits;
use weft::{OpError, PeerId};

impl Packets {
    /// Sends a part of `memory` as a packet, without a copy in this process. The call returns when
    /// the packet is sent or queued; while more than some hundred packets are queued for the peer,
    /// the call makes progress. The endpoint holds a clone of `memory` (the owner count shows it)
    /// until the link has the bytes or, where packets may have to be retransmitted, until the peer
    /// has acknowledged them. [`flush`](Self::flush) waits for that.
    ///
    /// While earlier packets to the peer are unacknowledged, later packets leave in bursts; the
    /// last of them leave in the next call that makes progress.
    ///
    /// If the job or the peer's choice sets transfer `copy`, the bytes are copied, as
    /// [`send`](Self::send) does.
    ///
    /// # Errors
    /// The peer failed; or (`Refused`) the packet is longer than [`packet_max`](Self::packet_max),
    /// or `part` lies outside `memory`.
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
                Err(OpError::Busy) => self.endpoint().waiting().wait_for(Awaits::Room(Some(to))),
                other => {
                    self.endpoint().waiting().attend();
                    return other;
                }
            }
        }
    }

    /// Does what [`gather`](Self::gather) does, without waiting.
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

    /// Records that packets were gathered for a peer.
    pub(super) fn note_lent(&self, to: PeerId) {
        self.with(|state| {
            if !state.lent_to.contains(&to) {
                state.lent_to.push(to);
            }
        });
    }

    /// Does what [`gather`](Self::gather) does, for programs written as futures.
    ///
    /// # Errors
    /// Returns the errors of [`gather`](Self::gather).
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

    /// The number of packets that still use the memory they were gathered from.
    pub fn lent(&self) -> usize {
        self.port.borrowed()
    }

    /// Waits until all memory that packets were gathered from is free again: the links have the
    /// bytes and, where packets may have to be retransmitted, the peers have acknowledged them. The
    /// peers are asked to acknowledge at once.
    ///
    /// # Errors
    /// A peer failed for which packets were gathered since the last flush; it may lack some of
    /// them. The memory is free all the same.
    pub fn flush(&self) -> Result<(), OpError> {
        while !self.request_acks() {
            self.endpoint().waiting().wait_for(Awaits::Room(None));
        }
        self.flushed()
    }

    /// Does what [`flush`](Self::flush) does, for programs written as futures.
    ///
    /// # Errors
    /// Returns the errors of [`flush`](Self::flush).
    pub async fn flush_async(&self) -> Result<(), OpError> {
        while !self.request_acks() {
            self.endpoint().sleep(super::BUSY).await;
        }
        self.flushed()
    }

    /// Sends queued packets and asks for missing acknowledgements. True if none is missing.
    fn request_acks(&self) -> bool {
        let state = self.shared.state.borrow();
        self.port.request_acks(&state.lent_to)
    }

    fn flushed(&self) -> Result<(), OpError> {
        self.port.forget_returned();
        let lent_to = self.with(|state| std::mem::take(&mut state.lent_to));
        let failed = lent_to.into_iter().find_map(|peer| {
            let failure = self.endpoint().peer(peer).failure()?;
            Some(OpError::Peer { peer, failure })
        });
        failed.map_or(Ok(()), Err)
    }
}

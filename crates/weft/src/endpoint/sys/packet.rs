//! The receive of one packet whose caller does nothing but wait for it: it goes straight to the
//! caller's memory, without a queue.

use super::Memory;
use crate::endpoint::driver::{Arrived, Core, CLOSE_ROUNDS};
use crate::endpoint::{Endpoint, Inner};
use weft_core::{OpError, PeerId};
use weft_link::Bytes;

/// Rounds of progress in which a receive looks for its packet before it waits the ordinary way.
const AWAIT_ROUNDS: u32 = 16;

/// What is waited for.
pub(crate) struct AwaitedPacket {
    source: Option<PeerId>,
    /// Handler and kind, with the engine's bit.
    name: u32,
    memory: Memory,
    /// Sender, tag and length of the packet that came.
    done: Option<(PeerId, u64, usize)>,
}

impl AwaitedPacket {
    /// Whether a packet is the one.
    #[inline]
    pub fn accepts(&self, peer: PeerId, tag: u64) -> bool {
        tag as u32 == self.name
            && self.source.is_none_or(|source| source == peer)
            && self.done.is_none()
    }

    /// The packet is here.
    #[inline]
    pub fn place(&mut self, peer: PeerId, tag: u64, payload: Bytes<'_>) {
        let fits = payload.len() <= self.memory.len();
        if let Some(into) = self.memory.write(0, payload.len()).filter(|_| fits) {
            payload.copy_to(into);
        }
        self.done = Some((peer, tag, payload.len()));
    }
}

impl Core {
    /// A packet of the packet interface: to who awaits it, else to be dealt with.
    #[inline]
    pub(in crate::endpoint) fn packet(&mut self, peer: PeerId, tag: u64, payload: Bytes<'_>) {
        // What it acknowledges is sent when the program has seen it.
        self.ended = true;
        if let Some(awaited) = self.awaited_packet.as_mut().filter(|a| a.accepts(peer, tag)) {
            if self.packets.is_empty() {
                awaited.place(peer, tag, payload);
                self.engine.packet_released(peer, payload.len() as u64);
                return;
            }
        }
        let mut data = self.packet_bufs.pop().unwrap_or_default();
        payload.copy_to(data.resize(payload.len()));
        self.packets.push_back(Arrived { peer, tag, data });
    }
}

/// A packet is awaited, until this is dropped: also when a waker panics.
struct Awaiting<'a>(&'a mut Inner);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.driver.core.awaited_packet = None;
    }
}

impl Endpoint {
    /// Looks for a packet for a moment: sender, argument and length. `None`: it did not come, or
    /// something else came that has to be dealt with first.
    #[inline]
    pub(crate) fn await_packet(
        &self,
        source: Option<PeerId>,
        tag: u64,
        buffer: &mut [u8],
    ) -> Option<Result<(PeerId, u32, usize), OpError>> {
        let room = buffer.len();
        let inner = &mut *self.inner.borrow_mut();
        let name = (tag | weft_core::engine::types::PACKET) as u32;
        // SAFETY: nothing but rounds of progress here touches it, and `awaiting` forgets it however
        // this ends.
        let memory = unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) };
        inner.driver.core.awaited_packet = Some(AwaitedPacket { source, name, memory, done: None });
        let awaiting = Awaiting(inner);
        let inner = &mut *awaiting.0;
        // With more ranks than cores another one may have the packet.
        let (rounds, looks) =
            if inner.hand_over.is_zero() { (AWAIT_ROUNDS, CLOSE_ROUNDS) } else { (1, 1) };
        for round in 0..rounds {
            if round > 0 || inner.driver.is_round_due() {
                let did = inner.driver.progress(1);
                inner.count(did);
            }
            let ends = |inner: &Inner| {
                let core = &inner.driver.core;
                let came = core.awaited_packet.as_ref().is_none_or(|a| a.done.is_some());
                came || !core.packets.is_empty() || !core.upcalls.is_empty()
            };
            if ends(inner) || inner.driver.look_closely(looks, 1) && ends(inner) {
                break;
            }
        }
        let (peer, tag, len) = inner.driver.core.awaited_packet.as_ref()?.done?;
        Some(match len <= room {
            true => Ok((peer, (tag >> 32) as u32, len)),
            false => Err(OpError::Truncated { sent: len as u64 }),
        })
    }
}

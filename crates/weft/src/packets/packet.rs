//! Packets as programs see them.

use super::{Packets, SendBuffer as Buffer, State};
use crate::endpoint::driver::{Driver, PacketBuf};
use crate::endpoint::Inner;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use weft_core::PeerId;

/// What is given back when the program is done with a packet.
pub(super) enum Owed {
    /// The buffer, and the sender's credit.
    Credit(PacketBuf),
    /// A reference to a multicast packet.
    Flight(u32, Rc<PacketBuf>),
    /// Nothing any more.
    Nothing,
}

impl Owed {
    pub(super) fn settle(self, peer: PeerId, state: &mut State, driver: &mut Driver) {
        match self {
            Owed::Credit(buf) => {
                driver.core.engine.packet_released(peer, buf.len as u64);
                driver.core.recycle(buf);
            }
            Owed::Flight(id, buf) => {
                drop(buf);
                state.land(driver, id);
            }
            Owed::Nothing => {}
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Owed::Credit(buf) => buf.get(),
            Owed::Flight(_, buf) => &buf.get()[super::wire::Multicast::LEN..],
            Owed::Nothing => &[],
        }
    }
}

/// A packet in its upcall. When that returns the packet is released, unless it was kept.
pub struct Packet<'a> {
    pub(super) packets: &'a Packets,
    pub(super) source: PeerId,
    pub(super) argument: u32,
    pub(super) owed: Owed,
}

/// Too many packets are kept: copy this one, or release others first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TooManyKept;

impl fmt::Display for TooManyKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "too many packets are kept (WEFT_PACKETS_KEPT, and half of WEFT_EAGER_CREDIT): copy \
             this one, or release others first",
        )
    }
}

crate::readable!(TooManyKept);

impl std::error::Error for TooManyKept {}

impl<'a> Packet<'a> {
    /// Who sent it: of a multicast, the root.
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// The sender's argument.
    pub fn argument(&self) -> u32 {
        self.argument
    }

    /// The sender's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.owed.bytes()
    }

    /// Keeps the packet after the upcall. Its memory and its sender's credit come back when what
    /// this returns is dropped.
    ///
    /// # Errors
    /// Too many packets are kept. This one comes back, to be copied.
    pub fn keep(mut self) -> Result<KeptPacket, (TooManyKept, Packet<'a>)> {
        let len = self.data().len();
        let kept = self.packets.with(|state| {
            let fits =
                state.kept < state.kept_max && state.kept_bytes + len <= state.kept_bytes_max;
            if fits {
                state.kept += 1;
                state.kept_bytes += len;
                state.stats.kept += 1;
            } else {
                state.stats.keeps_refused += 1;
            }
            fits
        });
        if !kept {
            return Err((TooManyKept, self));
        }
        let owed = std::mem::replace(&mut self.owed, Owed::Nothing);
        let (source, argument) = (self.source, self.argument);
        Ok(KeptPacket { packets: self.packets.clone(), source, argument, owed })
    }
}

impl Drop for Packet<'_> {
    fn drop(&mut self) {
        let owed = std::mem::replace(&mut self.owed, Owed::Nothing);
        if let Owed::Nothing = owed {
            return;
        }
        let Inner { driver, packets, .. } = &mut *self.packets.endpoint.inner.borrow_mut();
        if let Some(state) = packets {
            owed.settle(self.source, state, driver);
        }
    }
}

/// A packet that the program keeps. Dropping it releases it.
pub struct KeptPacket {
    packets: Packets,
    source: PeerId,
    argument: u32,
    owed: Owed,
}

impl KeptPacket {
    /// Who sent it.
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// The sender's argument.
    pub fn argument(&self) -> u32 {
        self.argument
    }

    /// The sender's bytes.
    pub fn data(&self) -> &[u8] {
        self.owed.bytes()
    }
}

impl Drop for KeptPacket {
    fn drop(&mut self) {
        let len = self.data().len();
        let owed = std::mem::replace(&mut self.owed, Owed::Nothing);
        let Inner { driver, packets, .. } = &mut *self.packets.endpoint.inner.borrow_mut();
        let Some(state) = packets else { return };
        state.kept -= 1;
        state.kept_bytes -= len;
        owed.settle(self.source, state, driver);
        if driver.core.has_work() {
            driver.core.tick();
            driver.flush();
        }
    }
}

/// Memory for a packet, to be filled and sent.
pub struct SendBuffer {
    pub(super) buf: PacketBuf,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.get()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.buf.len;
        &mut self.buf.bytes[..len]
    }
}

//! Packets as programs see them.

use super::{Packets, State};
use std::fmt;
use std::rc::Rc;
use weft::port::{Arrived, Buffer, Port};
use weft::PeerId;

/// The packets that the program keeps.
pub(super) struct Kept {
    packets: usize,
    packets_max: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Kept {
    pub(super) fn new(packets_max: usize, bytes_max: usize) -> Kept {
        Kept { packets: 0, packets_max, bytes: 0, bytes_max }
    }

    /// Counts a packet. False if that would be too many.
    fn add(&mut self, len: usize) -> bool {
        let fits = self.packets < self.packets_max && self.bytes + len <= self.bytes_max;
        if fits {
            self.packets += 1;
            self.bytes += len;
        }
        fits
    }

    fn remove(&mut self, len: usize) {
        self.packets -= 1;
        self.bytes -= len;
    }
}

/// Memory for a packet, which the program fills and sends.
pub type SendBuffer = Buffer;

/// A resource that goes back when the program is done with a packet.
pub(super) enum Resource {
    /// The message: its memory and the sender's credit.
    Credit(Arrived),
    /// A reference to a multicast packet.
    Flight(u32, Rc<Buffer>),
    /// Nothing: it went back already.
    Nothing,
}

impl Resource {
    #[inline]
    pub(super) fn settle(self, state: &mut State, port: &Port) {
        match self {
            Resource::Credit(message) => port.release(message),
            Resource::Flight(id, buf) => {
                drop(buf);
                state.land(port, id);
            }
            Resource::Nothing => {}
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Resource::Credit(message) => &message.data,
            Resource::Flight(_, buf) => &buf[super::wire::Multicast::LEN..],
            Resource::Nothing => &[],
        }
    }
}

/// A packet in its upcall. Dropping the packet releases it; [`keep`](Self::keep) prevents that.
pub struct Packet<'a> {
    pub(super) packets: &'a Packets,
    pub(super) source: PeerId,
    pub(super) argument: u32,
    pub(super) owed: Resource,
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

weft_core::readable!(TooManyKept);

impl std::error::Error for TooManyKept {}

impl<'a> Packet<'a> {
    /// The sender; of a multicast packet, the root of its tree.
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// The argument that the sender gave.
    pub fn argument(&self) -> u32 {
        self.argument
    }

    /// The payload.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.owed.bytes()
    }

    /// Keeps the packet after the upcall. Dropping the returned [`KeptPacket`] gives back its
    /// memory and the sender's credit.
    ///
    /// # Errors
    /// Too many packets are kept. The call returns this packet, so that the program can copy it.
    pub fn keep(mut self) -> Result<KeptPacket, (TooManyKept, Packet<'a>)> {
        let len = self.data().len();
        let kept = self.packets.with(|state| {
            let fits = state.kept.add(len);
            state.stats.kept += u64::from(fits);
            state.stats.keeps_refused += u64::from(!fits);
            fits
        });
        if !kept {
            return Err((TooManyKept, self));
        }
        let owed = std::mem::replace(&mut self.owed, Resource::Nothing);
        let (source, argument) = (self.source, self.argument);
        Ok(KeptPacket { packets: self.packets.clone(), source, argument, owed })
    }
}

impl Drop for Packet<'_> {
    fn drop(&mut self) {
        let owed = std::mem::replace(&mut self.owed, Resource::Nothing);
        match owed {
            Resource::Nothing => {}
            Resource::Credit(message) => self.packets.port.release(message),
            owed => self.packets.with(|state| owed.settle(state, &self.packets.port)),
        }
    }
}

/// A packet that the program keeps. Dropping it releases it.
pub struct KeptPacket {
    packets: Packets,
    source: PeerId,
    argument: u32,
    owed: Resource,
}

impl KeptPacket {
    /// The sender.
    pub fn source(&self) -> PeerId {
        self.source
    }

    /// The argument that the sender gave.
    pub fn argument(&self) -> u32 {
        self.argument
    }

    /// The payload.
    pub fn data(&self) -> &[u8] {
        self.owed.bytes()
    }
}

impl Drop for KeptPacket {
    fn drop(&mut self) {
        let len = self.data().len();
        let owed = std::mem::replace(&mut self.owed, Resource::Nothing);
        let port = &self.packets.port;
        self.packets.with(|state| {
            state.kept.remove(len);
            owed.settle(state, port);
        });
        port.flush();
    }
}

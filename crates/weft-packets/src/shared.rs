//! The packet interface of an endpoint that many threads use.

use super::{sys, Counter, OpenError, Packet};
use weft::{OpError, PeerId, SharedEndpoint};

/// The packet interface of a [`SharedEndpoint`]. Clones share one state.
#[derive(Clone)]
pub struct SharedPackets {
    endpoint: SharedEndpoint,
}

/// A packet in its upcall, which runs in any thread. The upcall cannot keep it.
pub struct SharedPacket<'a>(Packet<'a>);

impl SharedPacket<'_> {
    /// The sender.
    pub fn source(&self) -> PeerId {
        self.0.source()
    }

    /// The argument that the sender gave.
    pub fn argument(&self) -> u32 {
        self.0.argument()
    }

    /// The payload.
    pub fn data(&self) -> &[u8] {
        self.0.data()
    }

    /// Sends a packet, as [`Packets::try_send`](super::Packets::try_send).
    ///
    /// # Errors
    /// Returns the errors of [`Packets::try_send`](super::Packets::try_send).
    pub fn try_send(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        self.0.packets.try_send(to, handler, argument, data)
    }
}

impl SharedPackets {
    /// Returns the packet interface of an endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Packets::new`](super::Packets::new).
    pub fn new(endpoint: &SharedEndpoint) -> Result<SharedPackets, OpenError> {
        sys::locked(endpoint, |_| ())?;
        Ok(SharedPackets { endpoint: endpoint.clone() })
    }

    /// Returns the endpoint of this interface.
    pub fn endpoint(&self) -> &SharedEndpoint {
        &self.endpoint
    }

    /// Sets the upcall of a handler by [`Packets::handle`](super::Packets::handle). The upcall runs
    /// in the thread that makes progress, which may be the watchdog's.
    pub fn handle(&self, number: u16, mut upcall: impl FnMut(SharedPacket<'_>) + Send + 'static) {
        _ = sys::locked(&self.endpoint, |packets| {
            packets.handle(number, move |_, packet| upcall(SharedPacket(packet)));
        });
    }

    /// Sends a packet by [`Packets::try_send`](super::Packets::try_send).
    ///
    /// # Errors
    /// Returns the errors of [`Packets::try_send`](super::Packets::try_send).
    pub fn try_send(
        &self,
        to: PeerId,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), OpError> {
        let sent = sys::locked(&self.endpoint, |p| p.try_send(to, handler, argument, data));
        sent.unwrap_or(Err(OpError::Refused))
    }

    /// Returns the length of the longest packet to a peer; see
    /// [`Packets::packet_max`](super::Packets::packet_max).
    pub fn packet_max(&self, to: PeerId) -> usize {
        sys::locked(&self.endpoint, |packets| packets.packet_max(to)).unwrap_or(0)
    }

    /// Makes a counter by [`Packets::counter`](super::Packets::counter). With the watchdog, peers
    /// that add to it are answered also while this process computes.
    pub fn counter(&self, value: u64) -> Option<Counter> {
        sys::locked(&self.endpoint, |packets| packets.counter(value)).ok()?
    }

    /// Adds to a counter and returns its value before, as
    /// [`Packets::fetch_add`](super::Packets::fetch_add) does, when the answer is there. The peer's
    /// agent adds to a counter in a kernel.
    ///
    /// # Errors
    /// The peer failed, or has no such counter.
    pub fn fetch_add(&self, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        self.endpoint.atomic(at, (counter.key, 0), weft::AtomicCode::FetchAdd, n, 0)
    }

    /// Returns the value of a counter made here.
    pub fn counter_value(&self, counter: Counter) -> Option<u64> {
        sys::locked(&self.endpoint, |packets| packets.counter_value(counter)).ok()?
    }
}

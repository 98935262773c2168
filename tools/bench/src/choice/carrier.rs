//! The interface that packets are measured through: the packet interface of one thread, or the
//! locked one with a watchdog.

use super::super::rank::Rank;
use anyhow::{bail, Result};
use std::time::Duration;
use weft::choices::Receipt;
use weft::{OpError, PeerId};
use weft_packets::{Counter, Packets, SharedPackets};

/// The packet interface of a rank.
pub enum Carrier {
    /// The interface of one thread.
    Own(Packets),
    /// The locked interface. The flag is true if others that have to work share the core: then a
    /// wait yields the core.
    Watched(SharedPackets, bool),
}

impl Carrier {
    /// Opens the interface that the settings of this rank name.
    pub fn open(rank: &mut Rank) -> Result<(Carrier, PeerId)> {
        if weft::job::config_from_env()?.receipt == Receipt::Watchdog {
            let (endpoint, peer) = rank.watched()?;
            let gives_way = rank.alone || rank.links().agent;
            return Ok((Carrier::Watched(SharedPackets::new(&endpoint)?, gives_way), peer));
        }
        let (endpoint, peer) = rank.weft()?;
        Ok((Carrier::Own(Packets::new(&endpoint)?), peer))
    }

    /// Returns the interface of one thread; it has operations that the locked one lacks.
    pub fn own(&self) -> Result<&Packets> {
        match self {
            Carrier::Own(packets) => Ok(packets),
            Carrier::Watched(..) => bail!("the locked interface does not have this"),
        }
    }

    /// Sets an upcall, which gets argument and bytes.
    pub fn handle(&self, number: u16, mut upcall: impl FnMut(u32, &[u8]) + Send + 'static) {
        match self {
            Carrier::Own(own) => own.handle(number, move |_, p| upcall(p.argument(), p.data())),
            Carrier::Watched(shared, _) => {
                shared.handle(number, move |p| upcall(p.argument(), p.data()));
            }
        }
    }

    /// Sends a packet; waits until there is room for it.
    #[inline]
    pub fn send(&self, to: PeerId, number: u16, argument: u32, data: &[u8]) -> Result<(), OpError> {
        match self {
            Carrier::Own(packets) => packets.send(to, number, argument, data),
            Carrier::Watched(shared, _) => loop {
                match shared.try_send(to, number, argument, data) {
                    Err(OpError::Busy) => self.wait(None),
                    other => return other,
                }
            },
        }
    }

    /// Waits for an event; the locked interface polls once.
    #[inline]
    pub fn wait(&self, timeout: Option<Duration>) {
        match self {
            Carrier::Own(packets) => _ = packets.wait(timeout),
            Carrier::Watched(shared, gives_way) => {
                if !shared.endpoint().poll() && *gives_way {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Polls for packets that have arrived.
    pub fn poll(&self) {
        match self {
            Carrier::Own(packets) => _ = packets.poll(),
            Carrier::Watched(shared, _) => _ = shared.endpoint().poll(),
        }
    }

    /// Makes a counter.
    pub fn counter(&self, value: u64) -> Option<Counter> {
        match self {
            Carrier::Own(packets) => packets.counter(value),
            Carrier::Watched(shared, _) => shared.counter(value),
        }
    }

    /// Reads a counter made here. `None`: there is no such counter.
    pub fn counter_value(&self, counter: Counter) -> Option<u64> {
        match self {
            Carrier::Own(packets) => packets.counter_value(counter),
            Carrier::Watched(shared, _) => shared.counter_value(counter),
        }
    }

    /// Adds one to a counter of a peer.
    pub fn fetch_add(&self, at: PeerId, counter: Counter) -> Result<u64, OpError> {
        match self {
            Carrier::Own(packets) => packets.fetch_add_blocking(at, counter, 1),
            Carrier::Watched(shared, _) => shared.fetch_add(at, counter, 1),
        }
    }

    /// Returns the length of the longest packet in bytes.
    pub fn packet_max(&self, to: PeerId) -> Result<usize> {
        Ok(match self {
            Carrier::Own(packets) => packets.packet_max(to),
            Carrier::Watched(shared, _) => shared.packet_max(to),
        })
    }
}

//! Capabilities of links, as plain data.

/// Capabilities of a link (or of the path to one peer over it).
///
/// More than 15 fields: each is one capability, and a link states them as plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkCaps {
    /// Short name: `shm`, `udp`, `sim`, ...
    pub name: &'static str,
    /// Largest weft packet (header and payload) the link carries; lower headers and the security
    /// trailer are not counted.
    pub mtu: u32,
    /// Every accepted packet arrives unless the peer dies.
    pub reliable: bool,
    /// Packets arrive in the order sent.
    pub ordered: bool,
    /// Packets cross a network: they are authenticated by default.
    pub network: bool,
    /// Polling for received packets costs no system call.
    pub polled: bool,
    /// The link notices the end of the peer's process, and usually whether it runs ([`Pulse`]):
    /// then silence does not fail the peer.
    pub sees_end: bool,
    /// The link can copy between this process's memory and the peer's in one step.
    pub direct: bool,
    /// Estimated cost of a small packet, one way, in nanoseconds: an input of the cost model.
    pub latency_ns: u32,
    /// Estimated throughput of the packet path in bytes per microsecond (MB/s): an input of the
    /// cost model.
    pub bytes_per_us: u32,
    /// Estimated throughput of messages sent at once, in bytes per microsecond, if they take
    /// another link than requested data.
    pub small_bytes_per_us: u32,
    /// Packets of equal size that the link sends best together (segmentation offload); 1 if it has
    /// no preference. Blocks of large messages are whole trains.
    pub train: u32,
    /// Largest packet of bulk data, where the bulk link carries longer ones than `mtu`; else 0.
    pub bulk_mtu: u32,
    /// Packets longer than `mtu`, made before the path shrank, arrive too: in pieces, at a cost.
    pub cuts: bool,
    /// A question over the link makes a connection: the path is asked only where it would be used,
    /// or where no other answers.
    pub connects: bool,
    /// Longest eager message by measurement, bytes; 0 leaves it to the cost model.
    pub eager_max: u32,
    /// Shortest message that takes the bulk link when sent at once; `u32::MAX` if there is one link
    /// only.
    pub bulk_min: u32,
    /// Networks of equal rate over which trains of pulled data are spread; 1 if there is one.
    pub stripes: u8,
    /// A receiver has room for all packets that the least credit allows. If false, a sender
    /// overruns the receiver at times even on the best network, and some packets are sent again.
    pub fits_credit: bool,
}

impl LinkCaps {
    /// Returns the capabilities of the weakest link: unreliable, unordered network of the given
    /// packet size.
    pub const fn network(name: &'static str, mtu: u32) -> LinkCaps {
        LinkCaps {
            name,
            mtu,
            reliable: false,
            ordered: false,
            network: true,
            polled: false,
            sees_end: false,
            direct: false,
            latency_ns: 5_000,
            bytes_per_us: 3_000,
            small_bytes_per_us: 3_000,
            train: 1,
            bulk_mtu: 0,
            cuts: false,
            connects: false,
            eager_max: 0,
            bulk_min: u32::MAX,
            stripes: 1,
            fits_credit: true,
        }
    }

    /// Returns the capabilities of shared memory: reliable, ordered, inside one host.
    pub const fn memory(name: &'static str, mtu: u32) -> LinkCaps {
        LinkCaps {
            reliable: true,
            ordered: true,
            network: false,
            polled: true,
            sees_end: true,
            latency_ns: 200,
            bytes_per_us: 10_000,
            small_bytes_per_us: 10_000,
            ..LinkCaps::network(name, mtu)
        }
    }
}

/// The state of a peer's process, as a link observes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pulse {
    /// The process runs, as far as the link can see.
    #[default]
    Runs,
    /// A signal has stopped it.
    Stopped,
    /// The process has ended, though its connection exists.
    Ended,
    /// Unknown: silence counts, as over a network.
    Unseen,
}

impl Pulse {
    /// Returns the code for an agent's acknowledgements.
    pub const fn code(self) -> u32 {
        match self {
            Pulse::Runs => 0,
            Pulse::Stopped => 1,
            Pulse::Unseen => 2,
            Pulse::Ended => 3,
        }
    }

    /// Returns the state of a code; an unknown code counts as unknown state.
    pub const fn of_code(code: u32) -> Pulse {
        match code {
            0 => Pulse::Runs,
            1 => Pulse::Stopped,
            3 => Pulse::Ended,
            _ => Pulse::Unseen,
        }
    }
}

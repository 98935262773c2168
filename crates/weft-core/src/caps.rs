//! What a link can do, as plain data.

/// Capabilities of a link (or of the path to one peer over it).
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
    /// Looking for something received costs no system call.
    pub polled: bool,
    /// The link sees the end of the peer's process, and as a rule whether it runs ([`Pulse`]):
    /// then silence does not fail the peer.
    pub sees_end: bool,
    /// The link can copy between this process's memory and the peer's in one step.
    pub direct: bool,
    /// Estimated cost of a small packet, one way, in nanoseconds: an input of the cost model.
    pub latency_ns: u32,
    /// Estimated throughput of the packet path in bytes per microsecond (MB/s): an input of the
    /// cost model.
    pub bytes_per_us: u32,
    /// The same where messages sent at once take another link than data that was asked for.
    pub small_bytes_per_us: u32,
    /// Packets of equal size that the link sends best together (segmentation offload); 1 if it has
    /// no preference. Blocks of large messages are whole trains.
    pub train: u32,
    /// Largest packet of bulk data, where its way carries longer ones than `mtu`; else 0.
    pub bulk_mtu: u32,
    /// Packets longer than `mtu` arrive too, in pieces, at a cost: those made before the path
    /// shrank.
    pub cuts: bool,
    /// Longest eager message as measured, bytes; 0 leaves it to the cost model.
    pub eager_max: u32,
    /// Messages sent at once that are at least this long go the way of bulk data; `u32::MAX` where
    /// there is one way only.
    pub bulk_min: u32,
    /// Ways of equal rate that pulled data may be spread over, by trains; 1 if there is one.
    pub stripes: u8,
    /// A receiver has room for all packets that the least credit allows for. Where it has not, its
    /// sender overruns it now and then on the best of networks, and somebody has to send again.
    pub fits_credit: bool,
}

impl LinkCaps {
    /// Capabilities of the weakest link: unreliable, unordered network of the given packet size.
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
            eager_max: 0,
            bulk_min: u32::MAX,
            stripes: 1,
            fits_credit: true,
        }
    }

    /// Capabilities of shared memory: reliable, ordered, inside one host.
    pub const fn memory(name: &'static str, mtu: u32) -> LinkCaps {
        LinkCaps {
            name,
            mtu,
            reliable: true,
            ordered: true,
            network: false,
            polled: true,
            sees_end: true,
            direct: false,
            latency_ns: 200,
            bytes_per_us: 10_000,
            small_bytes_per_us: 10_000,
            train: 1,
            bulk_mtu: 0,
            cuts: false,
            eager_max: 0,
            bulk_min: u32::MAX,
            stripes: 1,
            fits_credit: true,
        }
    }
}

/// What a link sees of a peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// It runs, as far as can be seen.
    Runs,
    /// A signal has stopped it.
    Stopped,
    /// It has ended, though its connection stands.
    Ended,
    /// Nothing: silence counts, as over a network.
    Unseen,
}

impl Pulse {
    /// As an agent puts it into its acknowledgements.
    pub const fn code(self) -> u32 {
        match self {
            Pulse::Runs => 0,
            Pulse::Stopped => 1,
            Pulse::Unseen => 2,
            Pulse::Ended => 3,
        }
    }

    /// What a code says; one that is not known says as much as silence.
    pub const fn of_code(code: u32) -> Pulse {
        match code {
            0 => Pulse::Runs,
            1 => Pulse::Stopped,
            3 => Pulse::Ended,
            _ => Pulse::Unseen,
        }
    }
}

//! The configuration of a simulation: hosts, wires, switches and faults, all as plain data.

use crate::fault::{Fault, Span};
use std::fmt;

/// The type of link between the simulated hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Unreliable, unordered network: NIC, wires, switches. Every fault applies.
    Network,
    /// Reliable and ordered, as shared memory: only pause, death and restart apply.
    Memory,
}

/// The network's topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every host on one store-and-forward switch.
    Star,
    /// Leaf switches under one spine.
    Tree {
        /// Hosts on each leaf switch, at least 1.
        radix: u32,
        /// Bandwidth of a leaf's link to the spine, as a multiple of a host's link.
        uplink: u32,
    },
}

/// A cable and the switch port that feeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Delay of one cable and the device behind it, in nanoseconds.
    pub latency_ns: u64,
    /// Bandwidth in bytes per microsecond (MB/s), at least 1.
    pub bytes_per_us: u64,
    /// Additional delay per frame, uniform in 0..=jitter_ns; it never reorders.
    pub jitter_ns: u64,
    /// Bytes on the wire besides the weft packet: security trailer, UDP, IP, Ethernet, gap.
    pub overhead_bytes: u32,
    /// Output queue of each switch port in bytes; a frame that does not fit is dropped.
    pub queue_bytes: u64,
    /// True if frames travel in a stream between each two hosts, as over TCP: in order, none twice,
    /// and none lost alone. A loss or a partition breaks the stream, and with it is lost what is in
    /// flight between the two hosts, in both directions; the next frame begins another.
    pub stream: bool,
}

impl Wire {
    /// Returns Ethernet of `gbit` Gbit/s with 2 us per hop, and 512 KiB per switch port.
    pub const fn ethernet(gbit: u64) -> Wire {
        Wire {
            latency_ns: 2_000,
            bytes_per_us: gbit * 125,
            jitter_ns: 0,
            overhead_bytes: 16 + 28 + 38,
            queue_bytes: 512 << 10,
            stream: false,
        }
    }
}

/// Processor and NIC of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// Processor time per frame sent, nanoseconds: LogP's o_s.
    pub send_ns: u64,
    /// Processor time per frame received, nanoseconds: LogP's o_r.
    pub recv_ns: u64,
    /// Processor time of a call to `progress` that did something, nanoseconds.
    pub progress_ns: u64,
    /// Bytes the NIC queues for sending; more is refused (backpressure).
    pub tx_bytes: u64,
    /// Received frames the NIC holds until the host takes them; more is dropped
    /// (on a [`LinkKind::Memory`] link: refused at the sender).
    pub rx_frames: u32,
}

impl Default for HostModel {
    fn default() -> HostModel {
        HostModel {
            send_ns: 300,
            recv_ns: 300,
            progress_ns: 50,
            tx_bytes: 256 << 10,
            rx_frames: 2048,
        }
    }
}

/// A whole simulation. More than 15 fields: each is one setting of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Number of hosts; one endpoint each.
    pub hosts: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Largest weft packet, in bytes.
    pub mtu: u32,
    /// Largest packet of bulk data; 0: the same as of other packets. Where each network has a link
    /// of its own, the second network carries long packets, and the others short ones.
    pub long: u32,
    /// Packets that the link sends best together; above 1 it also delivers several DATA packets as
    /// one run.
    pub train: u32,
    /// Type of link.
    pub kind: LinkKind,
    /// True if each endpoint is served by an agent; on [`LinkKind::Network`] only.
    pub served: bool,
    /// True if the programs of the swarm also multicast, count and compute.
    pub services: bool,
    /// The network's topology.
    pub topology: Topology,
    /// The links.
    pub wire: Wire,
    /// Wires of further networks that connect all hosts too, at most [`SimConfig::MORE`]; on
    /// [`LinkKind::Network`] only, and not where agents serve.
    pub more: Vec<Wire>,
    /// True if one link spreads data over all networks; else each network has a link of its own.
    pub striped: bool,
    /// The hosts.
    pub host: HostModel,
    /// Faults of hosts and networks.
    pub faults: Vec<Fault>,
    /// Virtual time after which the simulation fails, nanoseconds.
    pub limit_ns: u64,
    /// Packet events kept for the trace; 0 keeps none.
    pub trace: usize,
    /// Settings of every endpoint, key and value as in `WEFT_*`. They override the settings of a
    /// program or scenario.
    pub settings: Vec<(&'static str, String)>,
}

impl SimConfig {
    /// Most further networks.
    pub const MORE: usize = 2;

    /// MTU on Ethernet: 1500 less IP and UDP headers and the security trailer.
    pub const MTU: u32 = 1500 - 28 - 16;

    /// Creates `hosts` hosts on a 10 Gbit/s switch without faults, for up to 1000 virtual seconds.
    pub fn new(hosts: u32, seed: u64) -> SimConfig {
        SimConfig {
            hosts,
            seed,
            mtu: SimConfig::MTU,
            long: 0,
            train: 1,
            kind: LinkKind::Network,
            served: false,
            services: false,
            topology: Topology::Star,
            wire: Wire::ethernet(10),
            more: Vec::new(),
            striped: false,
            host: HostModel::default(),
            faults: Vec::new(),
            limit_ns: 1_000_000_000_000,
            trace: 0,
            settings: Vec::new(),
        }
    }

    /// Returns the number of networks: the first, and the further ones where they apply.
    pub fn networks(&self) -> usize {
        let alone = self.kind == LinkKind::Memory || self.served;
        if alone {
            return 1;
        }
        1 + self.more.len().min(SimConfig::MORE)
    }

    /// Returns the wire of a network, counted from 0.
    pub fn wire_of(&self, network: usize) -> Wire {
        network.checked_sub(1).and_then(|i| self.more.get(i)).copied().unwrap_or(self.wire)
    }

    /// Adds a default fault of a scenario, unless the user asked for one of the same type.
    pub fn usual(self, fault: Fault) -> SimConfig {
        let kind = std::mem::discriminant(&fault);
        match self.faults.iter().any(|other| std::mem::discriminant(other) == kind) {
            true => self,
            false => self.fault(fault),
        }
    }

    /// Removes the losses, and returns their rates too.
    pub fn without_loss(mut self) -> (SimConfig, Vec<u32>) {
        let mut rates = Vec::new();
        self.faults.retain(|fault| match fault {
            Fault::Loss { ppm, span: Span::ALWAYS } => {
                rates.push(*ppm);
                false
            }
            _ => true,
        });
        (self, rates)
    }

    /// Loses two packets of a hundred and delays five, all the time: any protocol has work then.
    pub fn lossy(self) -> SimConfig {
        self.fault(Fault::Loss { ppm: 20_000, span: Span::ALWAYS }).fault(Fault::Reorder {
            ppm: 50_000,
            by_ns: 50_000,
            span: Span::ALWAYS,
        })
    }

    /// Adds a fault.
    pub fn fault(mut self, fault: Fault) -> SimConfig {
        self.faults.push(fault);
        self
    }
}

fn kind(wire: &Wire) -> &'static str {
    if wire.stream {
        ", in streams"
    } else {
        ""
    }
}

impl fmt::Display for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hosts, seed {}, mtu {}", self.hosts, self.seed, self.mtu)?;
        match (self.kind, self.topology) {
            (LinkKind::Memory, _) => write!(f, ", memory")?,
            (LinkKind::Network, Topology::Star) => write!(f, ", star")?,
            (LinkKind::Network, Topology::Tree { radix, uplink }) => {
                write!(f, ", tree of {radix}, uplinks x{uplink}")?
            }
        }
        let w = &self.wire;
        write!(f, ", {} MB/s, {} ns a hop{}", w.bytes_per_us, w.latency_ns, kind(w))?;
        if self.long > 0 {
            write!(f, ", long packets of {}", self.long)?;
        }
        if self.train > 1 {
            write!(f, ", trains of {}", self.train)?;
        }
        if w.jitter_ns > 0 {
            write!(f, " +0..{} ns", w.jitter_ns)?;
        }
        for w in &self.more {
            let how = if self.striped { "shared" } else { "apart" };
            write!(f, ", another {how}: {} MB/s, {} ns", w.bytes_per_us, w.latency_ns)?;
            write!(f, "{}", kind(w))?;
        }
        for fault in &self.faults {
            write!(f, ", {fault}")?;
        }
        for (key, value) in &self.settings {
            write!(f, ", {key}={value}")?;
        }
        Ok(())
    }
}

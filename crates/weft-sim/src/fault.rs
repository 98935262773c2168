//! Faults as data.

use std::fmt;
use weft_core::wire::PacketType;

/// A stretch of virtual time, nanoseconds: `from` inclusive, `until` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Begin.
    pub from: u64,
    /// End.
    pub until: u64,
}

impl Span {
    /// All the time.
    pub const ALWAYS: Span = Span { from: 0, until: u64::MAX };

    /// Returns the span from `from` to `until` milliseconds.
    pub const fn ms(from: u64, until: u64) -> Span {
        Span { from: from * 1_000_000, until: until * 1_000_000 }
    }

    /// Returns true if `ns` lies within.
    pub fn covers(&self, ns: u64) -> bool {
        self.from <= ns && ns < self.until
    }
}

/// A fault. Rates are in parts per million of the frames.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Frames vanish.
    Loss {
        /// Parts per million.
        ppm: u32,
        /// Time span.
        span: Span,
    },
    /// Frames arrive a second time, up to `by_ns` later.
    Duplicate {
        /// Parts per million.
        ppm: u32,
        /// Largest delay of the copy.
        by_ns: u64,
        /// Time span.
        span: Span,
    },
    /// Frames are delayed by up to `by_ns` while later ones overtake.
    Reorder {
        /// Parts per million.
        ppm: u32,
        /// Largest delay.
        by_ns: u64,
        /// Time span.
        span: Span,
    },
    /// One to three bits of a frame flip.
    Corrupt {
        /// Parts per million.
        ppm: u32,
        /// Time span.
        span: Span,
    },
    /// Packets longer than `bytes`, header and payload, vanish: a switch with a smaller MTU.
    Longer {
        /// Longest packet that passes, in bytes.
        bytes: u32,
        /// Time span.
        span: Span,
    },
    /// Packets of one type vanish on their way to a host: a filter drops them.
    Kind {
        /// Packet type.
        kind: PacketType,
        /// The host to which they are sent.
        to: u32,
        /// Time span.
        span: Span,
    },
    /// Frames between `side` and the other hosts are lost.
    Partition {
        /// The hosts on one side.
        side: Vec<u32>,
        /// Only frames from `side` to the others are lost.
        one_way: bool,
        /// Time span.
        span: Span,
    },
    /// Frames between two hosts are lost, and both reach all others.
    Cut {
        /// The two hosts.
        hosts: [u32; 2],
        /// Only frames from the first to the second are lost.
        one_way: bool,
        /// Time span.
        span: Span,
    },
    /// A host does nothing (stopped or descheduled); its NIC still receives.
    Pause {
        /// The host.
        host: u32,
        /// Time span.
        span: Span,
    },
    /// The agent of a host does nothing, and its rank goes on.
    StillAgent {
        /// The host.
        host: u32,
        /// Time span.
        span: Span,
    },
    /// The rank of a host is stopped, and its agent goes on.
    StillRank {
        /// The host.
        host: u32,
        /// Time span; for ever if it has no end.
        span: Span,
    },
    /// A host stops for ever.
    Death {
        /// The host.
        host: u32,
        /// Time, nanoseconds.
        at: u64,
        /// True if its peers' links report the death.
        visible: bool,
    },
    /// A fault of wires on one network only.
    On {
        /// The network, counted from 0.
        network: usize,
        /// The fault: loss, duplicates, disorder, flipped bits or a partition.
        fault: Box<Fault>,
    },
    /// A host starts its program anew, as another incarnation.
    Restart {
        /// The host.
        host: u32,
        /// Time, nanoseconds.
        at: u64,
    },
}

impl Fault {
    /// Creates a loss of frames all the time, in parts per million.
    pub const fn loss(ppm: u32) -> Fault {
        Fault::Loss { ppm, span: Span::ALWAYS }
    }

    /// Creates corruption of frames all the time, in parts per million.
    pub const fn corrupt(ppm: u32) -> Fault {
        Fault::Corrupt { ppm, span: Span::ALWAYS }
    }

    /// Creates duplication of frames all the time, in parts per million.
    pub const fn duplicate(ppm: u32) -> Fault {
        Fault::Duplicate { ppm, by_ns: 50_000, span: Span::ALWAYS }
    }

    /// Creates delays of frames by up to `by_ns` all the time, in parts per million.
    pub const fn reorder(ppm: u32, by_ns: u64) -> Fault {
        Fault::Reorder { ppm, by_ns, span: Span::ALWAYS }
    }

    /// Returns true if it is a fault of hosts, not of wires.
    pub fn is_of_hosts(&self) -> bool {
        matches!(
            self,
            Fault::Pause { .. }
                | Fault::StillAgent { .. }
                | Fault::StillRank { .. }
                | Fault::Death { .. }
                | Fault::Restart { .. }
        )
    }

    /// Returns true if no frame passes a network for `ms` milliseconds.
    pub fn is_outage(&self, ms: u64) -> bool {
        match self {
            Fault::On { fault, .. } => fault.is_outage(ms),
            Fault::Loss { ppm: 1_000_000.., span } => span.until - span.from >= ms * 1_000_000,
            _ => false,
        }
    }

    /// Removes the end of the time in which packets of a type vanish.
    pub(crate) fn lasting(self) -> Fault {
        match self {
            Fault::Kind { kind, to, span: Span { from, .. } } => {
                Fault::Kind { kind, to, span: Span { from, until: u64::MAX } }
            }
            Fault::On { network, fault } => fault.lasting().on(network),
            other => other,
        }
    }

    /// Restricts the fault to one network.
    pub fn on(self, network: usize) -> Fault {
        Fault::On { network, fault: Box::new(self) }
    }

    /// Returns the fault as it is on a network, if it concerns the network.
    pub(crate) fn at(&self, network: usize) -> Option<&Fault> {
        match self {
            Fault::On { network: only, fault } => (*only == network).then_some(fault),
            other => Some(other),
        }
    }

    /// Returns true if this partition or cut separates `src` from `dst` at `now`.
    pub fn separates(&self, src: u32, dst: u32, now: u64) -> bool {
        match self {
            Fault::Partition { side, one_way, span } => {
                let (s, d) = (side.contains(&src), side.contains(&dst));
                span.covers(now) && s != d && (s || !one_way)
            }
            Fault::Cut { hosts: [a, b], one_way, span } => {
                let is_it = (src, dst) == (*a, *b) || !one_way && (src, dst) == (*b, *a);
                span.covers(now) && is_it
            }
            _ => false,
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.until) {
            (0, u64::MAX) => Ok(()),
            (from, u64::MAX) => write!(f, " from {} us", from / 1000),
            (from, until) => write!(f, " from {} to {} us", from / 1000, until / 1000),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Loss { ppm, span } => write!(f, "loss {ppm} ppm{span}"),
            Fault::Duplicate { ppm, by_ns, span } => {
                write!(f, "duplicate {ppm} ppm by up to {by_ns} ns{span}")
            }
            Fault::Reorder { ppm, by_ns, span } => {
                write!(f, "reorder {ppm} ppm by up to {by_ns} ns{span}")
            }
            Fault::Corrupt { ppm, span } => write!(f, "corrupt {ppm} ppm{span}"),
            Fault::Longer { bytes, span } => {
                write!(f, "packets longer than {bytes} bytes vanish{span}")
            }
            Fault::Kind { kind, to, span } => {
                write!(f, "{} packets to host {to} vanish{span}", kind.name())
            }
            Fault::Partition { side, one_way, span } => {
                let how = if *one_way { "one-way partition" } else { "partition" };
                write!(f, "{how} of {side:?}{span}")
            }
            Fault::Cut { hosts: [a, b], one_way, span } => {
                let to = if *one_way { "to" } else { "and" };
                write!(f, "cut of host {a} {to} host {b}{span}")
            }
            Fault::Pause { host, span } => write!(f, "pause of host {host}{span}"),
            Fault::StillAgent { host, span } => {
                write!(f, "the agent of host {host} stands still{span}")
            }
            Fault::StillRank { host, span } => {
                write!(f, "the rank of host {host} is stopped{span}")
            }
            Fault::Death { host, at, visible } => {
                let how = if *visible { "visible" } else { "silent" };
                write!(f, "{how} death of host {host} at {} us", at / 1000)
            }
            Fault::On { network, fault } => write!(f, "{fault} on network {network}"),
            Fault::Restart { host, at } => write!(f, "restart of host {host} at {} us", at / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn at__one_network_or_all() {
        let loss = Fault::loss(10);
        assert_eq!((loss.at(0), loss.at(1)), (Some(&loss), Some(&loss)));
        let one = loss.clone().on(1);
        assert_eq!((one.at(0), one.at(1)), (None, Some(&loss)));
        assert_eq!(one.to_string(), "loss 10 ppm on network 1");
    }

    #[test]
    fn separates__both_ways_or_one() {
        let span = Span::ms(1, 2);
        let cut = |one_way| Fault::Partition { side: vec![0, 1], one_way, span };
        assert!(cut(false).separates(0, 2, 1_500_000));
        assert!(cut(false).separates(2, 0, 1_500_000));
        assert!(cut(true).separates(0, 2, 1_500_000));
        assert!(!cut(true).separates(2, 0, 1_500_000));
        assert!(!cut(false).separates(0, 1, 1_500_000));
        assert!(!cut(false).separates(0, 2, 2_000_000));
        let pair = |one_way| Fault::Cut { hosts: [1, 2], one_way, span };
        assert!(pair(false).separates(1, 2, 1_500_000) && pair(false).separates(2, 1, 1_500_000));
        assert!(pair(true).separates(1, 2, 1_500_000) && !pair(true).separates(2, 1, 1_500_000));
        assert!(!pair(false).separates(0, 2, 1_500_000) && !pair(false).separates(1, 2, 0));
    }
}

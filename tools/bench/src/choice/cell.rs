//! The figures of the grid: the choices under which each was measured, and its value.

use super::super::pair::Sample;
use super::super::table::human;
use super::super::LinkName;
use weft::choices::Choices;
use weft::Reliability;

/// Length of the messages of the rate, in bytes.
pub const BULK: usize = 256 << 10;
/// Number of members of multicasts.
pub const MEMBERS: usize = 4;
/// Time that the owner of a counter computes between two polls, ns.
pub const COMPUTES: u64 = 1_000_000;
/// Largest ratio of a link's time to its best time at which a step counts. Beyond it something else
/// disturbs the link, and the step is repeated.
pub const DISTURBED: f64 = 1.3;
/// Most tries of one step.
pub const TRIES: usize = 3;

/// A figure that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A packet of 16 B, one way, us.
    HalfTrip,
    /// Messages of `BULK` bytes, GB/s.
    Throughput,
    /// A packet of 16 B until the last member has it, us. True: the members compute.
    Multicast(bool),
    /// A fetch-and-add, us. True: the owner computes.
    FetchAdd(bool),
}

impl Figure {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Figure::HalfTrip => "half trip",
            Figure::Throughput => "throughput",
            Figure::Multicast(false) => "multicast",
            Figure::Multicast(true) => "multicast, members compute",
            Figure::FetchAdd(false) => "fetch-and-add",
            Figure::FetchAdd(true) => "fetch-and-add, owner computes",
        }
    }

    /// Returns its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Throughput => "GB/s",
            _ => "us",
        }
    }

    /// Returns the length of a message in bytes.
    pub fn size(self) -> usize {
        match self {
            Figure::Throughput => BULK,
            Figure::FetchAdd(_) => 8,
            _ => 16,
        }
    }
}

/// One figure of the grid.
pub struct Cell {
    /// The link.
    pub link: LinkName,
    /// The figure measured.
    pub figure: Figure,
    /// The forwarder or counter: host, agent or kernel; empty where there is none.
    pub by: &'static str,
    /// The choices under which it was measured.
    pub choices: Choices,
    /// The value, in the unit of the figure.
    pub value: Option<Sample>,
    /// The figure of the link itself without weft, measured in the same run.
    pub floor: Option<f64>,
    /// The reason for a missing value.
    pub why: String,
}

impl Cell {
    /// Returns the kind of retransmission, or `link` where the link is reliable by itself.
    pub fn reliability(&self) -> &'static str {
        match (self.link, self.choices.reliability) {
            (LinkName::Shm, _) => "link",
            (_, Reliability::None) => "none",
            (_, Reliability::GoBackN) => "gbn",
            (_, Reliability::Selective) => "selective",
            (_, Reliability::Agent) => "agent",
        }
    }

    /// Returns the length of the longest packet in bytes, or that the link decides.
    pub fn mtu(&self) -> String {
        match self.choices.mtu {
            0 => "link".into(),
            mtu => human(mtu as usize),
        }
    }

    /// Returns a line of a CSV file.
    pub fn csv(&self) -> String {
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
        let (s, c) = (self.value, &self.choices);
        let figures = [s.map(|s| s.median), s.map(|s| s.min), s.map(|s| s.max), self.floor];
        let (transfer, mtu, tree) = match self.figure {
            Figure::HalfTrip | Figure::Throughput => (c.transfer.name(), self.mtu(), ""),
            Figure::Multicast(_) => ("", String::new(), c.tree.name()),
            Figure::FetchAdd(_) => ("", String::new(), ""),
        };
        format!(
            "{},{},{},{transfer},{},{mtu},{tree},{},{},{},{}",
            self.link.name(),
            self.figure.name().replace(',', ""),
            self.by,
            self.reliability(),
            self.figure.size(),
            self.figure.unit(),
            figures.map(number).join(","),
            self.why.replace([',', '\n', '"'], ";")
        )
    }
}

/// The column names of [`Cell::csv`].
pub const HEAD: &str =
    "link,bench,by,transfer,reliability,mtu,tree,size,unit,value,min,max,floor,not_measured";

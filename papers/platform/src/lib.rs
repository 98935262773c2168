//! The two clusters of "Cluster Communication Protocols for Parallel-Programming Systems"
//! (Verstoep, Bhoedjang, Rühl, Bal, Hofman; ACM TOCS 22, 2004) in virtual time.
//!
//! A node has a host processor, memory, an I/O bus and a network interface with a slow processor,
//! its own memory and three DMA engines; a network of switches connects the nodes. They run the
//! paper's choices: data by DMA, by programmed I/O or by remote-memory copy; retransmission not at
//! all, by the network interface or by the host; packets of 1, 2 or 4 KiB; multicast forwarded by
//! network interfaces or by hosts. Parameters are clocks, widths, start-up times and cycles of
//! steps; the base implementation's measurements calibrate values that no table has, everything
//! else follows from the steps of each protocol. Times are integers (picoseconds), so a seed gives
//! the same numbers everywhere. Windows and trees are the engine's own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod choice;
pub mod claims;
pub mod compare;
pub mod costs;
mod firmware;
pub mod hardware;
mod host;
mod machine;
pub mod measure;
pub mod net;
mod queue;
pub mod reference;
pub mod system;

#[cfg(test)]
mod tests;

pub use machine::Counts;

/// The programs of the guide's page, which have to compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide/paper004.md")]
    struct Clusters;
}

//! The implementations that the paper compares (its Table II), as combinations of choices.

use std::fmt;
use weft_core::group::tree::Tree;

/// The transfer of data from the sending host to its network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The network interface fetches it by DMA from a queue in host memory (l-sdma).
    Sdma,
    /// The processor writes it over the I/O bus (l-pio).
    Pio,
    /// Remote-memory copy: fetched from and delivered to user memory by DMA (l-rcpy).
    Rcpy,
}

/// The processor that repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// None: credits only.
    None,
    /// The network interfaces, go-back-N (l-nirx).
    Interface,
    /// The hosts, go-back-N (l-hrx).
    Host,
}

/// The processor that forwards multicast packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The network interfaces.
    Interface,
    /// The hosts (l-hmc), packet by packet.
    Host,
}

/// The origin of firmware and library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The paper's own.
    Lci,
    /// The manufacturer's, version 1.5.
    Gm,
}

/// One implementation of the communication interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Firmware and library.
    pub family: Family,
    /// Data transfer at the sender.
    pub transfer: Transfer,
    /// Retransmission.
    pub repair: Repair,
    /// Largest packet, in bytes of data.
    pub mtu: usize,
    /// Multicast forwarding.
    pub forward: Forward,
    /// Shape of multicast trees.
    pub tree: Tree,
}

impl Choice {
    /// The paper's base implementation.
    pub const SDMA: Choice = Choice {
        family: Family::Lci,
        transfer: Transfer::Sdma,
        repair: Repair::None,
        mtu: 2048,
        forward: Forward::Interface,
        tree: Tree::Binary,
    };
    /// Data written by the processor.
    pub const PIO: Choice = Choice { transfer: Transfer::Pio, ..Choice::SDMA };
    /// Remote-memory copy, one page at most a packet.
    pub const RCPY: Choice = Choice { transfer: Transfer::Rcpy, mtu: 4096, ..Choice::SDMA };
    /// Retransmission by the network interface.
    pub const NIRX: Choice = Choice { repair: Repair::Interface, ..Choice::SDMA };
    /// Retransmission by the host, which then also forwards multicast packets.
    pub const HRX: Choice = Choice { repair: Repair::Host, forward: Forward::Host, ..Choice::SDMA };
    /// Multicast forwarded by hosts.
    pub const HMC: Choice = Choice { forward: Forward::Host, ..Choice::SDMA };
    /// The manufacturer's software.
    pub const GM: Choice =
        Choice { family: Family::Gm, repair: Repair::Interface, mtu: 4096, ..Choice::SDMA };

    /// Returns the same choice with another packet size.
    pub const fn with_mtu(self, mtu: usize) -> Choice {
        Choice { mtu, ..self }
    }

    /// Returns the same choice with another tree.
    pub const fn with_tree(self, tree: Tree) -> Choice {
        Choice { tree, ..self }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.family == Family::Gm {
            return f.write_str("GM");
        }
        f.write_str(match (self.transfer, self.repair) {
            (Transfer::Pio, _) => "l-pio",
            (Transfer::Rcpy, _) => "l-rcpy",
            (_, Repair::Interface) => "l-nirx",
            (_, Repair::Host) => "l-hrx",
            _ => "l-sdma",
        })?;
        if self.forward == Forward::Host && self.repair != Repair::Host {
            f.write_str("-hmc")?;
        }
        match (self.mtu, self.transfer) {
            (2048, _) | (4096, Transfer::Rcpy) => Ok(()),
            (mtu, _) => write!(f, "-{}k", mtu / 1024),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn display__is_the_papers_name() {
        let names = [
            (Choice::SDMA, "l-sdma"),
            (Choice::PIO.with_mtu(1024), "l-pio-1k"),
            (Choice::RCPY, "l-rcpy"),
            (Choice::NIRX, "l-nirx"),
            (Choice::HRX, "l-hrx"),
            (Choice::HMC, "l-sdma-hmc"),
            (Choice::GM, "GM"),
        ];
        for (choice, name) in names {
            assert_eq!(choice.to_string(), name);
        }
    }
}

//! The two hosts between which network figures are measured: a lab of two, joined by one cable, so
//! that figures pass a network interface and nothing else.

use crate::lab::client::{plan, Attached, Entrance};
use crate::lab::spec::Conditions;
use anyhow::Result;

/// When to use hosts of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Always; fail where that is not allowed
    On,
    /// Never: loopback
    Off,
    /// Where that is allowed (root, or user namespaces)
    Auto,
}

/// Two hosts; they end with this value or this process.
pub struct Hosts {
    /// Ways in.
    pub entrances: [Entrance; 2],
    _lab: Attached,
}

impl Hosts {
    /// Starts the hosts.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn start(mtu: u32) -> Result<Hosts> {
        let name = format!("bench-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let conditions = Conditions { mtu, direct: true, ..Conditions::default() };
        let lab = Attached::start(&plan(&name, 2, &conditions)?)?;
        Ok(Hosts { entrances: [lab.entrance(0)?, lab.entrance(1)?], _lab: lab })
    }
}

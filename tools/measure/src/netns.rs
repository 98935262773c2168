//! The two hosts between which network figures are measured: a lab of two hosts with one cable, so
//! that packets pass a network interface and nothing else.

use anyhow::Result;
use weft_lab::client::{plan, Attached, Entrance};
use weft_lab::spec::Conditions;

/// Use of hosts of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Always; fail if not allowed
    On,
    /// Never: loopback
    Off,
    /// If allowed (root, or user namespaces)
    Auto,
}

/// Place of the two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the namespaces of this process.
    Here,
    /// On one host of a lab, whose loopback interface and IPC objects are its own.
    Inside,
    /// On two hosts of a lab, joined by a veth pair of this MTU.
    Between(u32),
    /// On two hosts of a lab, which share memory by way of an agent that serves both.
    Apart,
    /// Two namespaces behind a switch that loses this share of the packets, in percent. Packets
    /// come to the switch one by one, with 0 percent, too.
    Losing(u32, u32),
}

/// The hosts of both ranks; they end when this value is dropped or this process ends.
pub struct Hosts {
    /// Entrances of the two hosts.
    pub entrances: [Entrance; 2],
    _lab: Attached,
}

impl Hosts {
    /// Starts the hosts of a place. `Place::Here` has none.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn start(place: Place) -> Result<Option<Hosts>> {
        let (hosts, mtu, loss) = match place {
            Place::Here => return Ok(None),
            Place::Inside => (1, 1500, None),
            Place::Apart => (2, 1500, None),
            Place::Between(mtu) => (2, mtu, None),
            Place::Losing(mtu, percent) => (2, mtu, Some(f64::from(percent) / 100.0)),
        };
        let name = format!("bench-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let direct = hosts == 2 && loss.is_none();
        let conditions = Conditions { mtu, loss, direct, ..Conditions::default() };
        let lab = Attached::start(&plan(&name, hosts, &conditions)?)?;
        Ok(Some(Hosts { entrances: [lab.entrance(0)?, lab.entrance(hosts - 1)?], _lab: lab }))
    }
}

//! The exchangeable parts as one typed value, after paper 004: data transfer, reliability, maximum
//! transfer unit, multicast, the server of fetch-and-add, and receipt.

pub use weft_core::choices::{Place, Receipt, Server, Transfer, Tree, UnknownName};

use std::fmt;
use weft_core::exception::Exception;
use weft_core::transfer::select::Limits;
use weft_core::{Config, LinkCaps, Reliability};

/// A choice of each part. Each part is a setting of its own, `WEFT_` and the field's name in upper
/// case, for a whole job. The same settings choose transfer, reliability, maximum transfer unit and
/// the server of fetch-and-add for some ranks ([`exception`](weft_core::exception));
/// [`Peer::choose`](crate::endpoint::Peer::choose) chooses them for one peer.
///
/// ```no_run
/// use weft::choices::Transfer;
/// use weft::Choices;
///
/// let job = weft::Job::init()?;
/// let (endpoint, peer) = (job.endpoint(), job.world().peer(0)?);
/// let before = endpoint.peer(peer).choices().ok_or("no such peer")?;
/// // Shorter packets to rank 0, gathered from the program's memory; the other parts stay.
/// endpoint.peer(peer).choose(&Choices { mtu: 2048, transfer: Transfer::Gather, ..before })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The transfer of payload to the link.
    pub transfer: Transfer,
    /// The party that retransmits.
    pub reliability: Reliability,
    /// Longest packet, header included, in bytes; 0: the link's maximum.
    pub mtu: u32,
    /// The forwarder of multicast packets.
    pub multicast: Place,
    /// The tree of multicasts that name none.
    pub tree: Tree,
    /// The server of fetch-and-add.
    pub fetch_add: Server,
    /// The way a rank notices arriving packets.
    pub receipt: Receipt,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices::of(&Config::default())
    }
}

/// A setting needs the host's agent, and no agent serves this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NoAgent {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: &'static str,
}

impl fmt::Display for NoAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no agent: WEFT_{}={} needs one that serves this process on its host, and there is \
             none; use host",
            self.setting.to_uppercase(),
            self.value
        )
    }
}

weft_core::readable!(NoAgent);

impl std::error::Error for NoAgent {}

/// Reliability `none` over a link that loses packets even on the best of networks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Overrun {
    /// The link.
    pub link: &'static str,
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reliability none (WEFT_RELIABILITY) is not for the link {}, whose receivers have room \
             for fewer packets than senders have credit for: some would be lost on any network; \
             choose selective, or leave it out of WEFT_LINK and take packet, xdp or udp",
            self.link
        )
    }
}

weft_core::readable!(Overrun);

impl std::error::Error for Overrun {}

/// # Errors
/// Fails if a link of these capabilities needs retransmission.
pub fn check_trust(caps: &LinkCaps) -> Result<(), Overrun> {
    match caps.reliable || caps.fits_credit {
        true => Ok(()),
        false => Err(Overrun { link: caps.name }),
    }
}

/// True if reliability `none` is chosen, for all ranks or for some.
pub fn trusts(config: &Config) -> bool {
    let none = |e: &Exception| e.setting == "reliability" && e.value == "none";
    config.reliability == Reliability::None || config.exceptions.iter().any(none)
}

impl Choices {
    /// Returns the choices of a configuration.
    pub fn of(config: &Config) -> Choices {
        Choices {
            transfer: config.transfer,
            reliability: config.reliability,
            mtu: config.mtu,
            multicast: config.multicast,
            tree: config.tree,
            fetch_add: config.fetch_add,
            receipt: config.receipt,
        }
    }

    /// Puts the choices into a configuration.
    pub fn write(&self, config: &mut Config) {
        config.transfer = self.transfer;
        config.reliability = self.reliability;
        config.mtu = self.mtu;
        config.multicast = self.multicast;
        config.tree = self.tree;
        config.fetch_add = self.fetch_add;
        config.receipt = self.receipt;
    }

    /// Returns the first part that needs an agent or its rights, with its value.
    pub fn needs_agent(&self) -> Option<(&'static str, &'static str)> {
        [
            ("reliability", Place::Agent.name(), self.reliability == Reliability::Agent),
            ("multicast", self.multicast.name(), self.multicast != Place::Host),
            ("fetch_add", self.fetch_add.name(), self.fetch_add != Server::Host),
        ]
        .into_iter()
        .find_map(|(setting, value, agent)| agent.then_some((setting, value)))
    }

    /// # Errors
    /// A choice needs an agent, and no agent serves this process.
    pub fn check(&self, agent: bool) -> Result<(), NoAgent> {
        match self.needs_agent() {
            Some((setting, value)) if !agent => Err(NoAgent { setting, value }),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// The configuration needs an agent, for all ranks or for some that concern this one, and no agent
/// serves this process.
pub fn check(config: &Config, agent: bool) -> Result<(), NoAgent> {
    Choices::of(config).check(agent)?;
    let by_agent = [Server::Agent, Server::Kernel].map(Server::name);
    let agents = config.exceptions.iter().filter_map(|e| {
        let value = by_agent.into_iter().find(|name| e.value == *name)?;
        Some((e, value))
    });
    let mut own = agents.filter(|(e, _)| e.setting != "fetch_add" || e.names(config.rank));
    match own.next() {
        Some((exception, value)) if !agent => Err(NoAgent { setting: exception.setting, value }),
        _ => Ok(()),
    }
}

/// Sets the settings that follow from the choices and were not set by hand (`given`). The protocols
/// of all interfaces read these settings.
pub fn derive(config: &mut Config, given: &dyn Fn(&str) -> bool) {
    let receipt = config.receipt;
    let limits = Limits::of(config).with(config.transfer);
    let mut set = |name: &str, field: fn(&mut Config) -> &mut u32, value: u32| {
        if !given(name) {
            *field(config) = value;
        }
    };
    set("inject_max", |c| &mut c.inject_max, limits.inject_max);
    set("eager_max", |c| &mut c.eager_max, limits.eager_max);
    set("direct_min", |c| &mut c.direct_min, limits.direct_min);
    match receipt {
        Receipt::Adaptive | Receipt::Watchdog => {}
        Receipt::Polling => set("spin_us", |c| &mut c.spin_us, u32::MAX),
        Receipt::Blocking => {
            set("spin_us", |c| &mut c.spin_us, 0);
            set("yield_us", |c| &mut c.yield_us, 0);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn choices__what_only_an_agent_does_is_refused_without_one() {
        for (setting, value) in [
            ("reliability", "agent"),
            ("multicast", "agent"),
            ("fetch_add", "agent"),
            ("fetch_add", "kernel"),
        ] {
            let mut config = Config::default();
            config.set(setting, value).unwrap();
            let choices = Choices::of(&config);
            assert_eq!(choices.check(false), Err(NoAgent { setting, value }));
            assert_eq!(choices.check(true), Ok(()));
        }
        assert_eq!(Choices::default().check(false), Ok(()));
    }

    #[test]
    fn check__an_agent_is_needed_by_ranks_that_an_exception_concerns() {
        let of = |name, value, rank| {
            let mut config = Config { rank: Some(rank), ..Config::default() };
            config.set(name, value).unwrap();
            config
        };
        let refused = |setting| Err(NoAgent { setting, value: "agent" });
        assert_eq!(check(&of("reliability", "3=agent", 0), false), refused("reliability"));
        assert_eq!(check(&of("reliability", "3=agent", 0), true), Ok(()));
        assert_eq!(check(&of("fetch_add", "3=agent", 3), false), refused("fetch_add"));
        assert_eq!(check(&of("fetch_add", "3=agent", 0), false), Ok(()));
        assert_eq!(check(&of("fetch_add", "agent,3=host", 3), false), refused("fetch_add"));
        let kernel = Err(NoAgent { setting: "fetch_add", value: "kernel" });
        assert_eq!(check(&of("fetch_add", "3=kernel", 3), false), kernel);
        assert_eq!(check(&of("reliability", "3=gbn", 0), false), Ok(()));
    }

    #[test]
    fn trusts__for_all_or_for_some() {
        let of = |value| {
            let mut config = Config::default();
            config.set("reliability", value).unwrap();
            trusts(&config)
        };
        assert_eq!(["none", "gbn,3=none"].map(of), [true; 2]);
        assert_eq!(["gbn", "selective,3=gbn"].map(of), [false; 2]);
    }

    #[test]
    fn check_trust__not_where_receivers_are_overrun() {
        let mut caps = LinkCaps::network("short", 1500);
        assert_eq!(check_trust(&caps), Ok(()));
        caps.fits_credit = false;
        let why = check_trust(&caps).unwrap_err().to_string();
        assert!(why.contains("the link short") && why.contains("WEFT_LINK"), "{why}");
    }

    #[test]
    fn choices__write_and_of_are_inverse() {
        let choices = Choices {
            transfer: Transfer::Rcpy,
            reliability: Reliability::GoBackN,
            mtu: 2048,
            multicast: Place::Agent,
            tree: Tree::Chain,
            fetch_add: Server::Agent,
            receipt: Receipt::Watchdog,
        };
        let mut config = Config::default();
        choices.write(&mut config);
        assert_eq!(Choices::of(&config), choices);
    }

    #[test]
    fn derive__what_was_set_by_hand_stays() {
        let mut config = Config { transfer: Transfer::Gather, ..Config::default() };
        config.inject_max = 77;
        derive(&mut config, &|name| name == "inject_max");
        assert_eq!((config.inject_max, config.direct_min), (77, u32::MAX));
        derive(&mut config, &|_| false);
        assert_eq!(config.inject_max, 0);
    }
}

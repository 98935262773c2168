//! The choices made for a benchmark on the command line.

use super::super::{parse_size, table, LinkName, What, CONFIG};
use anyhow::{ensure, Result};
use weft::choices::{Choices, Place, Receipt, Server, Transfer, Tree};
use weft::{Config, Reliability};

/// The choices: of each part one value, or several that are measured one after the other.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Chosen {
    /// Data transfer: copy, gather, rcpy, auto
    #[arg(long, value_delimiter = ',')]
    transfer: Vec<Transfer>,
    /// Retransmission: none (needs a network without loss), host, gbn, selective, agent
    #[arg(long, value_delimiter = ',')]
    reliability: Vec<Reliability>,
    /// Longest packet, bytes: 1K,2K,4K; 0 is the longest that the link carries
    #[arg(long, value_delimiter = ',', value_parser = parse_mtu)]
    mtu: Vec<usize>,
    /// Forwarder of multicasts: host, agent
    #[arg(long, value_delimiter = ',')]
    multicast: Vec<Place>,
    /// Multicast trees: flat, chain, binary, binomial
    #[arg(long, value_delimiter = ',')]
    tree: Vec<Tree>,
    /// Server of fetch-and-add: host, agent, kernel
    #[arg(long, value_delimiter = ',')]
    fetch_add: Vec<Server>,
    /// Receipt of messages: adaptive, polling, blocking, watchdog
    #[arg(long, value_delimiter = ',')]
    receipt: Vec<Receipt>,
    /// Members of multicasts, half of them on each side [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=64))]
    members: Option<u16>,
}

/// Parses a packet length that the engine accepts.
fn parse_mtu(text: &str) -> Result<usize, String> {
    let mtu = parse_size(text)?;
    Config::default().set("mtu", &mtu.to_string()).map_err(|e| e.to_string())?;
    Ok(mtu)
}

fn or<T: Copy>(given: &[T], usual: T) -> Vec<T> {
    if given.is_empty() {
        vec![usual]
    } else {
        given.to_vec()
    }
}

/// Reason why the locked interface has one kind of transfer only.
pub const WATCHED: &str = "the locked interface sends packets that it copies";

/// True if a benchmark measures messages; the others measure the packet interface.
pub fn of_messages(what: What) -> bool {
    matches!(what, What::Pingpong | What::Bandwidth | What::Rate | What::Wait)
}

impl Chosen {
    /// Returns the names of the options that were given.
    pub fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--transfer", !self.transfer.is_empty()),
            ("--reliability", !self.reliability.is_empty()),
            ("--mtu", !self.mtu.is_empty()),
            ("--multicast", !self.multicast.is_empty()),
            ("--tree", !self.tree.is_empty()),
            ("--fetch-add", !self.fetch_add.is_empty()),
            ("--receipt", !self.receipt.is_empty()),
            ("--members", self.members.is_some()),
        ];
        all.into_iter().filter_map(|(option, given)| given.then_some(option)).collect()
    }

    /// Returns the number of members of multicasts.
    pub fn members(&self) -> usize {
        self.members.map_or(super::cell::MEMBERS, usize::from)
    }

    /// # Errors
    /// A choice has no effect on the link, or the link cannot have it.
    pub fn check(&self, what: What, link: LinkName) -> Result<()> {
        ensure!(
            self.reliability.is_empty() || link != LinkName::Shm,
            "--reliability: shared memory loses nothing, and nobody retransmits; leave it out for \
             shm, or take --link udp, tcp, packet, gso, xdp or agent"
        );
        if self.receipt.contains(&Receipt::Watchdog) {
            let measured = matches!(what, What::Logp | What::Throughput | What::FetchAdd);
            ensure!(
                measured,
                "--receipt watchdog is measured by logp, throughput and fetch-add: the other \
                 benchmarks use what belongs to one thread"
            );
            let auto = self.transfer.iter().all(|&transfer| transfer == Transfer::Auto);
            ensure!(auto, "--receipt watchdog: {WATCHED}; leave out --transfer");
        }
        Ok(())
    }

    /// Returns every combination for a benchmark. The variables decide whatever was not chosen.
    pub fn all(&self, what: What) -> Result<Vec<Choices>> {
        let mut usual = Choices::of(&weft::job::config_from_env()?);
        if !of_messages(what) && std::env::var_os("WEFT_RECEIPT").is_none() {
            usual.receipt = Receipt::Polling;
        }
        let mut all = vec![usual];
        fn each<T: Copy>(all: &mut Vec<Choices>, values: &[T], set: fn(&mut Choices, T)) {
            let old = std::mem::take(all);
            for choices in old {
                all.extend(values.iter().map(|&value| {
                    let mut choices = choices;
                    set(&mut choices, value);
                    choices
                }));
            }
        }
        each(&mut all, &or(&self.reliability, usual.reliability), |c, v| c.reliability = v);
        each(&mut all, &or(&self.transfer, usual.transfer), |c, v| c.transfer = v);
        each(&mut all, &or(&self.mtu, usual.mtu as usize), |c, v| c.mtu = v as u32);
        each(&mut all, &or(&self.multicast, usual.multicast), |c, v| c.multicast = v);
        each(&mut all, &or(&self.tree, usual.tree), |c, v| c.tree = v);
        each(&mut all, &or(&self.fetch_add, usual.fetch_add), |c, v| c.fetch_add = v);
        each(&mut all, &or(&self.receipt, usual.receipt), |c, v| c.receipt = v);
        Ok(all)
    }

    /// Returns the names of the settings that differ from those of this process.
    fn settings(&self, what: What) -> Vec<&'static str> {
        let given = self.given().into_iter();
        let of = given.filter(|&option| option != "--members").map(|option| &option[2..]);
        let mut settings: Vec<&'static str> = of.collect();
        if !of_messages(what) && self.receipt.is_empty() {
            settings.push("receipt");
        }
        settings
    }

    /// Returns a combination as the environment of ranks.
    pub fn environment(&self, what: What, choices: &Choices) -> Environment {
        let members = if what == What::Multicast { self.members() } else { 2 };
        environment(choices, &self.settings(what), members)
    }

    /// Returns the text that distinguishes the table rows of a combination.
    pub fn label(&self, what: What, choices: &Choices) -> String {
        let mut words = Vec::new();
        if !of_messages(what) {
            words.push(label(what, choices));
        } else {
            if !self.transfer.is_empty() {
                words.push(choices.transfer.to_string());
            }
            if !self.reliability.is_empty() {
                words.push(choices.reliability.to_string());
            }
            if !self.mtu.is_empty() {
                words.push(mtu(choices));
            }
        }
        if !self.receipt.is_empty() {
            words.push(choices.receipt.to_string());
        }
        words.join(" ")
    }
}

/// Environment variables of ranks.
pub type Environment = &'static [(&'static str, &'static str)];

/// Names of all settings that are choices.
pub const SETTINGS: &[&str] =
    &["transfer", "reliability", "mtu", "multicast", "tree", "fetch-add", "receipt"];

/// Returns the choices as the environment of ranks, restricted to these settings. The strings live
/// as long as the program; their number is that of the combinations measured.
pub fn environment(choices: &Choices, settings: &[&'static str], members: usize) -> Environment {
    let mut config = Config::default();
    choices.write(&mut config);
    let mut all: Vec<(&'static str, &'static str)> = CONFIG.to_vec();
    for setting in settings {
        let key = setting.replace('-', "_");
        let name: &'static str = format!("WEFT_{}", key.to_uppercase()).leak();
        all.push((name, config.get(&key).unwrap_or_default().leak()));
    }
    if std::env::var_os("WEFT_LOG").is_none() {
        // Members leave one after the other, which logs warnings; the answers of the ranks hold all
        // that matters.
        all.push(("WEFT_LOG", "error"));
    }
    if choices.reliability == Reliability::None {
        // Nothing is retransmitted, so all bytes in flight must fit the receiver's ring.
        all.push(("WEFT_EAGER_CREDIT", "128K"));
    }
    if members > weft::job::cores_of_host() {
        all.push(("WEFT_SPIN_US", "0"));
        all.push(("WEFT_YIELD_US", "200"));
    }
    all.leak()
}

fn mtu(choices: &Choices) -> String {
    match choices.mtu {
        0 => "link".to_string(),
        mtu => table::human(mtu as usize),
    }
}

/// Describes the choices that matter to a benchmark of packets.
pub fn label(what: What, c: &Choices) -> String {
    let common = format!("{} {}", c.reliability, mtu(c));
    match what {
        What::Multicast => format!("{} {} {common}", c.tree, c.multicast),
        What::FetchAdd => format!("{} {}", c.fetch_add, c.reliability),
        _ => format!("{} {common}", c.transfer),
    }
}

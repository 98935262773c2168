//! Settings of the agent's part in a cluster.

use crate::options::wrong;
use clap::{ArgAction, Args};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use weft_cluster::hostlist;
use weft_cluster::names::directory::See;
use weft_cluster::names::Rule;

/// Settings of the agent's part in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Name of the cluster; empty: none.
    pub name: String,
    /// File of the key; `None`: the usual one.
    pub key: Option<PathBuf>,
    /// Places of other agents.
    pub join: Vec<Place>,
    /// UDP port of this agent, and of others that are given without one.
    pub port: u16,
    /// Address at which others reach this agent; `None`: by route.
    pub address: Option<IpAddr>,
    /// True: agents on the local network are called by multicast.
    pub multicast: bool,
    /// Silence after which a host is lost.
    pub tolerance: Duration,
    /// Rules of users and types, before the default.
    pub rules: Vec<Rule>,
    /// Most claims of one user.
    pub claims: usize,
}

/// The part of the command line about a cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterLine {
    /// Make one cluster with the agents of other hosts that have this name and its key: hosts and
    /// names, `weft cluster`, `weft names`
    #[arg(long, value_name = "NAME", value_parser = name)]
    cluster: Option<String>,
    /// Its key, made by `weft cluster init` [default: /etc/weft/cluster.key for root,
    /// ~/.config/weft/cluster.key for other users]
    #[arg(long = "cluster-key", value_name = "FILE", requires = "cluster")]
    key: Option<PathBuf>,
    /// Places of other agents, separated by commas: HOST, HOST:PORT, n[1-9], a name with several
    /// addresses (a headless service), @FILE, slurm (the hosts of the allocation); one without a
    /// port is reached at this agent's --cluster-port; they are looked up again and again
    #[arg(long, value_name = "LIST", action = ArgAction::Append, requires = "cluster")]
    join: Vec<String>,
    /// UDP port of the agents [default: 7117]
    #[arg(long = "cluster-port", value_name = "N", requires = "cluster")]
    port: Option<u16>,
    /// Address at which others reach this agent [default: by route]
    #[arg(long = "cluster-address", value_name = "IP", requires = "cluster")]
    address: Option<IpAddr>,
    /// Call agents on the local network [default: on]
    #[arg(
        long = "cluster-multicast",
        value_name = "on|off",
        hide_possible_values = true,
        requires = "cluster"
    )]
    multicast: Option<Switch>,
    /// Silence after which a host is lost, the same on all hosts, 50 to 30000 [default: 1500]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(50..=30_000),
        requires = "cluster"
    )]
    tolerance_ms: Option<u64>,
    /// Claims of names of one user, 1 to 65535 [default: 1024]
    #[arg(
        long = "names-quota",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..),
        requires = "cluster"
    )]
    claims: Option<u16>,
    /// USERS:TYPES:WORDS, as 1000-1999:5000-5999:no-claim,see-own; repeat for more, the first that
    /// holds counts [default: all:all:claim,see-all]
    #[arg(
        long = "names-rule",
        value_name = "RULE",
        action = ArgAction::Append,
        value_parser = rule,
        requires = "cluster"
    )]
    rules: Vec<Rule>,
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = (1..=63).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_string()).ok_or("a name has 1 to 63 bytes")
}

impl ClusterLine {
    /// Returns the settings.
    ///
    /// # Errors
    /// A place of other agents is wrong.
    pub fn settings(self) -> Result<ClusterOptions, clap::Error> {
        let port = self.port.unwrap_or(weft_cluster::PORT);
        let mut join = Vec::new();
        for list in &self.join {
            let places = Place::list(list, port);
            join.extend(places.map_err(|e| wrong(format_args!("--join {list:?}: {e}")))?);
        }
        Ok(ClusterOptions {
            name: self.cluster.unwrap_or_default(),
            key: self.key,
            join,
            port,
            address: self.address,
            multicast: self.multicast != Some(Switch::Off),
            tolerance: Duration::from_millis(self.tolerance_ms.unwrap_or(1500)),
            rules: self.rules,
            claims: self.claims.unwrap_or(1024).into(),
        })
    }
}

/// A place where other agents may be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address.
    Address(SocketAddr),
    /// A name with a port, all addresses of which are tried, again and again: they may change.
    Host(String, u16),
    /// A file with one or more places in each line, read again and again.
    File(PathBuf),
}

impl Place {
    /// Parses a list of places: `h1,h2:7000,n[1-9],10.0.0.1,[fe80::1]:7000,@FILE,slurm`.
    ///
    /// # Errors
    /// The text is none; the reason.
    pub fn list(text: &str, port: u16) -> Result<Vec<Place>, String> {
        let mut places = Vec::new();
        for word in hostlist::split(text)?.into_iter().map(str::trim).filter(|w| !w.is_empty()) {
            let bare = word.strip_prefix('[').and_then(|w| w.strip_suffix(']')).unwrap_or(word);
            if let Ok(address) = word.parse() {
                places.push(Place::Address(address));
            } else if let Ok(ip) = bare.parse::<IpAddr>() {
                places.push(Place::Address(SocketAddr::new(ip, port)));
            } else if let Some(file) = word.strip_prefix('@') {
                places.push(Place::File(file.into()));
            } else if word == "slurm" {
                let list = std::env::var("SLURM_JOB_NODELIST")
                    .map_err(|_| "slurm: SLURM_JOB_NODELIST is not set in this environment")?;
                let names = hostlist::expand(&list)?;
                places.extend(names.into_iter().map(|name| Place::Host(name, port)));
            } else {
                let wrong = |_| format!("{word}: a port is a number up to 65535");
                let (host, port) = match word.rsplit_once(':') {
                    Some((host, text)) => (host, text.parse::<u16>().map_err(wrong)?),
                    None => (word, port),
                };
                let names = hostlist::expand(host)?;
                places.extend(names.into_iter().map(|name| Place::Host(name, port)));
            }
        }
        Ok(places)
    }
}

fn range(text: &str) -> Option<RangeInclusive<u32>> {
    if text == "all" {
        return Some(0..=u32::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: RangeInclusive<u32> = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// Parses a rule: `USERS:TYPES:claim|no-claim,see-all|see-own|see-none`.
fn rule(text: &str) -> Result<Rule, &'static str> {
    parse_rule(text).ok_or(
        "USERS:TYPES:WORDS, as 1000-1999:all:no-claim,see-own, of claim, no-claim, see-all, \
         see-own and see-none",
    )
}

fn parse_rule(text: &str) -> Option<Rule> {
    let mut parts = text.splitn(3, ':');
    let (users, kinds) = (range(parts.next()?)?, parts.next()?);
    let kinds = match range(kinds) {
        Some(kinds) => kinds,
        None => {
            let kind = kinds.parse::<weft_cluster::Name>().ok()?.kind;
            kind..=kind
        }
    };
    let mut rule = Rule { users, kinds, claim: true, see: See::All };
    for word in parts.next()?.split(',') {
        match word {
            "claim" => rule.claim = true,
            "no-claim" => rule.claim = false,
            "see-all" => rule.see = See::All,
            "see-own" => rule.see = See::Own,
            "see-none" => rule.see = See::None,
            _ => return None,
        }
    }
    Some(rule)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn parse(text: &str) -> Result<ClusterOptions, String> {
        let parsed = Options::parse(text.split_whitespace());
        parsed.map(|o| o.cluster).map_err(|e| e.to_string())
    }

    #[test]
    fn parse__options_of_a_cluster() {
        let o = parse(
            "--join a,10.0.0.2,[::1]:9,b:7 --cluster c --cluster-port 5000 --tolerance-ms 50 \
             --cluster-key /k --cluster-multicast off --names-rule 5:pump:no-claim,see-own \
             --join n[1-2],@/hosts",
        )
        .unwrap();
        let host = |name: &str, port| Place::Host(name.into(), port);
        let address = |text: &str| Place::Address(text.parse().unwrap());
        assert_eq!(
            o.join,
            [
                host("a", 5000),
                address("10.0.0.2:5000"),
                address("[::1]:9"),
                host("b", 7),
                host("n1", 5000),
                host("n2", 5000),
                Place::File("/hosts".into()),
            ]
        );
        assert_eq!((o.name.as_str(), o.multicast, o.tolerance.as_millis()), ("c", false, 50));
        let kind = weft_cluster::name::kind_of("pump");
        let rule = Rule { users: 5..=5, kinds: kind..=kind, claim: false, see: See::Own };
        assert_eq!(o.rules, [rule]);
    }

    #[test]
    fn parse__wrong_options_of_a_cluster_are_named() {
        for (text, named) in [
            ("--join a", "--cluster <NAME>"),
            ("--cluster c --join a:x", "a port is a number"),
            ("--cluster c --join n[1", "brackets do not match"),
            ("--cluster c --tolerance-ms 49", "50..=30000"),
            ("--cluster c --names-rule x", "USERS:TYPES:WORDS"),
            ("--cluster c --names-quota 0", "1..=65535"),
            ("--cluster c --cluster-multicast maybe", "on, off"),
            ("--cluster c --cluster-address here", "'here' for '--cluster-address <IP>'"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}

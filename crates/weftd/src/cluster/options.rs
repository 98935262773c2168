//! Settings of the agent's part in a cluster.

use crate::options::Wrong;
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
    /// The first option of a cluster that was given.
    pub given: Option<String>,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            name: String::new(),
            key: None,
            join: Vec::new(),
            port: weft_cluster::PORT,
            address: None,
            multicast: true,
            tolerance: Duration::from_millis(1500),
            rules: Vec::new(),
            claims: 1024,
            given: None,
        }
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
fn rule(text: &str) -> Option<Rule> {
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

impl ClusterOptions {
    /// Takes an option of the command line with its value. Returns false if it is none of a
    /// cluster.
    ///
    /// # Errors
    /// The value is wrong.
    pub fn take(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Result<String, Wrong>,
        join: &mut Vec<String>,
    ) -> Result<bool, Wrong> {
        const OURS: [&str; 9] = [
            "cluster",
            "cluster-key",
            "cluster-port",
            "cluster-address",
            "cluster-multicast",
            "join",
            "tolerance-ms",
            "names-rule",
            "names-quota",
        ];
        if !OURS.contains(&name) {
            return Ok(false);
        }
        let value = value()?;
        let wrong = |why: &str| Wrong::new(format!("--{name} {value:?}: {why}"));
        match name {
            "cluster" => {
                let fits = (1..=63).contains(&value.len()) && !value.chars().any(char::is_control);
                self.name = fits.then(|| value.clone()).ok_or_else(|| wrong("1 to 63 bytes"))?;
            }
            "cluster-key" => self.key = Some(PathBuf::from(&value)),
            "cluster-port" => {
                self.port = value.parse().map_err(|_| wrong("a port is a number up to 65535"))?;
            }
            "cluster-address" => {
                let address = value.parse().map_err(|_| wrong("an address of this host"))?;
                self.address = Some(address);
            }
            "cluster-multicast" => match value.as_str() {
                "on" => self.multicast = true,
                "off" => self.multicast = false,
                _ => return Err(wrong("on or off")),
            },
            "join" => join.push(value.clone()),
            "tolerance-ms" => {
                let ms = value.parse().ok().filter(|ms| (50..=30_000).contains(ms));
                let ms = ms.ok_or_else(|| wrong("50 to 30000"))?;
                self.tolerance = Duration::from_millis(ms);
            }
            "names-quota" => {
                let claims = value.parse().ok().filter(|n| (1..=65_535).contains(n));
                self.claims = claims.ok_or_else(|| wrong("1 to 65535"))?;
            }
            _ => self.rules.push(rule(&value).ok_or_else(|| {
                wrong(
                    "USERS:TYPES:WORDS, as 1000-1999:all:no-claim,see-own, of claim, no-claim, \
                     see-all, see-own and see-none",
                )
            })?),
        }
        self.given.get_or_insert_with(|| format!("--{name}"));
        Ok(true)
    }

    /// Checks the options together, when all were taken.
    ///
    /// # Errors
    /// A place is wrong, or options of a cluster were given without its name.
    pub fn finish(&mut self, join: &[String]) -> Result<(), Wrong> {
        for list in join {
            let places = Place::list(list, self.port);
            self.join.extend(places.map_err(|e| Wrong::new(format!("--join {list:?}: {e}")))?);
        }
        match &self.given {
            Some(option) if self.name.is_empty() => {
                Err(Wrong::new(format!("{option} needs --cluster NAME")))
            }
            _ => Ok(()),
        }
    }
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
            ("--join a", "--join needs --cluster NAME"),
            ("--cluster c --join a:x", "a port is a number"),
            ("--cluster c --join n[1", "brackets do not match"),
            ("--cluster c --tolerance-ms 49", "50 to 30000"),
            ("--cluster c --names-rule x", "USERS:TYPES:WORDS"),
            ("--cluster c --cluster-address here", "an address of this host"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}

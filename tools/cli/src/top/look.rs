//! Finding ranks: in the memory of this machine, and by its agent on the hosts of its cluster.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;
use weft::counters::{scan, Snapshot};
use weft_cluster::local::Host;
use weft_cluster::names::HostId;
use weft_cluster::ranks::Ranks;
use weft_cluster::{Names, NamesError};

/// A rank, as it was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its host.
    pub host: String,
    /// True if that is another one than this.
    pub is_away: bool,
    /// Its user, by number.
    pub user: u32,
    /// The time by the clock of its host.
    pub at: SystemTime,
    /// Its counters.
    pub snapshot: Snapshot,
}

impl Seen {
    /// Returns a rank of this machine.
    pub fn here(snapshot: Snapshot) -> Seen {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let process = std::fs::metadata(format!("/proc/{}", snapshot.pid));
        let user = process.map_or(u32::MAX, |process| process.uid());
        Seen { host, is_away: false, user, at: SystemTime::now(), snapshot }
    }
}

/// The places where ranks are looked for.
pub struct Look {
    here_alone: bool,
    agent: Option<Names>,
    /// Remarks on the last look: what it did not see.
    pub notes: Vec<String>,
}

/// Returns the names of hosts; those of one name have their addresses as well.
pub fn names_of(hosts: &[Host]) -> BTreeMap<HostId, String> {
    let is_shared = |name: &str| hosts.iter().filter(|h| h.name == name).count() > 1;
    let name = |h: &Host| match is_shared(&h.name) {
        true => format!("{} {}", h.name, h.address),
        false => h.name.clone(),
    };
    hosts.iter().map(|h| (h.host, name(h))).collect()
}

/// Says which ranks of a cluster were not seen.
pub fn unseen(ranks: &Ranks, names: &BTreeMap<HostId, String>) -> Vec<String> {
    let name = |id: &HostId| names.get(id).cloned().unwrap_or_else(|| id.to_string());
    let silent: Vec<String> = ranks.silent.iter().map(name).collect();
    let hidden: u64 = ranks.hidden.iter().map(|(_, n)| u64::from(*n)).sum();
    let mut notes = Vec::new();
    if !silent.is_empty() {
        notes.push(format!("no answer about ranks from {}", silent.join(", ")));
    }
    if hidden > 0 {
        notes.push(format!("{hidden} ranks of other users"));
    }
    notes
}

impl Look {
    /// Looks on this host alone, or on all of the cluster.
    pub fn new(here_alone: bool) -> Look {
        Look { here_alone, agent: None, notes: Vec::new() }
    }

    /// Returns the ranks that run now.
    pub fn ranks(&mut self) -> Result<Vec<Seen>> {
        let mut seen: Vec<Seen> =
            scan().context("reading /proc")?.into_iter().map(Seen::here).collect();
        self.notes.clear();
        if self.here_alone {
            return Ok(seen);
        }
        if self.agent.is_none() {
            self.agent = Names::connect().ok();
        }
        match self.agent.as_mut().map(|names| of_cluster(names, &mut seen)) {
            None => {}
            Some(Ok(notes)) => self.notes = notes,
            Some(Err(why)) => {
                self.notes = vec![format!("this host alone: {why}")];
                self.agent = None;
            }
        }
        Ok(seen)
    }
}

/// Adds the ranks that an agent knows to those seen here. Returns what was not seen.
fn of_cluster(names: &mut Names, seen: &mut Vec<Seen>) -> Result<Vec<String>, NamesError> {
    let hosts = names_of(&names.hosts()?);
    let ranks = names.ranks()?;
    let me = names.host();
    let name = |id: HostId| hosts.get(&id).cloned().unwrap_or_else(|| id.to_string());
    seen.iter_mut().for_each(|one| one.host = name(me));
    // The agent may see other numbers of processes, in a container, and hosts of a lab share them.
    let identity = |s: &Snapshot| (s.job.clone(), s.rank, s.start);
    let places = seen.iter().enumerate().map(|(at, one)| (identity(&one.snapshot), at));
    let here: BTreeMap<_, usize> = places.collect();
    let notes = unseen(&ranks, &hosts);
    for rank in ranks.ranks {
        let (host, user, at) = (name(rank.host), rank.user, rank.at);
        let is_away = rank.host != me;
        match here.get(&identity(&rank.snapshot)) {
            Some(place) => (seen[*place].host, seen[*place].is_away) = (host, is_away),
            None => seen.push(Seen { host, is_away, user, at, snapshot: rank.snapshot }),
        }
    }
    Ok(notes)
}

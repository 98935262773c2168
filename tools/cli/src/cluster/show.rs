//! Hosts and their events, for people and as JSON.

use crate::top::look::{names_of, unseen};
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft_cluster::local::{Host, Say};
use weft_cluster::names::{Cause, HostId};
use weft_cluster::ranks::Ranks;
use weft_cluster::Names;
use weft_measure::layout::{self, Columns};

/// A host in the output as JSON. More than 15 fields: each is a member of the object.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    host: String,
    address: String,
    up: bool,
    cause: String,
    incarnation: u64,
    step: u32,
    since_s: f64,
    agent: u32,
    names: u32,
    /// Ranks, of all users; none if the host did not answer.
    ranks: Option<usize>,
    jobs: Vec<JobRow<'a>>,
    round_trip_us: Option<f64>,
    probes: u64,
    answers: u64,
    key: Option<String>,
    here: bool,
}

/// The ranks of a job on a host.
#[derive(Serialize)]
struct JobRow<'a> {
    job: &'a str,
    user: u32,
    size: u64,
    ranks: Vec<u64>,
}

/// The ranks of a job by their hosts. Jobs of two users are two, whatever they are called.
#[derive(Default)]
struct Job {
    size: u64,
    seconds: f64,
    ranks: BTreeSet<u64>,
    hosts: BTreeSet<HostId>,
}

fn jobs(ranks: &Ranks) -> BTreeMap<(&str, u32), Job> {
    let mut jobs: BTreeMap<(&str, u32), Job> = BTreeMap::new();
    for rank in &ranks.ranks {
        let s = &rank.snapshot;
        let job = jobs.entry((&s.job, rank.user)).or_default();
        let age = rank.at.duration_since(s.start).unwrap_or_default().as_secs_f64();
        job.size = job.size.max(s.size);
        job.seconds = job.seconds.max(age);
        job.ranks.insert(s.rank);
        job.hosts.insert(rank.host);
    }
    jobs
}

/// Returns the number of ranks of a host, of all users; `None` if it did not tell all.
fn count(ranks: &Ranks, host: &Host) -> Option<usize> {
    let own = ranks.ranks.iter().filter(|r| r.host == host.host).count();
    let hidden = ranks.hidden.iter().find(|(id, _)| *id == host.host).map_or(0, |(_, n)| *n);
    let is_told = host.is_up && !ranks.silent.contains(&host.host);
    is_told.then_some(own + hidden as usize)
}

fn jobs_of(ranks: &Ranks, host: HostId) -> Vec<JobRow<'_>> {
    let mut jobs: BTreeMap<(&str, u32), JobRow<'_>> = BTreeMap::new();
    for rank in ranks.ranks.iter().filter(|r| r.host == host) {
        let (s, user) = (&rank.snapshot, rank.user);
        let fresh = || JobRow { job: &s.job, user, size: s.size, ranks: Vec::new() };
        jobs.entry((&s.job, user)).or_insert_with(fresh).ranks.push(s.rank);
    }
    jobs.into_values().collect()
}

/// Returns the cause of a host's last step, with the names of hosts.
fn cause(hosts: &[Host], cause: &Cause) -> String {
    let known = |id: HostId| hosts.iter().find(|h| h.host == id).map(|h| h.name.clone());
    cause.text(|id| known(id).unwrap_or_else(|| id.to_string()))
}

fn row<'a>(host: &'a Host, hosts: &[Host], ranks: &'a Ranks, here: HostId) -> Row<'a> {
    let round_trip = host.round_trip_ns as f64 / 1e3;
    Row {
        name: &host.name,
        host: host.host.to_string(),
        address: host.address.to_string(),
        up: host.is_up,
        cause: cause(hosts, &host.cause),
        incarnation: host.life.incarnation,
        step: host.step,
        since_s: host.since_ms as f64 / 1e3,
        agent: host.agent,
        names: host.names,
        ranks: count(ranks, host),
        jobs: jobs_of(ranks, host.host),
        round_trip_us: (host.round_trip_ns > 0).then_some(round_trip),
        probes: host.probes,
        answers: host.answers,
        key: (host.key > 0).then(|| format!("{:016x}", host.key)),
        here: host.host == here,
    }
}

fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..=99 => format!("{s} s"),
        s @ 100..=5999 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}

/// Prints the hosts.
pub fn status(names: &mut Names, json: bool) -> Result<()> {
    let mut hosts = names.hosts()?;
    hosts.sort_by(|a, b| (!a.is_up, &a.name, a.host).cmp(&(!b.is_up, &b.name, b.host)));
    let ranks = names.ranks()?;
    if json {
        for host in &hosts {
            println!("{}", serde_json::to_string(&row(host, &hosts, &ranks, names.host()))?);
        }
        return Ok(());
    }
    let up = hosts.iter().filter(|h| h.is_up).count();
    println!("cluster {}: {up} of {} hosts are there", names.cluster(), hosts.len());
    let mut columns = Columns::new("<<<>>>>><", 1);
    columns.row([
        "host",
        "address",
        "state",
        "since",
        "names",
        "ranks",
        "round trip",
        "lost",
        "cause",
    ]);
    for host in &hosts {
        let state = if host.is_up { "up" } else { "gone" };
        let round_trip = match host.round_trip_ns {
            _ if host.host == names.host() => "this host".into(),
            0 => "-".into(),
            ns => format!("{:.0} us", ns as f64 / 1e3),
        };
        // The last probe may be under way.
        let lost = host.probes.saturating_sub(1).saturating_sub(host.answers);
        let lost = match host.probes {
            0 => "-".into(),
            probes => format!("{:.1} %", 100.0 * lost as f64 / probes as f64),
        };
        columns.row([
            host.name.clone(),
            host.address.to_string(),
            state.into(),
            age(host.since_ms),
            host.names.to_string(),
            count(&ranks, host).map_or("-".into(), |n| n.to_string()),
            round_trip,
            lost,
            cause(&hosts, &host.cause),
        ]);
    }
    print!("{}", columns.text("  ", layout::width()));
    print_jobs(&ranks, &names_of(&hosts));
    Ok(())
}

/// Prints the jobs that run, and what of them is not shown.
fn print_jobs(ranks: &Ranks, names: &BTreeMap<HostId, String>) {
    let all = jobs(ranks);
    if !all.is_empty() {
        let mut columns = Columns::new("<>>><", 1);
        columns.row(["job", "user", "ranks", "since", "hosts"]);
        for ((name, user), job) in &all {
            let ranks = format!("{}/{}", job.ranks.len(), job.size);
            let since = age((job.seconds * 1e3) as u64);
            let mut hosts: Vec<&str> =
                job.hosts.iter().filter_map(|id| Some(names.get(id)?.as_str())).collect();
            hosts.sort_unstable();
            columns.row([name.to_string(), user.to_string(), ranks, since, hosts.join(" ")]);
        }
        print!("{}", columns.text("  ", layout::width()));
    }
    let notes = unseen(ranks, names);
    if !notes.is_empty() {
        println!("  {}", notes.join("; "));
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Host {
        number: u64,
        host: String,
        name: String,
        incarnation: u64,
        step: u32,
        up: bool,
        cause: String,
    },
    HearsOthers {
        hears: bool,
    },
}

/// Prints events of hosts as they come.
pub fn watch(names: &mut Names, json: bool, count: Option<u64>) -> Result<()> {
    let mut events = names.watch_hosts()?;
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(say) = events.next(Duration::from_secs(3600))? else { continue };
        let (text, event) = match say {
            Say::Member(number, host, name, life, step, up, why) => {
                let verb = if up { "joined" } else { "gone" };
                let cause = cause(&names.hosts()?, &why);
                let (host, incarnation) = (host.to_string(), life.incarnation);
                let text = format!(
                    "{number} {name} {verb}: {cause} (incarnation {incarnation}, step {step})"
                );
                (text, Event::Host { number, host, name, incarnation, step, up, cause })
            }
            Say::Hears(hears) => {
                let text = match hears {
                    true => "- this host hears others again",
                    false => "- this host hears no other: their names are hidden",
                };
                (text.to_string(), Event::HearsOthers { hears })
            }
            _ => continue,
        };
        match json {
            true => println!("{}", serde_json::to_string(&event)?),
            false => println!("{text}"),
        }
        weft_run::out::flush();
        left -= 1;
    }
    Ok(())
}

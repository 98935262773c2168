//! Names and their events, for people and as JSON.

use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use weft_cluster::names::{Binding, HostId, Mode, Notice, Policy, Scope};
use weft_cluster::{Name, Names};

/// The names of hosts, asked for once, and again where a host is not among them.
pub struct HostNames<'a> {
    names: &'a mut Names,
    known: BTreeMap<HostId, String>,
}

impl<'a> HostNames<'a> {
    /// Makes it without names.
    pub fn new(names: &'a mut Names) -> HostNames<'a> {
        HostNames { names, known: BTreeMap::new() }
    }

    /// Returns the name of a host; its number where the agent does not know it.
    pub fn of(&mut self, host: HostId) -> String {
        if !self.known.contains_key(&host) {
            let hosts = self.names.hosts().unwrap_or_default();
            self.known.extend(hosts.into_iter().map(|h| (h.host, h.name)));
        }
        self.known.entry(host).or_insert_with(|| host.to_string()).clone()
    }
}

/// A name as JSON.
#[derive(Serialize)]
pub struct Row {
    name: String,
    #[serde(rename = "type")]
    kind: u32,
    lower: u32,
    upper: u32,
    alias: String,
    address: Option<String>,
    endpoint: Option<String>,
    host: String,
    host_name: String,
    here: bool,
    user: u32,
    process: u32,
    unique: bool,
    group: bool,
    scope: &'static str,
}

/// Returns a name as JSON.
pub fn row(binding: &Binding, hosts: &mut HostNames<'_>) -> Row {
    let claim = &binding.name;
    Row {
        name: Name::of(binding).to_string(),
        kind: claim.kind,
        lower: claim.lower,
        upper: claim.upper,
        alias: claim.alias.clone(),
        address: claim.address.map(|a| a.to_string()),
        endpoint: (claim.endpoint != 0).then(|| format!("{:016x}", claim.endpoint)),
        host: binding.id.host.to_string(),
        host_name: hosts.of(binding.id.host),
        here: binding.id.host == hosts.names.host(),
        user: claim.owner.user,
        process: claim.owner.process,
        unique: claim.unique,
        group: claim.group,
        scope: if claim.scope == Scope::Host { "host" } else { "cluster" },
    }
}

/// Returns a name as one JSON object.
pub fn json(binding: &Binding, hosts: &mut HostNames<'_>) -> Result<String> {
    Ok(serde_json::to_string(&row(binding, hosts))?)
}

/// Returns the place where a name is served.
pub fn place(binding: &Binding) -> String {
    match (binding.name.address, binding.name.endpoint) {
        (Some(address), _) => address.to_string(),
        (None, 0) => "no address".into(),
        (None, endpoint) => format!("endpoint {endpoint:016x}"),
    }
}

/// The instance of a member that only sends.
pub const SENDER: u32 = u32::MAX;

/// Returns a name as people read it.
pub fn name_of(binding: &Binding) -> String {
    let name = Name::of(binding);
    match (binding.name.group, name.lower) {
        (true, SENDER) => Name { lower: 0, ..name }.to_string() + " (sender)",
        _ => name.to_string(),
    }
}

/// Returns a name in one line.
pub fn line(binding: &Binding, hosts: &mut HostNames<'_>) -> String {
    let claim = &binding.name;
    let mut words = String::new();
    for (is, word) in
        [(claim.unique, " unique"), (claim.group, " group"), (claim.scope == Scope::Host, " host")]
    {
        if is {
            words.push_str(word);
        }
    }
    let (name, host) = (name_of(binding), hosts.of(binding.id.host));
    let place = place(binding);
    format!("{name:<24} {place:<27} host {host}, {}{words}", claim.owner)
}

/// Prints all names.
pub fn list(names: &mut Names, as_json: bool) -> Result<()> {
    // Agents publish their hosts among the types that are theirs.
    let is_program = |b: &&Binding| b.name.kind >= Policy::RESERVED;
    let all = names.list()?;
    let mut hosts = HostNames::new(names);
    for binding in all.iter().filter(is_program) {
        match as_json {
            true => println!("{}", json(binding, &mut hosts)?),
            false => println!("{}", line(binding, &mut hosts)),
        }
    }
    Ok(())
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Published { seq: u64, binding: Row },
    Withdrawn { seq: u64, binding: Row, cause: String },
    SnapshotEnd { seq: u64 },
    Missed { seq: u64, events: u64 },
    Timeout { seq: u64 },
}

/// Prints the members of a group, then each that comes and goes.
pub fn watch_group(
    names: &mut Names,
    name: &Name,
    timeout: Option<Duration>,
    as_json: bool,
) -> Result<()> {
    watch_some(names, name, Mode::Each, timeout, as_json, true)
}

/// Prints the owners of a name, then each that comes and goes.
pub fn watch(
    names: &mut Names,
    name: &Name,
    mode: Mode,
    timeout: Option<Duration>,
    as_json: bool,
) -> Result<()> {
    watch_some(names, name, mode, timeout, as_json, false)
}

fn watch_some(
    names: &mut Names,
    name: &Name,
    mode: Mode,
    timeout: Option<Duration>,
    as_json: bool,
    members: bool,
) -> Result<()> {
    let mut watch = names.watch(name, mode, timeout)?;
    let hosts = &mut HostNames::new(names);
    // The words of `group join`, for members.
    let (comes, goes) = if members { ("joined", "left") } else { ("published", "withdrawn") };
    loop {
        let Some(event) = watch.next(Duration::from_secs(3600))? else { continue };
        let seq = event.seq;
        let (text, event) = match &event.notice {
            Notice::Published(b) | Notice::Withdrawn(b, _) if members && !b.name.group => continue,
            Notice::Published(b) => {
                let text = format!("{comes} {}", line(b, hosts));
                (text, Event::Published { seq, binding: row(b, hosts) })
            }
            Notice::Withdrawn(b, gone) => {
                let (binding, cause) = (row(b, hosts), gone.text(|host| hosts.of(host)));
                let text = format!("{goes} {}: {cause}", line(b, hosts));
                (text, Event::Withdrawn { seq, binding, cause })
            }
            Notice::SnapshotEnd => ("these are all".into(), Event::SnapshotEnd { seq }),
            Notice::Missed { events } => (
                format!("{events} events were missed; the differences follow"),
                Event::Missed { seq, events: *events },
            ),
            Notice::Timeout => ("the time is over".into(), Event::Timeout { seq }),
        };
        match as_json {
            true => println!("{}", serde_json::to_string(&event)?),
            false => println!("{text}"),
        }
        weft_run::out::flush();
        if matches!(event, Event::Timeout { .. }) {
            return Ok(());
        }
    }
}

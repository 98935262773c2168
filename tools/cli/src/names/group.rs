//! `weft names group`: members of groups.

use super::show::{self, HostNames};
use super::{seconds, shown};
use anyhow::{bail, Result};
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::time::Duration;
use weft_cluster::names::groups::Kind;
use weft_cluster::names::{Binding, BindingId};
use weft_cluster::{GroupMember, GroupNotice, GroupOptions, Name, Names, Spec, To};

/// Time between two looks at the input while no event comes.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Members of a group: each sends to one, any, some or all of the others
///
/// The name's type is the group, its instances are the member's. Each member takes the messages of
/// another one in the order in which they were sent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft names group join chat:1             prints messages; sends input
  weft names group send chat \"hello\" --all  to all members
  weft names group send chat:7 \"hello\"      to one of instance 7
  weft names group watch chat               members that come and go")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Become a member: print members and messages, and send each line of the input to all
    ///
    /// Ends with the input only with `--send`; otherwise at Ctrl-C, or when another member puts
    /// this one out.
    Join {
        /// The group, and this member's instances
        name: Name,
        /// Seconds after which a member that takes no messages is named
        #[arg(long, value_name = "S", default_value = "1")]
        slow_after: f64,
        /// Seconds after which it is put out of the group; without it, never
        #[arg(long, value_name = "S")]
        put_out_after: Option<f64>,
        /// Exclude other members with these instances
        #[arg(long)]
        unique: bool,
        /// End with the input, when all have its lines
        #[arg(long)]
        send: bool,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
    },
    /// Send a message to a member of a group, or to all, as a member meanwhile
    ///
    /// Ends when all receivers have taken it.
    Send {
        /// The group, and the instances of the receivers
        name: Name,
        /// The message
        message: String,
        /// To all members that have these instances; without an instance, to all
        #[arg(long)]
        all: bool,
        /// Seconds after which it fails
        #[arg(long, value_name = "S", default_value = "10")]
        timeout: f64,
    },
    /// Print the members of a group, then each that comes and goes, with the cause
    Watch {
        /// The group, and instances
        name: Name,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
        /// End after so many seconds
        #[arg(long, value_name = "S")]
        timeout: Option<f64>,
    },
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Joined { member: String, binding: Box<show::Row> },
    Left { member: String, cause: String },
    SnapshotEnd,
    Message { member: String, sent_to: &'static str, message: String },
    Settled { number: u64 },
    Returned { number: u64, member: String, cause: String },
    Slow { member: String, seconds: f64 },
    PutOut { member: String },
}

/// Members as they are called, by their claims.
struct Members<'a> {
    hosts: HostNames<'a>,
    known: BTreeMap<BindingId, String>,
}

impl Members<'_> {
    fn add(&mut self, binding: &Binding) -> String {
        let host = self.hosts.of(binding.id.host);
        let name = format!("{} of host {host}", show::name_of(binding));
        self.known.insert(binding.id, name.clone());
        name
    }

    fn of(&mut self, id: &BindingId) -> String {
        match self.known.get(id) {
            Some(name) => name.clone(),
            None => format!("a member of host {}", self.hosts.of(id.host)),
        }
    }

    /// Returns an event for people and for programs. None: it is not shown to people.
    fn show(&mut self, notice: GroupNotice) -> Option<(Option<String>, Event)> {
        Some(match notice {
            GroupNotice::Joined(b) => {
                let (member, line) = (self.add(&b), show::line(&b, &mut self.hosts));
                let binding = Box::new(show::row(&b, &mut self.hosts));
                (Some(format!("joined {line}")), Event::Joined { member, binding })
            }
            GroupNotice::Left(id, gone) => {
                let (member, cause) = (self.of(&id), gone.text(|host| self.hosts.of(host)));
                self.known.remove(&id);
                (Some(format!("left {member}: {cause}")), Event::Left { member, cause })
            }
            GroupNotice::SnapshotEnd => (Some("these are all".into()), Event::SnapshotEnd),
            GroupNotice::Message { from, kind, payload } => {
                let (member, message) = (self.of(&from), shown(&payload));
                let sent_to = match kind {
                    Kind::Unicast | Kind::Anycast => "one",
                    Kind::Multicast => "instances",
                    Kind::Broadcast => "all",
                };
                let text = Some(format!("{member}: {message}"));
                (text, Event::Message { member, sent_to, message })
            }
            GroupNotice::Settled(number) => (None, Event::Settled { number }),
            GroupNotice::Returned(number, id, gone) => {
                let (member, cause) = (self.of(&id), gone.text(|host| self.hosts.of(host)));
                let text = format!("message {number} came back from {member}: {cause}");
                (Some(text), Event::Returned { number, member, cause })
            }
            GroupNotice::Slow(id, since) => {
                let (member, seconds) = (self.of(&id), since.as_secs_f64());
                let text = format!("{member} has taken no messages for {seconds:.1} s");
                (Some(text), Event::Slow { member, seconds })
            }
            GroupNotice::Evicted(id) => {
                let member = self.of(&id);
                (
                    Some(format!("{member} took no messages and is put out")),
                    Event::PutOut { member },
                )
            }
            _ => return None,
        })
    }

    fn print(&mut self, notice: GroupNotice, json: bool) -> Result<()> {
        let Some((text, event)) = self.show(notice) else { return Ok(()) };
        match (json, text) {
            (true, _) => println!("{}", serde_json::to_string(&event)?),
            (false, Some(text)) => println!("{text}"),
            (false, None) => {}
        }
        weft_run::out::flush();
        Ok(())
    }
}

/// Reads the input in a thread of its own, since it waits.
fn input() -> Receiver<String> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    from
}

fn join(spec: &Spec, options: &GroupOptions, ends: bool, json: bool) -> Result<()> {
    let mut names = Names::connect()?;
    let mut member = names.join(spec, options)?;
    let mut members = Members { hosts: HostNames::new(&mut names), known: BTreeMap::new() };
    let lines = input();
    let (mut is_open, mut knows_all) = (true, false);
    loop {
        while let Some(notice) = member.next(if is_open { POLL_EVERY } else { POLL_EVERY * 20 })? {
            knows_all |= notice == GroupNotice::SnapshotEnd;
            members.print(notice, json)?;
        }
        // Lines wait for the members that there are, and for one at least.
        while is_open && knows_all && !members.known.is_empty() {
            match lines.try_recv() {
                Ok(line) => {
                    member.send(To::All, line.as_bytes(), Duration::from_secs(3600))?;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => is_open = false,
            }
        }
        if ends && !is_open {
            member.flush(Duration::from_secs(3600))?;
            while let Some(notice) = member.next(Duration::ZERO)? {
                members.print(notice, json)?;
            }
            return Ok(());
        }
    }
}

/// Waits until the members that there are have been told.
fn wait_for_members(member: &mut GroupMember, limit: Duration) -> Result<()> {
    let end = std::time::Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        match member.next(left)? {
            Some(GroupNotice::SnapshotEnd) => return Ok(()),
            Some(_) => {}
            None => bail!("the agent did not say in time who the members are"),
        }
    }
}

fn send(name: &Name, message: &str, all: bool, limit: Duration) -> Result<()> {
    let names = Names::connect()?;
    // A sender is a member. Its instance is not among those that it sends to by name.
    let instance = if name.lower > 0 && name.upper == show::SENDER { 0 } else { show::SENDER };
    let own = Name { lower: instance, upper: instance, ..name.clone() };
    let mut member = names.join(&Spec::new(&own), &GroupOptions::default())?;
    wait_for_members(&mut member, limit)?;
    let to = match (all, name.lower, name.upper) {
        (true, 0, u32::MAX) => To::All,
        (true, first, last) => To::Each(first..=last),
        (false, first, last) => To::One(first..=last),
    };
    let number = member.send(to, message.as_bytes(), limit).map_err(|why| match why {
        weft_cluster::NamesError::Refused(why) => anyhow::anyhow!("{name}: {why}"),
        other => other.into(),
    })?;
    member.flush(limit)?;
    let mut hosts = Names::connect()?;
    while let Some(notice) = member.next(Duration::ZERO)? {
        if let GroupNotice::Returned(of, id, gone) = notice {
            if of == number {
                let mut hosts = HostNames::new(&mut hosts);
                let host = hosts.of(id.host);
                let cause = gone.text(|host| hosts.of(host));
                bail!("{name}: the member of host {host} does not have it: {cause}");
            }
        }
    }
    Ok(())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Join { name, slow_after, put_out_after, unique, send, json } => {
            let put_out_after = put_out_after.map(seconds).transpose()?;
            let slow_after = seconds(slow_after)?;
            let options = GroupOptions { slow_after, evict_after: put_out_after };
            let spec = Spec::new(&name);
            let spec = if unique { spec.unique() } else { spec };
            join(&spec, &options, send, json)?;
        }
        Action::Send { name, message, all, timeout } => {
            send(&name, &message, all, seconds(timeout)?)?;
        }
        Action::Watch { name, json, timeout } => {
            let timeout = timeout.map(seconds).transpose()?;
            show::watch_group(&mut Names::connect()?, &name, timeout, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

//! `weft names`: names of programs in a cluster.

mod group;
mod show;

use anyhow::{bail, Context, Result};
use clap::{Subcommand, ValueEnum};
use show::HostNames;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use weft_cluster::client::Event;
use weft_cluster::names::{Binding, Mode, Pick};
use weft_cluster::{Name, Names, NamesError, Spec};

/// Time between two lines about owners that are waited for, as ranks report waits.
const REPORT: Duration = Duration::from_secs(5);

/// Claim, find and watch names of programs, on all hosts of a cluster
///
/// A name is a word, or a type as a number, and an instance or a range of instances: pump, pump:7,
/// 1000:0-9; one without instance stands for all. A program claims it, and it is gone when the
/// program ends, on all hosts and with the cause. Look-ups are answered by the agent of this host
/// (`weftd --cluster`).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft names claim web --at 10.0.0.1:8080 -- ./server  while it runs
  weft names resolve web                               10.0.0.1:8080
  weft names wait worker --count 4                     waits for four
  weft names watch web
  weft names list --json")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    /// One of all owners, from any on
    Turn,
    /// One of those of this host, if there are any; otherwise as turn
    Nearest,
    /// All owners
    All,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all names that you may see
    List {
        /// Print one JSON object per name
        #[arg(long)]
        json: bool,
    },
    /// Print the owners of a name, then each that comes and goes, with the cause
    Watch {
        /// The name
        name: Name,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
        /// Print only the first that comes and the last that goes
        #[arg(long)]
        first_last: bool,
        /// End after so many seconds
        #[arg(long, value_name = "S")]
        timeout: Option<f64>,
    },
    Claim(Claim),
    /// Wait until a name has so many owners, and print them
    ///
    /// Says on stderr now and then how many are there.
    Wait {
        /// The name
        name: Name,
        /// Owners
        #[arg(long, value_name = "N", default_value = "1")]
        count: usize,
        /// Seconds after which it fails
        #[arg(long, value_name = "S", default_value = "60")]
        timeout: f64,
        /// Print one JSON object per owner
        #[arg(long)]
        json: bool,
    },
    /// Print the address of a name's owner
    ///
    /// Fails if nobody has the name, or if its owners gave no address.
    Resolve {
        /// The name
        name: Name,
        /// The owner, if there are several
        #[arg(long, value_enum, default_value = "nearest")]
        pick: Choice,
        /// Print one JSON object per owner
        #[arg(long)]
        json: bool,
    },
    /// Send a message to an owner of a name, or to all
    ///
    /// Ends with status 1 and the reason if the message did not arrive: nobody has the name, or its
    /// owner claims it without `--messages`.
    Send {
        /// The name; without an instance it stands for all
        name: Name,
        /// The message
        message: String,
        /// To all owners
        #[arg(long)]
        all: bool,
    },
    Group(group::Args),
}

/// Claim a name for as long as a command runs, or until Ctrl-C
///
/// A name without `--at` and `--endpoint` is a mark: others see that it is there and wait for it,
/// and find no address.
#[derive(Debug, clap::Args)]
struct Claim {
    /// The name
    name: Name,
    /// Socket address that serves the name
    #[arg(long, value_name = "ADDRESS:PORT")]
    at: Option<SocketAddr>,
    /// Endpoint id that serves the name, in hexadecimal
    #[arg(long, value_name = "ID", value_parser = parse_endpoint)]
    endpoint: Option<u64>,
    /// Exclude other owners
    #[arg(long)]
    unique: bool,
    /// Show it on this host alone
    #[arg(long)]
    host: bool,
    /// A word to read, where the type is a number
    #[arg(long, value_name = "WORD")]
    alias: Option<String>,
    /// Take messages that are sent to the name, and print them; without it they go back
    #[arg(long)]
    messages: bool,
    /// Command that runs meanwhile
    #[arg(last = true)]
    command: Vec<String>,
}

fn parse_endpoint(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "a number in hexadecimal".into())
}

fn seconds(value: f64) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(value).ok().filter(|t| t.as_secs() < 1 << 30);
    match time {
        Some(time) => Ok(time),
        None => misuse!("--timeout {value}: give seconds"),
    }
}

/// Checks that a command can be started, before its name is claimed.
fn check_command(command: &str) -> Result<()> {
    let is_program = |file: &Path| {
        let about = std::fs::metadata(file);
        about.is_ok_and(|a| a.is_file() && a.permissions().mode() & 0o111 != 0)
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = match command.contains('/') {
        true => is_program(Path::new(command)),
        false => std::env::split_paths(&folders).any(|folder| is_program(&folder.join(command))),
    };
    match found {
        true => Ok(()),
        false => bail!("there is no command {command}: give its path, or put it in PATH"),
    }
}

fn claim(args: &Claim) -> Result<ExitCode> {
    args.command.first().map_or(Ok(()), |command| check_command(command))?;
    let mut names = Names::connect()?;
    let mut spec = Spec::new(&args.name);
    if let Some(alias) = &args.alias {
        spec = spec.alias(alias);
    }
    spec = args.at.map_or(spec.clone(), |at| spec.address(at));
    spec = args.endpoint.map_or(spec.clone(), |id| spec.endpoint(id));
    if args.messages {
        spec = spec.messages();
    }
    if args.unique {
        spec = spec.unique();
    }
    if args.host {
        spec = spec.on_host();
    }
    let number = names.claim(&spec).with_context(|| format!("claiming {}", args.name))?;
    println!("claimed {} on {}", args.name, names.cluster());
    weft_run::out::flush();
    if args.command.is_empty() {
        return hold(&mut names, number);
    }
    let mut child = Command::new(&args.command[0]);
    let mut child = child
        .args(&args.command[1..])
        .spawn()
        .with_context(|| format!("starting {}", args.command[0]))?;
    loop {
        if let Some(status) = child.try_wait()? {
            names.withdraw(number)?;
            return Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)));
        }
        match names.event(Duration::from_millis(50)) {
            Ok(event) => tell(&mut names, event),
            Err(why) => {
                let _ = child.wait();
                return Err(why.into());
            }
        }
    }
}

fn tell(names: &mut Names, event: Option<Event>) {
    match event {
        Some(Event::Lost { gone, .. }) => {
            let cause = gone.text(|host| HostNames::new(names).of(host));
            eprintln!("weft: the claim has ended: {cause}");
        }
        Some(Event::Mail { payload, .. }) => {
            println!("{}", shown(&payload));
            weft_run::out::flush();
        }
        _ => {}
    }
}

/// Returns a message on one line. Its sender may be another user, so bytes that move the cursor or
/// begin another line are written as escapes.
fn shown(payload: &[u8]) -> String {
    let mut line = String::new();
    for c in String::from_utf8_lossy(payload).chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

fn hold(names: &mut Names, claim: u64) -> Result<ExitCode> {
    loop {
        let event = names.event(Duration::from_secs(3600))?;
        if let Some(Event::Lost { claim: lost, gone }) = &event {
            if *lost == claim {
                let cause = gone.text(|host| HostNames::new(names).of(host));
                bail!("the claim has ended: {cause}");
            }
        }
        tell(names, event);
    }
}

fn resolve(name: &Name, pick: Choice, json: bool) -> Result<()> {
    let mut names = Names::connect()?;
    let found = match pick {
        Choice::All => names.resolve_all(name)?,
        Choice::Turn => names.resolve(name, Pick::Turn)?.cloned().into_iter().collect(),
        Choice::Nearest => names.resolve(name, Pick::Nearest)?.cloned().into_iter().collect(),
    };
    if found.is_empty() {
        bail!("nobody has the name {name}; `weft names list` shows all names");
    }
    let leads = |b: &Binding| b.name.address.is_some() || b.name.endpoint != 0;
    if !json && !found.iter().any(leads) {
        bail!(
            "{name} is there, and its owner gave no address: `weft names list` shows the owner, \
             `weft names claim --at` gives an address"
        );
    }
    let mut hosts = HostNames::new(&mut names);
    for binding in found.iter().filter(|b| json || leads(b)) {
        match json {
            true => println!("{}", show::json(binding, &mut hosts)?),
            false => println!("{}", show::place(binding)),
        }
    }
    Ok(())
}

/// Waits for owners, and says now and then how many are there.
fn wait(name: &Name, count: usize, limit: Duration, json: bool) -> Result<()> {
    let mut names = Names::connect()?;
    let end = Instant::now() + limit;
    let found = loop {
        let left = end.saturating_duration_since(Instant::now());
        match names.wait(name, count, left.min(REPORT)) {
            Err(NamesError::Timeout { found, wanted, .. }) if left > REPORT => {
                eprintln!("weft: waiting for {name}: {found} of {wanted} owners are there");
            }
            outcome => break outcome?,
        }
    };
    let mut hosts = HostNames::new(&mut names);
    for binding in &found {
        match json {
            true => println!("{}", show::json(binding, &mut hosts)?),
            false => println!("{}", show::line(binding, &mut hosts)),
        }
    }
    Ok(())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::List { json } => show::list(&mut Names::connect()?, json)?,
        Action::Watch { name, json, first_last, timeout } => {
            let mode = if first_last { Mode::FirstLast } else { Mode::Each };
            let timeout = timeout.map(seconds).transpose()?;
            show::watch(&mut Names::connect()?, &name, mode, timeout, json)?;
        }
        Action::Claim(args) => return claim(&args),
        Action::Group(args) => return group::run(args),
        Action::Wait { name, count, timeout, json } => {
            wait(&name, count, seconds(timeout)?, json)?;
        }
        Action::Resolve { name, pick, json } => resolve(&name, pick, json)?,
        Action::Send { name, message, all } => {
            let sent = Names::connect()?.send(&name, all, message.as_bytes());
            sent.map_err(|why| match why {
                NamesError::Refused(why) => anyhow::anyhow!("{name}: {why}"),
                other => other.into(),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn shown__what_moves_the_cursor_is_escaped() {
        assert_eq!(shown("grüß dich".as_bytes()), "grüß dich");
        assert_eq!(shown(b"a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
    }
}

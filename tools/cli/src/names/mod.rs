//! `weft names`: names of programs in a cluster.

mod show;

use anyhow::{bail, Context, Result};
use clap::{Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Duration;
use weft_cluster::client::Event;
use weft_cluster::names::{Mode, Pick};
use weft_cluster::{Name, Names, NamesError, Spec};

/// Claim, find and watch names of programs, on all hosts of a cluster
///
/// A name is a word, or a type as a number, and an instance or a range of instances: pump, pump:7,
/// 1000:0-9. A program claims it, and it is gone when the program ends, on all hosts and with the
/// cause. Look-ups are answered by the agent of this host (`weftd --cluster`).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft names claim web --at 10.0.0.1:8080 -- ./server     for as long as the server runs
  weft names resolve web                                   10.0.0.1:8080
  weft names wait worker --count 4                         until four have claimed it
  weft names watch web
  weft names list --json")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    /// By turns
    Turn,
    /// One of this host first
    Nearest,
    /// All
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
    /// Ends with status 1 and the reason if the message did not arrive.
    Send {
        /// The name; its first instance counts
        name: Name,
        /// The message
        message: String,
        /// To all owners
        #[arg(long)]
        all: bool,
    },
}

/// Claim a name for as long as a command runs, or until Ctrl-C
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
    /// Print messages that are sent to the name
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

fn claim(args: &Claim) -> Result<ExitCode> {
    let mut names = Names::connect()?;
    let mut spec = Spec::new(&args.name);
    if let Some(alias) = &args.alias {
        spec = spec.alias(alias);
    }
    spec = args.at.map_or(spec.clone(), |at| spec.address(at));
    // A name has to lead somewhere; this process stands for one that has no address.
    let endpoint = args.endpoint.or(args.at.is_none().then(|| std::process::id().into()));
    spec = endpoint.map_or(spec.clone(), |id| spec.endpoint(id));
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
        return hold(&mut names, number, args.messages);
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
            Ok(event) => tell(event, args.messages),
            Err(why) => {
                let _ = child.wait();
                return Err(why.into());
            }
        }
    }
}

fn tell(event: Option<Event>, messages: bool) {
    match event {
        Some(Event::Lost { gone, .. }) => eprintln!("weft: the claim has ended: {gone}"),
        Some(Event::Mail { payload, .. }) if messages => {
            println!("{}", String::from_utf8_lossy(&payload));
            weft_run::out::flush();
        }
        _ => {}
    }
}

fn hold(names: &mut Names, claim: u64, messages: bool) -> Result<ExitCode> {
    loop {
        let event = names.event(Duration::from_secs(3600))?;
        if let Some(Event::Lost { claim: lost, gone }) = &event {
            if *lost == claim {
                bail!("the claim has ended: {gone}");
            }
        }
        tell(event, messages);
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
    for binding in &found {
        match json {
            true => println!("{}", show::json(binding, &names)?),
            false => println!("{}", show::place(binding)),
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
            show::watch(&Names::connect()?, &name, mode, timeout, json)?;
        }
        Action::Claim(args) => return claim(&args),
        Action::Wait { name, count, timeout, json } => {
            let mut names = Names::connect()?;
            let found = names.wait(&name, count, seconds(timeout)?)?;
            for binding in &found {
                match json {
                    true => println!("{}", show::json(binding, &names)?),
                    false => println!("{}", show::line(binding)),
                }
            }
        }
        Action::Resolve { name, pick, json } => resolve(&name, pick, json)?,
        Action::Send { name, message, all } => {
            let sent = Names::connect()?.send(name.kind, name.lower, all, message.as_bytes());
            sent.map_err(|why| match why {
                NamesError::Refused(why) => anyhow::anyhow!("{name}: {why}"),
                other => other.into(),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

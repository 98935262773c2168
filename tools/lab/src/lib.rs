//! `weft lab`: a virtual cluster on this machine, for users and tests.
//!
//! | module | content |
//! | --- | --- |
//! | `spec` | the specification of a lab |
//! | `client` | starting a lab, entering its hosts |
//! | `keeper`, `init` | the process that holds a lab, the first process of a host |
//! | `wire` | requests of the command to the keeper |
//! | `net`, `switch` | interfaces, rate and loss; delay |
//! | `exec`, `proxy`, `job` | commands on hosts, from outside and from other hosts; jobs |
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

pub mod client;
mod exec;
pub mod init;
mod job;
pub mod keeper;
mod net;
pub mod proxy;
pub mod spec;
mod switch;
mod sys;
mod wire;

pub use net::INTERFACE;

use anyhow::Result;
use clap::Subcommand;
use spec::Conditions;
use std::process::ExitCode;
use wire::Description;

/// A virtual cluster on this machine: hosts with their own network, name and processes
///
/// Works as root, and without root where the system allows user namespaces. Needs `ip` and `tc`
/// (iproute2). The machine's own network stays as it is, and a lab is gone when its keeper ends,
/// however that happens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft lab up 4                            hosts h1 to h4, MTU 1500
  weft lab up 2 --mtu 9000 --name big      another one beside it
  weft lab up 8 --rate 1gbit --delay 100us --loss 0.1% --name slow
  weft lab exec h1 ping -c 3 h2
  weft lab run -n 8 ./program
  weft lab down")]
pub struct Args {
    /// Name of the lab
    #[arg(long, global = true, default_value = "lab", env = "WEFT_LAB", value_name = "NAME")]
    name: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Up(Up),
    Exec(exec::Args),
    Run(job::Args),
    /// List all labs
    List,
    /// Show a lab and its hosts
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// End a lab and everything that runs on its hosts
    Down,
}

/// Make a lab
///
/// The conditions apply to every frame, also of raw links, as it leaves the switch towards a host;
/// on the path into the switch the rate applies to all frames that the kernel sends. Loss drops
/// single packets: trains of segments are cut up first.
#[derive(Debug, clap::Args)]
struct Up {
    /// Number of hosts, 1 to 250
    hosts: usize,
    #[command(flatten)]
    conditions: Conditions,
}

fn up(name: &str, args: &Up) -> Result<()> {
    let spec = client::plan(name, args.hosts, &args.conditions)?;
    for note in client::detached(&spec)? {
        eprintln!("weft lab: note: {note}");
    }
    print_status(&wire::describe(name, None)?.0);
    Ok(())
}

fn print_status(lab: &Description) {
    let user = if lab.own_user_namespace { ", without root" } else { "" };
    let (spec, keeper) = (&lab.spec, lab.keeper);
    println!(
        "lab {}: {} hosts, {}{user}; keeper {keeper}",
        spec.name,
        spec.hosts,
        spec.conditions()
    );
    for host in &lab.hosts {
        let state = if host.up { format!("process {}", host.pid) } else { "ended".into() };
        let (v4, v6) = (host.v4.to_string(), host.v6.map_or("-".into(), |v6| v6.to_string()));
        println!("  {:<5} {v4:<14} {v6:<24} {state}", host.name);
    }
    if let Some(count) = lab.overflowed.filter(|&count| count > 0) {
        println!("  {count} packets dropped: too many in flight at this delay");
    }
}

fn list() -> Result<()> {
    let names = wire::names()?;
    if names.is_empty() {
        println!("no labs");
    }
    for name in names {
        // A lab may end between the two requests.
        let Ok((lab, _)) = wire::describe(&name, None) else { continue };
        let up = lab.hosts.iter().filter(|host| host.up).count();
        println!("{name}: {up} of {} hosts up, {}", lab.spec.hosts, lab.spec.conditions());
    }
    Ok(())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let name = args.name.as_str();
    match &args.action {
        Action::Up(args) => up(name, args)?,
        Action::Exec(args) => return exec::run(name, args),
        Action::Run(args) => return job::run(name, args),
        Action::List => list()?,
        Action::Status { json } => {
            let (lab, _) = wire::describe(name, None)?;
            match json {
                true => println!("{}", serde_json::to_string(&lab)?),
                false => print_status(&lab),
            }
        }
        Action::Down => wire::down(name)?,
    }
    Ok(ExitCode::SUCCESS)
}

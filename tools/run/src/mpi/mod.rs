//! MPI programs on weft: `weft mpi` runs one under its MPI's own launcher, `weft mpi-env` prints
//! the variables for that.
//!
//! | module | content |
//! | --- | --- |
//! | `detect` | the MPIs of this machine |
//! | `provider` | the path of the libfabric provider |
//! | `probe`, `judge` | probing libraries in another process; the verdict |
//! | `variables` | the variables that make an MPI use weft |
//! | `env` | `weft mpi-env` |
//! | `command`, `supervise` | the launcher's command line; running it |
//! | `watch` | detecting ranks that do not use weft |
//! | `needs` | the MPI library that a program's file names |
//! | `movable` | ranks that can move to another host |
//! | `input` | standard input that a launcher cannot take |
//! | `habits` | options of MPIs' launchers, as options of `weft mpi` |
//! | `agent` | the program that the launcher calls in place of ssh |
//! | `served` | agents (`weftd`) on the hosts of the job |

pub mod agent;
pub mod command;
pub mod detect;
pub mod env;
pub mod habits;
mod input;
pub mod judge;
mod movable;
pub mod needs;
pub mod probe;
mod provider;
pub mod served;
mod supervise;
mod sys;
pub mod variables;
mod watch;

use crate::misuse::Misuse;
use crate::run::agents::Agent;
use crate::run::hosts::{self, Share};
use crate::run::{host_list, named_env, parse_links, remote_weft, seconds, RANKS_MAX};
use crate::words;
use anyhow::{bail, Result};
use command::{Plan, Request};
use detect::Mpi;
use judge::{Fit, Found};
use served::Serving;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use variables::Choice;
use weft::launch::keyfile;

/// The MPI, and how it uses weft.
#[derive(Clone, Debug, clap::Args)]
pub struct Selection {
    /// The MPI: mpich, openmpi, intel, or the path of its mpiexec or folder [default: the one of
    /// the active virtual environment, else the first on PATH]
    #[arg(long, value_name = "MPI")]
    mpi: Option<String>,
    /// Links the ranks may use: auto, shm, udp, tcp, packet (raw Ethernet), gso (the same with long
    /// frames), xdp (AF_XDP, root) or a list, as packet,udp; packet, gso, xdp and agent (served by
    /// weftd) include shm [default: WEFT_LINK, else auto]
    #[arg(long, value_name = "LIST", value_parser = parse_links)]
    link: Option<String>,
    /// Ranks of one host use weft too, in place of the MPI's own shared memory
    #[arg(long)]
    all_through_weft: bool,
}

impl From<&Selection> for Choice {
    fn from(selection: &Selection) -> Choice {
        Choice { link: selection.link.clone(), all_through_weft: selection.all_through_weft }
    }
}

/// Run an MPI program on weft, under its MPI's own launcher
///
/// The program is not changed: its MPI loads weft as a libfabric provider. Options, signals,
/// standard input and exit code are those of the MPI's mpiexec.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft mpi -n 4 ./a.out
  weft mpi -n 4 python program.py
  weft mpi --hosts a:2,b:2 ./a.out          the same paths on all hosts
  weft mpi --mpi openmpi --link udp -n 2 ./a.out
  weft mpi -np 8 --bind-to core ./a.out     options of mpiexec, too
  weft mpi --agent --hosts a:2,b:2 ./a.out  with a weftd on each host
  weft mpi -n 4 --dry-run ./a.out           only print the command
  weft mpi --migratable --hosts a,b ./a.out ranks that `weft migrate` can move

`weft doctor --mpi` tells which MPIs on this machine can use weft.")]
// More than 15 fields: each is an option of the command.
pub struct Args {
    /// Number of ranks [default: all slots of the hosts, all tasks of the allocation of Slurm, or
    /// one per core of this machine]
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<usize>,
    /// Hosts, each with its number of slots if it has one: h1,h2:4
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// File with one host per line: host, host:4 or host slots=4
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Start an agent (weftd) on each host for the time of the job, which serves the ranks
    #[arg(long)]
    agent: bool,
    /// Start ranks so that `weft migrate` can move them to another host of the job, by the launcher
    /// of `weft run`; needs MPICH, and CRIU and root on the hosts
    #[arg(long)]
    migratable: bool,
    /// More hosts, on which no rank starts, and to which ranks can move
    #[arg(long, value_name = "LIST", requires = "migratable")]
    spare: Option<String>,
    /// Set a variable for the ranks; K alone passes on its value
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// End the job after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Command used in place of ssh, called with HOST PROGRAM ARGS
    #[arg(long, value_name = "CMD", env = agent::VARIABLE)]
    launch_agent: Option<String>,
    /// Ranks of each host
    #[arg(long, value_name = "N")]
    ppn: Option<usize>,
    /// An option of the MPI's mpiexec that was typed by habit
    #[arg(long, hide = true)]
    own: Vec<String>,
    /// More options for the MPI's mpiexec, split into words as a shell does
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    launcher_args: Option<String>,
    /// Print the command line and do not run it
    #[arg(long)]
    dry_run: bool,
    /// Print the MPI, provider and key in use
    #[arg(short, long)]
    verbose: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Returns the MPI that the user means.
fn choose(selection: &Selection) -> Result<Mpi> {
    match &selection.mpi {
        Some(what) => detect::named(what),
        None => detect::first(),
    }
}

/// Makes sure that processes find a key: that of `WEFT_KEY`, else that of the file, whose path is
/// returned.
fn job_key() -> Result<Option<PathBuf>> {
    if keyfile::from_env()?.is_some() {
        return Ok(None);
    }
    let path = keyfile::path()?;
    keyfile::load_or_create(&path)?;
    Ok(Some(path))
}

/// Returns the number of cores of this machine; all threads of a core count once.
fn cores() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let siblings = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let lists: std::collections::HashSet<String> = (0..4096).map_while(siblings).collect();
    if lists.is_empty() {
        threads
    } else {
        threads.min(lists.len())
    }
}

/// Returns the ranks of each host, if hosts are given, and the number of all ranks.
fn place(args: &Args) -> Result<(Option<Vec<Share>>, usize)> {
    let mut listed = host_list(args.hosts.as_deref(), args.hostfile.as_deref())?;
    listed.set_slots(args.ppn)?;
    let hosts = &listed.hosts;
    let ranks = match args.ranks {
        Some(0) => misuse!("-n 0: a job has at least one rank"),
        Some(ranks) => ranks,
        None if listed.named || args.ppn.is_some() => hosts::slots(hosts),
        None => cores(),
    };
    if ranks > RANKS_MAX {
        misuse!("-n {ranks}: a job has at most {RANKS_MAX} ranks");
    }
    if args.selection.link.as_deref() == Some("shm") && hosts.len() > 1 {
        misuse!("--link shm joins ranks of one host only; {} hosts are listed", hosts.len());
    }
    Ok((listed.named.then(|| hosts::place(hosts, ranks).0), ranks))
}

/// Refuses an MPI that cannot use a provider; a command says if that is not known.
fn check_fit(command: &str, mpi: &Mpi, provider: &Found) -> Result<()> {
    match judge::fit(mpi, provider).0 {
        Fit::Yes => {}
        Fit::Unknown(fault) => eprintln!("{command}: note: {}; {}", fault.why, fault.remedy),
        Fit::No(fault) => bail!(
            "{mpi} ({}) cannot use weft: {}; {}; `weft doctor --mpi` shows the others",
            mpi.launcher.display(),
            fault.why,
            fault.remedy
        ),
    }
    Ok(())
}

/// Returns the provider to use with this MPI.
///
/// # Errors
/// The MPI cannot use it; the error names the fault and the fix.
fn fitting(mpi: &Mpi) -> Result<provider::Provider> {
    let provider = judge::provider();
    check_fit("weft mpi", mpi, &provider)?;
    provider.map_err(|fault| anyhow::anyhow!("{}; {}", fault.why, fault.remedy))
}

/// Variable with the name of the job for `weft top`: launchers have other names for it on each
/// host.
const JOB: &str = "WEFT_RUN_JOB";

/// Returns a name that no other job of the hosts has: where it was started, and by which process.
fn job_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take_while(|c| *c != '.').take(24).collect();
    format!("mpi-{host}-{}", std::process::id())
}

fn plan(args: &Args, mpi: &Mpi, provider: &provider::Provider) -> Result<Plan> {
    let (shares, ranks) = place(args)?;
    let mut set = variables::variables(mpi.family, &provider.folder, &(&args.selection).into());
    let notes = variables::keep_users(&mut set, |name| std::env::var(name).ok());
    if args.agent {
        set.extend(served::variables(args.selection.link.is_some()));
    }
    set.push((JOB.to_owned(), job_name()));
    set.extend(named_env(&args.env)?);
    let extra = args.launcher_args.as_deref().unwrap_or_default();
    let Some(mut extra) = words::split(extra) else {
        misuse!("--launcher-args {extra:?}: a quote is not closed, or a backslash ends it");
    };
    for own in &args.own {
        extra.extend(habits::of_launcher(own, mpi.family).map_err(Misuse)?);
    }
    let agent = args.launch_agent.as_deref().filter(|_| shares.is_some());
    let mut plan = command::plan(&Request {
        mpi,
        shares: shares.as_deref(),
        ranks,
        set,
        agent: agent.map(agent::install).transpose()?,
        timeout: args.timeout,
        extra,
        command: &args.command,
        root: rustix::process::geteuid().is_root(),
        cores: cores(),
        inherited: std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect(),
    });
    plan.notes.extend(notes);
    Ok(plan)
}

/// Starts the agents that the user asked for.
fn agents(args: &Args, plan: &Plan) -> Result<Serving> {
    // The ranks use the last value too.
    let name = plan.set.iter().rfind(|(name, _)| name == crate::agent::NAME);
    let Some((_, name)) = name.filter(|_| args.agent) else { return Ok(Serving::default()) };
    let shares = place(args)?.0.unwrap_or_default();
    let mut hosts: Vec<&str> = shares.iter().map(|share| share.host.as_str()).collect();
    let listed = host_list(args.hosts.as_deref(), args.hostfile.as_deref())?;
    let reach = args.launch_agent.clone().or(listed.launcher.map(str::to_owned));
    let starter = Agent { command: reach.filter(|_| plan.far), remote_weft: remote_weft(None)? };
    if !plan.far {
        hosts.push("localhost");
    }
    Ok(Serving::start(&starter, &hosts, name))
}

/// Runs the program and returns its launcher's exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mpi = choose(&args.selection)?;
    let provider = fitting(&mpi)?;
    if args.migratable {
        return movable::run(args, &mpi, &provider);
    }
    let mut plan = plan(args, &mpi, &provider)?;
    for note in &plan.notes {
        eprintln!("weft mpi: note: {note}");
    }
    if args.dry_run {
        println!("{}", plan.line());
        eprintln!("weft mpi: note: the run gets a key of its own by {}", keyfile::VARIABLE);
        if args.agent {
            eprintln!("weft mpi: note: the run has an agent on each host (weftd --name @...)");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(agent) = &args.launch_agent {
        plan.set.push((agent::VARIABLE.to_owned(), agent.clone()));
    }
    if keyfile::from_env()?.is_none() {
        let key = weft::launch::random_key()?;
        plan.set.push((keyfile::VARIABLE.to_owned(), keyfile::format(&key)));
    }
    if provider.cached && plan.far {
        eprintln!(
            "weft mpi: note: the provider is used from {}, which the other hosts need as well",
            provider.folder.display()
        );
    }
    if args.verbose || std::io::stderr().is_terminal() {
        let set = plan.set.iter().rfind(|(name, _)| name == "WEFT_LINK").map(|(_, v)| v.clone());
        let links = set.or_else(|| std::env::var("WEFT_LINK").ok());
        eprintln!(
            "weft mpi: {} rank{} of {mpi} ({}), links {}",
            plan.ranks,
            if plan.ranks == 1 { "" } else { "s" },
            mpi.launcher.display(),
            links.as_deref().unwrap_or("auto")
        );
    }
    if args.verbose {
        eprintln!("weft mpi: provider {}", provider.file.display());
        eprintln!("weft mpi: {}", plan.line());
    }
    let serving = agents(args, &plan)?;
    let code = supervise::run(&plan, &mpi);
    serving.end();
    code
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn ranks(words: &[&str]) -> usize {
        let args = Command::parse_from([&["mpi"], words, &["a.out"]].concat()).args;
        place(&args).unwrap().1
    }

    #[test]
    fn place__without_a_number_no_core_is_shared() {
        // Threads of one core count once: Open MPI would bind no two ranks to a core.
        assert_eq!(ranks(&[]), cores());
        assert_eq!(ranks(&["-n", "3"]), 3);
        assert_eq!(ranks(&["--hosts", "a:2,b:3"]), 5);
    }
}

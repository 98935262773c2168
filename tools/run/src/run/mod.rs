//! `weft run`: starts the ranks of a job on this machine or on a list of hosts.

pub mod agents;
mod control;
mod frame;
mod guard;
pub mod hosts;
mod kvs;
pub mod moving;
mod named;
mod output;
pub mod poll;
pub mod proxy;
mod rank;
pub mod slurm;
mod sys;

use crate::{misuse, program};
use agents::{is_local, Agent};
use anyhow::{Context, Result};
use clap::ValueEnum;
use hosts::{Host, Share};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Parses a list as in `WEFT_LINK`. Links on raw Ethernet alone would not work inside a host, so
/// shared memory is added to them.
///
/// # Errors
/// An unknown word; the error lists the known ones.
pub fn parse_links(text: &str) -> Result<String, String> {
    let links = weft::Links::parse(text).filter(|_| !text.trim().is_empty());
    let links = links.ok_or_else(|| {
        format!(
            "{text:?} is not understood; use auto, shm, udp, tcp, packet, gso, xdp, agent or \
             a list: packet,udp"
        )
    })?;
    let raw = (links.packet || links.gso || links.xdp || links.agent) && !links.shm;
    Ok(if raw { format!("shm,{text}") } else { text.to_owned() })
}

/// The cores that a rank may use on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// All cores: the system places the rank.
    None,
    /// On one core each, in order.
    Core,
}

/// Start the ranks of a job, on this machine or on hosts reached by ssh
///
/// In an allocation of Slurm (salloc, sbatch) the hosts and their counts are those of the
/// allocation, and srun reaches them.
// More than 15 fields: each is an option of the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of ranks [default: all slots of the hosts, all tasks of the allocation of Slurm, or
    /// one per core of this machine]
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    pub ranks: Option<usize>,
    /// Hosts, each with its number of slots if it has one: h1,h2:4; or name:NAME, the hosts of the
    /// programs that have claimed NAME (`weft names`), a slot for each
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    pub hosts: Option<String>,
    /// File with one host per line: host, host:4 or host slots=4
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Ranks of each host
    #[arg(long, value_name = "N")]
    pub ppn: Option<usize>,
    /// Links the ranks may use: auto, shm, udp, tcp, packet (raw Ethernet), gso (the same with long
    /// frames), xdp (AF_XDP, root) or a list, as packet,udp; packet, gso, xdp and agent (served by
    /// weftd) include shm [default: WEFT_LINK, else auto]
    #[arg(long, value_name = "LIST", value_parser = parse_links)]
    pub link: Option<String>,
    /// Start an agent (weftd) on each host for the time of the job, which serves the ranks
    #[arg(long)]
    pub agent: bool,
    /// Put the rank, in brackets, before each line of output
    #[arg(long)]
    pub tag_output: bool,
    /// Let the other ranks go on when one fails; the last line names those that failed, and the
    /// exit code is that of the first of them
    #[arg(long)]
    pub keep_going: bool,
    /// Start ranks so that `weft migrate` can move them to another host of the job; needs CRIU and
    /// root on the hosts, and programs of an MPI over weft's provider
    #[arg(long)]
    pub migratable: bool,
    /// More hosts, on which no rank starts, and to which ranks can move
    #[arg(long, value_name = "LIST", requires = "migratable")]
    pub spare: Option<String>,
    /// Bind each rank to one core
    #[arg(long, value_enum, default_value = "none")]
    pub bind: Bind,
    /// End the job after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Longest wait for a host or for other ranks at start-up, in seconds
    #[arg(
        long,
        value_name = "S",
        value_parser = seconds,
        default_value = "60",
        env = "WEFT_LAUNCH_TIMEOUT"
    )]
    pub start_timeout: Duration,
    /// Set a variable for the ranks; K alone passes on its value
    #[arg(long, value_name = "K=V")]
    pub env: Vec<String>,
    /// Command used in place of ssh, called with HOST PROGRAM ARGS
    #[arg(long, value_name = "CMD", env = "WEFT_LAUNCH_AGENT")]
    pub launch_agent: Option<String>,
    /// Path of weft on the other hosts [default: the path of this program]
    #[arg(long, value_name = "PATH")]
    pub remote_weft: Option<String>,
    /// Print the place of each rank and how it ends
    #[arg(short, long)]
    pub verbose: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<String>,
}

/// Variables that describe the launching machine or session and have no meaning on another host.
const OWN: [&str; 14] = [
    "HOSTNAME",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "SSH_",
    "XDG_",
    "DBUS_",
    "DISPLAY",
    "WAYLAND_",
    "TMPDIR",
    "PMI_",
    "PMIX_",
    "MPI_LOCAL",
];

/// Parses a time in seconds.
///
/// # Errors
/// The text is no such time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value < 1e9 => Ok(Duration::from_secs_f64(value)),
        _ => Err("expected a positive number of seconds".into()),
    }
}

/// Hosts for a job.
pub struct Listed {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// True if the user or Slurm named them: then they set the default number of ranks.
    pub named: bool,
    /// The command that reaches them if the user gives none and ssh is not used.
    pub launcher: Option<&'static str>,
}

impl Listed {
    /// Gives every host so many slots, if a number is given.
    ///
    /// # Errors
    /// The number is 0.
    pub fn set_slots(&mut self, each: Option<usize>) -> Result<()> {
        let Some(each) = each else { return Ok(()) };
        if each == 0 {
            misuse!("--ppn 0: a host has at least one rank");
        }
        self.hosts.iter_mut().for_each(|host| host.slots = Some(each));
        Ok(())
    }
}

/// Returns the hosts of a list or of a file; without either those of Slurm's allocation, if this
/// process is in one; else this machine.
///
/// # Errors
/// The list or file is invalid.
pub fn host_list(list: Option<&str>, file: Option<&Path>) -> Result<Listed> {
    let of = |hosts| Listed { hosts, named: true, launcher: None };

    if let Some(name) = list.and_then(|list| list.strip_prefix("name:")) {
        return named::hosts(name).context("--hosts").map(of);
    }
    if let Some(list) = list {
        return hosts::parse_list(list).context("--hosts").map(of).map_err(misuse::of);
    }
    if let Some(file) = file {
        let name = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("host file {name}"));
        let text = text.map_err(misuse::of)?;
        let hosts = hosts::parse_file(&text).with_context(|| format!("host file {name}"));
        return hosts.map(of).map_err(misuse::of);
    }
    if let Some(allocation) = slurm::allocation(|name| std::env::var(name).ok())? {
        let launcher = in_path("srun").then_some(slurm::LAUNCHER);
        log::info!("hosts of Slurm's job {}: {:?}", allocation.job, allocation.hosts);
        return Ok(Listed { hosts: allocation.hosts, named: true, launcher });
    }
    let hosts = vec![Host { name: "localhost".into(), slots: None }];
    Ok(Listed { hosts, named: false, launcher: None })
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Most ranks of a job: more are a slip of the finger, and would fill the process table.
pub const RANKS_MAX: usize = 1 << 16;

fn own_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn placement(args: &Args, listed: &Listed) -> Result<Vec<Share>> {
    let hosts = &listed.hosts;
    let size = match args.ranks {
        Some(size) => size,
        None if listed.named || args.ppn.is_some() => hosts::slots(hosts),
        None => own_cores(),
    };
    if size == 0 {
        misuse!("-n 0: a job has at least one rank");
    }
    if size > RANKS_MAX {
        misuse!("-n {size}: a job has at most {RANKS_MAX} ranks");
    }
    let (shares, excess) = hosts::place(hosts, size);
    if excess > 0 {
        eprintln!(
            "weft run: note: {size} ranks in {} slots: {excess} more than asked to fit; \
             ranks share cores",
            size - excess
        );
    }
    Ok(shares)
}

/// Returns the variables that a user named; `NAME` alone passes on the launcher's own value.
///
/// # Errors
/// A word is no variable, or the variable is not set here.
pub fn named_env(named: &[String]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for text in named {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = std::env::var(text);
                let value = value.with_context(|| format!("--env {text}: not set here"));
                (text.as_str(), value.map_err(misuse::of)?)
            }
        };
        if name.is_empty() || text.contains('\0') {
            misuse!("--env {text:?}: expected NAME=VALUE or NAME");
        }
        pairs.push((name.to_owned(), value));
    }
    Ok(pairs)
}

/// Returns the variables of this environment that ranks of other hosts get.
fn carried_env() -> Vec<(String, String)> {
    let text = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    text.filter(|(name, _)| {
        !OWN.iter().any(|own| name == own || (own.ends_with('_') && name.starts_with(own)))
            && !name.starts_with("MPI_LOCAL")
    })
    .collect()
}

/// Name of the variable by which `weft run` informs its ranks that standard error ends at a
/// terminal: the ranks themselves see a pipe.
pub const WATCHED: &str = "WEFT_TERMINAL";

/// Name of the variable by which Python's sets of texts have the same order in several processes:
/// an operation of a shared object that takes "any" element takes the same one on all ranks.
const PYTHON_HASHES: &str = "PYTHONHASHSEED";

fn rank_env(args: &Args) -> Result<Vec<(String, String)>> {
    let wait = args.start_timeout.as_secs_f64().to_string();
    let mut env = vec![("WEFT_LAUNCH_TIMEOUT".to_owned(), wait)];
    if let Some(links) = &args.link {
        env.push(("WEFT_LINK".to_owned(), links.clone()));
    }
    if args.agent {
        if args.link.is_none() {
            env.push(("WEFT_LINK".to_owned(), "shm,agent".to_owned()));
        }
        env.push((crate::agent::START.to_owned(), "1".to_owned()));
        env.push((crate::agent::NAME.to_owned(), crate::agent::fresh_name()));
    }
    if std::io::stderr().is_terminal() {
        env.push((WATCHED.to_owned(), "1".to_owned()));
    }
    if std::env::var_os(PYTHON_HASHES).is_none() {
        env.push((PYTHON_HASHES.to_owned(), (weft_link::random_u64() as u32).to_string()));
    }
    env.extend(named_env(&args.env)?);
    Ok(env)
}

/// Returns the path of this program on other hosts: the named one, or that of this program.
///
/// # Errors
/// The path of this program cannot be found.
pub fn remote_weft(named: Option<&str>) -> Result<String> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    program::weft()?.into_os_string().into_string().ok().context("this program's path is not UTF-8")
}

/// Adds the hosts without ranks to which ranks can move.
fn add_spare(args: &Args, listed: &Listed, shares: &mut Vec<Share>) -> Result<()> {
    if !args.migratable {
        return Ok(());
    }
    let spare = args.spare.as_deref().map(hosts::parse_list).transpose();
    let spare = spare.context("--spare").map_err(misuse::of)?.unwrap_or_default();
    for host in listed.hosts.iter().chain(&spare) {
        if !shares.iter().any(|share| share.host == host.name) {
            let first = shares.last().map_or(0, |last| last.first + last.count);
            shares.push(Share { host: host.name.clone(), first, count: 0 });
        }
    }
    Ok(())
}

/// Runs the job and returns the exit status of the first rank that failed, or success.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut listed = host_list(args.hosts.as_deref(), args.hostfile.as_deref())?;
    listed.set_slots(args.ppn)?;
    let mut shares = placement(&args, &listed)?;
    add_spare(&args, &listed, &mut shares)?;
    let agent = Agent {
        command: args.launch_agent.clone().or(listed.launcher.map(str::to_owned)),
        remote_weft: remote_weft(args.remote_weft.as_deref())?,
    };
    let far = shares.iter().any(|share| agent.command.is_some() || !is_local(&share.host));
    if args.link.as_deref() == Some("shm") && shares.len() > 1 && far {
        misuse!("--link shm joins ranks of one host only; {} hosts are listed", shares.len());
    }
    let mut env = rank_env(&args)?;
    if args.migratable {
        moving::check(&mut env, &args.command[0])?;
    }
    control::run(&args, &agent, shares, env)
}

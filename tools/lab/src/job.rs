//! `weft lab run`: a job over the hosts of a lab, started by the launcher of every job.

use super::client::{self, Attached};
use super::spec::Conditions;
use super::wire;
use anyhow::{ensure, Context, Result};
use clap::{Args as _, FromArgMatches};
use std::process::ExitCode;
use weft_run::program;
use weft_run::run;
use weft_run::words;

/// Start the ranks of a job on the hosts of a lab
///
/// Without --up the lab must be there (`weft lab up`).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft lab run -n 8 ./program              8 ranks over all hosts
  weft lab run --per-host 2 ./program      2 ranks on every host
  weft lab run --link udp -n 8 ./program   over this link
  weft lab run --with=--tag-output -n 8 ./program
                                           another option of `weft run`
  weft lab run --up 4 --loss 1% -n 4 ./program
                                           a lab for this one job")]
pub struct Args {
    /// Number of ranks [default: one per host, or --per-host times the hosts]
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<usize>,
    /// Ranks on each host, hosts filled in order [default: spread evenly]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    per_host: Option<u16>,
    /// Make a lab of this many hosts for the job, and remove it afterwards
    #[arg(long, value_name = "HOSTS")]
    up: Option<usize>,
    #[command(flatten)]
    conditions: Conditions,
    /// Links the ranks may use, as of `weft run`: auto, shm, udp, tcp, packet, gso, xdp, agent or a
    /// list
    #[arg(long, value_name = "LIST", value_parser = run::parse_links)]
    link: Option<String>,
    /// Another option of `weft run` (`weft run --help` lists them), with an equals sign; several by
    /// one --with each: --with=--tag-output --with=--timeout=60
    #[arg(long = "with", value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<String>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Runs the job and returns its exit status.
///
/// # Errors
/// There is no such lab, or none can be made, or the launcher fails.
pub fn run(lab: &str, args: &Args) -> Result<ExitCode> {
    let mut own = None;
    let lab = match args.up {
        Some(hosts) => {
            let name = format!("run-{}", std::process::id());
            let spec = client::plan(&name, hosts, &args.conditions)?;
            own.insert(Attached::start(&spec)?).name.clone()
        }
        None => lab.to_owned(),
    };
    let (description, _) = wire::describe(&lab, None)?;
    let dead: Vec<&str> =
        description.hosts.iter().filter(|h| !h.up).map(|h| h.name.as_str()).collect();
    ensure!(dead.is_empty(), "lab {lab}: {} ended; make the lab anew", dead.join(", "));
    let slots = args.per_host.map_or(String::new(), |k| format!(":{k}"));
    let hosts: Vec<String> =
        description.hosts.iter().map(|host| format!("{}{slots}", host.name)).collect();
    let words = words(args, &lab, &hosts)?;
    let command = run::Args::augment_args(clap::Command::new("weft run").no_binary_name(true));
    let matches = command.try_get_matches_from(words).unwrap_or_else(|e| e.exit());
    run::run(run::Args::from_arg_matches(&matches)?)
}

/// Returns the options of `weft run` for this job.
fn words(args: &Args, lab: &str, hosts: &[String]) -> Result<Vec<String>> {
    let weft = program::weft()?;
    let weft = weft.to_str().context("this program's path is not UTF-8")?;
    let agent = words::join([weft, "lab", "exec", "--name", lab]);
    let ranks = args.ranks.map(|n| n.to_string());
    let mut words = vec!["--hosts".to_owned(), hosts.join(",")];
    words.extend(["--launch-agent".to_owned(), agent]);
    words.extend(ranks.into_iter().flat_map(|n| ["--ranks".to_owned(), n]));
    words.extend(args.link.iter().flat_map(|link| ["--link".to_owned(), link.clone()]));
    words.extend(args.with.iter().cloned());
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    Ok(words)
}

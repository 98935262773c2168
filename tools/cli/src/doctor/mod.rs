//! `weft doctor`: checks what works on this machine and how to fix the rest.

mod between;
mod card;
mod containers;
mod environment;
mod host;
mod memory;
mod migrate;
mod mpi;
mod network;
pub mod partner;
mod sys;

use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use weft_measure::layout::{self, hanging};

/// Check what will work on this machine and how to fix the rest
///
/// The exit code is 1 if a check fails: a link that needs nothing does not work, or a setting is
/// wrong. With --mpi it is 0 only if an MPI was seen to work with weft.
/// With --hosts the paths between hosts are checked and nothing else.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft doctor
  weft doctor --mpi
  weft doctor --migrate             can ranks move from and to this host?
  weft doctor --hosts node1,node2   the path between two hosts
  weft doctor --hosts h1,h2 --launch-agent 'weft lab exec'
                                    between two hosts of a lab")]
pub struct Args {
    /// Print one JSON object per check
    #[arg(long)]
    json: bool,
    /// Check only MPIs: those that can run on weft, the command for each, and the fault of the
    /// others
    #[arg(long)]
    mpi: bool,
    /// Check only what `weft migrate` needs on this host: CRIU, kernel, rights
    #[arg(long, conflicts_with = "mpi")]
    migrate: bool,
    #[command(flatten)]
    reach: between::Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Works.
    Ok,
    /// Works, but slower or not in every case.
    Warn,
    /// Something of weft does not work.
    Fail,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Check {
    verdict: Verdict,
    topic: &'static str,
    finding: String,
    /// The fix; for something that works, how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi: Option<Box<mpi::Details>>,
}

impl Check {
    fn works(&self) -> bool {
        self.verdict == Verdict::Ok
    }

    fn ok(topic: &'static str, finding: impl Into<String>) -> Check {
        Check { verdict: Verdict::Ok, topic, finding: finding.into(), remedy: None, mpi: None }
    }

    fn warn(topic: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        let remedy = Some(remedy.into());
        Check { verdict: Verdict::Warn, topic, finding: finding.into(), remedy, mpi: None }
    }

    fn fail(topic: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        let remedy = Some(remedy.into());
        Check { verdict: Verdict::Fail, topic, finding: finding.into(), remedy, mpi: None }
    }
}

fn print(checks: &[Check]) {
    let width = layout::width();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let head = format!("{verdict}  {:<16} ", check.topic);
        println!("{}", hanging(&head, &check.finding, width));
        if let Some(remedy) = &check.remedy {
            println!("{}", hanging(&format!("      {:<16} -> ", ""), remedy, width));
        }
    }
    let count = |verdict| checks.iter().filter(|c| c.verdict == verdict).count();
    let (ok, warn, fail) = (count(Verdict::Ok), count(Verdict::Warn), count(Verdict::Fail));
    println!("\n{ok} ok, {warn} could be better, {fail} failed");
}

/// Runs all checks; fails if one of them fails.
pub fn run(args: Args) -> Result<ExitCode> {
    if !args.reach.hosts.is_empty() {
        return tell(&between::checks(&args.reach)?, args.json, true);
    }
    if args.migrate {
        return tell(&migrate::checks(), args.json, true);
    }
    let (of_mpi, works) = mpi::checks();
    let mut checks = Vec::new();
    if !args.mpi {
        checks.extend(memory::checks());
        checks.push(containers::check());
        checks.extend(network::checks());
        checks.extend(card::checks());
        checks.extend(host::checks());
        checks.extend(environment::checks());
    }
    checks.extend(of_mpi);
    tell(&checks, args.json, works || !args.mpi)
}

/// Prints the checks. Fails if one of them failed, or if `good` is false.
fn tell(checks: &[Check], json: bool, good: bool) -> Result<ExitCode> {
    if json {
        for check in checks {
            println!("{}", serde_json::to_string(check)?);
        }
    } else {
        print(checks);
    }
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail) || !good;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

//! `weft demo`: shows weft on this machine in under a minute and without root.

mod child;
pub mod measure;

use anyhow::{Context, Result};
use child::Children;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use weft_measure::layout::{self, hanging};
use weft_run::outputs;
use weft_sim::scenarios::{default_config, run_named};

/// Show weft: two applications, its links beside their floors, a simulated network
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of ranks of the applications
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 4)]
    ranks: usize,
    /// Directory of the result files
    #[arg(long, value_name = "DIR", default_value = "weft-demo")]
    out: PathBuf,
    /// Smaller problems and shorter measurements, to see only that it works
    #[arg(long)]
    quick: bool,
}

/// The result of a step.
struct Line {
    pass: bool,
    what: String,
    detail: String,
    files: Vec<PathBuf>,
}

impl Line {
    fn fail(what: &str, detail: impl Into<String>) -> Line {
        Line { pass: false, what: what.into(), detail: detail.into(), files: Vec::new() }
    }

    fn print(&self) {
        let verdict = if self.pass { "PASS" } else { "FAIL" };
        let head = format!("  {verdict}  {:<20} ", self.what);
        println!("{}", hanging(&head, &self.detail, layout::width()));
    }
}

/// The fields of `weft app --json` that are shown.
#[derive(Deserialize)]
struct AppReport {
    ranks: usize,
    seconds: f64,
    check: AppCheck,
    files: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct AppCheck {
    pass: bool,
    sequential_seconds: f64,
    speedup: f64,
}

/// Runs an application on some ranks and compares it with the sequential program.
fn application(children: &mut Children, args: &Args, what: &str, options: &[&str]) -> Result<Line> {
    let weft = children.weft().to_owned();
    let ranks = args.ranks.to_string();
    let out = args.out.to_str().context("--out is not UTF-8")?;
    let mut command = vec!["run", "-n", &ranks, "--timeout", "120", &weft, "app"];
    command.extend(options);
    command.extend(["--check", "--json", "--out", out]);
    let ended = children.run(what, &command)?;
    let report: AppReport = match serde_json::from_str(ended.last_line()) {
        Ok(report) => report,
        Err(_) => return Ok(Line::fail(what, ended.reason())),
    };
    let detail = format!(
        "{} ranks {:.2} s, sequential {:.2} s ({:.2} x), results {}",
        report.ranks,
        report.seconds,
        report.check.sequential_seconds,
        report.check.speedup,
        if report.check.pass { "equal" } else { "DIFFER" },
    );
    let pass = report.check.pass && ended.success;
    Ok(Line { pass, what: what.to_string(), detail, files: report.files })
}

fn applications(children: &mut Children, args: &Args) -> Result<Vec<Line>> {
    println!("\n1  Two applications on {} ranks, against the sequential program", args.ranks);
    let (size, nodes) = if args.quick { ("128", "128") } else { ("768", "1024") };
    let sor = format!("SOR, {size} x {size}");
    let asp = format!("ASP, {nodes} nodes");
    let mut lines = Vec::new();
    for (what, options) in [(sor, ["sor", "--size", size]), (asp, ["asp", "--nodes", nodes])] {
        let line = application(children, args, &what, &options)?;
        line.print();
        lines.push(line);
    }
    Ok(lines)
}

/// Seed of the simulated run; any seed will do.
const SEED: u64 = 1;

fn simulation() -> Line {
    println!("\n3  The same engine on a simulated network that loses packets, in virtual time");
    let (name, what) = ("loss", "simulated loss");
    let Some(config) = default_config(name, SEED) else {
        return Line::fail(what, "there is no such scenario");
    };
    let line = match run_named(name, config) {
        Ok(report) => {
            let at = report.outcome.as_ref().map_or(0, |outcome| outcome.at);
            let lines = report.lines.join("; ");
            let detail = format!("{lines}; {:.1} ms of virtual time", at as f64 / 1e6);
            Line { pass: true, what: what.into(), detail, files: Vec::new() }
        }
        Err(failure) => Line::fail(what, failure.to_string()),
    };
    line.print();
    line
}

fn summary(lines: &[Line], start: Instant, out: &Path) -> ExitCode {
    let failed = lines.iter().filter(|line| !line.pass).count();
    println!("\nSummary");
    for line in lines {
        println!("  {}  {}", if line.pass { "PASS" } else { "FAIL" }, line.what);
    }
    let files: Vec<&PathBuf> = lines.iter().flat_map(|line| &line.files).collect();
    if !files.is_empty() {
        println!("\nResult files in {}", out.display());
        files.iter().for_each(|file| println!("  {}", file.display()));
    }
    println!("\n{:.0} s, {} steps, {failed} failed", start.elapsed().as_secs_f64(), lines.len());
    if failed == 0 {
        println!("Next: `weft info`, `weft doctor`, `weft run -n 4 PROGRAM`, `weft --help`");
        ExitCode::SUCCESS
    } else {
        println!("`weft doctor` tells what works on this machine");
        ExitCode::FAILURE
    }
}

fn steps(children: &mut Children, args: &Args) -> Result<Vec<Line>> {
    let mut lines = applications(children, args)?;
    lines.extend(measure::links(children, args.quick)?);
    lines.push(simulation());
    Ok(lines)
}

/// Runs the demonstration.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.ranks == 0 {
        misuse!("-n 0: a job has at least one rank");
    }
    let start = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("weft {} on this machine: {cores} cores, no rights needed", env!("CARGO_PKG_VERSION"));
    outputs::check_folder("--out", &args.out)?;
    let mut children = Children::new()?;
    let lines = match steps(&mut children, &args) {
        Err(error) if error.is::<child::Interrupted>() => {
            eprintln!("weft demo: interrupted");
            return Ok(ExitCode::from(130));
        }
        other => other?,
    };
    Ok(summary(&lines, start, &args.out))
}

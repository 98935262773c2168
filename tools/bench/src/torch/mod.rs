//! The backend of torch.distributed beside gloo, two ranks on two lab hosts and on this one:
//! `weft bench torch`, each target met or not.

use crate::pair::Sample;
use crate::progress::Plan;
use crate::sources::Script;
use crate::sys::{prepare, Setup};
use crate::table::{figure, Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{Options, MTU};
use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_run::limited::output_within;
use weft_run::program;

/// The program of the ranks.
const PROGRAM: &str = include_str!("bench.py");
/// Longest run of a job.
const RUN: Duration = Duration::from_secs(180);
/// Bytes of the vectors that are added.
const SIZES: [usize; 3] = [4, 1 << 20, 100 << 20];
/// The most that Python may add to a reduction of four bytes, in microseconds.
const ADDED: f64 = 25.0;
/// The port of torch's store on a host of a lab, which has no other program.
const PORT: u16 = 29500;

/// The seconds of each figure of a run.
type Figures = BTreeMap<String, f64>;

/// The packages of a Python.
#[derive(Deserialize)]
struct Found {
    missing: Vec<String>,
    version: Option<String>,
}

/// The hosts of the two ranks.
enum Place {
    Lab(Attached),
    Host,
}

struct Run<'a> {
    options: &'a Options,
    script: &'a Script,
    plan: Plan,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// Returns a command whose process ends with this one.
fn command(words: &[String], host: &str, place: &Place) -> Result<Command> {
    let mut command = match place {
        Place::Lab(lab) => {
            let mut command = Command::new(program::weft()?);
            command.args(["lab", "--name", &lab.name, "exec", host, "--"]).args(words);
            command
        }
        Place::Host => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    prepare(&mut command, Setup { inherited: vec![], cpus: None, host: None });
    Ok(command)
}

impl Place {
    fn lab() -> Result<Place> {
        let name = format!("torch-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let conditions = Conditions { mtu: MTU, direct: true, ..Conditions::default() };
        Ok(Place::Lab(Attached::start(&plan(&name, 2, &conditions)?)?))
    }

    fn name(&self) -> &'static str {
        match self {
            Place::Lab(_) => "two hosts",
            Place::Host => "one host",
        }
    }

    fn link(&self) -> &'static str {
        match self {
            Place::Lab(_) => "auto",
            Place::Host => "shm",
        }
    }

    /// Returns address and port of torch's store.
    fn store(&self) -> Result<(String, u16)> {
        match self {
            Place::Lab(lab) => {
                let hosts = lab.processes()?;
                let (address, _) = hosts.first().context("a lab without hosts")?;
                Ok((address.clone(), PORT))
            }
            Place::Host => {
                let free = TcpListener::bind("127.0.0.1:0").context("a free port")?;
                Ok(("127.0.0.1".into(), free.local_addr()?.port()))
            }
        }
    }
}

/// Reads the lines of the figures.
fn figures(said: &str) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in said.lines().filter_map(|line| line.trim().strip_prefix("figure ")) {
        let (name, seconds) = line.split_once(' ').with_context(|| format!("in {line:?}"))?;
        let seconds = seconds.trim().parse().with_context(|| format!("in {line:?}"))?;
        figures.insert(name.to_owned(), seconds);
    }
    ensure!(!figures.is_empty(), "no figure in {said:?}");
    Ok(figures)
}

impl Run<'_> {
    /// Runs two ranks over a backend.
    fn ranks(&self, place: &Place, backend: &str) -> Result<Figures> {
        let (address, port) = place.store()?;
        let share = if self.options.quick { "50" } else { "1" };
        let program = self.script.program.display().to_string();
        let words = [self.script.python.clone(), program, backend.into(), share.into()];
        let rank = |rank: usize| -> Result<Command> {
            let host = format!("h{}", rank + 1);
            let mut command = command(&words, &host, place)?;
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
            command.env("MASTER_ADDR", &address).env("MASTER_PORT", port.to_string());
            command.env("OMP_NUM_THREADS", "1").env(
                "LOCAL_WORLD_SIZE",
                match place {
                    Place::Lab(_) => "1",
                    Place::Host => "2",
                },
            );
            if let Place::Lab(_) = place {
                // gloo asks for the address of the host's name, which is that of loopback.
                command.env("GLOO_SOCKET_IFNAME", weft_lab::INTERFACE);
            }
            Ok(command)
        };
        let mut other = rank(1)?.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let first = output_within(rank(0)?, RUN);
        let _ended = other.kill();
        other.wait()?;
        let first = first.with_context(|| format!("{backend}, {}", place.name()))?;
        let said = String::from_utf8_lossy(&first.stderr);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        ensure!(first.status.success(), "{backend}, {}: {}", place.name(), last.join(" / "));
        figures(&String::from_utf8_lossy(&first.stdout))
    }

    /// Measures all at a place, the backends in turn.
    fn measure(&mut self, place: &Place) -> Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.options.repeat() {
            for (backend, runs) in [("weft", &mut ours), ("gloo", &mut theirs)] {
                self.plan.show(format!("{}: {backend}", place.name()));
                runs.push(self.ranks(place, backend)?);
                self.plan.at(self.plan.done() + 1);
            }
        }
        for size in SIZES {
            let name = format!("allreduce-{size}");
            self.row(place, (&name, "allreduce, through torch", size), (&ours, &theirs), 0.5)?;
        }
        let added = |run: &Figures| Some(run.get("allreduce-4")? - run.get("core-4")?);
        let added: Vec<f64> = ours.iter().filter_map(added).collect();
        let sample = Sample::of(added.iter().map(|seconds| seconds * 1e6).collect());
        let sample = sample.context("no time of the core")?;
        let table = table(place, ("added by Python", 4), sample, Vec::new());
        self.checks.push(Check { table, aim: Aim::default(), goal: Some(ADDED) });
        self.row(place, ("step", "step of a model, through torch", 0), (&ours, &theirs), 0.9)
    }

    /// Adds a row; `aim` is the goal in times of gloo's.
    fn row(
        &mut self,
        place: &Place,
        (name, what, size): (&str, &'static str, usize),
        (ours, theirs): (&[Figures], &[Figures]),
        aim: f64,
    ) -> Result<()> {
        let of = |runs: &[Figures]| {
            let micros = runs.iter().filter_map(|run| run.get(name)).map(|seconds| seconds * 1e6);
            Sample::of(micros.collect())
        };
        let sample = of(ours).with_context(|| format!("{what}: no figure"))?;
        self.plan.tell(&format!("{}: {name}, us: {}", place.name(), figure(sample.median)));
        let peers = vec![Other { name: "gloo", sample: of(theirs) }];
        let aim = Aim { floor: None, peer: Some(aim) };
        let table = table(place, (what, size), sample, peers);
        self.checks.push(Check { table, aim, goal: None });
        Ok(())
    }
}

fn table(
    place: &Place,
    (what, size): (&'static str, usize),
    ours: Sample,
    peers: Vec<Other>,
) -> Table {
    let rows = vec![Row { what, size, ours, floors: Vec::new(), peers }];
    let (bench, link, unit, notes) = ("torch", place.link(), "us", vec![place.name().to_owned()]);
    Table { bench, link, what, unit, better: Better::Lower, rows, notes }
}

/// Returns what a Python has.
fn look(script: &Script) -> Result<Found> {
    let found: Found = script.check()?;
    let python = &script.python;
    if !found.missing.is_empty() {
        bail!(
            "{python} has no {}: install torch, and the wheel of torch-weft (`cargo xtask package \
             --out packages --only wheel`, then `{python} -m pip install packages/torch_weft-*`), \
             or name another Python by --python",
            found.missing.join(" and no ")
        );
    }
    Ok(found)
}

/// Measures all and prints the results.
///
/// # Errors
/// The Python lacks a package, or a place fails: its rows are missing, the others are shown first.
pub fn print(
    options: &Options,
    python: Option<&str>,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let script = &Script::new(python, PROGRAM)?;
    let found = look(script)?;
    let version = found.version.unwrap_or_default();
    let notes =
        vec![format!("{}: torch {version}; two ranks, one thread of torch each", script.python)];
    let plan = Plan::of(options.repeat() as usize * 4);
    let mut run = Run { options, script, plan, checks: Vec::new(), notes };
    let mut failed = Vec::new();
    for place in [Place::lab(), Ok(Place::Host)] {
        failed.extend(place.and_then(|place| run.measure(&place)).err());
    }
    run.notes.extend(failed.iter().map(|why| format!("FAILED: {why:#}")));
    target::show_all("torch.distributed", (&run.checks, &run.notes), json, out)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn figures__each_line_has_a_name_and_seconds() {
        let read = figures("[W1] socket\nfigure step 0.002\nfigure core-4 0.0000155\n").unwrap();
        assert_eq!((read["step"], read["core-4"]), (0.002, 15.5e-6));
        assert!(figures("step 0.1\n").is_err() && figures("figure step fast\n").is_err());
    }
}

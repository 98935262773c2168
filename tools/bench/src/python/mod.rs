//! The package for Python on two ranks of this host, beside the same in Rust and other packages:
//! `weft bench python`, each target met or not.

use crate::models::Figure;
use crate::pair::{core, Sample, Subject};
use crate::progress::Plan;
use crate::rank::Probe;
use crate::sources::{output, Script};
use crate::table::{figure, human, Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{Bench, LinkName, Options};
use anyhow::{bail, Context, Result};
use serde::Deserialize;
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use weft_run::program;

/// The program that all processes run.
const PROGRAM: &str = include_str!("bench.py");
/// Longest run of a job.
const RUN: Duration = Duration::from_secs(120);
/// Bytes of the arrays, each with the iterations of a repetition.
const ARRAYS: [(usize, u64); 4] =
    [(8, 20_000), (1 << 10, 20_000), (64 << 10, 5_000), (1 << 20, 500)];
/// Bytes of the operations of the ranks in Rust.
const SHORT: usize = 16;
const REGION: usize = 64 << 10;

/// One of those that are measured in turn.
#[derive(Clone, Copy)]
enum Way {
    /// A role of two ranks of `weft run`.
    Ranks(&'static str),
    /// Two ranks in Rust.
    Rust(Probe),
    /// A role of two ranks of `weft mpi`.
    Mpi(&'static str),
    /// A role that starts its second process itself.
    Alone(&'static str),
}

/// A row: its name, bytes, and the iterations of a repetition.
type Line = (&'static str, usize, u64);

/// The other package of a row: its name in the table, its way and its iterations.
type Beside = Option<(&'static str, Way, u64)>;

/// The packages of a Python: the reason for the absence of each, or none.
#[derive(Deserialize)]
struct Found {
    python: String,
    weft: Option<String>,
    numpy: Option<String>,
    mpi4py: Option<String>,
    pysyncobj: Option<String>,
    /// The MPI of `mpi4py`.
    mpi: Option<String>,
}

struct Run<'a> {
    options: &'a Options,
    script: &'a Script,
    found: Found,
    /// Ranks in Rust.
    bench: Option<Bench<'a>>,
    plan: Plan,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// Returns the seconds that a program has printed.
fn seconds(said: &str) -> Result<f64> {
    let figure = said.lines().find_map(|line| line.trim().strip_prefix("figure "));
    let figure = figure.with_context(|| format!("no figure in {said:?}"))?;
    figure.trim().parse().with_context(|| format!("a figure, not {figure:?}"))
}

/// Returns what a Python has.
fn look(script: &Script) -> Result<Found> {
    let found: Found = script.check()?;
    let python = &script.python;
    if let Some(why) = &found.weft {
        bail!(
            "{python} does not import the package weft ({why}): install the wheel \
             (`cargo xtask package --out packages --only wheel`, then \
             `{python} -m pip install packages/weft-*.whl`), or name another Python by --python"
        );
    }
    Ok(found)
}

impl Run<'_> {
    fn iters(&self, all: u64) -> u64 {
        (if self.options.quick { all / 100 } else { all }).max(2)
    }

    /// Returns the option of `weft mpi` for the MPI of mpi4py.
    fn mpi(&self) -> Result<&'static str> {
        let library = self.found.mpi.as_deref().unwrap_or_default();
        let known = [("Open MPI", "openmpi"), ("Intel", "intel"), ("MPICH", "mpich")];
        let named = known.iter().find(|(part, _)| library.contains(part));
        named.map(|(_, name)| *name).with_context(|| format!("its MPI is {library:?}"))
    }

    /// Measures one repetition, in microseconds.
    fn one(&mut self, way: Way, size: usize, iters: u64) -> Result<f64> {
        let weft = program::weft()?;
        let mut command = Command::new(weft);
        let role = match way {
            Way::Rust(probe) => return self.rust(probe, size),
            Way::Ranks(role) => {
                command.args(["run", "-n", "2", "--bind", "core", "--link", "shm"]);
                role
            }
            Way::Mpi(role) => {
                let mpi = self.mpi()?;
                command.args(["mpi", "-n", "2", "--mpi", mpi, "--link", "shm"]);
                command.arg("--all-through-weft");
                role
            }
            Way::Alone(role) => {
                command = Command::new(&self.script.python);
                command.arg(&self.script.program).args([role, &iters.to_string()]);
                return Ok(seconds(&output(command, RUN)?)? * 1e6);
            }
        };
        command.arg(&self.script.python).arg(&self.script.program).args([role, &iters.to_string()]);
        if role.starts_with("array") {
            command.arg(size.to_string());
        }
        Ok(seconds(&output(command, RUN)?)? * 1e6)
    }

    /// Measures one repetition of ranks in Rust.
    fn rust(&mut self, probe: Probe, size: usize) -> Result<f64> {
        let bench = self.bench.as_mut().context("ranks in Rust did not start")?;
        bench.meter.title.clear();
        let got = bench.meter.measure(size, &[Subject::from(probe)])?;
        let sample = got.into_iter().next().flatten();
        Ok(sample.with_context(|| format!("{probe} was not measured"))?.median * 1e6)
    }

    /// Measures a line in turn with those beside it. One of these that fails costs its own figures.
    fn in_turn(&mut self, line: Line, way: Way, beside: &[Beside]) -> Result<Vec<Option<Sample>>> {
        let (what, size, iters) = line;
        let all: Vec<Beside> = [&[Some(("weft", way, iters))], beside].concat();
        let mut values = vec![Vec::new(); all.len()];
        let mut failed = vec![false; all.len()];
        for _ in 0..self.options.repeat() {
            for (at, one) in all.iter().enumerate() {
                let Some((name, way, iters)) = *one else { continue };
                self.plan.show(format!("{what}, {} B: {name}", human(size)));
                if !failed[at] {
                    match self.one(way, size, self.iters(iters)) {
                        Ok(value) => values[at].push(value),
                        Err(why) if at == 0 => return Err(why.context(what)),
                        Err(why) => {
                            failed[at] = true;
                            let size = human(size);
                            self.notes.push(format!("FAILED: {what}, {size}, {name}: {why:#}"));
                        }
                    }
                }
                self.plan.at(self.plan.done() + 1);
            }
        }
        // Half of the repetitions are no figure.
        let whole = values.into_iter().zip(failed);
        let samples: Vec<Option<Sample>> =
            whole.map(|(values, failed)| (!failed).then(|| Sample::of(values)).flatten()).collect();
        let said = samples[0].map_or("-".into(), |sample| figure(sample.median));
        self.plan.tell(&format!("{what}, {}, us: {said}", human(size)));
        Ok(samples)
    }

    /// Measures a line and adds its row. Returns the floor.
    fn row(
        &mut self,
        line: Line,
        way: Way,
        [floor, peer]: [Beside; 2],
        aim: Aim,
    ) -> Result<Option<Sample>> {
        let samples = self.in_turn(line, way, &[floor, peer])?;
        let (what, size, _) = line;
        let [ours, of_floor, of_peer] = samples[..] else { bail!("{what}: no figures") };
        let ours = ours.with_context(|| format!("{what}: no repetition"))?;
        let column = |beside: Beside, sample| -> Vec<Other> {
            beside.into_iter().map(|(name, ..)| Other { name, sample }).collect()
        };
        let (floors, peers) = (column(floor, of_floor), column(peer, of_peer));
        let rows = vec![Row { what, size, ours, floors, peers }];
        let (bench, link, unit, notes) = ("python", "shm", "us", Vec::new());
        let table = Table { bench, link, what, unit, better: Better::Lower, rows, notes };
        self.checks.push(Check { table, aim, goal: None });
        Ok(of_floor)
    }

    /// Sets the goal of the row that has been added.
    fn goal(&mut self, goal: f64) {
        if let Some(check) = self.checks.last_mut() {
            check.goal = Some((goal * 1e3).round() / 1e3);
        }
    }

    fn read(&mut self) -> Result<()> {
        let line = ("read of a replicated object", 8, 200_000);
        let rust = Some(("rust", Way::Rust(Figure::Read.into()), 0));
        self.row(line, Way::Ranks("read"), [rust, None], Aim::default())?;
        self.goal(1.0);
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let line = ("call of a remote object (goal: 1.5 x rust + 5)", SHORT, 20_000);
        let rust = Some(("rust", Way::Rust(Figure::Operation.into()), 0));
        let rust = self.row(line, Way::Ranks("call"), [rust, None], Aim::default())?;
        if let Some(rust) = rust {
            self.goal(1.5 * rust.median + 5.0);
        }
        Ok(())
    }

    /// One that this Python does not have is named.
    fn has(&mut self, name: &str, why: Option<String>) -> bool {
        self.notes.extend(why.as_ref().map(|why| format!("{name} is left out: {why}")));
        why.is_none()
    }

    fn arrays(&mut self) -> Result<()> {
        if !self.has("the numpy array", self.found.numpy.clone()) {
            return Ok(());
        }
        let mpi = self.has("mpi4py", self.found.mpi4py.clone());
        for (size, iters) in ARRAYS {
            let line = ("numpy array, one way", size, iters);
            let rust = Some(("rust", Way::Rust(Probe::WeftPingPong), 0));
            let peer = mpi.then_some(("mpi4py", Way::Mpi("array_of_mpi"), iters));
            let aim = Aim { floor: None, peer: Some(1.0) };
            self.row(line, Way::Ranks("array_of_weft"), [rust, peer], aim)?;
        }
        if mpi {
            let library = self.found.mpi.clone().unwrap_or_default();
            self.notes
                .push(format!("mpi4py: over shm by `weft mpi --all-through-weft`; {library}"));
        }
        Ok(())
    }

    fn change(&mut self) -> Result<()> {
        let there = self.has("PySyncObj", self.found.pysyncobj.clone());
        if there {
            self.notes.push("pysyncobj: over loopback, with periods of 1 ms".into());
        }
        // A change of pysyncobj takes a thousand times as long.
        let peer = there.then_some(("pysyncobj", Way::Alone("pysyncobj"), 200));
        let line = ("change of a replicated object", 8, 20_000);
        self.row(line, Way::Ranks("change"), [None, peer], Aim::default())?;
        self.notes.push(
            "change: awaited until it is executed at the rank that makes it; pysyncobj: until both \
             processes have it in their logs too"
                .into(),
        );
        Ok(())
    }

    fn region(&mut self) -> Result<()> {
        let peer = Some(("shared_memory", Way::Alone("memory"), 5_000));
        let line = ("region, written and read, there and back", REGION, 5_000);
        self.row(line, Way::Ranks("region"), [None, peer], Aim::default())?;
        Ok(())
    }
}

/// Measures all and prints the results.
///
/// # Errors
/// The Python has no package `weft`, or a part fails: its rows are missing, the others are shown
/// first.
pub fn print(
    options: &Options,
    python: Option<&str>,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let script = &Script::new(python, PROGRAM)?;
    let found = look(script)?;
    // Ranks in Rust have one repetition in each turn.
    let single = Options { repeat: 1, ..options.clone() };
    let started = Bench::start(LinkName::Shm, &single);
    let mut notes =
        vec![format!("{}: version {}, ranks bound to cores", script.python, found.python)];
    let bench = started.map_err(|why| notes.push(format!("FAILED: ranks in Rust: {why:#}"))).ok();
    let plan = Plan::of(options.repeat() as usize * (2 + 2 + 3 * ARRAYS.len() + 2 + 2));
    let checks = Vec::new();
    let mut run = Run { options, script, found, bench, plan, checks, notes };
    let results = [run.read(), run.call(), run.arrays(), run.change(), run.region()];
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    run.notes.extend(failed.iter().map(|why| format!("FAILED: {why:#}")));
    if core(0).is_none() {
        run.notes.push("all processes share the one core".into());
    }
    target::show_all("python over shm", (&run.checks, &run.notes), json, out)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn seconds__of_the_line_of_the_figure() {
        assert_eq!(seconds("a word\nfigure 0.000001500000\n").unwrap(), 1.5e-6);
        assert!(seconds("0.5\n").is_err() && seconds("figure fast\n").is_err());
    }
}

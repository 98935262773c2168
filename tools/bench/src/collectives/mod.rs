//! `weft bench collectives`: collective operations of a group beside those of the MPIs of this
//! machine, over TCP between two lab hosts, and over their own shared memory in one host.

mod mpi;
pub mod rank;

use crate::mpi::job::Hosts;
use crate::pair::Sample;
use crate::progress::bar;
use crate::table::{human, Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{kept, Options, MTU};
use anyhow::{ensure, Context, Result};
use indicatif::ProgressBar;
use mpi::Peers;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use weft_run::folder::Folder;
use weft_run::{interrupt, program};

/// Seconds of one measurement, and of one of a quick run.
const TURN: [f64; 2] = [0.1, 0.002];
/// Seconds after which a job hangs.
const TIMEOUT: &str = "90";

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Half a round trip between the first and the last rank: the floor of the others.
    Message,
    /// Sum of vectors of `f32`, in place.
    Allreduce,
    /// Sum of vectors, of which each rank gets a part.
    ReduceScatter,
    /// Parts of all ranks, on all ranks.
    Allgather,
    /// A part from each rank to each rank.
    Alltoall,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::Message,
        Operation::Allreduce,
        Operation::ReduceScatter,
        Operation::Allgather,
        Operation::Alltoall,
    ];

    const fn name(self) -> &'static str {
        match self {
            Operation::Message => "message",
            Operation::Allreduce => "allreduce",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::Allgather => "allgather",
            Operation::Alltoall => "alltoall",
        }
    }

    /// Returns the operation of a name.
    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }

    const fn sizes(self) -> &'static [usize] {
        match self {
            Operation::Message => &[],
            Operation::Allreduce => &[8, 1 << 10, 64 << 10, 1 << 20, 64 << 20],
            _ => &[64 << 10, 16 << 20],
        }
    }
}

/// The ranks of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    name: &'static str,
    /// Number of hosts; one is this host.
    hosts: usize,
    /// Ranks of each host.
    each: usize,
}

const LAYOUTS: [Layout; 4] = [
    Layout { name: "2 ranks on 2 hosts", hosts: 2, each: 1 },
    Layout { name: "4 ranks on 2 hosts", hosts: 2, each: 2 },
    Layout { name: "2 ranks in a host", hosts: 1, each: 2 },
    Layout { name: "4 ranks in a host", hosts: 1, each: 4 },
];

impl Layout {
    const fn ranks(self) -> usize {
        self.hosts * self.each
    }

    /// Returns the most that weft's time may be of the best peer's, unless ranks share cores.
    fn aim(self, operation: Operation, size: usize, cores: usize) -> Option<f64> {
        if self.ranks() > cores {
            return None;
        }
        match (self.hosts, operation) {
            (1, Operation::Allreduce) => Some(1.0),
            (2, Operation::Allreduce) if self.each == 1 => match size {
                0..=1024 => Some(0.6),
                1025..=0x10000 => Some(0.9),
                _ => Some(0.7),
            },
            (2, Operation::Allreduce) => None,
            (2, _) => Some(0.8),
            _ => None,
        }
    }
}

/// Seconds of the turns of one subject.
type Figures = BTreeMap<(Operation, usize), Vec<f64>>;

/// The state of the measurements.
struct Run<'a> {
    options: &'a Options,
    peers: Peers,
    checks: Vec<Check>,
    notes: Vec<String>,
    bar: ProgressBar,
}

/// Parses lines of "weft-bench OPERATION SIZE SECONDS".
fn parse(said: &str) -> Vec<((Operation, usize), f64)> {
    let line = |line: &str| {
        let mut words = line.trim().strip_prefix("weft-bench ")?.split(' ');
        let operation = Operation::named(words.next()?)?;
        Some(((operation, words.next()?.parse().ok()?), words.next()?.parse().ok()?))
    };
    said.lines().filter_map(line).collect()
}

/// Runs a job of weft; returns its output.
fn ours(layout: Layout, hosts: Option<&Hosts>, words: &[String]) -> Result<String> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program::weft()?);
    let timeout = format!("--timeout={TIMEOUT}");
    match hosts {
        Some(hosts) => {
            command.args(["lab", "--name", hosts.lab(), "run"]).arg(format!("--with={timeout}"))
        }
        None => command.args(["run", &timeout]),
    };
    command.args(["--ranks", &layout.ranks().to_string()]);
    command.arg("--").arg(own).arg("bench-collectives").args(words);
    interrupt::hold();
    let done = command.stdin(Stdio::null()).output().context("starting weft run")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "weft: {}", said.trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

impl Run<'_> {
    fn sizes(&self, operation: Operation) -> Vec<usize> {
        let chosen = &self.options.size;
        let all = operation.sizes().iter().copied();
        all.filter(|size| chosen.is_empty() || chosen.contains(size)).collect()
    }

    /// Returns the operations and sizes that are measured.
    fn wanted(&self) -> Vec<(Operation, usize)> {
        let of = |operation| self.sizes(operation).into_iter().map(move |size| (operation, size));
        let mut all: Vec<_> = Operation::ALL.into_iter().flat_map(of).collect();
        let mut sizes: Vec<usize> = all.iter().map(|&(_, size)| size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        all.extend(sizes.into_iter().map(|size| (Operation::Message, size)));
        all
    }

    /// Measures weft and its peers in turn.
    fn layout(&mut self, layout: Layout) -> Result<()> {
        let hosts = (layout.hosts > 1)
            .then(|| Hosts::start(layout.hosts, MTU, self.peers.folder()))
            .transpose()?;
        let wanted = self.wanted();
        let seconds = TURN[usize::from(self.options.quick)].to_string();
        let items = wanted.iter().map(|(what, size)| format!("{}:{size}", what.name()));
        let words: Vec<String> = [seconds].into_iter().chain(items).collect();
        let subjects = self.peers.subjects(layout);
        let mut all = vec![Figures::new(); subjects.len() + 1];
        let mut failed = vec![false; all.len()];
        for _ in 0..self.options.repeat() {
            for at in 0..all.len() {
                let by = at.checked_sub(1).map_or("weft", |at| subjects[at].name);
                self.bar.set_message(format!("{}: {by}", layout.name));
                self.bar.inc(1);
                if failed[at] {
                    continue;
                }
                let said = match at.checked_sub(1) {
                    None => ours(layout, hosts.as_ref(), &words),
                    Some(at) => self.peers.run(&subjects[at], layout, hosts.as_ref(), &words),
                };
                match said {
                    Ok(said) => {
                        for ((what, size), seconds) in parse(&said) {
                            let line = format!("{}, {}, {size} B: {by}", layout.name, what.name());
                            kept::note(line, seconds);
                            all[at].entry((what, size)).or_default().push(seconds);
                        }
                    }
                    Err(why) => {
                        failed[at] = true;
                        self.notes.push(format!("{}: {why:#}", layout.name));
                    }
                }
            }
        }
        let names: Vec<&'static str> = subjects.iter().map(|subject| subject.name).collect();
        self.rows(layout, &wanted, &names, &all);
        Ok(())
    }

    fn rows(
        &mut self,
        layout: Layout,
        wanted: &[(Operation, usize)],
        names: &[&'static str],
        all: &[Figures],
    ) {
        let cores = weft::job::cores_of_host();
        let of = |at: usize, key: (Operation, usize)| {
            let sample = all[at].get(&key).cloned().and_then(Sample::of);
            sample.map(|sample| sample.map(|seconds| seconds * 1e6))
        };
        for &(operation, size) in wanted {
            if operation == Operation::Message {
                continue;
            }
            let what: &'static str = format!("{}, {}", layout.name, operation.name()).leak();
            let Some(ours) = of(0, (operation, size)) else {
                self.notes.push(format!("{what}, {}: weft was not measured", human(size)));
                continue;
            };
            let floor = Other { name: "message", sample: of(0, (Operation::Message, size)) };
            let peer = |(at, &name): (usize, &&'static str)| Other {
                name,
                sample: of(at + 1, (operation, size)),
            };
            let peers = names.iter().enumerate().map(peer).collect();
            let row = Row { what, size, ours, floors: vec![floor], peers };
            let (bench, rows, notes) = ("collectives", vec![row], Vec::new());
            let (link, better) = ("auto", Better::Lower);
            let table = Table { bench, link, what, unit: "us", better, rows, notes };
            let aim = Aim { floor: None, peer: layout.aim(operation, size, cores) };
            self.checks.push(Check { table, aim, goal: None });
        }
    }
}

/// Measures and prints the results.
///
/// # Errors
/// The output cannot be written, or nothing was measured.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let peers = Peers::find(Folder::new()?)?;
    let lab = rustix::process::geteuid().is_root() && options.netns != crate::netns::Mode::Off;
    let layouts: Vec<Layout> =
        LAYOUTS.into_iter().filter(|layout| lab || layout.hosts == 1).collect();
    let jobs: usize = layouts.iter().map(|&layout| peers.subjects(layout).len() + 1).sum();
    let bar = bar(jobs * options.repeat() as usize);
    let (checks, notes) = (Vec::new(), peers.notes());
    let mut run = Run { options, peers, checks, notes, bar: bar.clone() };
    if !lab {
        run.notes.push("between lab hosts it is measured as root".to_owned());
    }
    for layout in layouts {
        if let Err(why) = run.layout(layout) {
            run.notes.push(format!("{}: {why:#}", layout.name));
        }
    }
    bar.finish_and_clear();
    ensure!(!run.checks.is_empty(), "nothing was measured: {}", run.notes.join("; "));
    let mut tally = target::Tally::default();
    target::show_part("collectives", (&run.checks, &run.notes), json, &mut tally, out)?;
    if !json {
        writeln!(out, "{tally}")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__takes_the_lines_of_results_and_no_others() {
        let said = "noise\nweft-bench allreduce 8 1.5e-6\nweft-bench dance 8 1\n";
        assert_eq!(parse(said), [((Operation::Allreduce, 8), 1.5e-6)]);
    }

    #[test]
    fn aim__crowded_ranks_have_none() {
        let [two, four, near, crowd] = LAYOUTS;
        assert_eq!(two.aim(Operation::Allreduce, 8, 2), Some(0.6));
        assert_eq!(two.aim(Operation::Allreduce, 64 << 20, 2), Some(0.7));
        assert_eq!(two.aim(Operation::Alltoall, 64 << 10, 2), Some(0.8));
        assert_eq!(near.aim(Operation::Allreduce, 8, 2), Some(1.0));
        for layout in [four, crowd] {
            assert_eq!(layout.aim(Operation::Allreduce, 8, 2), None);
        }
        assert_eq!(crowd.aim(Operation::Allreduce, 8, 4), Some(1.0));
    }
}

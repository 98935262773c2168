//! MPI's figures, as Tables V and VI of paper 004 have them: an MPI of this machine over weft, and
//! over its own transports.

use crate::mpi::job::{Hosts, Job, Subject};
use crate::mpi::{installed, over_tcp, over_weft, parse};
use crate::netns::Place;
use crate::pair::Sample;
use crate::{Bench, LinkName, MTU};
use anyhow::{ensure, Context, Result};
use weft_run::folder::Folder;

/// Seconds of a turn, and of one of a quick run.
const TURN: [f64; 2] = [0.08, 0.01];

/// A communication of an MPI program: the mode of `program.c`, and what its seconds are times of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Half a round trip of two ranks.
    RoundTrip,
    /// A message of a stream between two ranks.
    Stream,
    /// A broadcast until the last of four ranks has it.
    Broadcast,
    /// A broadcast of many to four ranks.
    Broadcasts,
}

impl Pattern {
    const fn mode(self) -> &'static str {
        match self {
            Pattern::RoundTrip => "pingpong",
            Pattern::Stream => "stream",
            Pattern::Broadcast => "broadcast",
            Pattern::Broadcasts => "broadcasts",
        }
    }

    const fn ranks(self) -> usize {
        match self {
            Pattern::RoundTrip | Pattern::Stream => 2,
            Pattern::Broadcast | Pattern::Broadcasts => 4,
        }
    }
}

/// The MPI, with the program compiled for it.
struct Found {
    folder: Folder,
    program: String,
    /// Over weft, and over its own transport.
    subjects: [Subject; 2],
    /// Two hosts of a lab; `None` is this host.
    hosts: Option<Hosts>,
}

impl Found {
    fn new(bench: &Bench<'_>, link: LinkName) -> Result<Found> {
        let near = link == LinkName::Shm;
        let between = matches!(bench.place, Place::Between(_));
        ensure!(near || between && bench.far.is_none(), "it is measured between lab hosts");
        let folder = Folder::new()?;
        let (provider, mut mpis, notes) = installed(&folder.0)?;
        ensure!(!mpis.is_empty(), "none here can use weft ({})", notes.join("; "));
        let found = mpis.remove(0);
        let link = if near { None } else { Some(link.links()) };
        let ours = over_weft(&found.mpi, &provider, link, true);
        let own = over_tcp(&found.mpi, near).into_iter().next().context("no transport")?;
        let hosts = (!near).then(|| Hosts::start(2, MTU, &folder.0)).transpose()?;
        let program = found.program.display().to_string();
        Ok(Found { folder, program, subjects: [ours, own], hosts })
    }

    fn run(&self, subject: &Subject, pattern: Pattern, size: usize, turn: f64) -> Result<f64> {
        let words = [&self.program, pattern.mode(), &turn.to_string(), &size.to_string()];
        let command = words.map(str::to_owned);
        let each = pattern.ranks() / if self.hosts.is_some() { 2 } else { 1 };
        let (hosts, folder) = (self.hosts.as_ref(), &self.folder.0);
        let said = Job { hosts, each, command: &command, folder, within: &[] }.run(subject)?;
        parse(&said).first().map(|&(_, seconds)| seconds).context("no figure")
    }
}

/// An MPI that is measured in turn with the models. Where none can use weft, and after a failure,
/// it has no figures, and a note says why.
pub struct Mpi {
    found: Option<Found>,
    turn: f64,
    times: [Vec<f64>; 2],
    notes: Vec<String>,
}

impl Mpi {
    /// Finds an MPI for the ranks of a benchmark.
    pub fn find(bench: &Bench<'_>, link: LinkName) -> Mpi {
        let turn = TURN[usize::from(bench.meter.options.quick)];
        let mut mpi = Mpi { found: None, turn, times: Default::default(), notes: Vec::new() };
        match Found::new(bench, link) {
            Ok(found) => {
                let [ours, own] = &found.subjects;
                let (of, own) = (&ours.mpi, own.name);
                mpi.notes.push(format!("MPI: {of} over weft; beside it over {own}"));
                mpi.found = Some(found);
            }
            Err(why) => mpi.notes.push(format!("MPI is left out: {why:#}")),
        }
        mpi
    }

    /// Measures a pattern once, over weft and over the MPI's own transport.
    pub fn measure(&mut self, pattern: Pattern, size: usize) {
        let Some(found) = &self.found else { return };
        for (subject, times) in found.subjects.iter().zip(&mut self.times) {
            match found.run(subject, pattern, size, self.turn) {
                Ok(seconds) => times.push(seconds),
                Err(why) => {
                    self.notes.push(format!("MPI is left out: {}: {why:#}", pattern.mode()));
                    (self.found, self.times) = (None, Default::default());
                    return;
                }
            }
        }
    }

    /// Takes the figures of the turns since the last call, in seconds: over weft, and over the
    /// MPI's own transport.
    pub fn take(&mut self) -> [Option<Sample>; 2] {
        std::mem::take(&mut self.times).map(Sample::of)
    }

    /// Returns the name of the transport that stands beside weft.
    pub fn own(&self) -> &'static str {
        self.found.as_ref().map_or("", |found| found.subjects[1].name)
    }

    /// Takes the notes.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

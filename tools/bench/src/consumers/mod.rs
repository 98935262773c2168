//! `weft bench consumers`: Charm++ and OpenSHMEM over weft's provider, beside libfabric's `tcp` and
//! Charm++'s own UDP (netlrts), between two lab hosts and inside this host, each target met or not.
//! Such systems are built by hand; variables name their folders, and rows of one that is not there
//! are left out with the reason.

mod charm;
mod place;
mod shmem;

use crate::pair::Sample;
use crate::progress::Plan;
use crate::table::{human, Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{Options, MTU};
use anyhow::{bail, Result};
use charm::Charm;
use place::{Carrier, Place};
use shmem::Shmem;
use std::collections::BTreeMap;
use std::io::Write;
use weft_run::folder::Folder;
use weft_run::mpi::judge;

/// Name of the benchmark.
const NAME: &str = "consumers";

/// A figure: its name in the table.
type What = &'static str;

/// Microseconds of each turn, by figure and size.
type Figures = BTreeMap<(What, usize), Vec<f64>>;

/// A row: the figure, its size, and its target beside a carrier, or the best of several.
struct Line {
    what: What,
    size: usize,
    most: Option<f64>,
    peers: &'static [Carrier],
}

const fn line(what: What, size: usize, most: Option<f64>, peers: &'static [Carrier]) -> Line {
    Line { what, size, most, peers }
}

/// A program of a consumer that prints figures.
trait Program {
    /// Returns the rows at a place.
    fn lines(&self, place: &Place) -> &'static [Line];

    /// Runs it once over a carrier for a size, and returns its figures in microseconds.
    ///
    /// # Errors
    /// The program failed, or there is no build for this carrier.
    fn run(&self, place: &Place, carrier: Carrier, size: usize) -> Result<Vec<(What, f64)>>;

    /// Adds rows that compare figures of weft with each other.
    fn compare(&self, _place: &Place, _ours: &Figures) -> Vec<Check> {
        Vec::new()
    }
}

/// State and results of the measurements.
struct Run<'a> {
    options: &'a Options,
    plan: Plan,
    notes: Vec<String>,
}

impl Run<'_> {
    fn wants(&self, size: usize) -> bool {
        self.options.size.is_empty() || self.options.size.contains(&size)
    }

    /// Measures all rows of a program at a place: its carriers in turn. One that fails is left out,
    /// with the reason.
    fn measure(&mut self, program: &dyn Program, place: &Place) -> Vec<Check> {
        let lines: Vec<&Line> =
            program.lines(place).iter().filter(|line| self.wants(line.size)).collect();
        let mut sizes: Vec<usize> = lines.iter().map(|line| line.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut all: BTreeMap<Carrier, Figures> = BTreeMap::new();
        for &size in &sizes {
            let of_size = lines.iter().filter(|line| line.size == size);
            let mut carriers: Vec<Carrier> =
                of_size.flat_map(|line| line.peers).copied().chain([Carrier::Weft]).collect();
            carriers.sort_unstable();
            carriers.dedup();
            self.plan.expect(carriers.len() * self.options.repeat() as usize);
            self.turns(program, place, (size, carriers), &mut all);
        }
        let ours = all.get(&Carrier::Weft).cloned().unwrap_or_default();
        let mut checks: Vec<Check> =
            lines.iter().filter_map(|line| self.check(line, place, &all)).collect();
        checks.extend(program.compare(place, &ours));
        checks
    }

    /// Runs a program for a size over its carriers in turn.
    fn turns(
        &mut self,
        program: &dyn Program,
        place: &Place,
        (size, mut carriers): (usize, Vec<Carrier>),
        all: &mut BTreeMap<Carrier, Figures>,
    ) {
        for _ in 0..self.options.repeat() {
            carriers.retain(|&carrier| {
                let name = carrier.name();
                self.plan.show(format!("{}, {} B: {name}", place.name(), human(size)));
                let got = program.run(place, carrier, size);
                self.plan.at(self.plan.done() + 1);
                match got {
                    Ok(figures) => {
                        let into = all.entry(carrier).or_default();
                        for (what, value) in figures {
                            into.entry((what, size)).or_default().push(value);
                        }
                        true
                    }
                    Err(why) => {
                        let note = format!("{name}, {}, {} B: {why:#}", place.name(), human(size));
                        self.notes.push(note);
                        all.entry(carrier).or_default().retain(|&(_, of), _| of != size);
                        false
                    }
                }
            });
        }
    }

    /// Returns the row of a line; a note says where weft was not measured.
    fn check(
        &mut self,
        line: &Line,
        place: &Place,
        all: &BTreeMap<Carrier, Figures>,
    ) -> Option<Check> {
        let of =
            |carrier: Carrier| Sample::of(all.get(&carrier)?.get(&(line.what, line.size))?.clone());
        let Some(ours) = of(Carrier::Weft) else {
            let size = human(line.size);
            self.notes.push(format!("{}, {}, {size} B: not measured", line.what, place.name()));
            return None;
        };
        let peer = |&carrier| Other { name: Carrier::name(carrier), sample: of(carrier) };
        let peers = line.peers.iter().map(peer).collect();
        Some(check((line.what, line.size, place.link()), ours, peers, line.most))
    }
}

/// Makes a row of microseconds.
fn check(
    (what, size, link): (What, usize, &'static str),
    ours: Sample,
    peers: Vec<Other>,
    most: Option<f64>,
) -> Check {
    let row = Row { what, size, ours, floors: Vec::new(), peers };
    let (rows, notes, unit, better) = (vec![row], Vec::new(), "us", Better::Lower);
    let table = Table { bench: NAME, link, what, unit, better, rows, notes };
    Check { table, aim: Aim { peer: most, floor: None }, goal: None }
}

/// Measures all consumers that are there, and prints the results.
///
/// # Errors
/// weft's provider is not there, or the output cannot be written.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let folder = Folder::new()?;
    let provider = match judge::provider() {
        Ok(provider) => provider.folder,
        Err(fault) => bail!("{}; {}", fault.why, fault.remedy),
    };
    let (mut programs, mut notes): (Vec<Box<dyn Program>>, Vec<String>) = Default::default();
    match Charm::find() {
        Ok((charm, note)) => {
            programs.push(Box::new(charm));
            notes.extend(note);
        }
        Err(why) => notes.push(format!("Charm++ is left out: {why:#}")),
    }
    match Shmem::find() {
        Ok(shmem) => programs.push(Box::new(shmem)),
        Err(why) => notes.push(format!("OpenSHMEM is left out: {why:#}")),
    }
    let places = [Place::lab(&folder.0, &provider), Ok(Place::host(&provider))];
    let (mut tally, plan) = (target::Tally::default(), Plan::default());
    let mut run = Run { options, plan, notes };
    for place in places {
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                run.notes.push(format!("no hosts of a lab: {why:#}"));
                continue;
            }
        };
        let checks: Vec<Check> =
            programs.iter().flat_map(|program| run.measure(&**program, &place)).collect();
        let notes = std::mem::take(&mut run.notes);
        target::show_part(place.name(), (&checks, &notes), json, &mut tally, out)?;
    }
    if !json {
        writeln!(out, "one-way times of messages; hosts of a lab have MTU {MTU}\n{tally}")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use anyhow::ensure;

    /// Figures of 2 us over weft and 4 us over TCP; it fails over UDP.
    struct Fake;

    const LINES: [Line; 2] = [
        line("message", 16, Some(0.5), &[Carrier::Tcp, Carrier::Udp]),
        line("nothing", 16, None, &[]),
    ];

    impl Program for Fake {
        fn lines(&self, _: &Place) -> &'static [Line] {
            &LINES
        }

        fn run(&self, _: &Place, carrier: Carrier, size: usize) -> Result<Vec<(What, f64)>> {
            ensure!(carrier != Carrier::Udp && size == 16, "no build");
            Ok(vec![("message", if carrier == Carrier::Weft { 2.0 } else { 4.0 })])
        }
    }

    #[test]
    fn measure__a_carrier_that_fails_is_a_note() {
        use clap::Parser;
        #[derive(Parser)]
        struct Words {
            #[command(flatten)]
            options: Options,
        }
        let options = Words::parse_from(["bench", "--repeat", "3"]).options;
        let mut run = Run { options: &options, plan: Plan::default(), notes: Vec::new() };
        let checks = run.measure(&Fake, &Place::host(std::path::Path::new("/p")));
        assert_eq!(checks.len(), 1);
        let row: serde_json::Value = serde_json::from_str(&checks[0].json().unwrap()).unwrap();
        assert_eq!((&row["value"], &row["ratio_peer"]), (&2.0.into(), &0.5.into()));
        assert_eq!((&row["met"], &row["peer_name"]), (&true.into(), &"libfabric tcp".into()));
        assert_eq!(run.notes.len(), 2, "{:?}", run.notes);
        assert!(run.notes[0].contains("no build") && run.notes[1].ends_with("not measured"));
    }
}

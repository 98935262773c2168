//! Runs the programs of paper 004: Table VII and Figure 11 on this host, Figures 12 to 16 on hosts
//! of labs.

use super::grid::{Cell, Grid, EFFICIENCY, OVER, SECONDS};
use super::programs::{Choice, Figure, Program, FIGURES, PROGRAMS};
use super::Wanted;
use crate::apps::{Done, Way};
use crate::netns::Mode;
use crate::pair::Sample;
use crate::progress::Plan;
use crate::Options;
use anyhow::{ensure, Result};
use std::io::Write;
use std::path::Path;
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_measure::layout;

/// Numbers of ranks, where none are named.
const RANKS: [u32; 3] = [2, 4, 8];
/// Most repetitions: a run takes longer than a probe.
const TURNS: u32 = 3;
/// Most characters of a failure's text.
const TEXT: usize = 300;
/// Units of what comes to a rank.
const PACKETS: &str = "packets/s a rank";
const BYTES: &str = "MB/s a rank";

/// The measurement, and what it needs all the time.
struct Study<'a> {
    options: &'a Options,
    ranks: Vec<u32>,
    plan: Plan,
}

/// Choices without figures: each with its programs and numbers of ranks, and the first reason.
#[derive(Default)]
struct Failed(Vec<(&'static str, Vec<String>, String)>);

impl Failed {
    fn add(&mut self, choice: &'static str, run: String, why: String) {
        match self.0.iter_mut().find(|(name, _, _)| *name == choice) {
            Some((_, runs, _)) => runs.push(run),
            None => self.0.push((choice, vec![run], why)),
        }
    }

    /// Returns a note for each choice.
    fn notes(self) -> Vec<String> {
        let note = |(choice, runs, why): (&str, Vec<String>, String)| {
            let more = match runs.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{choice} has no figure of {}{more}: {why}", runs[0])
        };
        self.0.into_iter().map(note).collect()
    }
}

/// Returns the text of a failure, not longer than a few lines.
fn shortened(why: &anyhow::Error) -> String {
    let text = format!("{why:#}").replace('\n', " / ");
    text.chars().take(TEXT).collect()
}

/// Returns the sample of the turns' ratios.
fn ratios(above: &[f64], below: &[f64], factor: f64) -> Option<Sample> {
    Sample::of(above.iter().zip(below).map(|(a, b)| a / b.max(1e-9) * factor).collect())
}

impl Study<'_> {
    fn turns(&self) -> u32 {
        self.options.repeat().min(TURNS)
    }

    /// Runs a program once, with a step of the progress.
    fn run(&mut self, program: &Program, words: &[&str], way: &Way<'_>, of: &str) -> Result<Done> {
        self.plan.show(format!("{of}: {} on {} ranks", program.name, way.ranks));
        let done = program.app.run(words, way);
        self.plan.at(self.plan.done() + 1);
        if let Ok(done) = &done {
            let what = format!("{of}: {} on {} ranks", program.name, way.ranks);
            crate::kept::note(what, done.seconds);
        }
        done
    }

    /// Adds the figures of a program on this host: its efficiency, and what comes to a rank.
    fn here(&mut self, program: &Program, [vii, traffic]: [&mut Grid; 2]) -> Result<()> {
        let ranks: Vec<u32> = std::iter::once(1).chain(self.ranks.iter().copied()).collect();
        let mut done: Vec<Vec<Done>> = vec![Vec::new(); ranks.len()];
        for _ in 0..self.turns() {
            for (runs, &ranks) in done.iter_mut().zip(&ranks) {
                let way = Way { ranks, ..Way::default() };
                runs.push(self.run(program, &program.words(self.options), &way, "Table VII")?);
            }
        }
        let name = program.name;
        let checksums = done.iter().flatten().map(|done| &done.checksum);
        ensure!(checksums.clone().all(|one| *one == done[0][0].checksum), "results differ");
        let times = |runs: &[Done]| runs.iter().map(|done| done.seconds).collect::<Vec<f64>>();
        let alone = times(&done[0]);
        let add = |grid: &mut Grid, what, unit, ranks, sample: Option<Sample>| {
            let cell = |sample| Cell { program: name, what, unit, ranks, sample };
            grid.cells.extend(sample.map(cell));
        };
        add(vii, "", SECONDS, 1, Sample::of(alone.clone()));
        for (runs, &ranks) in done.iter().zip(&ranks).skip(1) {
            let n = f64::from(ranks);
            add(vii, "", EFFICIENCY, ranks, ratios(&alone, &times(runs), 1.0 / n));
            let rate = |of: fn(&Done) -> u64, scale: f64| {
                let each = |done: &Done| of(done) as f64 / done.seconds.max(1e-9) / n * scale;
                Sample::of(runs.iter().map(each).collect())
            };
            add(traffic, "packets", PACKETS, ranks, rate(|done| done.traffic.packets, 1.0));
            let acknowledgements = rate(|done| done.traffic.acknowledgements, 1.0);
            add(traffic, "only acknowledge", PACKETS, ranks, acknowledgements);
            add(traffic, "data", BYTES, ranks, rate(|done| done.traffic.bytes, 1e-6));
        }
        Ok(())
    }

    /// Measures Table VII and Figure 11.
    fn table_vii(&mut self) -> [Grid; 2] {
        let cores = weft::job::cores_of_host();
        let grid = |table, title: &str, notes: &[&str]| Grid {
            table,
            title: format!("{title}, over shm on this host of {cores} cores"),
            link: "shm",
            cells: Vec::new(),
            notes: notes.iter().map(|note| (*note).to_string()).collect(),
        };
        let mut vii = grid(
            "VII",
            "Table VII: efficiency",
            &[
                "the paper's inputs; T1 is the time of one rank, n Tn that of n ranks times n: 1 \
                 where n ranks are n times as fast. More ranks than cores share these: the most \
                 that cores allow is their number over that of the ranks",
                "results of all numbers of ranks are the same bits",
            ],
        );
        let mut traffic = grid(
            "11",
            "Figure 11: packets and bytes to a rank",
            &["data are the bytes in packets, and those that are copied directly between \
               processes"],
        );
        for program in &PROGRAMS {
            if let Err(why) = self.here(program, [&mut vii, &mut traffic]) {
                vii.notes.push(format!("{}: {}", program.name, shortened(&why)));
            }
        }
        [vii, traffic]
    }

    /// Adds the times of a program with the choices of a figure, over that of the base.
    fn choices(
        &mut self,
        (figure, program): (&Figure, &Program),
        (lab, ranks): (&str, u32),
        (grid, without): (&mut Grid, &mut Failed),
    ) -> Result<()> {
        let of = format!("Figure {}, {}", figure.number, figure.title);
        let run = |study: &mut Self, choice: &Choice| {
            let words = choice.words(program, study.options);
            let mut way = choice.way(lab, ranks);
            if !way.agent {
                // An agent of the machine would let hosts of a lab share memory.
                way.set.push(("WEFT_AGENT", "@weft-bench".into()));
            }
            study.run(program, &words, &way, &of)
        };
        let mut base = Vec::new();
        let mut others: Vec<(&Choice, Vec<f64>, Vec<f64>)> =
            figure.others.iter().map(|other| (other, Vec::new(), Vec::new())).collect();
        for _ in 0..self.turns() {
            let first = run(self, &figure.base)?;
            base.push(first.seconds);
            others.retain_mut(|(other, times, beside)| match run(self, other) {
                Ok(done) if done.checksum == first.checksum => {
                    times.push(done.seconds);
                    beside.push(first.seconds);
                    true
                }
                failed => {
                    let why = failed.err().map_or("another result".into(), |why| shortened(&why));
                    let run = format!("{} on {ranks} ranks", program.name);
                    without.add(other.name, run, why);
                    false
                }
            });
        }
        let mut add = |what, unit, sample: Option<Sample>| {
            let cell = |sample| Cell { program: program.name, what, unit, ranks, sample };
            grid.cells.extend(sample.map(cell));
        };
        add(figure.base.name, SECONDS, Sample::of(base));
        for (other, times, beside) in others {
            add(other.name, OVER, ratios(&times, &beside, 1.0));
        }
        Ok(())
    }

    /// Measures a figure on hosts of labs, one rank on each.
    fn figure(&mut self, figure: &Figure) -> Grid {
        let (number, title, base) = (figure.number, figure.title, figure.base.name);
        let mut grid = Grid {
            table: number,
            title: format!(
                "Figure {number}: {title}, times over those of {base}; hosts of a lab, MTU {}",
                figure.mtu
            ),
            link: "packet",
            cells: Vec::new(),
            notes: Vec::new(),
        };
        let mut without = Failed::default();
        for ranks in self.ranks.clone() {
            let lab = match start(ranks as usize, figure.mtu) {
                Ok(lab) => lab,
                Err(why) => {
                    grid.notes.push(format!("{ranks} ranks: no lab: {}", shortened(&why)));
                    continue;
                }
            };
            for program in figure.programs {
                let on = (lab.name.as_str(), ranks);
                let into = (&mut grid, &mut without);
                if let Err(why) = self.choices((figure, program), on, into) {
                    let run = format!("{} on {ranks} ranks", program.name);
                    without.add(figure.base.name, run, shortened(&why));
                }
            }
        }
        grid.notes.extend(without.notes());
        grid
    }
}

/// Starts a lab of this many hosts.
fn start(hosts: usize, mtu: u32) -> Result<Attached> {
    let name = format!("bench-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
    let conditions = Conditions { mtu, direct: hosts == 2, ..Conditions::default() };
    Attached::start(&plan(&name, hosts, &conditions)?)
}

/// Measures the tables and figures of programs that are wanted, and prints them.
///
/// # Errors
/// The output or the folder of the plots cannot be written; or there is no figure at all.
pub fn print(
    wants: &dyn Fn(Wanted) -> bool,
    (ranks, options): (&[u32], &Options),
    (json, folder): (bool, Option<&Path>),
    out: &mut impl Write,
) -> Result<()> {
    let mut ranks = if ranks.is_empty() { RANKS.to_vec() } else { ranks.to_vec() };
    ranks.sort_unstable();
    ranks.dedup();
    let here = wants(Wanted::Seven) || wants(Wanted::Figure11);
    let figures = FIGURES.iter().filter(|figure| wants(Wanted::of(figure.number)));
    let mut figures: Vec<&Figure> = figures.collect();
    if options.netns == Mode::Off && !figures.is_empty() {
        figures.clear();
        log::warn!("Figures 12 to 16 are left out: they are measured between hosts of a lab");
    }
    let mut study = Study { options, ranks, plan: Plan::default() };
    let each = |figure: &&Figure| (1 + figure.others.len()) * figure.programs.len();
    let between = figures.iter().map(each).sum::<usize>() * study.ranks.len();
    let alone = if here { PROGRAMS.len() * (1 + study.ranks.len()) } else { 0 };
    study.plan = Plan::of((between + alone) * study.turns() as usize);
    let mut drawn = Vec::new();
    let (mut any, mut why) = (!here && figures.is_empty(), None);
    let mut show = |grid: &Grid| -> Result<()> {
        any |= !grid.cells.is_empty();
        why = why.take().or_else(|| grid.notes.last().cloned());
        match json {
            true => out.write_all(grid.json()?.as_bytes())?,
            false => writeln!(out, "{}", grid.text(layout::width()))?,
        }
        folder.map_or(Ok(()), |folder| grid.draw(folder, &mut drawn))
    };
    if here {
        let grids = study.table_vii();
        let wanted = [Wanted::Seven, Wanted::Figure11].map(wants);
        for (grid, _) in grids.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted) {
            show(grid)?;
        }
    }
    for figure in figures {
        show(&study.figure(figure))?;
    }
    ensure!(any, "no program was measured: {}", why.unwrap_or_default());
    for plot in drawn.iter().filter(|_| !json) {
        writeln!(out, "  - plot: {plot}.svg, .png")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn failed__one_note_for_a_choice_with_the_first_reason() {
        let mut without = Failed::default();
        for (choice, run) in [("agent", "ASP on 2 ranks"), ("none", "SOR on 4 ranks")] {
            without.add(choice, run.into(), format!("no {choice}"));
        }
        without.add("agent", "LEQ on 8 ranks".into(), "another".into());
        let notes = without.notes();
        assert_eq!(notes[0], "agent has no figure of ASP on 2 ranks and 1 more: no agent");
        assert_eq!(notes[1], "none has no figure of SOR on 4 ranks: no none");
    }
}

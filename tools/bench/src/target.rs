//! Tables whose rows have targets: the most that a figure may be of its floor's or its peer's, each
//! met or not.

use super::netns::Place;
use super::pair::Sample;
use super::progress::Plan;
use super::rank::{Probe, Task};
use super::table::{figure, human, Better, Line, Other, Row, Table};
use super::wire::Socket;
use super::{Bench, LinkName, Options, MTU};
use anyhow::{ensure, Result};
use serde::Serialize;
use std::io::Write;
use weft_measure::layout::{self, hanging, Columns};

/// Target ratios: a maximum where lower is better, else a minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Aim {
    /// Weft / floor.
    pub floor: Option<f64>,
    /// Weft / peer.
    pub peer: Option<f64>,
}

/// The result of a comparison with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is no target.
    Free,
    Met,
    Missed,
    /// The floor or peer of the target was not measured.
    Unknown,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Free => "-",
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Unknown => "not measured",
        }
    }
}

/// One row of the report: a table of one row, and its target.
pub(super) struct Check {
    pub table: Table,
    pub aim: Aim,
    /// The most, or where higher is better the least, that the figure itself may be.
    pub goal: Option<f64>,
}

/// A row for programs to read: the fields of every benchmark, and the targets.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    target_floor: Option<f64>,
    target_peer: Option<f64>,
    target: Option<f64>,
    /// `None` without a target, and where it could not be measured.
    met: Option<bool>,
}

/// A row for programs to read of a table whose columns are numbers of ranks; it has no target.
#[derive(Serialize)]
struct OfRanks<'a> {
    table: &'a str,
    ranks: u32,
    #[serde(flatten)]
    judged: Judged<'a>,
}

/// Returns the JSON object of a figure of so many ranks, in a table.
///
/// # Errors
/// The figure is no number.
pub(super) fn json_of_ranks(table: &str, ranks: u32, line: Line<'_>) -> Result<String> {
    let judged = Judged { line, target_floor: None, target_peer: None, target: None, met: None };
    Ok(serde_json::to_string(&OfRanks { table, ranks, judged })?)
}

impl Check {
    fn row(&self) -> &Row {
        &self.table.rows[0]
    }

    fn verdict(&self) -> Verdict {
        let (row, better) = (self.row(), self.table.better);
        let mut result = Verdict::Free;
        let itself = Some(("itself", 1.0));
        let aims =
            [(self.goal, itself), (self.aim.floor, row.floor()), (self.aim.peer, row.peer(better))];
        for (aim, other) in aims {
            let Some(aim) = aim else { continue };
            let Some((_, other)) = other else { return Verdict::Unknown };
            let ratio = row.ours.median / other;
            let met = match better {
                Better::Lower => ratio <= aim,
                Better::Higher => ratio >= aim,
            };
            if !met {
                return Verdict::Missed;
            }
            result = Verdict::Met;
        }
        result
    }

    pub fn json(&self) -> Result<String> {
        let met = match self.verdict() {
            Verdict::Met => Some(true),
            Verdict::Missed => Some(false),
            Verdict::Free | Verdict::Unknown => None,
        };
        let (target_floor, target_peer, target) = (self.aim.floor, self.aim.peer, self.goal);
        let line = self.table.line(self.row());
        Ok(serde_json::to_string(&Judged { line, target_floor, target_peer, target, met })?)
    }

    fn target(&self) -> String {
        let sign = if self.table.better == Better::Lower { "<=" } else { ">=" };
        let part = |of, aim: Option<f64>| aim.map(|aim| format!("{of} {sign} {aim}"));
        let itself = self.goal.map(|goal| format!("{sign} {goal}"));
        let parts = [itself, part("floor", self.aim.floor), part("peer", self.aim.peer)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn cells(&self) -> Vec<String> {
        let (row, ours) = (self.row(), self.row().ours);
        let (floor, peer) = (row.floor(), row.peer(self.table.better));
        let named = |other: Option<(&str, f64)>| {
            other.map_or("-".into(), |(name, value)| format!("{name} {}", figure(value)))
        };
        let ratio = |other: Option<(&str, f64)>| {
            other.map_or("-".into(), |(_, value)| figure(ours.median / value))
        };
        vec![
            row.what.to_string(),
            human(row.size),
            self.table.unit.to_string(),
            figure(ours.median),
            format!("{}..{}", figure(ours.min), figure(ours.max)),
            named(floor),
            named(peer),
            ratio(floor),
            ratio(peer),
            self.target(),
            self.verdict().name().to_string(),
        ]
    }
}

/// Settings of ranks that sleep at once. The first entry is that of all pairs.
pub(super) const BLOCKING: &[(&str, &str)] =
    &[("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_SPIN_US", "0")];

/// The column headings.
const HEADER: [&str; 11] = [
    "what",
    "size",
    "unit",
    "weft",
    "min..max",
    "floor",
    "peer",
    "weft/floor",
    "weft/peer",
    "target",
    "result",
];
/// The measurements over one link.
pub(super) struct Run<'a> {
    /// The benchmark that the table belongs to.
    pub name: &'static str,
    pub bench: Bench<'a>,
    pub link: LinkName,
    pub checks: Vec<Check>,
    pub notes: Vec<String>,
}

/// Lines that are to be measured: their sizes, and the number of subjects at each.
pub(super) type Lines = (&'static [usize], usize);

/// Floor or peer of a row.
type Beside = Option<(&'static str, Option<Sample>)>;

impl Run<'_> {
    pub fn wants(&self, size: usize) -> bool {
        let sizes = &self.bench.meter.options.size;
        sizes.is_empty() || sizes.contains(&size)
    }

    /// Names the line that is measured next, for the progress.
    pub fn begin(&mut self, line: &str) {
        self.bench.meter.title = format!("{} over {}, {line}", self.name, self.link.name());
    }

    /// Sets the steps of the progress to those of these lines, as far as their sizes are wanted.
    pub fn plan(&mut self, lines: &[Lines]) {
        let wanted = |sizes: &[usize]| sizes.iter().filter(|&&size| self.wants(size)).count();
        self.bench.plan(lines.iter().map(|(sizes, subjects)| subjects * wanted(sizes)).sum());
    }

    /// Returns the raw sockets that the link uses.
    pub fn socket(&self) -> Socket {
        match self.link {
            LinkName::Xdp => Socket::Xdp,
            _ => Socket::Packet,
        }
    }

    /// True for the link `auto`, which users get; some targets apply to it only.
    pub fn is_whole(&self) -> bool {
        self.link == LinkName::Auto
    }

    pub fn push(
        &mut self,
        (what, size, unit, better): (&'static str, usize, &'static str, Better),
        [ours, floor, peer]: [Option<Sample>; 3],
        names: (&'static str, &'static str),
        aim: Aim,
    ) {
        let mut table = self.bench.table(self.name, what, unit, better);
        let column = |(name, sample): (&'static str, Option<Sample>)| -> Vec<Other> {
            let named: Beside = Some((name, sample)).filter(|(name, _)| !name.is_empty());
            named.into_iter().map(|(name, sample)| Other { name, sample }).collect()
        };
        table.push(what, size, ours, column((names.0, floor)), column((names.1, peer)));
        if table.rows.is_empty() {
            self.notes.push(format!("{what}, {}: weft was not measured", human(size)));
        } else {
            self.checks.push(Check { table, aim, goal: None });
        }
    }
}

/// A part of a table: its name, the size that it measures (0: the part chooses sizes), the number
/// of its subjects if all are wanted, and the function that measures it.
pub(super) struct Part {
    pub name: &'static str,
    pub size: usize,
    pub subjects: usize,
    pub measure: for<'a, 'b> fn(&'b mut Run<'a>) -> Result<()>,
}

/// Measures all parts of a table for one link. A failure is noted, and the next part starts with
/// new ranks.
fn measure(
    name: &'static str,
    parts: &[Part],
    link: LinkName,
    options: &Options,
) -> Result<(Vec<Check>, Vec<String>)> {
    let bench = Bench::start(link, options)?;
    let why = bench.why_not.as_deref().unwrap_or("leave out --netns off");
    ensure!(bench.place == Place::Between(MTU), "{name} needs two lab hosts: {why}");
    let mut run = Run { name, bench, link, checks: Vec::new(), notes: Vec::new() };
    run.notes.extend(run.bench.path());
    // A link that does not open fails in every part.
    let hello = Task { probe: Probe::WeftPingPong, size: 16, iters: 2, arg: 0 };
    if let Err(e) = run.bench.meter.pairs[0].run(&hello) {
        run.notes.push(format!("{}: {e:#}", link.name()));
        return Ok((run.checks, run.notes));
    }
    let wanted: Vec<_> = parts.iter().filter(|p| p.size == 0 || run.wants(p.size)).collect();
    let steps = |subjects| run.bench.meter.steps(subjects);
    let mut plan = Plan::of(steps(wanted.iter().map(|p| p.subjects).sum()));
    let mut done = 0;
    for part in wanted {
        run.bench.meter.title = format!("{} over {}", part.name, link.name());
        run.bench.meter.plan = plan;
        let outcome = (part.measure)(&mut run);
        plan = std::mem::take(&mut run.bench.meter.plan);
        done += run.bench.meter.steps(part.subjects);
        plan.at(done);
        if let Err(e) = outcome {
            run.notes.push(format!("{}: {e:#}", part.name));
            run.bench = Bench::start(link, options)?;
        }
        run.notes.append(&mut run.bench.meter.absent);
    }
    Ok((run.checks, run.notes))
}

/// Returns lines and notes as text, within the width of a terminal if there is one.
pub(super) fn text(title: &str, checks: &[Check], notes: &[String]) -> String {
    let width = layout::width();
    let mut columns = Columns::new("<>>>>>>>>>>", 3);
    columns.row(HEADER);
    checks.iter().for_each(|check| columns.row(check.cells()));
    let mut out = format!("{title}\n{}", columns.text("  ", width));
    notes.iter().for_each(|note| out += &(hanging("  - ", note, width) + "\n"));
    out
}

/// Prints the lines of a table, and how many of them meet their targets.
pub(super) fn show(title: &str, run: &Run<'_>, json: bool, out: &mut impl Write) -> Result<()> {
    show_all(title, (&run.checks, &run.notes), json, out)
}

/// Prints lines and notes, and how many of the lines meet their targets.
pub(super) fn show_all(
    title: &str,
    (checks, notes): (&[Check], &[String]),
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut tally = Tally::default();
    show_part(title, (checks, notes), json, &mut tally, out)?;
    if !json {
        writeln!(out, "{tally}")?;
    }
    Ok(())
}

/// The number of lines with a target that meet it, and of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    met: usize,
    all: usize,
}

impl Tally {
    fn add(&mut self, checks: &[Check]) {
        let verdicts = checks.iter().map(Check::verdict).filter(|&v| v != Verdict::Free);
        self.all += verdicts.clone().count();
        self.met += verdicts.filter(|&v| v == Verdict::Met).count();
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} lines with a target meet it", self.met, self.all)
    }
}

/// Prints one part of a table, and counts its lines.
pub(super) fn show_part(
    title: &str,
    (checks, notes): (&[Check], &[String]),
    json: bool,
    tally: &mut Tally,
    out: &mut impl Write,
) -> Result<()> {
    tally.add(checks);
    if json {
        for check in checks {
            writeln!(out, "{}", check.json()?)?;
        }
    } else {
        writeln!(out, "{}", text(title, checks, notes))?;
    }
    Ok(out.flush()?)
}

/// Measures the parts of the benchmark `name` over these links, and prints the results.
pub fn print(
    (name, parts): (&'static str, &[Part]),
    links: &[LinkName],
    options: &Options,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut tally = Tally::default();
    for &link in links {
        let (checks, notes) = measure(name, parts, link, options)?;
        let title = format!("{name} over {}", link.name());
        show_part(&title, (&checks, &notes), json, &mut tally, out)?;
    }
    if !json {
        writeln!(out, "{tally}")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn check(better: Better, floor: Option<f64>, aim: Aim) -> Check {
        let sample = |median| Sample { median, min: median, max: median };
        let row = Row {
            what: "one way",
            size: 16,
            ours: sample(3.0),
            floors: vec![Other { name: "floor", sample: floor.map(sample) }],
            peers: vec![Other { name: "tcp", sample: Some(sample(6.0)) }],
        };
        let (bench, link, what, unit) = ("ethernet", "packet", "one way", "us");
        let table = Table { bench, link, what, unit, better, rows: vec![row], notes: Vec::new() };
        Check { table, aim, goal: None }
    }

    fn aim(floor: Option<f64>, peer: Option<f64>) -> Aim {
        Aim { floor, peer }
    }

    #[test]
    fn verdict__every_target_counts() {
        let lower = |floor, goal| check(Better::Lower, floor, goal).verdict();
        assert_eq!(lower(Some(2.5), aim(None, None)), Verdict::Free);
        assert_eq!(lower(Some(2.5), aim(Some(1.25), Some(0.5))), Verdict::Met);
        assert_eq!(lower(Some(2.0), aim(Some(1.25), Some(0.5))), Verdict::Missed);
        assert_eq!(lower(Some(2.5), aim(Some(1.25), Some(0.4))), Verdict::Missed);
        assert_eq!(lower(None, aim(Some(1.25), Some(0.5))), Verdict::Unknown);
        let higher = |goal| check(Better::Higher, Some(3.0), goal).verdict();
        assert_eq!(higher(aim(Some(0.85), None)), Verdict::Met);
        assert_eq!(higher(aim(None, Some(0.6))), Verdict::Missed);
    }

    #[test]
    fn verdict__of_a_figure_that_has_a_goal_itself() {
        let check = |goal| Check { goal, ..check(Better::Lower, Some(2.0), aim(None, Some(0.6))) };
        assert_eq!(check(Some(3.0)).verdict(), Verdict::Met);
        assert_eq!(check(Some(2.9)).verdict(), Verdict::Missed);
        assert_eq!(check(Some(3.5)).target(), "<= 3.5, peer <= 0.6");
        assert!(check(Some(3.5)).json().unwrap().contains("\"target\":3.5"));
    }

    #[test]
    fn json__has_the_fields_of_every_benchmark_and_the_targets() {
        let text = check(Better::Lower, Some(2.0), aim(Some(1.25), None)).json().unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["bench"], &line["link"]), (&"ethernet".into(), &"packet".into()));
        assert_eq!((&line["ratio_floor"], &line["target_floor"]), (&1.5.into(), &1.25.into()));
        assert_eq!((&line["met"], &line["target_peer"]), (&false.into(), &().into()));
    }

    #[test]
    fn text__columns_line_up_and_a_miss_shows() {
        let checks = [
            check(Better::Lower, Some(2.5), aim(Some(1.25), Some(0.5))),
            check(Better::Lower, None, aim(None, Some(0.4))),
        ];
        let text = text("packet", &checks, &["a note".into()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1..4].iter().all(|line| line.len() == lines[1].len()), "{text}");
        assert!(lines[2].ends_with(" met") && lines[3].ends_with("MISSED"), "{text}");
    }
}

//! The targets of weft on plain Ethernet, each with the floor and the peer that it refers to,
//! measured in turn between lab hosts.

use super::netns::Place;
use super::pair::{Kind, Sample, Subject};
use super::progress::Plan;
use super::rank::{Channel, Probe, Task};
use super::table::{figure, human, Better, Line, Other, Row, Table};
use super::wire::{Socket, FRAME};
use super::{rate, Bench, LinkName, Options, MTU};
use anyhow::{ensure, Result};
use serde::Serialize;
use std::io::Write;

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
}

/// A row for programs to read: the fields of every benchmark, and the targets.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    target_floor: Option<f64>,
    target_peer: Option<f64>,
    /// `None` without a target, and where it could not be measured.
    met: Option<bool>,
}

impl Check {
    fn row(&self) -> &Row {
        &self.table.rows[0]
    }

    fn verdict(&self) -> Verdict {
        let (row, better) = (self.row(), self.table.better);
        let mut result = Verdict::Free;
        for (aim, other) in [(self.aim.floor, row.floor()), (self.aim.peer, row.peer(better))] {
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
        let (target_floor, target_peer) = (self.aim.floor, self.aim.peer);
        let line = self.table.line(self.row());
        Ok(serde_json::to_string(&Judged { line, target_floor, target_peer, met })?)
    }

    fn target(&self) -> String {
        let sign = if self.table.better == Better::Lower { "<=" } else { ">=" };
        let part = |of, aim: Option<f64>| aim.map(|aim| format!("{of} {sign} {aim}"));
        let parts = [part("floor", self.aim.floor), part("peer", self.aim.peer)];
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

/// Column headings.
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
/// Number of idle endpoints on a host beside the measured one: eight ranks in all.
const IDLE: u64 = 7;
/// Packets lost, percent.
const LOSS: u32 = 1;

/// Settings of further pairs. The first entry is that of all pairs.
const BLOCKING: &[(&str, &str)] = &[("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_SPIN_US", "0")];
const QUIET: &[(&str, &str)] = &[("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_LOG", "error")];

/// The measurements over one link.
struct Run<'a> {
    bench: Bench<'a>,
    link: LinkName,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// Floor or peer of a row.
type Beside = Option<(&'static str, Option<Sample>)>;

impl<'a> Run<'a> {
    fn wants(&self, size: usize) -> bool {
        let sizes = &self.bench.meter.options.size;
        sizes.is_empty() || sizes.contains(&size)
    }

    /// Returns the sockets that the link uses.
    fn socket(&self) -> Socket {
        match self.link {
            LinkName::Xdp => Socket::Xdp,
            _ => Socket::Packet,
        }
    }

    /// True for the link `auto`, which users get; some targets apply to it only.
    fn is_whole(&self) -> bool {
        self.link == LinkName::Auto
    }

    fn push(
        &mut self,
        (what, size, unit, better): (&'static str, usize, &'static str, Better),
        [ours, floor, peer]: [Option<Sample>; 3],
        names: (&'static str, &'static str),
        aim: Aim,
    ) {
        let mut table = self.bench.table("ethernet", what, unit, better);
        let column = |(name, sample): (&'static str, Option<Sample>)| -> Vec<Other> {
            let named: Beside = Some((name, sample)).filter(|(name, _)| !name.is_empty());
            named.into_iter().map(|(name, sample)| Other { name, sample }).collect()
        };
        table.push(what, size, ours, column((names.0, floor)), column((names.1, peer)));
        if table.rows.is_empty() {
            self.notes.push(format!("{what}, {}: weft was not measured", human(size)));
        } else {
            self.checks.push(Check { table, aim });
        }
    }

    fn latency(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::PingPong(Channel::Tcp));
        let blocking = self.bench.bare(Probe::Exchange(Channel::Tcp));
        let floor = self.bench.bare(Probe::Wire(self.socket(), false));
        let name = self.socket().name();
        for size in [16, 64, 1 << 10, 1400, 4 << 10, 16 << 10] {
            if !self.wants(size) {
                continue;
            }
            let mut subjects = vec![Probe::WeftPingPong.into(), tcp];
            subjects.extend([floor].into_iter().filter(|_| size <= FRAME));
            subjects.extend([blocking].into_iter().filter(|_| size == 16));
            let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let bare = got.get(2).copied().flatten();
            let names = (if size <= FRAME { name } else { "" }, "tcp");
            let aim = Aim {
                floor: Some(1.25).filter(|_| size == 16),
                peer: Some(if size <= FRAME { 0.5 } else { 0.75 }),
            };
            let line = ("one way", size, "us", Better::Lower);
            self.push(line, [got[0], bare, got[1]], names, aim);
            if let Some(&asleep) = got.get(3) {
                let aim = Aim { peer: (self.link != LinkName::Xdp).then_some(0.2), floor: None };
                self.push(line, [got[0], None, asleep], ("", "blocking tcp"), aim);
            }
        }
        Ok(())
    }

    fn blocking(&mut self) -> Result<()> {
        let size = 16;
        let tcp = self.bench.bare(Probe::Exchange(Channel::Tcp));
        let floor = self.bench.bare(Probe::Wire(self.socket(), true));
        let got = self.bench.beside(BLOCKING, |bench, pair| {
            let ours = Subject { pair, ..Probe::WeftPingPong.into() };
            bench.measure(size, &[ours, floor, tcp], |s| s * 1e6)
        })?;
        let names = (self.socket().name(), "blocking tcp");
        let line = ("one way, blocking wait", size, "us", Better::Lower);
        self.push(line, [got[0], got[1], got[2]], names, Aim { peer: Some(0.6), floor: None });
        Ok(())
    }

    fn rate(&mut self) -> Result<()> {
        let size = 16;
        let (name, floor) = rate::floor_of(self.link);
        let subjects = [
            Probe::WeftRate.into(),
            self.bench.bare(floor),
            self.bench.bare(Probe::Stream(Channel::Tcp)),
        ];
        let got = self.bench.measure(size, &subjects, |s| 1e-6 / s)?;
        let line = ("messages", size, "M/s", Better::Higher);
        let aim = Aim { peer: Some(3.0), floor: None };
        self.push(line, [got[0], got[1], got[2]], (name, "tcp nodelay"), aim);
        Ok(())
    }

    fn crowd(&mut self) -> Result<()> {
        let size = 16;
        let got = self.bench.beside(super::CONFIG, |bench, pair| {
            let task = Task { probe: Probe::WeftCrowd, size, iters: 1, arg: IDLE };
            bench.meter.pairs[pair].run(&task)?;
            let crowded = Subject { pair, ..Probe::WeftPingPong.into() };
            bench.measure(size, &[crowded, Probe::WeftPingPong.into()], |s| s * 1e6)
        })?;
        let line = ("one way, 8 ranks a host", size, "us", Better::Lower);
        let aim = Aim { floor: Some(1.1), peer: None };
        self.push(line, [got[0], got[1], None], ("1 rank", ""), aim);
        Ok(())
    }

    fn bulk(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::Stream(Channel::Tcp));
        let floor = self.bench.bare(Probe::UdpStream);
        let whole = self.is_whole();
        for size in [1 << 20, 16 << 20] {
            if !self.wants(size) {
                continue;
            }
            let subjects = [Probe::WeftBandwidth.into(), floor, tcp];
            let rate = |s: f64| size as f64 / s / 1e9;
            let got = self.bench.measure(size, &subjects, rate)?;
            let aim = Aim { floor: whole.then_some(0.85), peer: whole.then_some(1.5) };
            let line = ("bandwidth", size, "GB/s", Better::Higher);
            self.push(line, [got[0], got[1], got[2]], ("UDP GSO", "tcp"), aim);
        }
        let size = 1 << 20;
        if !self.wants(size) {
            return Ok(());
        }
        let got = self.bench.meter.measure_cost(size, &[Probe::WeftBandwidth.into(), tcp])?;
        let [ours, tcp] = [0, 1].map(|at: usize| {
            let cost = got.get(at).copied().flatten();
            cost.map(|cost| cost.map(|s| size as f64 / s.max(1e-9) / 1e9))
        });
        let aim = Aim { peer: whole.then_some(1.5), floor: None };
        let line = ("bytes a processor second", size, "GB/cpu-s", Better::Higher);
        self.push(line, [ours, None, tcp], ("", "tcp"), aim);
        Ok(())
    }

    /// Compares TCP on a cable whose ends weft has opened without sending, with TCP on a cable that
    /// weft has not opened.
    fn neighbours(&mut self) -> Result<()> {
        let (names, size) = (("tcp alone", ""), 1 << 20);
        let stream = Probe::Stream(Channel::Tcp);
        let subjects = [stream.into(), self.bench.bare(stream)];
        let got = self.bench.measure(size, &subjects, |s| size as f64 / s / 1e9)?;
        let line = ("tcp beside weft", size, "GB/s", Better::Higher);
        self.push(line, [got[0], got[1], None], names, Aim { floor: Some(0.95), peer: None });

        let exchange = Probe::Exchange(Channel::Tcp);
        let subjects = [exchange.into(), self.bench.bare(exchange)];
        let got = self.bench.measure(16, &subjects, |s| s * 1e6)?;
        self.notes.push("tcp beside weft: weft has opened the interfaces, and is silent".into());
        let line = ("tcp beside weft, one way", 16, "us", Better::Lower);
        self.push(line, [got[0], got[1], None], names, Aim { floor: Some(1.05), peer: None });
        Ok(())
    }

    /// All subjects are behind the same switch, and packets come to it one by one.
    fn loss(&mut self) -> Result<()> {
        if !self.is_whole() {
            return Ok(());
        }
        let size = 1 << 20;
        let kind = |link, loss| Kind { link, config: QUIET, place: Place::Losing(MTU, loss) };
        let link = self.link.links();
        let kinds = [kind(link, LOSS), kind(link, 0), kind("udp", LOSS)];
        let got = self.bench.with(&kinds, |bench, first| {
            let on = |at, probe: Probe| Subject { pair: first + at, ..probe.into() };
            let subjects = [
                on(0, Probe::WeftBandwidth),
                on(1, Probe::WeftBandwidth),
                on(2, Probe::Stream(Channel::Tcp)),
            ];
            bench.measure(size, &subjects, |s| size as f64 / s / 1e9)
        })?;
        let line = ("bandwidth, 1 % loss", size, "GB/s", Better::Higher);
        let aim = Aim { floor: Some(0.8), peer: None };
        self.push(line, [got[0], got[1], got[2]], ("no loss", "tcp, 1 % loss"), aim);
        self.notes.push(
            "1 % loss: weft, weft without loss and TCP each through a switch of their own that \
             takes packets of one MTU and drops each with this chance; long frames are cut up \
             before it, so that weft's data goes over udp there"
                .into(),
        );
        Ok(())
    }
}

/// A part of the table.
type Part = for<'a, 'b> fn(&'b mut Run<'a>) -> Result<()>;
/// Each part with the size that it measures (0: the part chooses sizes) and the number of its
/// subjects if all are wanted.
const PARTS: [(&str, usize, usize, Part); 7] = [
    ("latency", 0, 17, |run| run.latency()),
    ("blocking wait", 16, 3, |run| run.blocking()),
    ("message rate", 16, 3, |run| run.rate()),
    ("8 ranks a host", 16, 2, |run| run.crowd()),
    ("bulk", 0, 8, |run| run.bulk()),
    ("neighbours", 1 << 20, 4, |run| run.neighbours()),
    ("loss", 1 << 20, 3, |run| run.loss()),
];

/// Measures all parts of the table for one link. A failure is noted, and the next part starts with
/// new ranks.
fn measure(link: LinkName, options: &Options) -> Result<(Vec<Check>, Vec<String>)> {
    let bench = Bench::start(link, options)?;
    let why = bench.why_not.as_deref().unwrap_or("leave out --netns off");
    ensure!(bench.place == Place::Between(MTU), "ethernet needs two lab hosts: {why}");
    let mut run = Run { bench, link, checks: Vec::new(), notes: Vec::new() };
    run.notes.extend(run.bench.path());
    // A link that does not open fails in every part.
    let hello = Task { probe: Probe::WeftPingPong, size: 16, iters: 2, arg: 0 };
    if let Err(e) = run.bench.meter.pairs[0].run(&hello) {
        run.notes.push(format!("{}: {e:#}", link.name()));
        return Ok((run.checks, run.notes));
    }
    let wanted: Vec<_> = PARTS.into_iter().filter(|p| p.1 == 0 || run.wants(p.1)).collect();
    let steps = |subjects| run.bench.meter.steps(subjects);
    let mut plan = Plan::of(steps(wanted.iter().map(|p| p.2).sum()));
    let mut done = 0;
    for (name, _, subjects, part) in wanted {
        run.bench.meter.title = format!("{name} over {}", link.name());
        run.bench.meter.plan = plan;
        let outcome = part(&mut run);
        plan = std::mem::take(&mut run.bench.meter.plan);
        done += run.bench.meter.steps(subjects);
        plan.at(done);
        if let Err(e) = outcome {
            run.notes.push(format!("{name}: {e:#}"));
            run.bench = Bench::start(link, options)?;
        }
        run.notes.append(&mut run.bench.meter.absent);
    }
    Ok((run.checks, run.notes))
}

pub(super) fn text(title: &str, checks: &[Check], notes: &[String]) -> String {
    let mut lines = vec![HEADER.map(String::from).to_vec()];
    lines.extend(checks.iter().map(Check::cells));
    let width = |at: usize| lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let mut out = format!("{title}\n");
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, &w))| match at {
            0 => format!("{cell:<w$}"),
            _ => format!("{cell:>w$}"),
        });
        out += &format!("  {}\n", cells.collect::<Vec<_>>().join("  "));
    }
    for note in notes {
        out += &format!("  - {note}\n");
    }
    out
}

/// Measures over these links and prints the results.
pub fn print(
    links: &[LinkName],
    options: &Options,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let (mut met, mut all) = (0, 0);
    for &link in links {
        let (checks, notes) = measure(link, options)?;
        let verdicts = checks.iter().map(Check::verdict).filter(|&v| v != Verdict::Free);
        all += verdicts.clone().count();
        met += verdicts.filter(|&v| v == Verdict::Met).count();
        if json {
            for check in &checks {
                writeln!(out, "{}", check.json()?)?;
            }
        } else {
            writeln!(out, "{}", text(&format!("ethernet over {}", link.name()), &checks, &notes))?;
        }
    }
    if !json {
        writeln!(out, "{met} of {all} lines with a target meet it")?;
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
        Check { table, aim }
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

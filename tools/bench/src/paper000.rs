//! `weft bench paper000`: Table 3 of paper 000, the one-way time of a short message by each
//! mechanism, inside a host and between two, with the paper's figures beside today's.

use super::netns::{Mode, Place};
use super::pair::{Kind, Pair, Sample};
use super::progress::bar;
use super::rank::{Channel, Outcome, Probe, Task};
use super::{LinkName, Options};
use anyhow::{bail, Result};
use std::io::Write;
use std::time::{Duration, Instant};

/// Bytes of a message; the paper's is one byte.
const SIZE: usize = 1;
/// Round trips of a first run, which finds out how many a turn has.
const FIRST: u64 = 64;
/// Time of a turn.
const TURN: Duration = Duration::from_millis(60);
const QUICK: Duration = Duration::from_millis(6);

/// A mechanism, and its time in the paper, in us.
struct Mechanism {
    place: Place,
    name: &'static str,
    link: &'static str,
    probe: Probe,
    paper: Option<f64>,
}

const fn kernel(
    place: Place,
    name: &'static str,
    channel: Channel,
    paper: Option<f64>,
) -> Mechanism {
    Mechanism { place, name, link: "udp", probe: Probe::Exchange(channel), paper }
}

const fn weft(place: Place, name: &'static str, link: &'static str) -> Mechanism {
    Mechanism { place, name, link, probe: Probe::WeftPingPong, paper: None }
}

const BETWEEN: Place = Place::Between(1500);

/// The paper's mechanisms without MOSIX, and the links of weft.
const MECHANISMS: [Mechanism; 10] = [
    kernel(Place::Inside, "pipe", Channel::Pipe, Some(1.95)),
    kernel(Place::Inside, "FIFO", Channel::Fifo, Some(1.99)),
    kernel(Place::Inside, "System V queue", Channel::SystemV, Some(2.02)),
    kernel(Place::Inside, "TCP", Channel::Tcp, Some(6.9)),
    weft(Place::Inside, "weft shm", "shm"),
    weft(Place::Inside, "weft udp", "udp"),
    kernel(BETWEEN, "TCP", Channel::Tcp, Some(238.0)),
    weft(BETWEEN, "weft auto", LinkName::Auto.links()),
    weft(BETWEEN, "weft udp", "udp"),
    weft(BETWEEN, "weft tcp", "tcp"),
];

impl Mechanism {
    fn is_weft(&self) -> bool {
        self.probe == Probe::WeftPingPong
    }

    fn place(&self) -> &'static str {
        match self.place {
            Place::Between(_) => "between",
            _ => "inside",
        }
    }

    fn start(&self) -> Result<Pair> {
        let config = &[("WEFT_WARN_AFTER_MS", "60000")];
        Pair::start(&Kind { link: self.link, config, place: self.place })
    }

    /// Returns the seconds of one way.
    fn run(&self, pair: &mut Pair, iters: u64) -> Result<f64> {
        match pair.run(&Task { probe: self.probe, size: SIZE, iters, arg: 0 })? {
            Outcome::Value(seconds) => Ok(seconds),
            Outcome::Absent(why) | Outcome::Failed(why) => bail!("{why}"),
            _ => bail!("no figure"),
        }
    }
}

/// A mechanism under measurement: the pair, the round trips of a turn, and seconds so far.
struct Subject {
    of: &'static Mechanism,
    pair: Pair,
    iters: u64,
    seconds: Vec<f64>,
}

fn begin(of: &'static Mechanism, turn: Duration) -> Result<Subject> {
    let mut pair = of.start()?;
    let start = Instant::now();
    of.run(&mut pair, FIRST)?;
    let each = start.elapsed().as_secs_f64() / FIRST as f64;
    let iters = (turn.as_secs_f64() / each.max(1e-7)) as u64;
    Ok(Subject { of, pair, iters: iters.clamp(FIRST, 1 << 20), seconds: Vec::new() })
}

/// A line of the table, times in us.
struct Line {
    of: &'static Mechanism,
    time: Result<Sample, String>,
}

fn measure(options: &Options) -> Result<Vec<Line>> {
    let turn = if options.quick { QUICK } else { TURN };
    let bar = bar(MECHANISMS.len() + options.repeat() as usize);
    let (mut subjects, mut lines) = (Vec::new(), Vec::new());
    for of in &MECHANISMS {
        bar.set_message(format!("{}, {} a host", of.name, of.place()));
        bar.inc(1);
        match begin(of, turn) {
            Ok(subject) => subjects.push(subject),
            Err(why) => lines.push(Line { of, time: Err(format!("{why:#}")) }),
        }
    }
    for _ in 0..options.repeat() {
        bar.inc(1);
        for subject in &mut subjects {
            let seconds = subject.of.run(&mut subject.pair, subject.iters)?;
            subject.seconds.push(seconds * 1e6);
        }
    }
    bar.finish_and_clear();
    lines.extend(subjects.into_iter().filter_map(|subject| {
        let time = Ok(Sample::of(subject.seconds)?);
        Some(Line { of: subject.of, time })
    }));
    let place = |line: &Line| MECHANISMS.iter().position(|of| std::ptr::eq(of, line.of));
    lines.sort_by_key(place);
    Ok(lines)
}

/// Returns the best time at a place, of weft or of the kernel.
fn best(lines: &[Line], place: &str, weft: bool) -> Option<f64> {
    let of = lines.iter().filter(|line| line.of.place() == place && line.of.is_weft() == weft);
    of.filter_map(|line| line.time.as_ref().ok()).map(|time| time.median).reduce(f64::min)
}

/// Measures, and prints the table. The target: the best link of weft takes no longer than the best
/// mechanism of the kernel.
///
/// # Errors
/// A measurement failed, or the output cannot be written.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    if options.netns == Mode::Off {
        bail!("this is measured between lab hosts as well: leave out --netns off");
    }
    let lines = measure(options)?;
    let targets = ["inside", "between"].map(|place| {
        let [ours, theirs] = [true, false].map(|weft| best(&lines, place, weft));
        (place, ours.zip(theirs).map(|(ours, theirs)| ours / theirs))
    });
    if json {
        for Line { of, time } in &lines {
            let (time, why) = (time.as_ref().ok(), time.as_ref().err());
            let line = serde_json::json!({
                "bench": "paper000", "table": "3", "place": of.place(), "what": of.name,
                "size": SIZE, "unit": "us", "value": time.map(|t| t.median),
                "min": time.map(|t| t.min), "max": time.map(|t| t.max), "paper": of.paper,
                "absent": why,
            });
            writeln!(out, "{line}")?;
        }
        for (place, ratio) in targets {
            let line = serde_json::json!({
                "bench": "paper000", "table": "3", "place": place, "unit": "ratio",
                "what": "best link of weft by best of the kernel", "value": ratio,
                "target": 1.0, "met": ratio.map(|ratio| ratio <= 1.0),
            });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    writeln!(out, "Table 3: one way of {SIZE} B, in us, inside a host and between two lab hosts")?;
    writeln!(out, "  {:<8} {:<15} {:>9} {:>19} {:>9}", "place", "by", "here", "min..max", "paper")?;
    for Line { of, time } in &lines {
        let paper = of.paper.map_or("-".into(), |paper| paper.to_string());
        let (here, spread) = match time {
            Ok(time) => {
                (format!("{:.2}", time.median), format!("{:.2}..{:.2}", time.min, time.max))
            }
            Err(why) => ("-".to_string(), why.clone()),
        };
        writeln!(out, "  {:<8} {:<15} {here:>9} {spread:>19} {paper:>9}", of.place(), of.name)?;
    }
    for (place, ratio) in targets {
        let Some(ratio) = ratio else { continue };
        let word = if ratio <= 1.0 { "met" } else { "MISSED" };
        writeln!(
            out,
            "{place}: weft takes {ratio:.2} x the best of the kernel, at most 1: {word}"
        )?;
    }
    let more = "MOSIX's rows need its kernel; MPI beside weft and TCP: weft bench mpi";
    Ok(writeln!(out, "{more}")?)
}

//! Measures the channels of one situation.

use super::super::netns::Place;
use super::super::pair::{Kind, Pair, Sample};
use super::super::rank::{Channel, Outcome, Probe, Task};
use super::plan::{self, Carrier, Family, Situation};
use anyhow::{anyhow, Result};
use serde::Serialize;
use std::time::Duration;

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// One-way time of a message in seconds.
    Latency,
    /// Bytes per second of a stream of messages.
    Throughput,
    /// Bytes of that stream per second of processor time, of both sides together.
    Efficiency,
}

impl Measure {
    /// All kinds of figures.
    pub const ALL: [Measure; 3] = [Measure::Latency, Measure::Throughput, Measure::Efficiency];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::Throughput => "throughput",
            Measure::Efficiency => "efficiency",
        }
    }
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The situation.
    pub situation: Situation,
    /// The channel.
    pub carrier: &'static Carrier,
    /// Bytes of a message.
    pub size: usize,
    /// The kind of the figure.
    pub measure: Measure,
    /// The figure, in SI units.
    pub sample: Sample,
    /// Number of repetitions.
    pub repeat: usize,
}

/// The reason for a missing figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The situation.
    pub situation: String,
    /// The channel.
    pub carrier: &'static str,
    /// The reason.
    pub why: String,
}

/// Duration and number of the repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Repetitions of each measurement.
    pub repeat: u32,
    /// Duration of one.
    pub turn: Duration,
    /// True if this machine allows hosts of a lab.
    pub labs: bool,
}

/// A channel, ready to be measured.
struct Subject {
    carrier: &'static Carrier,
    /// `None` after it failed.
    pair: Option<Pair>,
}

/// All results so far.
#[derive(Default)]
pub struct Results {
    /// The figures.
    pub points: Vec<Point>,
    /// The missing figures.
    pub absent: Vec<Absence>,
}

impl Results {
    fn absent(&mut self, situation: Situation, carrier: &'static Carrier, why: String) {
        let absence = Absence { situation: situation.title(), carrier: carrier.name, why };
        if !self.absent.contains(&absence) {
            self.absent.push(absence);
        }
    }

    /// Returns the figure of a channel at a size.
    pub fn find(
        &self,
        situation: Situation,
        measure: Measure,
        carrier: &str,
        size: usize,
    ) -> Option<Sample> {
        let same = |p: &&Point| {
            p.situation == situation
                && p.measure == measure
                && p.carrier.name == carrier
                && p.size == size
        };
        self.points.iter().find(same).map(|p| p.sample)
    }
}

fn start(situation: Situation, carrier: &Carrier, labs: bool) -> Result<Pair> {
    if weft::Links::parse(carrier.link).is_none() {
        return Err(anyhow!("this build of weft has no link {}", carrier.link));
    }
    if !labs && carrier.latency == Probe::Exchange(Channel::SystemV) {
        return Err(anyhow!("a queue would outlive a crash: it needs a lab host of its own"));
    }
    let place = if labs { situation.place } else { Place::Here };
    // A pair is silent while others have their turns, which must not cause a warning.
    let config = &[("WEFT_WARN_AFTER_MS", "60000")];
    let kind = Kind { link: carrier.link, config, place };
    let mut pair = Pair::start(&kind)?;
    if carrier.no_offloads {
        pair.run(&Task { probe: Probe::NoOffloads, size: 0, iters: 0, arg: 0 })?;
    }
    // A short run finds out first if the channel works.
    pair.run(&Task { probe: carrier.latency, size: 16, iters: 2, arg: 0 })?;
    Ok(pair)
}

/// Measures all channels of a situation at all sizes, in turn, so that a disturbance of the machine
/// affects all of them. `step` is called before each size, with its description and the results so
/// far.
///
/// # Errors
/// Errors that `step` returns.
pub fn situation(
    situation: Situation,
    sizes: &[usize],
    effort: Effort,
    results: &mut Results,
    mut step: impl FnMut(&str, &Results) -> Result<()>,
) -> Result<()> {
    let mut subjects = Vec::new();
    for carrier in plan::carriers(situation) {
        match start(situation, carrier, effort.labs) {
            Ok(pair) => subjects.push(Subject { carrier, pair: Some(pair) }),
            Err(e) => results.absent(situation, carrier, format!("{e:#}")),
        }
    }
    for &size in sizes {
        for latency in [true, false] {
            step(&format!("{}: {size} B", situation.title()), results)?;
            one_size(situation, size, latency, effort, &mut subjects, results);
        }
    }
    Ok(())
}

/// Time, processor time and bytes of one repetition; the last two for streams.
struct Run {
    seconds: f64,
    cpu: f64,
    bytes: f64,
}

fn one_size(
    situation: Situation,
    size: usize,
    latency: bool,
    effort: Effort,
    subjects: &mut [Subject],
    results: &mut Results,
) {
    let what = if latency { "latency" } else { "throughput" };
    let probe = |carrier: &Carrier| match latency {
        true => Some(plan::latency(carrier, size)),
        false => plan::stream(carrier, size),
    };
    let tasks: Vec<Option<Task>> = subjects
        .iter_mut()
        .map(|subject| {
            let probe = probe(subject.carrier)?;
            let task = calibrate(subject, probe, size, latency, effort);
            task.unwrap_or_else(|e| {
                results.absent(situation, subject.carrier, format!("{what} of {size} B: {e:#}"));
                None
            })
        })
        .collect();
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..effort.repeat {
        for (at, subject) in subjects.iter_mut().enumerate() {
            let Some(task) = &tasks[at] else { continue };
            match repetition(subject, task) {
                Ok(run) => runs[at].push(run),
                Err(e) => {
                    let why = format!("{what} of {size} B: {e:#}");
                    results.absent(situation, subject.carrier, why);
                }
            }
        }
    }
    for (subject, runs) in subjects.iter_mut().zip(runs) {
        let mut push = |measure, values: Vec<f64>| {
            let repeat = values.len();
            let Some(sample) = Sample::of(values) else { return };
            let carrier = subject.carrier;
            results.points.push(Point { situation, carrier, size, measure, sample, repeat });
        };
        let times: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        if latency {
            push(Measure::Latency, times);
            continue;
        }
        push(Measure::Throughput, times.iter().map(|s| size as f64 / s).collect());
        // Floors are one-sided or spin, so their processor time has no meaning.
        if subject.carrier.family != Family::Floor {
            let spent = runs.iter().filter(|run| run.cpu > 0.0);
            push(Measure::Efficiency, spent.map(|run| run.bytes / run.cpu).collect());
        }
    }
}

/// Fewest iterations of a measurement.
const LEAST: u64 = 4;
/// Bytes of the first run of a stream.
const FIRST: usize = 256 << 10;
/// Largest ratio of the iterations of one run to those of the run before. A channel fast in small
/// numbers may be slow in large ones, above all where ranks share the processor: then one run is
/// too long by this factor, and not by a thousand.
const GROWTH: u64 = 16;

/// Finds how many iterations fill the time of one repetition.
fn calibrate(
    subject: &mut Subject,
    probe: Probe,
    size: usize,
    latency: bool,
    effort: Effort,
) -> Result<Option<Task>> {
    let target = effort.turn.as_secs_f64();
    let first = if latency { LEAST } else { ((FIRST / size.max(1)) as u64).max(LEAST) };
    let mut task = Task { probe, size, iters: first, arg: 0 };
    loop {
        if subject.pair.is_none() {
            return Ok(None);
        }
        let each = repetition(subject, &task)?.seconds.max(1e-9);
        let fits = (target / each) as u64;
        if fits <= task.iters * GROWTH {
            task.iters = fits.max(LEAST);
            return Ok(Some(task));
        }
        task.iters *= GROWTH;
    }
}

fn repetition(subject: &mut Subject, task: &Task) -> Result<Run> {
    let Some(pair) = &mut subject.pair else { return Err(anyhow!("failed before")) };
    let (outcome, cpu) = match pair.run_costed(task) {
        Ok(answer) => answer,
        Err(e) => {
            // Two ranks that disagree about their task cannot be used any more.
            subject.pair = None;
            return Err(e);
        }
    };
    let all = task.size as f64 * task.iters as f64;
    match outcome {
        Outcome::Value(seconds) => Ok(Run { seconds, cpu, bytes: all }),
        Outcome::Partial(seconds, bytes) => Ok(Run { seconds, cpu, bytes }),
        Outcome::Absent(why) => Err(anyhow!(why)),
        other => Err(anyhow!("no figure: {other:?}")),
    }
}

/// Checks if this machine allows hosts of a lab. The error is the reason why not.
pub fn place_works(place: Place) -> Result<()> {
    super::super::netns::Hosts::start(place).map(|_| ())
}

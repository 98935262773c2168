//! `weft bench choices`: every combination over every link, as one table and plot.

use super::super::pair::{Kind, Meter, Pair, Sample, Subject};
use super::super::rank::Probe;
use super::super::{netns, Bench, LinkName, Options};
use super::cast::Cast;
use super::cell::{Cell, Figure, BULK, COMPUTES, DISTURBED, MEMBERS, TRIES};
use super::chosen::{environment, label, SETTINGS};
use super::{figure, floor, report, Packet, What};
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft::choices::{Choices, Place, Receipt, Server, Transfer, Tree};
use weft::Reliability;
use weft_run::bars;

/// Time limit of the whole grid, for each repetition.
const LIMIT: Duration = Duration::from_secs(110);
/// A rank that is silent for longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Figures that are measured with ranks of their own.
#[derive(Clone, Copy)]
struct Step {
    what: What,
    choices: Choices,
}

/// Returns the steps of a link. A reliable link has no steps for retransmission.
fn steps(link: LinkName) -> Vec<Step> {
    let usual = Choices { receipt: Receipt::Polling, ..Choices::default() };
    let reliabilities: &[Reliability] = match link {
        LinkName::Shm => &[Reliability::Selective],
        LinkName::Agent => &[Reliability::Agent],
        LinkName::Gso | LinkName::Auto => &[Reliability::GoBackN, Reliability::Selective],
        _ => &[Reliability::None, Reliability::GoBackN, Reliability::Selective],
    };
    let mut out = Vec::new();
    for &reliability in reliabilities {
        for transfer in [Transfer::Copy, Transfer::Gather, Transfer::Rcpy] {
            for mtu in [1 << 10, 2 << 10, 4 << 10, 0] {
                let choices = Choices { transfer, reliability, mtu, ..usual };
                out.push(Step { what: What::Throughput, choices });
            }
        }
    }
    let (places, servers): (&[Place], &[Server]) = match link {
        LinkName::Agent => (Place::ALL, Server::ALL),
        _ => (&[Place::Host], &[Server::Host]),
    };
    for &place in places {
        for &tree in Tree::ALL {
            let receipt = Receipt::Adaptive;
            let choices = Choices { tree, multicast: place, receipt, ..usual };
            out.push(Step { what: What::Multicast, choices });
        }
    }
    for &fetch_add in servers {
        let choices = Choices { fetch_add, ..usual };
        out.push(Step { what: What::FetchAdd, choices });
    }
    out
}

/// Returns the links of a multicast. Members of one host use shared memory; with agents, the
/// agents.
fn multicast_links(link: LinkName) -> &'static str {
    match link {
        LinkName::Packet => "shm,packet",
        LinkName::Gso => "shm,gso",
        LinkName::Xdp => "shm,xdp",
        other => other.links(),
    }
}

/// The figures of a link itself, measured between any two steps.
#[derive(Clone, Copy, Default)]
struct Floors {
    half: Option<f64>,
    rate: Option<f64>,
}

/// Returns the better of two values, or the only one.
fn either(a: Option<f64>, b: Option<f64>, better: fn(f64, f64) -> f64) -> Option<f64> {
    a.zip(b).map(|(a, b)| better(a, b)).or(a).or(b)
}

impl Floors {
    /// Returns the faster value of each floor.
    fn best(self, other: Floors) -> Floors {
        let half = either(self.half, other.half, f64::min);
        Floors { half, rate: either(self.rate, other.rate, f64::max) }
    }

    /// Returns the slower value of each floor.
    fn worst(self, other: Floors) -> Floors {
        let half = either(self.half, other.half, f64::max);
        Floors { half, rate: either(self.rate, other.rate, f64::min) }
    }

    /// True if these are much slower than the best.
    fn are_slow(self, best: Floors) -> bool {
        let slow =
            |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| a > DISTURBED * b);
        slow(self.half, best.half) || slow(best.rate, self.rate)
    }
}

struct Grid {
    options: Options,
    bar: ProgressBar,
    cells: Vec<Cell>,
    start: Instant,
    limit: Duration,
}

impl Grid {
    /// Measures subjects with ranks of their own. The error is the reason why that failed.
    fn measure(
        &self,
        kind: &Kind,
        subjects: &[(usize, Subject)],
    ) -> Result<Vec<Option<Sample>>, String> {
        let text = |e: anyhow::Error| format!("{e:#}");
        let mut pair = Pair::start(kind).map_err(text)?;
        pair.patience(TIMEOUT).map_err(text)?;
        let (options, title) = (&self.options, String::new());
        let mut meter = Meter {
            pairs: vec![pair],
            options,
            title,
            plan: Default::default(),
            absent: Vec::new(),
        };
        let mut out = Vec::new();
        for &(size, subject) in subjects {
            let got = meter.measure(size, &[subject]).map_err(text)?;
            out.push(got[0]);
        }
        match meter.absent.first() {
            Some(why) => Err(why.clone()),
            None => Ok(out),
        }
    }

    /// Does a step, and repeats it where the link was slow meanwhile. A figure that cannot be
    /// measured keeps the reason.
    fn step(
        &mut self,
        bench: &mut Bench<'_>,
        (now, best): (&mut Floors, &mut Floors),
        step: &Step,
    ) {
        let (link, place) = (bench.link, bench.place);
        let choices = step.choices;
        self.say(format!("{} {}", link.name(), label(step.what, &choices)));
        let members = if step.what == What::Multicast { MEMBERS } else { 2 };
        let links = match step.what {
            What::Multicast => multicast_links(link),
            _ => link.links(),
        };
        let kind = Kind { link: links, config: environment(&choices, SETTINGS, members), place };
        let wanted: Vec<(Figure, &'static str, Subject)> = match step.what {
            What::Multicast => [false, true].map(|c| cast(choices, c)).to_vec(),
            What::FetchAdd => fetch_add(choices),
            _ => packets(choices),
        };
        let subjects: Vec<_> = wanted.iter().map(|(f, _, s)| (f.size(), *s)).collect();
        let mut got = Err("no time was left".to_string());
        let mut beside = *now;
        for _ in 0..TRIES {
            if self.is_late() {
                break;
            }
            got = self.measure(&kind, &subjects);
            let after = floors(bench);
            beside = now.worst(after);
            (*now, *best) = (after, best.best(after));
            if got.is_err() || !beside.are_slow(*best) || !self.has_time() {
                break;
            }
        }
        for (at, &(figure, by, _)) in wanted.iter().enumerate() {
            let (sample, why) = match &got {
                Ok(got) => (got[at], String::new()),
                Err(why) => (None, why.clone()),
            };
            let value = sample.map(|s| match figure {
                Figure::Throughput => s.map(|s| BULK as f64 / s / 1e9),
                _ => s.map(|s| s * 1e6),
            });
            let floor = match figure {
                Figure::HalfTrip => beside.half,
                Figure::Throughput => beside.rate,
                Figure::FetchAdd(_) => beside.half.map(|half| 2.0 * half),
                Figure::Multicast(_) => None,
            };
            self.cells.push(Cell { link, figure, by, choices, value, floor, why });
        }
        self.bar.inc(1);
        self.keep_to_time();
    }

    /// Shows the step being measured: on a line of its own where no bar is drawn.
    fn say(&self, what: String) {
        if self.bar.is_hidden() {
            let (at, of) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
            eprintln!("{:4.0} s, {at}/{of}: {what}", self.start.elapsed().as_secs_f64());
        }
        self.bar.set_message(what);
    }

    fn is_late(&self) -> bool {
        self.start.elapsed() >= self.limit
    }

    /// True if the remaining steps fit into the time at the pace so far. The first ten steps are
    /// too few to tell a pace: true.
    fn has_time(&self) -> bool {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let left = self.start.elapsed().as_secs_f64() / done.max(1) as f64
            * all.saturating_sub(done) as f64;
        let time = self.limit.saturating_sub(self.start.elapsed()).as_secs_f64();
        done <= 10 || left <= time
    }

    /// Reduces the repetitions of the remaining steps if the time would not suffice.
    fn keep_to_time(&mut self) {
        if !self.has_time() && self.options.repeat > 1 {
            self.options.repeat -= 1;
        }
    }

    fn link(&mut self, link: LinkName) -> Result<()> {
        self.say(format!("{}: floors", link.name()));
        // Floors are measured often, so one repetition each time is enough.
        let options = Options { repeat: 1, ..self.options.clone() };
        let mut bench = Bench::start(link, &options)?;
        bench.meter.title.clear();
        let mut now = floors(&mut bench);
        let mut best = now;
        for step in steps(link) {
            self.step(&mut bench, (&mut now, &mut best), &step);
        }
        Ok(())
    }
}

/// Measures the floors now. A floor that cannot be measured is `None`.
fn floors(bench: &mut Bench<'_>) -> Floors {
    let stream = match bench.link {
        LinkName::Shm => Probe::RemoteCopy,
        _ => Probe::UdpStream,
    };
    let (trip, stream) = (floor(bench, 16).1, bench.bare(stream));
    let mut measured = |size, subject| {
        let got = bench.measure(size, &[subject], |s| s).ok()?;
        got[0].map(|sample| sample.median)
    };
    let half = measured(16, trip).map(|s| s * 1e6);
    Floors { half, rate: measured(BULK, stream).map(|s| BULK as f64 / s / 1e9) }
}

fn packets(choices: Choices) -> Vec<(Figure, &'static str, Subject)> {
    let rate = (Figure::Throughput, "", Packet::Stream.into());
    match choices.mtu {
        // A small packet does not depend on the length of the longest.
        0 => vec![(Figure::HalfTrip, "", Packet::PingPong.into()), rate],
        _ => vec![rate],
    }
}

fn cast(choices: Choices, compute: bool) -> (Figure, &'static str, Subject) {
    let tree = choices.tree;
    let arg = Cast { members: MEMBERS, tree, stream: false, compute }.pack();
    let subject = Subject { arg, ..Packet::Multicast.into() };
    (Figure::Multicast(compute), choices.multicast.name(), subject)
}

fn fetch_add(choices: Choices) -> Vec<(Figure, &'static str, Subject)> {
    let by = choices.fetch_add.name();
    let busy = Subject { arg: COMPUTES, ..Packet::FetchAdd.into() };
    vec![(Figure::FetchAdd(false), by, Packet::FetchAdd.into()), (Figure::FetchAdd(true), by, busy)]
}

/// Returns the links that can be measured here: raw Ethernet needs two lab hosts and root.
fn links(given: &[LinkName], options: &Options) -> Vec<LinkName> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let raw = options.netns != netns::Mode::Off && rustix::process::geteuid().is_root();
    let mut all = vec![LinkName::Shm, LinkName::Udp];
    if raw {
        all.extend([LinkName::Packet, LinkName::Xdp, LinkName::Agent]);
    }
    all
}

/// Runs the grid.
pub fn run(out: Option<&Path>, given: &[LinkName], options: &Options) -> Result<ExitCode> {
    let links = links(given, options);
    let count: usize = links.iter().map(|&l| steps(l).len()).sum();
    let bar = ProgressBar::new(count as u64);
    bars::form(&bar, "{elapsed_precise} {bar:20.cyan/blue} {pos}/{len}, {left}  {wide_msg}");
    bar.enable_steady_tick(Duration::from_secs(1));
    let limit = LIMIT * options.repeat.max(1);
    let options = options.clone();
    let about = report::About::now(&options);
    let mut grid = Grid { options, bar, cells: Vec::new(), start: Instant::now(), limit };
    for link in links {
        grid.link(link).with_context(|| format!("over {}", link.name()))?;
    }
    grid.bar.finish_and_clear();
    let (cells, took) = (&grid.cells, grid.start.elapsed());
    let csv = report::csv(&about, cells);
    let Some(folder) = out else {
        print!("{csv}");
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let figure = figure::figure(cells).png()?;
    let text = report::markdown(&about, cells, took);
    let files =
        [("choices.md", text.into_bytes()), ("choices.csv", csv.into()), ("choices.png", figure)];
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::cell::HEAD;
    use super::*;

    #[test]
    fn floors__that_are_much_slower_than_the_best_are_reported() {
        let of = |half, rate| Floors { half, rate };
        let best = of(Some(2.0), None).best(of(Some(1.0), Some(4.0))).best(of(None, Some(5.0)));
        assert_eq!((best.half, best.rate), (Some(1.0), Some(5.0)));
        assert!(!best.are_slow(best) && !Floors::default().are_slow(best));
        assert!(!of(Some(1.2), Some(4.0)).are_slow(best) && of(None, Some(3.0)).are_slow(best));
        assert!(
            of(Some(1.4), None).are_slow(best)
                && !of(None, Some(3.0)).are_slow(of(Some(1.0), None))
        );
    }

    #[test]
    fn csv__a_line_has_as_many_fields_as_the_head() {
        for step in steps(LinkName::Agent) {
            for figure in [Figure::Throughput, Figure::Multicast(true), Figure::FetchAdd(true)] {
                let cell = Cell {
                    link: LinkName::Agent,
                    figure,
                    by: "agent",
                    choices: step.choices,
                    value: Sample::of(vec![1.0, 2.0]),
                    floor: None,
                    why: "a, \"b\"".into(),
                };
                assert_eq!(cell.csv().split(',').count(), HEAD.split(',').count());
            }
        }
    }

    #[test]
    fn steps__none_where_receivers_have_room_for_all_that_is_sent() {
        let trusts = |link| steps(link).iter().any(|s| s.choices.reliability == Reliability::None);
        let links = [LinkName::Udp, LinkName::Packet, LinkName::Gso, LinkName::Auto];
        assert_eq!(links.map(trusts), [true, true, false, false]);
    }

    #[test]
    fn steps__the_agent_is_measured_over_its_link_alone() {
        let agents =
            |link| steps(link).iter().filter(|s| s.choices.needs_agent().is_some()).count();
        assert_eq!((agents(LinkName::Shm), agents(LinkName::Packet)), (0, 0));
        assert_eq!(agents(LinkName::Agent), 12 + 6);
    }
}

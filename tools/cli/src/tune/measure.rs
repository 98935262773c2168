//! The measurements: two ranks for each link, between two hosts of a lab if the link connects
//! hosts.

use anyhow::{bail, Context, Result};
use std::time::{Duration, Instant};
use weft::calibration::LinkFigures;
use weft_measure::far::Far;
use weft_measure::netns::Place;
use weft_measure::pair::{Kind, Pair, Sample};
use weft_measure::rank::{Outcome, Probe, Task};

/// MTU between the hosts, in bytes.
const MTU: u32 = 1500;
/// Message size for the latency, in bytes.
pub const SMALL: usize = 16;
/// Message size for the throughput of data, in bytes.
pub const DATA: usize = 1 << 20;
/// Message size for the throughput of data sent at once, in bytes.
pub const AT_ONCE: usize = 16 << 10;
/// Message size for the message rate, in bytes.
pub const RATE: usize = 8;

/// A rank that is silent for longer hangs: its link is not measured, the others are.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Environment variables of a rank.
type Config = &'static [(&'static str, &'static str)];

/// All messages are sent at once, as far as credit allows. Estimates are used instead of stored
/// figures. A pair is silent while others have their turns, which must not cause a warning.
const EAGER: Config =
    &[("WEFT_TUNE", "off"), ("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_EAGER_MAX", "256K")];
/// Only the shortest messages are sent at once.
const RENDEZVOUS: Config =
    &[("WEFT_TUNE", "off"), ("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_EAGER_MAX", "1")];
/// Only the shortest messages are sent at once, and no message is copied past the link.
const PULLED: Config = &[
    ("WEFT_TUNE", "off"),
    ("WEFT_WARN_AFTER_MS", "60000"),
    ("WEFT_EAGER_MAX", "1"),
    ("WEFT_DIRECT_MIN", "1G"),
];

/// Extent and place of the measurement.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// The hosts; `None` is this machine.
    pub far: Option<&'a Far>,
    /// Time of one repetition.
    pub turn: Duration,
    /// Number of repetitions; the best counts.
    pub repeat: u32,
    /// Time after which no more switch-overs are measured.
    pub until: Instant,
}

/// A link's estimates and the figures measured in their place.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The estimates.
    pub estimate: LinkFigures,
    /// The measured figures.
    pub figures: LinkFigures,
}

/// Returns the place where a link is measured.
fn place(link: &str) -> (Place, &'static str) {
    match link {
        "shm" => (Place::Here, "two processes of this host"),
        _ => (Place::Between(MTU), "two hosts of a lab, MTU 1500"),
    }
}

/// Starts two ranks; without a lab, udp and tcp are measured over loopback.
fn start(link: &'static str, config: Config, far: Option<&Far>) -> Result<(Pair, String)> {
    let hello = Task { probe: Probe::WeftPingPong, size: SMALL, iters: 2, arg: 0 };
    if let Some(far) = far {
        // Reaching the hosts takes longer than any measurement.
        let mut pair = Pair::start_far(far, link, config)?;
        pair.run(&hello)?;
        pair.patience(TIMEOUT)?;
        return Ok((pair, format!("hosts {} and {}", far.hosts[0], far.hosts[1])));
    }
    let (place, words) = place(link);
    let open = |place| -> Result<Pair> {
        let mut pair = Pair::start(&Kind { link, config, place })?;
        pair.patience(TIMEOUT)?;
        pair.run(&hello)?;
        Ok(pair)
    };
    match open(place) {
        Ok(pair) => Ok((pair, words.into())),
        Err(e) if ["udp", "tcp"].contains(&link) => {
            log::debug!("no lab for {link}: {e:#}");
            Ok((open(Place::Here)?, "loopback, without a lab".into()))
        }
        Err(e) => Err(e),
    }
}

/// Runs a task once; returns seconds per iteration.
fn once(pair: &mut Pair, task: &Task) -> Result<f64> {
    match pair.run(task)? {
        Outcome::Value(value) => Ok(value.max(1e-9)),
        Outcome::Absent(why) => bail!("{why}"),
        other => bail!("{} answered {other:?}", task.probe),
    }
}

/// Returns a task whose iterations fill the time of one repetition.
fn iterations(pair: &mut Pair, probe: Probe, size: usize, effort: &Effort<'_>) -> Result<Task> {
    let mut task = Task { probe, size, iters: 4, arg: 0 };
    // Two runs: the first, short run is cold and overestimates the time.
    for share in [0.05, 1.0] {
        let value = once(pair, &task)?;
        let iters = share * effort.turn.as_secs_f64() / value;
        task.iters = (iters as u64).clamp(2, 10_000_000);
    }
    Ok(task)
}

/// Returns the smallest value: disturbances of the machine only add time.
fn best(values: Vec<f64>) -> Result<f64> {
    Sample::of(values).map(|s| s.min).context("no repetition")
}

/// Returns the best of several repetitions, in seconds per iteration.
fn value(pair: &mut Pair, probe: Probe, size: usize, effort: &Effort<'_>) -> Result<f64> {
    let task = iterations(pair, probe, size, effort)?;
    best((0..effort.repeat).map(|_| once(pair, &task)).collect::<Result<_>>()?)
}

/// Returns a rate in bytes per microsecond.
fn rate(bytes: usize, seconds: f64) -> u32 {
    figure(bytes as f64 / seconds / 1e6)
}

fn figure(value: f64) -> u32 {
    value.round().clamp(1.0, 1e9) as u32
}

fn estimate(pair: &mut Pair, link: &str) -> Result<LinkFigures> {
    let mut ask = |arg| -> Result<u32> {
        let task = Task { probe: Probe::WeftEstimate, size: 0, iters: 1, arg };
        Ok(figure(once(pair, &task)?))
    };
    Ok(LinkFigures {
        link: link.into(),
        latency_ns: ask(0)?,
        bytes_per_us: ask(1)?,
        small_bytes_per_us: ask(2)?,
        ..LinkFigures::default()
    })
}

/// Number of steps of [`link`], for a progress bar.
pub const LINK_STEPS: u64 = 4;

/// Measures one link; `step` is called after each figure.
///
/// # Errors
/// The link does not work here.
pub fn link(name: &'static str, effort: &Effort<'_>, mut step: impl FnMut()) -> Result<Measured> {
    let (mut eager, place) = start(name, EAGER, effort.far)?;
    let estimate = estimate(&mut eager, name)?;
    let latency = value(&mut eager, Probe::WeftPingPong, SMALL, effort)?;
    step();
    let at_once = value(&mut eager, Probe::WeftBandwidth, AT_ONCE, effort)?;
    step();
    let messages = value(&mut eager, Probe::WeftRate, RATE, effort)?;
    step();
    drop(eager);
    let (mut pulled, _) = start(name, PULLED, effort.far)?;
    let data = value(&mut pulled, Probe::WeftBandwidth, DATA, effort)?;
    step();
    let figures = LinkFigures {
        link: name.into(),
        place,
        latency_ns: figure(latency * 1e9),
        bytes_per_us: rate(DATA, data),
        small_bytes_per_us: rate(AT_ONCE, at_once),
        messages_per_ms: figure(1e-3 / messages),
    };
    Ok(Measured { estimate, figures })
}

/// One size, measured in both protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sighting {
    /// Size in bytes.
    pub size: u32,
    /// One-way time in seconds if sent at once, with one more copy at the receiver.
    pub eager: f64,
    /// One-way time in seconds if announced first.
    pub rendezvous: f64,
}

/// Smallest share by which measurements must differ from the model to correct it.
const DOUBT: f64 = 0.05;

/// Moves a switch-over that measurements contradict, by powers of two between `least` and `most`.
pub fn refine(
    model: u32,
    (least, most): (u32, u32),
    mut look: impl FnMut(u32) -> Result<Sighting>,
) -> Result<(u32, Vec<Sighting>)> {
    let (mut at, mut looks) = (model.clamp(least, most), Vec::new());
    loop {
        let seen = look(at)?;
        looks.push(seen);
        if seen.eager <= seen.rendezvous * (1.0 + DOUBT) {
            break;
        }
        if at / 2 < least {
            return Ok((at, looks));
        }
        at /= 2;
    }
    if looks.len() > 1 {
        return Ok((at, looks));
    }
    while at <= most / 2 {
        let seen = look(2 * at)?;
        looks.push(seen);
        if seen.eager >= seen.rendezvous * (1.0 - DOUBT) {
            break;
        }
        at *= 2;
    }
    Ok((at, looks))
}

/// Returns the seconds that this processor takes to copy so many bytes that are in its caches, as
/// those of a message that has just arrived. The cost model's estimate is several times larger on
/// some processors: with it, messages were announced that arrive sooner if sent at once and copied.
fn copy(bytes: usize) -> f64 {
    let (from, mut into) = (vec![1u8; bytes], vec![0u8; bytes]);
    let once = |_| {
        let start = Instant::now();
        into.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut into);
        start.elapsed().as_secs_f64()
    };
    (0..32).map(once).fold(f64::INFINITY, f64::min)
}

/// Compares eager and rendezvous around a switch-over of a list of links.
///
/// # Errors
/// A pair of ranks failed.
pub fn switch(
    links: &'static str,
    model: u32,
    range: (u32, u32),
    effort: &Effort<'_>,
) -> Result<(u32, Vec<Sighting>)> {
    let (mut eager, _) = start(links, EAGER, effort.far)?;
    let (mut rendezvous, _) = start(links, RENDEZVOUS, effort.far)?;
    refine(model, range, |size| {
        let bytes = size as usize;
        let tasks = [
            iterations(&mut eager, Probe::WeftPingPong, bytes, effort)?,
            iterations(&mut rendezvous, Probe::WeftPingPong, bytes, effort)?,
        ];
        let mut values = [Vec::new(), Vec::new()];
        // In turn, so that a disturbance of the machine affects both.
        for _ in 0..effort.repeat {
            values[0].push(once(&mut eager, &tasks[0])?);
            values[1].push(once(&mut rendezvous, &tasks[1])?);
        }
        let [eager, rendezvous] = values.map(best);
        Ok(Sighting { size, eager: eager? + copy(bytes), rendezvous: rendezvous? })
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// In this test eager is faster up to `cross`.
    fn found(model: u32, cross: u32) -> (u32, usize) {
        let look = |size: u32| {
            let eager = f64::from(size) / f64::from(cross);
            Ok(Sighting { size, eager, rendezvous: 1.0 })
        };
        let (at, looks) = refine(model, (4096, 256 << 10), look).unwrap();
        (at, looks.len())
    }

    #[test]
    fn refine__moves_only_what_is_contradicted() {
        assert_eq!(found(16 << 10, 20 << 10), (16 << 10, 2), "one look at it, one beyond");
        assert_eq!(found(64 << 10, 20 << 10), (16 << 10, 3));
        assert_eq!(found(16 << 10, 100 << 10), (64 << 10, 4));
        assert_eq!(found(8 << 10, 1), (4096, 2), "not below the least");
        assert_eq!(found(4096, u32::MAX).0, 256 << 10, "nor beyond the most");
        assert_eq!(found(16 << 10, 16 << 10), (16 << 10, 2), "equal is no contradiction");
    }
}

//! Tables of throughput and latency in virtual time.

use crate::config::SimConfig;
use crate::fault::Fault;
use crate::runner::Outcome;
use crate::sim::{Env, Failure, Sim};
use crate::story::{impatient, receive_stream, send_stream, Report, Row, Story};
use crate::trace::Trace;
use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;
use weft::{Config, Op};

/// Loss rates of the reliability table, in parts per million.
const LOSS: [u32; 4] = [0, 1_000, 10_000, 50_000];
/// Windows of the reliability table, in packets.
const WINDOWS: [u32; 3] = [16, 64, 1024];
const PROTOCOLS: [&str; 2] = ["gbn", "selective"];

/// Called with each line of a report as soon as it is known, as the report prints it.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// Lines of a report, passed on as they are made, and the table of them.
pub(crate) struct Lines<'a> {
    all: Vec<String>,
    rows: Vec<Row>,
    tell: Tell<'a>,
}

impl<'a> Lines<'a> {
    pub fn new(name: &str, config: &SimConfig, tell: Tell<'a>) -> Lines<'a> {
        tell(&format!("{name}: {config}"));
        Lines { all: Vec::new(), rows: Vec::new(), tell }
    }

    pub fn push(&mut self, line: String) {
        (self.tell)(&format!("  {line}"));
        self.all.push(line);
    }

    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Makes the report.
    pub fn report(self, name: &str, config: &SimConfig, outcome: Option<Outcome>) -> Report {
        let (name, config) = (name.to_string(), config.to_string());
        let (lines, rows) = (self.all, self.rows);
        Report { name, config, lines, rows, outcome, trace: Trace::default() }
    }
}

fn settings(protocol: &str, window: u32) -> Config {
    let mut settings = impatient();
    settings.set("reliability", protocol).expect("a protocol that exists");
    settings.window = window;
    settings
}

/// Returns the virtual nanoseconds that `count` messages of `len` bytes take from host 0 to host 1.
fn stream_time(
    config: SimConfig,
    settings: Config,
    count: u64,
    len: usize,
) -> Result<u64, Failure> {
    let mut story = Story::new("reliability", config, settings);
    let checker = Rc::clone(&story.checker);
    story.sim.spawn_all(move |env| {
        let checker = Rc::clone(&checker);
        async move {
            match env.host {
                0 => send_stream(&env, &checker, 1, (count, len, 64)).await,
                _ => receive_stream(&env, &checker, 0, count, len).await,
            }
        }
    });
    let report = story.end(&[])?;
    Ok(report.outcome.map_or(0, |o| o.at))
}

/// Returns the mean of half a round trip of 8 bytes over `rounds` rounds, in virtual nanoseconds.
fn half_round_trip(config: SimConfig, settings: Config, rounds: u64) -> Result<u64, Failure> {
    let mut sim = Sim::new("reliability", config).settings(settings);
    let time = Rc::new(Cell::new(0));
    let result = Rc::clone(&time);
    sim.spawn_all(move |env| {
        let time = Rc::clone(&time);
        async move {
            let took = ping_pong(&env, rounds).await.expect("both hosts live");
            if env.host == 0 {
                time.set(took / (2 * rounds));
            }
        }
    });
    sim.run()?;
    Ok(result.get())
}

async fn ping_pong(env: &Env, rounds: u64) -> Result<u64, weft_core::OpError> {
    let peer = env.peer(1 - env.host);
    let mut begin = env.now();
    // The first round opens the session and is not counted.
    for round in 0..=rounds {
        if round == 1 {
            begin = env.now();
        }
        if env.host == 0 {
            env.endpoint.send(peer, 1, vec![0; 8]).await.0?;
        }
        env.endpoint.recv(Some(peer), 1, 0, vec![0; 8]).await.0?;
        if env.host == 1 {
            env.endpoint.send(peer, 1, vec![0; 8]).await.0?;
        }
    }
    Ok(env.now().since(begin).as_nanos() as u64)
}

/// Returns the loss rates of a table: those of the user, if any, replace its own.
pub(crate) fn loss_rates(config: SimConfig, own: &[u32]) -> (SimConfig, Vec<u32>) {
    let (config, rates) = config.without_loss();
    match rates.is_empty() {
        true => (config, own.to_vec()),
        false => (config, rates),
    }
}

/// Returns a loss rate in per cent.
pub(crate) fn per_cent(ppm: u32) -> f64 {
    f64::from(ppm) / 1e4
}

/// Makes the table of throughput over loss, protocol and window, and of latency over loss, between
/// hosts 0 and 1 of `config`. The smallest rate of the table still loses some of the packets.
pub(crate) fn reliability(config: SimConfig, tell: Tell<'_>) -> Result<Report, Failure> {
    let config = SimConfig { hosts: 2, ..config };
    let mut lines = Lines::new("reliability", &config, tell);
    let (lossless, rates) = loss_rates(config.clone(), &LOSS);
    for (title, len, count) in
        [("MB/s, messages of 1 KiB", 1 << 10, 5000), ("MB/s, messages of 256 KiB", 256 << 10, 16)]
    {
        lines.push(title.to_string());
        throughput(&mut lines, &lossless, &rates, (len, count))?;
    }
    // Only one packet is in flight at a time: protocol and window make no difference.
    lines.push("us, half a round trip of 8 bytes, mean".to_string());
    for &loss in &rates {
        let config = lossless.clone().fault(Fault::loss(loss));
        let us = half_round_trip(config, impatient(), 4000)? as f64 / 1e3;
        lines.push(format!("{:>7.1}% {us:>14.2}", per_cent(loss)));
        lines.row(vec![
            ("measure", "half a round trip".into()),
            ("message_bytes", 8u64.into()),
            ("loss_percent", per_cent(loss).into()),
            ("us", us.into()),
        ]);
    }
    Ok(lines.report("reliability", &config, None))
}

/// Measures one line per loss rate, one column per protocol and window.
fn throughput(
    lines: &mut Lines<'_>,
    lossless: &SimConfig,
    rates: &[u32],
    (len, count): (usize, u64),
) -> Result<(), Failure> {
    let columns = PROTOCOLS.into_iter().flat_map(|p| WINDOWS.into_iter().map(move |w| (p, w)));
    let mut head = format!("{:>8}", "loss");
    for (protocol, window) in columns.clone() {
        let _ = write!(head, " {:>14}", format!("{protocol}/{window}"));
    }
    lines.push(head);
    for &loss in rates {
        let mut line = format!("{:>7.1}%", per_cent(loss));
        for (protocol, window) in columns.clone() {
            let config = lossless.clone().fault(Fault::loss(loss));
            let ns = stream_time(config, settings(protocol, window), count, len)?;
            let rate = (count * len as u64) as f64 * 1e3 / ns as f64;
            let _ = write!(line, " {rate:>14.1}");
            lines.row(vec![
                ("measure", "throughput".into()),
                ("message_bytes", (len as u64).into()),
                ("loss_percent", per_cent(loss).into()),
                ("protocol", protocol.into()),
                ("window", u64::from(window).into()),
                ("mb_per_s", rate.into()),
            ]);
        }
        lines.push(line);
    }
    Ok(())
}

/// Measures barrier and allreduce for 2, 4, 8, ... up to the hosts of `config`.
pub(crate) fn scaling(config: SimConfig, tell: Tell<'_>) -> Result<Report, Failure> {
    let mut lines = Lines::new("scaling", &config, tell);
    lines.push(format!(
        "{:>6} {:>12} {:>14} {:>16}",
        "hosts", "barrier us", "allreduce us", "frames a host"
    ));
    let mut hosts = 2;
    let mut outcome = None;
    while hosts <= config.hosts {
        let config = SimConfig { hosts, ..config.clone() };
        let mut sim = Sim::new("scaling", config);
        let times = Rc::new(Cell::new((0, 0)));
        let result = Rc::clone(&times);
        sim.spawn_all(move |env| {
            let times = Rc::clone(&times);
            async move {
                let took = time_collectives(&env).await.expect("all hosts live");
                let (a, b) = times.get();
                times.set((took.0.max(a), took.1.max(b)));
            }
        });
        let end = sim.run()?;
        let (barrier, allreduce) = result.get();
        let frames = end.counters.sent as f64 / f64::from(hosts);
        let (barrier, allreduce) = (barrier as f64 / 1e3, allreduce as f64 / 1e3);
        lines.push(format!("{hosts:>6} {barrier:>12.2} {allreduce:>14.2} {frames:>16.1}"));
        lines.row(vec![
            ("hosts", u64::from(hosts).into()),
            ("barrier_us", barrier.into()),
            ("allreduce_us", allreduce.into()),
            ("frames_a_host", frames.into()),
        ]);
        outcome = Some(end);
        hosts *= 2;
    }
    Ok(lines.report("scaling", &config, outcome))
}

/// Returns the mean nanoseconds of a barrier and of an allreduce of 8 bytes on warm sessions.
async fn time_collectives(env: &Env) -> Result<(u64, u64), weft_core::OpError> {
    const ROUNDS: u64 = 4;
    let world = env.world();
    world.barrier().await?;
    world.allreduce(vec![1u64], Op::Sum).await?;
    world.barrier().await?;
    let begin = env.now();
    for _ in 0..ROUNDS {
        world.barrier().await?;
    }
    let barrier = env.now().since(begin).as_nanos() as u64 / ROUNDS;
    let begin = env.now();
    for _ in 0..ROUNDS {
        world.allreduce(vec![1u64], Op::Sum).await?;
    }
    Ok((barrier, env.now().since(begin).as_nanos() as u64 / ROUNDS))
}

//! Tables of throughput and latency in virtual time.

use crate::config::SimConfig;
use crate::fault::Fault;
use crate::runner::Outcome;
use crate::scenarios::{impatient, receive_stream, send_stream, Report, Story};
use crate::sim::{Env, Failure, Sim};
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

/// Hears each line of a report as soon as it is known, as the report prints it.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

/// Lines of a report, told as they come.
pub(crate) struct Lines<'a> {
    all: Vec<String>,
    tell: Tell<'a>,
}

impl<'a> Lines<'a> {
    pub fn new(name: &str, config: &SimConfig, tell: Tell<'a>) -> Lines<'a> {
        tell(&format!("{name}: {config}"));
        Lines { all: Vec::new(), tell }
    }

    pub fn push(&mut self, line: String) {
        (self.tell)(&format!("  {line}"));
        self.all.push(line);
    }

    /// The report.
    pub fn report(self, name: &str, config: &SimConfig, outcome: Option<Outcome>) -> Report {
        let (name, config) = (name.to_string(), config.to_string());
        Report { name, config, lines: self.all, outcome, trace: Trace::default() }
    }
}

fn settings(protocol: &str, window: u32) -> Config {
    let mut settings = impatient();
    settings.set("reliability", protocol).expect("a protocol that exists");
    settings.window = window;
    settings
}

/// Virtual nanoseconds that `count` messages of `len` bytes take from host 0 to host 1.
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

/// Mean virtual nanoseconds of half a round trip of 8 bytes, over `rounds` rounds.
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

/// Throughput and latency over loss, protocol and window, between hosts 0 and 1 of `config`.
pub(crate) fn reliability(config: SimConfig, tell: Tell<'_>) -> Result<Report, Failure> {
    let config = SimConfig { hosts: 2, ..config };
    let mut lines = Lines::new("reliability", &config, tell);
    for (title, len, count) in
        [("MB/s, messages of 1 KiB", 1 << 10, 1000), ("MB/s, messages of 256 KiB", 256 << 10, 16)]
    {
        lines.push(title.to_string());
        table(&mut lines, &mut |loss, protocol, window| {
            let config = config.clone().fault(Fault::loss(loss));
            let ns = stream_time(config, settings(protocol, window), count, len)?;
            Ok(format!("{:.1}", (count * len as u64) as f64 * 1e3 / ns as f64))
        })?;
    }
    lines.push("us, half a round trip of 8 bytes, mean".to_string());
    table(&mut lines, &mut |loss, protocol, window| {
        let config = config.clone().fault(Fault::loss(loss));
        let ns = half_round_trip(config, settings(protocol, window), 500)?;
        Ok(format!("{:.2}", ns as f64 / 1e3))
    })?;
    Ok(lines.report("reliability", &config, None))
}

/// One line per loss rate, one column per protocol and window.
fn table(
    lines: &mut Lines<'_>,
    cell: &mut dyn FnMut(u32, &str, u32) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let mut head = format!("{:>8}", "loss");
    for protocol in PROTOCOLS {
        for window in WINDOWS {
            let _ = write!(head, " {:>14}", format!("{protocol}/{window}"));
        }
    }
    lines.push(head);
    for loss in LOSS {
        let mut line = format!("{:>7.1}%", f64::from(loss) / 1e4);
        for protocol in PROTOCOLS {
            for window in WINDOWS {
                let _ = write!(line, " {:>14}", cell(loss, protocol, window)?);
            }
        }
        lines.push(line);
    }
    Ok(())
}

/// Time of barrier and allreduce for 2, 4, 8, ... up to the hosts of `config`.
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
        lines.push(format!(
            "{hosts:>6} {:>12.2} {:>14.2} {frames:>16.1}",
            barrier as f64 / 1e3,
            allreduce as f64 / 1e3
        ));
        outcome = Some(end);
        hosts *= 2;
    }
    Ok(lines.report("scaling", &config, outcome))
}

/// Nanoseconds of a barrier and of an allreduce of 8 bytes on warm sessions: mean of some rounds.
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

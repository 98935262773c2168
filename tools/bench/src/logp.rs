//! The LogP parameters of an endpoint, by the method of Culler, Liu, Martin and Yoshikawa,
//! "Assessing Fast Network Interfaces" (IEEE Micro 16(1), 1996):
//!
//! - `os` is the time of the sending call, over a few messages that nothing holds up (median of
//!   bursts);
//! - `g` is the time per message of a long stream, when the slowest part sets the pace;
//! - `or` follows from a round trip in which the sender computes for longer than the answer takes:
//!   what remains after the computation and `os` is the receipt of an answer already there;
//! - `L` is what is left of half a round trip after `os` and `or`.

use super::pair::Sample;
use super::pingpong::floor_of;
use super::rank::{Channel, Outcome, Probe, Rank, Task, TAG, TAG_ACK};
use super::table::{Better, Table};
use super::volley::median_ns;
use super::{others, Bench, LinkName, Subject};
use anyhow::Result;
use std::time::{Duration, Instant};

named_probes! {
    /// The probes of this benchmark.
    Parameter = 3;
    /// Time of the sending call alone, for a few messages.
    SendOverhead = "weft overhead of sends", send_overhead;
    /// A round trip with a computation of `arg` nanoseconds inside, minus the computation.
    BusyRoundTrip = "weft round trip with computation", busy_round_trip;
}

/// Messages of one burst, too few to fill any queue.
pub const BURST: u64 = 16;

/// Returns the time to read the clock in ns: a span between two readings is longer by this.
pub fn clock_ns() -> u64 {
    let mut previous = Instant::now();
    let mut least = u64::MAX;
    for _ in 0..1000 {
        let now = Instant::now();
        least = least.min((now - previous).as_nanos() as u64);
        previous = now;
    }
    least
}

/// Measures the time of a sending call, over bursts that are answered before the next begins.
fn send_overhead(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let mut buffer = vec![1u8; task.size];
    let (clock, mut spans) = (clock_ns(), Vec::new());
    rank.sync()?;
    for _ in 0..task.iters {
        if rank.me == 1 {
            for _ in 0..BURST {
                endpoint.recv_blocking(Some(peer), TAG, 0, &mut buffer)?;
            }
            endpoint.send_blocking(peer, TAG_ACK, &[1])?;
            continue;
        }
        let start = Instant::now();
        for _ in 0..BURST {
            super::rate::send(&endpoint, peer, &buffer)?;
        }
        spans.push((start.elapsed().as_nanos() as u64).saturating_sub(clock));
        endpoint.recv_blocking(Some(peer), TAG_ACK, 0, &mut [0])?;
    }
    Ok(match (rank.me, median_ns(spans)) {
        (0, Outcome::Value(burst)) => Outcome::Value(burst / BURST as f64),
        _ => Outcome::Elsewhere,
    })
}

/// Measures round trips with a computation of `task.arg` ns after the send; returns `time -
/// computation`, which is `os` + `or`.
fn busy_round_trip(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let mut buffer = vec![1u8; task.size];
    let compute = Duration::from_nanos(task.arg);
    let (clock, mut spans) = (clock_ns(), Vec::new());
    rank.sync()?;
    for _ in 0..task.iters {
        if rank.me == 1 {
            endpoint.recv_blocking(Some(peer), TAG, 0, &mut buffer)?;
            endpoint.send_blocking(peer, TAG, &buffer)?;
            continue;
        }
        let start = Instant::now();
        endpoint.send_blocking(peer, TAG, &buffer)?;
        let sent = Instant::now();
        let mut computed = sent;
        while computed - sent < compute {
            computed = Instant::now();
        }
        endpoint.recv_blocking(Some(peer), TAG, 0, &mut buffer)?;
        let rest = (sent - start) + computed.elapsed();
        spans.push((rest.as_nanos() as u64).saturating_sub(2 * clock));
    }
    Ok(if rank.me == 0 { median_ns(spans) } else { Outcome::Elsewhere })
}

/// Returns the difference of two samples' medians. The bounds are those of the least certain
/// combination.
pub fn minus(a: Option<Sample>, b: Option<Sample>) -> Option<Sample> {
    let (a, b) = (a?, b?);
    Some(Sample { median: a.median - b.median, min: a.min - b.max, max: a.max - b.min })
}

/// Returns the table. Its ranks never sleep, because a doorbell would count as overhead. Ranks of
/// agents take turns with the agents on a core, as always.
pub fn table(bench: &mut Bench<'_>) -> Result<Table> {
    match bench.link {
        LinkName::Agent => bench.beside(&[], polling),
        _ => bench.beside(&[("WEFT_SPIN_US", "1000000")], polling),
    }
}

/// Returns the names of the floors at these sizes, each once.
fn floors(link: LinkName, sizes: &[usize]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in sizes.iter().map(|&size| floor_of(link, size).0) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn polling(bench: &mut Bench<'_>, pair: usize) -> Result<Table> {
    let mut table = bench.table("logp", "parameters", "us", Better::Lower);
    let subject = |probe: Probe| Subject { pair, ..probe.into() };
    let channels: &[Channel] = match bench.link {
        LinkName::Shm => &[Channel::Pipe, Channel::Unix],
        _ => &[Channel::Tcp],
    };
    let sizes = bench.sizes(&[8, 64, 256, 1 << 10]);
    let floors = floors(bench.link, &sizes);
    bench.plan(sizes.len() * (1 + 5 + channels.len()));
    for size in sizes {
        let us = |s: f64| s * 1e6;
        let first = bench.measure(size, &[subject(Probe::WeftPingPong)], us)?;
        let half_trip_ns = first[0].map_or(10_000.0, |s| s.median * 1e3);
        // Much longer than a round trip, so that the answer has arrived when the computation ends.
        let compute = (8.0 * half_trip_ns) as u64 + 2_000;
        let (floor, probe) = floor_of(bench.link, size);
        let direct = bench.direct.map(|pair| Subject { pair, ..Probe::WeftPingPong.into() });
        let mut subjects = vec![
            subject(Probe::WeftPingPong),
            subject(Parameter::SendOverhead.into()),
            subject(Probe::WeftRate),
            Subject { arg: compute, ..subject(Parameter::BusyRoundTrip.into()) },
            direct.unwrap_or_else(|| bench.bare(probe)),
        ];
        subjects.extend(channels.iter().map(|&c| bench.bare(Probe::PingPong(c))));
        let got = bench.measure(size, &subjects, us)?;
        let (half, os, g, both) = (got[0], got[1], got[2], got[3]);
        let or = minus(both, os);
        for (what, value) in
            [("os", os), ("or", or), ("L", minus(half, both)), ("g", g), ("half trip", half)]
        {
            // Floors and peers have only the half trip; their other columns stay empty.
            let whole = |sample: Option<Sample>| sample.filter(|_| what == "half trip");
            let floor = |&name: &&'static str| (name, whole(got[4].filter(|_| name == floor)));
            let peers = channels.iter().zip(&got[5..]).map(|(c, &s)| (c.name(), whole(s)));
            table.push(what, size, value, others(floors.iter().map(floor)), others(peers));
        }
    }
    table.notes.push(
        "os: the sending call in bursts of 16; or: a round trip with a long computation inside, \
         less the computation and os; L: half a round trip less os and or; g: time per message of \
         a stream; ranks poll and never sleep (over agents as in every wait); L below zero: the \
         overheads of the two sides \
         overlap; half trips of floor and peers as in pingpong"
            .into(),
    );
    Ok(table)
}

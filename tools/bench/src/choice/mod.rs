//! The exchangeable parts, measured: `weft bench` with `--transfer`, `--reliability`, `--mtu`,
//! `--tree` and so on, and all of them as one grid.

mod carrier;
mod cast;
mod cell;
mod chosen;
mod figure;
pub mod grid;
mod probe;
mod report;

use super::logp::minus;
use super::pair::{Kind, Pair, Subject};
use super::rank::{Channel, Outcome, Probe, Rank, Task};
use super::table::{Better, Table};
use super::{others, pingpong, Bench, LinkName, Options, What};
use anyhow::{bail, Result};
use cast::Cast;
use cell::COMPUTES;
use chosen::of_messages;
use weft::choices::{Choices, Receipt, Transfer, Tree};

pub use chosen::Chosen;

named_probes! {
    /// The probes of the packet interface.
    Packet = 5;
    /// Ping-pong of packets, one way.
    PingPong = "packet interface ping-pong", probe::ping_pong;
    /// Time of sending a packet alone, for a few packets.
    SendOverhead = "packet interface overhead of sends", probe::send_overhead;
    /// A round trip of packets with a computation of `arg` nanoseconds inside, minus the
    /// computation.
    BusyRoundTrip = "packet interface round trip with computation", probe::busy_round_trip;
    /// Messages in one direction.
    Stream = "packet interface stream", probe::stream;
    /// Fetch-and-add at a rank that computes for `arg` nanoseconds between two polls.
    FetchAdd = "fetch-and-add", probe::fetch_add;
    /// Fetch-and-add at a rank that computes all the time and never polls.
    FetchAddUnpolled = "fetch-and-add, owner never polls", probe::fetch_add_unpolled;
    /// Length of the longest packet in bytes, not a time.
    Longest = "longest packet", probe::packet_max;
    /// A multicast; `arg` as packed by [`Cast`].
    Multicast = "multicast", cast::multicast;
}

/// Measures one benchmark over one link for every combination.
pub fn tables(
    link: LinkName,
    options: &Options,
    wanted: &Chosen,
    what: What,
) -> Result<Vec<Table>> {
    let mut tables: Vec<Table> = Vec::new();
    for choices in wanted.all(what)? {
        let made = match one(link, options, wanted, what, &choices) {
            Ok(made) => made,
            Err(error) if choices.needs_agent().is_some() => {
                let why = format!("{} not measured: {error:#}", wanted.label(what, &choices));
                match tables.last_mut() {
                    Some(last) => last.notes.push(why),
                    None => bail!(why),
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if tables.is_empty() {
            tables = made;
            continue;
        }
        for (table, made) in tables.iter_mut().zip(made) {
            table.rows.extend(made.rows);
            let new = made.notes.into_iter().filter(|n| !table.notes.contains(n));
            let new: Vec<_> = new.collect();
            table.notes.extend(new);
        }
    }
    Ok(tables)
}

/// A choice that is served by an agent is measured only where agents are started.
fn check(choices: &Choices, link: LinkName) -> Result<()> {
    if choices.receipt == Receipt::Watchdog && choices.transfer != Transfer::Auto {
        bail!("transfer={} with receipt=watchdog: {}", choices.transfer, chosen::WATCHED);
    }
    match choices.needs_agent() {
        Some((part, value)) if link != LinkName::Agent => {
            bail!("{part}={value} is measured with --link agent")
        }
        _ => Ok(()),
    }
}

/// Returns the floor of a small message. Over agents that is weft's packet link.
fn floor(bench: &Bench<'_>, size: usize) -> (&'static str, Subject) {
    let (name, probe) = pingpong::floor_of(bench.link, size);
    match bench.direct {
        Some(pair) => (name, Subject { pair, ..probe.into() }),
        None => (name, bench.bare(probe)),
    }
}

fn one(
    link: LinkName,
    options: &Options,
    wanted: &Chosen,
    what: What,
    choices: &Choices,
) -> Result<Vec<Table>> {
    check(choices, link)?;
    let config = wanted.environment(what, choices);
    let mut bench = Bench::start_with(link, options, config)?;
    let name: &'static str = wanted.label(what, choices).leak();
    if of_messages(what) {
        let mut tables = crate::tables(&mut bench, what)?;
        for row in tables.iter_mut().flat_map(|table| &mut table.rows) {
            row.what = if row.what.is_empty() { name } else { named(row.what, name) };
        }
        return Ok(tables);
    }
    bench.meter.title = format!("{name} over {}", link.name());
    let mut table = match what {
        What::Logp => logp(&mut bench, name, choices.receipt == Receipt::Watchdog)?,
        What::Throughput => throughput(&mut bench, name, choices.receipt == Receipt::Watchdog)?,
        What::FetchAdd => fetch_add(&mut bench, name, choices)?,
        What::Multicast => multicast(&mut bench, name, choices.tree, wanted.members(), config)?,
        _ => bail!("this benchmark has no choices"),
    };
    if what != What::FetchAdd {
        let max = Task { probe: Packet::Longest.into(), size: 8, iters: 1, arg: 0 };
        if let Outcome::Value(max) = bench.meter.pairs[0].run(&max)? {
            table.notes.push(format!("{name}: packets of up to {max} B of the program"));
        }
    }
    table.notes.append(&mut bench.meter.absent);
    Ok(vec![table])
}

/// Returns the name of a table row: the figure and the choices.
fn named(what: &str, choices: &str) -> &'static str {
    format!("{what}, {choices}").leak()
}

fn logp(bench: &mut Bench<'_>, name: &'static str, watched: bool) -> Result<Table> {
    let mut table = bench.table("logp", "parameters of packets", "us", Better::Lower);
    for size in bench.sizes(&[16, 1 << 10]) {
        let (floor, bare) = floor(bench, size);
        let us = |s: f64| s * 1e6;
        let first = bench.measure(size, &[Packet::PingPong.into()], us)?;
        let half_trip_ns = first[0].map_or(10_000.0, |s| s.median * 1e3);
        let compute = (8.0 * half_trip_ns) as u64 + 2_000;
        let mut subjects = vec![
            Packet::PingPong.into(),
            Packet::SendOverhead.into(),
            Packet::Stream.into(),
            Subject { arg: compute, ..Packet::BusyRoundTrip.into() },
            bare,
            Subject { arg: 1, ..Packet::PingPong.into() },
        ];
        // Beside a watchdog there is no endpoint of one thread.
        if !watched {
            subjects.push(Probe::WeftPingPong.into());
        }
        let got = bench.measure(size, &subjects, us)?;
        let (half, os, g, both) = (got[0], got[1], got[2], got[3]);
        let (or, endpoint) = (minus(both, os), got.get(6).copied().flatten());
        for (what, value) in [("os", os), ("or", or), ("L", minus(half, both)), ("g", g)] {
            let none = || vec![super::table::Other { name: floor, sample: None }];
            let peer = vec![super::table::Other { name: "endpoint", sample: None }];
            table.push(named(what, name), size, value, none(), peer);
        }
        let floors = others([(floor, got[4])].into_iter());
        let peers = others([("endpoint", endpoint)].into_iter());
        table.push(named("half trip", name), size, half, floors, peers);
        let floors = others([(floor, got[4])].into_iter());
        let peers = others([("endpoint", endpoint)].into_iter());
        table.push(named("half trip by upcall", name), size, got[5], floors, peers);
    }
    table.notes.push(
        "as `weft bench logp`, through the packet interface; ranks poll. half trip: the receiver \
         waits for the packet (`receive`); the rest by upcalls. rcpy: the receiver polls the \
         memory. Peer: the same half trip by send and receive of the endpoint. watchdog: the \
         locked interface, by upcalls"
            .into(),
    );
    Ok(table)
}

fn throughput(bench: &mut Bench<'_>, name: &'static str, watched: bool) -> Result<Table> {
    let (floor, bare, peer, channel) = match bench.link {
        LinkName::Shm => ("vm_readv", Probe::RemoteCopy, "unix", Channel::Unix),
        _ => ("UDP GSO", Probe::UdpStream, "tcp", Channel::Tcp),
    };
    let mut table = bench.table("throughput", "rate of packets", "GB/s", Better::Higher);
    for size in bench.sizes(&[4 << 10, 64 << 10, 1 << 20, 16 << 20]) {
        let mut subjects =
            vec![Packet::Stream.into(), bench.bare(bare), bench.bare(Probe::Stream(channel))];
        if !watched {
            subjects.push(Probe::WeftBandwidth.into());
        }
        let got = bench.measure(size, &subjects, |s| size as f64 / s / 1e9)?;
        let endpoint = got.get(3).copied().flatten();
        let floors = others([(floor, got[1])].into_iter());
        let peers = others([(peer, got[2]), ("endpoint", endpoint)].into_iter());
        table.push(name, size, got[0], floors, peers);
    }
    table.notes.push(
        "messages in one direction; copy and gather: in packets that the receiver copies to their \
         place; rcpy: to exported memory; endpoint: weft's own sends and receives"
            .into(),
    );
    Ok(table)
}

fn fetch_add(bench: &mut Bench<'_>, name: &'static str, choices: &Choices) -> Result<Table> {
    let (floor, bare) = floor(bench, 16);
    let (peer, channel) = match bench.link {
        LinkName::Shm => ("unix", Channel::Unix),
        _ => ("tcp", Channel::Tcp),
    };
    let mut table = bench.table("fetch-add", "time", "us", Better::Lower);
    let computes = Subject { arg: COMPUTES, ..Packet::FetchAdd.into() };
    let mut rows: Vec<(&'static str, Subject)> = vec![
        (named("owner polls", name), Packet::FetchAdd.into()),
        (named("owner computes", name), computes),
    ];
    if choices.receipt == Receipt::Watchdog {
        rows.push((named("owner never polls", name), Packet::FetchAddUnpolled.into()));
    }
    let others_too = [bare, bench.bare(Probe::PingPong(channel))];
    let subjects: Vec<_> = rows.iter().map(|row| row.1).chain(others_too).collect();
    let got = bench.measure(8, &subjects, |s| s * 1e6)?;
    let trip = |of: usize| got[of].map(|s| s.map(|half| 2.0 * half));
    for (at, (what, _)) in rows.iter().enumerate() {
        let floors = others([(floor, trip(rows.len()))].into_iter());
        let peers = others([(peer, trip(rows.len() + 1))].into_iter());
        table.push(what, 8, got[at], floors, peers);
    }
    table.notes.push(format!(
        "one fetch-and-add at a time; floor and peer: round trips; a computing owner polls every \
         {} us; one that never polls has a watchdog; kernel: an XDP program that the agent has \
         attached",
        COMPUTES / 1000
    ));
    Ok(table)
}

fn multicast(
    bench: &mut Bench<'_>,
    name: &'static str,
    tree: Tree,
    members: usize,
    config: &'static [(&'static str, &'static str)],
) -> Result<Table> {
    // Members of one host use shared memory.
    let links = match bench.link {
        LinkName::Packet => "shm,packet",
        LinkName::Xdp => "shm,xdp",
        other => other.links(),
    };
    if links != bench.link.links() {
        bench.meter.pairs[0] = Pair::start(&Kind { link: links, config, place: bench.place })?;
    }
    let (floor, bare) = floor(bench, 16);
    let (peer, channel) = match bench.link {
        LinkName::Shm => ("unix", Channel::Unix),
        _ => ("tcp", Channel::Tcp),
    };
    let mut table = bench.table("multicast", "latency and rate", "us, MB/s", Better::Lower);
    let arg = |stream, compute| Cast { members, tree, stream, compute }.pack();
    let latency = Subject { arg: arg(false, false), ..Packet::Multicast.into() };
    let busy = Subject { arg: arg(false, true), ..Packet::Multicast.into() };
    let rate = Subject { arg: arg(true, false), ..Packet::Multicast.into() };
    let subjects = [latency, bare, bench.bare(Probe::PingPong(channel)), busy];
    let got = bench.measure(16, &subjects, |s| s * 1e6)?;
    let floors = others([(floor, got[1])].into_iter());
    let peers = others([(peer, got[2])].into_iter());
    table.push(named("latency", name), 16, got[0], floors, peers);
    let none = || vec![super::table::Other { name: floor, sample: None }];
    let peers = vec![super::table::Other { name: peer, sample: None }];
    table.push(named("latency, busy", name), 16, got[3], none(), peers);
    for size in bench.sizes(&[64 << 10]) {
        let got = bench.measure(size, &[rate], |s| size as f64 / s / 1e6)?;
        let none = || vec![super::table::Other { name: floor, sample: None }];
        let peer = vec![super::table::Other { name: peer, sample: None }];
        table.push(named("MB/s", name), size, got[0], none(), peer);
    }
    table.notes.push(format!(
        "{members} members, half of them threads of each rank; latency until the last one has the \
         packet; busy: all but the root compute {} us between two polls; \
         floor and peer: one packet to one rank, one way; MB/s: what the root sends, \
         higher is better",
        COMPUTES / 1000
    ));
    Ok(table)
}

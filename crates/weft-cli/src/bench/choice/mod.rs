//! The exchangeable parts of the packet interface, measured: `weft bench logp|throughput|multicast|
//! fetch-add` with `--transfer`, `--reliability`, `--mtu`, `--tree` and so on, and all of them as
//! one grid.

pub mod cast;
mod figure;
pub mod grid;
pub mod probe;
mod report;

use super::logp::minus;
use super::pair::{Kind, Pair, Subject};
use super::rank::{Channel, Outcome, Probe, Task};
use super::table::{Better, Table};
use super::{others, parse_size, pingpong, Bench, LinkName, Options, What, CONFIG};
use anyhow::{bail, Result};
use cast::Cast;
use weft::choices::{Choices, Place, Receipt, Transfer, Tree};
use weft::{Config, Reliability};

/// What is chosen: of each part one, or several that are measured one after the other.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Chosen {
    /// Data transfer: copy, gather, rcpy, auto
    #[arg(long, value_delimiter = ',')]
    transfer: Vec<Transfer>,
    /// Who retransmits: none (needs a network that loses nothing), host, gbn, selective, agent
    #[arg(long, value_delimiter = ',')]
    reliability: Vec<Reliability>,
    /// Longest packet, bytes: 1K,2K,4K; 0 is what the link carries
    #[arg(long, value_delimiter = ',', value_parser = parse_mtu)]
    mtu: Vec<usize>,
    /// Who forwards multicasts: host, agent
    #[arg(long, value_delimiter = ',')]
    multicast: Vec<Place>,
    /// Multicast trees: flat, chain, binary, binomial
    #[arg(long, value_delimiter = ',')]
    tree: Vec<Tree>,
    /// Who serves fetch-and-add: host, agent
    #[arg(long, value_delimiter = ',')]
    fetch_add: Vec<Place>,
    /// How ranks wait: adaptive, polling, blocking, watchdog
    #[arg(long, value_delimiter = ',')]
    receipt: Vec<Receipt>,
    /// Members of multicasts, half of them on each side
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    members: u16,
}

/// A packet length that the engine takes.
fn parse_mtu(text: &str) -> Result<usize, String> {
    let mtu = parse_size(text)?;
    Config::default().set("mtu", &mtu.to_string()).map_err(|e| e.to_string())?;
    Ok(mtu)
}

fn or<T: Copy>(given: &[T], usual: T) -> Vec<T> {
    if given.is_empty() {
        vec![usual]
    } else {
        given.to_vec()
    }
}

impl Chosen {
    /// Whether anything was chosen by hand.
    pub fn any(&self) -> bool {
        !(self.transfer.is_empty()
            && self.reliability.is_empty()
            && self.mtu.is_empty()
            && self.multicast.is_empty()
            && self.tree.is_empty()
            && self.fetch_add.is_empty()
            && self.receipt.is_empty())
    }

    /// Every combination.
    fn all(&self) -> Vec<Choices> {
        let usual = Choices::default();
        let mut out = Vec::new();
        for reliability in or(&self.reliability, usual.reliability) {
            for transfer in or(&self.transfer, usual.transfer) {
                for mtu in or(&self.mtu, usual.mtu as usize) {
                    for multicast in or(&self.multicast, usual.multicast) {
                        for tree in or(&self.tree, usual.tree) {
                            for fetch_add in or(&self.fetch_add, usual.fetch_add) {
                                for receipt in or(&self.receipt, Receipt::Polling) {
                                    let mtu = mtu as u32;
                                    out.push(Choices {
                                        transfer,
                                        reliability,
                                        mtu,
                                        multicast,
                                        tree,
                                        fetch_add,
                                        receipt,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
        out
    }
}

/// The choices as the environment of ranks. They live as long as the program: there are as many as
/// combinations measured.
fn environment(choices: &Choices, members: usize) -> &'static [(&'static str, &'static str)] {
    let mut config = Config::default();
    choices.write(&mut config);
    let keys =
        ["transfer", "reliability", "mtu", "multicast", "tree", "fetch_add", "receipt"].iter();
    let mut all: Vec<(&'static str, &'static str)> = CONFIG.to_vec();
    for key in keys {
        let name: &'static str = format!("WEFT_{}", key.to_uppercase()).leak();
        all.push((name, config.get(key).unwrap_or_default().leak()));
    }
    if std::env::var_os("WEFT_LOG").is_none() {
        // Members leave one after the other; what matters is in the answers of the ranks.
        all.push(("WEFT_LOG", "error"));
    }
    if choices.reliability == Reliability::None {
        // What is on its way has to fit the receiver's ring: nothing is sent again.
        all.push(("WEFT_EAGER_CREDIT", "128K"));
    }
    if members > weft::job::cores_of_host() {
        all.push(("WEFT_SPIN_US", "0"));
        all.push(("WEFT_YIELD_US", "200"));
    }
    all.leak()
}

/// The choices that matter to a benchmark, in words.
fn label(what: What, c: &Choices) -> String {
    let mtu = match c.mtu {
        0 => "link".to_string(),
        mtu => super::table::human(mtu as usize),
    };
    let common = format!("{} {mtu}", c.reliability);
    match what {
        What::Multicast => format!("{} {} {common}", c.tree, c.multicast),
        What::FetchAdd => format!("{} {}", c.fetch_add, c.reliability),
        _ => format!("{} {common}", c.transfer),
    }
}

/// Measures one benchmark over one link for every combination.
pub fn tables(
    link: LinkName,
    options: &Options,
    wanted: &Chosen,
    what: What,
) -> Result<Vec<Table>> {
    let mut tables: Vec<Table> = Vec::new();
    for choices in wanted.all() {
        let made = one(link, options, wanted, what, &choices);
        let made = match made {
            Ok(table) => table,
            Err(error) if choices.needs_agent().is_some() => {
                let why = format!("{} not measured: {error:#}", label(what, &choices));
                match tables.last_mut() {
                    Some(last) => last.notes.push(why),
                    None => bail!(why),
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        match tables.last_mut() {
            Some(last) => {
                last.rows.extend(made.rows);
                let new = made.notes.into_iter().filter(|n| !last.notes.contains(n));
                let new: Vec<_> = new.collect();
                last.notes.extend(new);
            }
            None => tables.push(made),
        }
    }
    Ok(tables)
}

/// What is at the agent is measured where agents are started.
fn check(choices: &Choices, link: LinkName) -> Result<()> {
    match choices.needs_agent() {
        Some(part) if link != LinkName::Agent => {
            bail!("{part}=agent is measured with --link agent")
        }
        _ => Ok(()),
    }
}

/// The floor of a small message: over agents, weft's packet link.
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
) -> Result<Table> {
    check(choices, link)?;
    let members = if what == What::Multicast { usize::from(wanted.members) } else { 2 };
    let config = environment(choices, members);
    let mut bench = Bench::start_with(link, options, config)?;
    bench.meter.title = format!("{} over {}", label(what, choices), link.name());
    let name: &'static str = label(what, choices).leak();
    let mut table = match what {
        What::Logp => logp(&mut bench, name)?,
        What::Throughput => throughput(&mut bench, name)?,
        What::FetchAdd => fetch_add(&mut bench, name)?,
        What::Multicast => multicast(&mut bench, name, choices.tree, members, config)?,
        _ => bail!("this benchmark has no choices"),
    };
    if what != What::FetchAdd {
        let max = Task { probe: Probe::PacketMax, size: 8, iters: 1, arg: 0 };
        if let Outcome::Value(max) = bench.meter.pairs[0].run(&max)? {
            table.notes.push(format!("{name}: packets of up to {max} B of the program"));
        }
    }
    table.notes.append(&mut bench.meter.absent);
    Ok(table)
}

/// A row's name: the figure and the choices.
fn named(what: &str, choices: &str) -> &'static str {
    format!("{what}, {choices}").leak()
}

fn logp(bench: &mut Bench<'_>, name: &'static str) -> Result<Table> {
    let mut table = bench.table("logp", "parameters of packets", "us", Better::Lower);
    for size in bench.sizes(&[16, 1 << 10]) {
        let (floor, bare) = floor(bench, size);
        let us = |s: f64| s * 1e6;
        let first = bench.measure(size, &[Probe::PacketPingPong.into()], us)?;
        let half_trip_ns = first[0].map_or(10_000.0, |s| s.median * 1e3);
        let compute = (8.0 * half_trip_ns) as u64 + 2_000;
        let subjects = [
            Probe::PacketPingPong.into(),
            Probe::PacketSendOverhead.into(),
            Probe::PacketStream.into(),
            Subject { arg: compute, ..Probe::PacketBusyRoundTrip.into() },
            bare,
            Probe::WeftPingPong.into(),
            Subject { arg: 1, ..Probe::PacketPingPong.into() },
        ];
        let got = bench.measure(size, &subjects, us)?;
        let (half, os, g, both) = (got[0], got[1], got[2], got[3]);
        let or = minus(both, os);
        for (what, value) in [("os", os), ("or", or), ("L", minus(half, both)), ("g", g)] {
            let none = || vec![super::table::Other { name: floor, sample: None }];
            let peer = vec![super::table::Other { name: "endpoint", sample: None }];
            table.push(named(what, name), size, value, none(), peer);
        }
        let floors = others([(floor, got[4])].into_iter());
        let peers = others([("endpoint", got[5])].into_iter());
        table.push(named("half trip", name), size, half, floors, peers);
        let floors = others([(floor, got[4])].into_iter());
        let peers = others([("endpoint", got[5])].into_iter());
        table.push(named("half trip by upcall", name), size, got[6], floors, peers);
    }
    table.notes.push(
        "as `weft bench logp`, through the packet interface; ranks poll. half trip: the receiver \
         waits for the packet (`receive`); the rest by upcalls. rcpy: the receiver polls the \
         memory. Peer: the same half trip by send and receive of the endpoint"
            .into(),
    );
    Ok(table)
}

fn throughput(bench: &mut Bench<'_>, name: &'static str) -> Result<Table> {
    let (floor, bare, peer, channel) = match bench.link {
        LinkName::Shm => ("vm_readv", Probe::RemoteCopy, "unix", Channel::Unix),
        _ => ("UDP GSO", Probe::UdpStream, "tcp", Channel::Tcp),
    };
    let mut table = bench.table("throughput", "rate of packets", "GB/s", Better::Higher);
    for size in bench.sizes(&[4 << 10, 64 << 10, 1 << 20, 16 << 20]) {
        let subjects = [
            Probe::PacketStream.into(),
            bench.bare(bare),
            bench.bare(Probe::Stream(channel)),
            Probe::WeftBandwidth.into(),
        ];
        let got = bench.measure(size, &subjects, |s| size as f64 / s / 1e9)?;
        let floors = others([(floor, got[1])].into_iter());
        let peers = others([(peer, got[2]), ("endpoint", got[3])].into_iter());
        table.push(name, size, got[0], floors, peers);
    }
    table.notes.push(
        "messages in one direction; copy and gather: in packets that the receiver copies to their \
         place; rcpy: to exported memory; endpoint: weft's own sends and receives"
            .into(),
    );
    Ok(table)
}

/// Computation of the owner of a counter between two polls, ns.
const COMPUTES: u64 = 1_000_000;

fn fetch_add(bench: &mut Bench<'_>, name: &'static str) -> Result<Table> {
    let (floor, bare) = floor(bench, 16);
    let (peer, channel) = match bench.link {
        LinkName::Shm => ("unix", Channel::Unix),
        _ => ("tcp", Channel::Tcp),
    };
    let mut table = bench.table("fetch-add", "time", "us", Better::Lower);
    let subjects = [
        Probe::FetchAdd.into(),
        Subject { arg: COMPUTES, ..Probe::FetchAdd.into() },
        bare,
        bench.bare(Probe::PingPong(channel)),
    ];
    let kernel = Subject { arg: COMPUTES, ..bench.bare(Probe::KernelFetchAdd) };
    let raw = matches!(bench.link, LinkName::Packet | LinkName::Xdp);
    let subjects: Vec<_> = subjects.into_iter().chain(raw.then_some(kernel)).collect();
    let got = bench.measure(8, &subjects, |s| s * 1e6)?;
    let trip = |of: usize| got[of].map(|s| s.map(|half| 2.0 * half));
    let rows = [("owner polls", 0), ("owner computes", 1), ("kernel, owner computes", 4)];
    for (what, at) in rows.into_iter().filter(|&(_, at)| at < got.len()) {
        let floors = others([(floor, trip(2))].into_iter());
        let peers = others([(peer, trip(3))].into_iter());
        table.push(named(what, name), 8, got[at], floors, peers);
    }
    table.notes.push(format!(
        "one fetch-and-add at a time; floor and peer: round trips; a computing owner polls every \
         {} us; kernel: by an XDP program on an interface declared trusted",
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
    // Members of one host reach each other through memory.
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
    let latency = Subject { arg: arg(false, false), ..Probe::Multicast.into() };
    let busy = Subject { arg: arg(false, true), ..Probe::Multicast.into() };
    let rate = Subject { arg: arg(true, false), ..Probe::Multicast.into() };
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

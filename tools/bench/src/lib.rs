//! `weft bench`: weft's figures beside the floor and the peer, measured in turn in the same run.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

mod against;
mod apps;
mod auth;
mod bandwidth;
pub mod barrier;
mod busy;
pub mod chain;
mod choice;
mod containers;
mod crowd;
mod ethernet;
mod faces;
pub mod far;
mod floor;
mod iperf;
mod kept;
mod load;
mod logp;
mod models;
mod mpi;
mod mxoe;
pub mod names;
pub mod netns;
pub mod pair;
mod peers;
mod pingpong;
mod progress;
mod python;
pub mod rank;
mod rate;
pub mod service;
pub mod sockets;
pub mod sovia;
pub mod suite;
mod sys;
pub mod table;
mod takes;
mod target;
mod volley;
mod wait;
mod wire;

pub use suite::date;

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use far::Far;
use load::Load;
use netns::Place;
use pair::{Kind, Meter, Pair, Sample, Subject};
use progress::Plan;
use rank::Probe;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use table::{Better, Other, Row, Table};
use weft_run::idle;
use weft_run::interrupt::{Held, Interrupt};
use weft_run::misuse;
use weft_run::words;

/// Measure latency, bandwidth, message rate and the cost of waiting
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The benchmark to run
    #[arg(value_enum)]
    what: What,
    /// Links, one after the other [default: shm; all, barrier: shm,udp; auth: udp; ethernet:
    /// packet,xdp,auto; against-tcp: unprivileged,auto]
    #[arg(long, value_enum, value_delimiter = ',')]
    link: Vec<LinkName>,
    /// Numbers of ranks of a barrier: 4,8 [default: 4; two ranks are always measured], or of the
    /// programs of models [default: 2,4,8]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    suite: suite::Wanted,
    #[command(flatten)]
    choices: choice::Chosen,
    /// Tables and figures of paper 004 of the benchmark models: V,VII,12 [default: all]
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true)]
    table: Vec<models::Wanted>,
    /// The Python of the benchmark python, with the package weft [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Message sizes in bytes: 8,1K,1M [default: depends]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// Repetitions; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Only check that it works: one short repetition, whose figures have no meaning; suite: coarse
    /// figures in one to two minutes
    #[arg(long)]
    pub quick: bool,
    /// Run a thread on every core that computes without pause at the same priority, as where there
    /// are more ranks than cores
    #[arg(long)]
    pub loaded: bool,
    /// Measure udp between two lab hosts instead of over loopback, and the suite on hosts of labs;
    /// packet, gso, xdp, agent and auto always use lab hosts
    #[arg(long, value_enum, default_value_t = netns::Mode::Auto)]
    pub netns: netns::Mode,
    /// Hosts of other machines.
    #[command(flatten)]
    pub reach: far::Reach,
}

impl Options {
    /// Returns the number of repetitions.
    fn repeat(&self) -> u32 {
        if self.quick {
            1
        } else {
            self.repeat
        }
    }

    /// Returns the time of one repetition of one subject.
    fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 1 } else { 80 })
    }

    fn least_iters(&self) -> u64 {
        if self.quick {
            2
        } else {
            8
        }
    }
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// One-way time
    Pingpong,
    /// Bytes per second
    Bandwidth,
    /// Messages per second
    Rate,
    /// Overheads, latency and gap
    Logp,
    /// Processor use of a waiting rank, and its wake-up time
    Wait,
    /// Cost of authenticating frames
    Auth,
    /// Time of one hop of a barrier among ranks of this host, also of more ranks than cores
    Barrier,
    /// Bytes per second through the packet interface
    Throughput,
    /// Time until the last member has a packet, and rate of packets
    Multicast,
    /// Time of fetch-and-add at a rank that polls, and at one that computes
    FetchAdd,
    /// Every combination of transfer, reliability and MTU, trees and places: a table and a plot
    /// in --out
    Choices,
    /// The first six
    All,
    /// The targets of weft on plain Ethernet, each met or not
    Ethernet,
    /// weft beside the kernel's TCP used in the same way, each target met or not
    AgainstTcp,
    /// Ranks in two sets of namespaces of this host, joined by its agent, beside ranks in one: each
    /// target met or not
    Containers,
    /// Names of a cluster of agents between lab hosts: look-up, events, losses, messages and the
    /// cost of an idle agent, each target met or not
    Names,
    /// Unmodified socket programs of this host with and without the library of `weft sockets`, each
    /// target met or not
    Sockets,
    /// The layer of paper 002 with its ten configurations over sockets that share memory: its
    /// tables and figures, and which of its verdicts stand here; plots in --out
    Sovia,
    /// Myrinet Express (`myriexpress.h`) beside the endpoint and TCP, each target met or not
    Mx,
    /// Virtual interfaces (`vipl.h`) beside the endpoint and TCP, each target met or not
    Via,
    /// Messages in frames of MX over Ethernet beside TCP, between lab hosts, each target met or not
    Mxoe,
    /// Calls, ordered groups, objects, regions and jobs beside the packet interface that they are
    /// made of, each target met or not; then the programs of paper 004; plots in --out
    Models,
    /// The applications of `weft app` on four ranks of this host beside one
    Apps,
    /// The package for Python beside Rust, mpi4py, PySyncObj and shared memory of Python, each
    /// target met or not
    Python,
    /// Work of agents and kernels while ranks compute, compared with ranks, between lab hosts
    Agent,
    /// MPI programs over weft and over TCP, each target met or not (root)
    Mpi,
    /// MPI programs, endpoints, socket programs and names beside TCP while two others compute on
    /// each core, each target met or not
    Busy,
    /// Pipes, sockets and links side by side, as a report in --out
    Suite,
}

/// A link that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkName {
    /// Shared memory
    Shm,
    /// UDP
    Udp,
    /// TCP
    Tcp,
    /// Packet sockets
    Packet,
    /// Frames longer than the MTU on packet sockets
    Gso,
    /// AF_XDP
    Xdp,
    /// Through an agent (weftd) on each host, which has the raw sockets
    Agent,
    /// The links that ranks on two hosts get
    Auto,
    /// The links that ranks on two hosts get without the right to raw sockets
    Unprivileged,
}

impl LinkName {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            LinkName::Shm => "shm",
            LinkName::Udp => "udp",
            LinkName::Tcp => "tcp",
            LinkName::Packet => "packet",
            LinkName::Gso => "gso",
            LinkName::Xdp => "xdp",
            LinkName::Agent => "agent",
            LinkName::Auto => "auto",
            LinkName::Unprivileged => "unprivileged",
        }
    }

    /// Returns the value of `WEFT_LINK`.
    const fn links(self) -> &'static str {
        match self {
            // The links of a job on several hosts: shared memory does not connect hosts.
            LinkName::Auto => "shm,packet,gso,udp,tcp",
            LinkName::Unprivileged => "shm,udp,tcp",
            _ => self.name(),
        }
    }

    /// True if the link uses raw Ethernet, which is measured between lab hosts only.
    fn is_raw(self) -> bool {
        !matches!(self, LinkName::Shm | LinkName::Udp | LinkName::Tcp | LinkName::Unprivileged)
    }
}

/// Units of a size, each with the shift of its factor. The empty unit is last, because it matches
/// everything.
const UNITS: [(&[&str], u32); 4] = [
    (&["G", "GB", "GIB"], 30),
    (&["M", "MB", "MIB"], 20),
    (&["K", "KB", "KIB"], 10),
    (&["B", ""], 0),
];

fn parse_size(text: &str) -> Result<usize, String> {
    let plain = text.trim().to_ascii_uppercase();
    let without = |&(names, shift): &(&'static [&str], u32)| {
        names
            .iter()
            .find_map(|name| plain.strip_suffix(name)?.trim_end().parse::<usize>().ok())
            .and_then(|n| n.checked_mul(1 << shift))
    };
    let size = UNITS.iter().find_map(without).filter(|&n| n <= 1 << 30);
    size.ok_or_else(|| format!("{text:?} is no size up to 1G, such as 64, 4K or 1MiB"))
}

fn others(all: impl Iterator<Item = (&'static str, Option<Sample>)>) -> Vec<Other> {
    all.map(|(name, sample)| Other { name, sample }).collect()
}

impl Table {
    fn push(
        &mut self,
        what: &'static str,
        size: usize,
        ours: Option<Sample>,
        floors: Vec<Other>,
        peers: Vec<Other>,
    ) {
        if let Some(ours) = ours {
            self.rows.push(Row { what, size, ours, floors, peers });
        }
    }
}

/// Settings of all ranks. A pair is silent while others have their turns, which must not cause a
/// warning.
const CONFIG: &[(&str, &str)] = &[("WEFT_WARN_AFTER_MS", "60000")];

/// MTU between the hosts, in bytes.
const MTU: u32 = 1500;

/// The measurements over one link.
pub struct Bench<'a> {
    link: LinkName,
    place: Place,
    /// Index of the pair for floors and peers.
    bare: usize,
    /// Index of a pair over the packet link, beside one served by agents.
    direct: Option<usize>,
    /// The hosts, where they are neither hosts of a lab nor this one.
    far: Option<Far>,
    why_not: Option<String>,
    meter: Meter<'a>,
}

impl<'a> Bench<'a> {
    /// Starts the two ranks.
    pub fn start(link: LinkName, options: &'a Options) -> Result<Bench<'a>> {
        Bench::start_with(link, options, CONFIG)
    }

    /// Starts the two ranks with other settings.
    pub fn start_with(
        link: LinkName,
        options: &'a Options,
        config: &'static [(&'static str, &'static str)],
    ) -> Result<Bench<'a>> {
        if let Some(far) = options.reach.far()? {
            return Bench::between(far, link, options, config);
        }
        if link.is_raw() && options.netns == netns::Mode::Off {
            misuse!("{} is measured between lab hosts only: leave out --netns off", link.name());
        }
        let mut kind = Kind { link: link.links(), config, place: Place::Here };
        let (mut pair, mut why_not) = (None, None);
        if link != LinkName::Shm && options.netns != netns::Mode::Off {
            kind.place = Place::Between(MTU);
            match Pair::start(&kind) {
                Ok(started) => pair = Some(started),
                Err(e) if link.is_raw() => {
                    return Err(e).context("two lab hosts (udp can be measured without)");
                }
                Err(e) if options.netns == netns::Mode::On => {
                    return Err(e).context("network namespaces (--netns auto does without)");
                }
                Err(e) => {
                    why_not = Some(format!("{e:#}"));
                    kind.place = Place::Here;
                }
            }
        }
        let pair = pair.map_or_else(|| Pair::start(&kind), Ok)?;
        let mut pairs = vec![pair];
        if link.is_raw() {
            // Floors and peers run on hosts of their own, on whose interface weft has no socket and
            // no program.
            pairs.push(Pair::start(&Kind { link: "udp", config: CONFIG, place: kind.place })?);
        }
        let bare = pairs.len() - 1;
        let mut direct = None;
        if link == LinkName::Agent {
            direct = Some(pairs.len());
            pairs.push(Pair::start(&Kind { link: "packet", config: CONFIG, place: kind.place })?);
        }
        let (title, plan, absent) = (link.name().into(), Plan::default(), Vec::new());
        let meter = Meter { pairs, options, title, plan, absent, counted: None };
        Ok(Bench { link, place: kind.place, bare, direct, far: None, why_not, meter })
    }

    /// Starts the ranks on two hosts named by the user.
    fn between(
        far: Far,
        link: LinkName,
        options: &'a Options,
        config: &'static [(&'static str, &'static str)],
    ) -> Result<Bench<'a>> {
        let mut pairs = vec![Pair::start_far(&far, link.links(), config)?];
        if link.is_raw() {
            // These processes have no weft socket: one would open with the first message.
            pairs.push(Pair::start_far(&far, "udp", CONFIG)?);
        }
        let bare = pairs.len() - 1;
        let (title, plan, absent) = (link.name().into(), Plan::default(), Vec::new());
        let meter = Meter { pairs, options, title, plan, absent, counted: None };
        let (place, why_not) = (Place::Here, None);
        Ok(Bench { link, place, bare, direct: None, far: Some(far), why_not, meter })
    }

    /// Calls `work` with two more ranks of another configuration; its argument is the index of the
    /// pair.
    fn beside<T>(
        &mut self,
        config: &'static [(&'static str, &'static str)],
        work: impl FnOnce(&mut Self, usize) -> Result<T>,
    ) -> Result<T> {
        self.with(&[Kind { link: self.link.links(), config, place: self.place }], work)
    }

    /// Calls `work` with further ranks, a pair of each kind; its argument is the index of the
    /// first.
    fn with<T>(
        &mut self,
        kinds: &[Kind],
        work: impl FnOnce(&mut Self, usize) -> Result<T>,
    ) -> Result<T> {
        let start = |kind: &Kind| match &self.far {
            Some(far) => Pair::start_far(far, kind.link, kind.config),
            None => Pair::start(kind),
        };
        let pairs = kinds.iter().map(start).collect::<Result<Vec<_>>>()?;
        let first = self.meter.pairs.len();
        self.meter.pairs.extend(pairs);
        let result = work(self, first);
        self.meter.pairs.truncate(first);
        result
    }

    /// Returns the subject of a floor or peer.
    fn bare(&self, probe: Probe) -> Subject {
        Subject { pair: self.bare, ..probe.into() }
    }

    fn sizes(&self, defaults: &[usize]) -> Vec<usize> {
        match &self.meter.options.size {
            given if given.is_empty() => defaults.to_vec(),
            given => given.clone(),
        }
    }

    fn table(
        &self,
        bench: &'static str,
        what: &'static str,
        unit: &'static str,
        better: Better,
    ) -> Table {
        let (rows, notes) = (Vec::new(), Vec::from_iter(self.path()));
        Table { bench, link: self.link.name(), what, unit, better, rows, notes }
    }

    /// Measures subjects in turn; `convert` turns seconds per iteration into the table's unit.
    fn measure(
        &mut self,
        size: usize,
        subjects: &[Subject],
        convert: impl Fn(f64) -> f64,
    ) -> Result<Vec<Option<Sample>>> {
        let got = self.meter.measure(size, subjects)?;
        Ok(got.into_iter().map(|s| s.map(|s| s.map(&convert))).collect())
    }

    /// Sets the number of subjects of the whole run, for the progress bar.
    fn plan(&mut self, subjects: usize) {
        self.meter.plan = Plan::of(self.meter.steps(subjects));
    }

    fn path(&self) -> Option<String> {
        if self.link == LinkName::Shm {
            return None;
        }
        if let Some(Far { hosts: [a, b], .. }) = &self.far {
            return Some(format!("between hosts {a} and {b}"));
        }
        Some(match (self.place, &self.why_not) {
            (Place::Between(mtu), _) => {
                let more = if self.link.is_raw() { "; floor and peer on two more" } else { "" };
                format!("between two network namespaces joined by a veth pair, MTU {mtu}{more}")
            }
            (_, Some(why)) => format!("over loopback; no network namespaces: {why}"),
            (_, None) => "over loopback".into(),
        })
    }

    /// Runs one benchmark.
    pub fn run(&mut self, what: What) -> Result<Vec<Table>> {
        let name = what.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
        self.meter.title = format!("{name} over {}", self.link.name());
        let mut tables = match what {
            What::Pingpong => vec![pingpong::table(self)?],
            What::Bandwidth => vec![bandwidth::table(self)?],
            What::Rate => vec![rate::table(self)?],
            What::Logp => vec![logp::table(self)?],
            What::Wait => wait::tables(self)?,
            What::Auth => auth::tables(self)?,
            _ => {
                bail!("one benchmark at a time")
            }
        };
        let absent = std::mem::take(&mut self.meter.absent);
        for table in &mut tables {
            table.notes.extend(absent.clone());
        }
        Ok(tables)
    }
}

/// Describes the machine and the cores of the two ranks.
fn machine() -> String {
    machine_with(&match pair::cores() {
        Some([a, b]) => format!("ranks on cores {a} and {b}"),
        None => "both ranks on one core".to_string(),
    })
}

fn machine_with(ranks: &str) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|l| Some(l.strip_prefix("model name")?.split_once(':')?.1.trim()));
    let uname = rustix::system::uname();
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = match idle::busy() {
        Some(cores) => {
            format!("\nTHE MACHINE IS BUSY ({cores:.1} cores): figures and ratios mean little")
        }
        None => String::new(),
    };
    format!(
        "{}, {all} cores, {} {}; {ranks}{busy}",
        model.unwrap_or(std::env::consts::ARCH),
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    )
}

fn header(what: What, options: &Options) -> String {
    let repeat = match options.quick {
        true => "one short repetition, figures mean nothing".to_string(),
        false => format!("median of {}", options.repeat),
    };
    let load = if options.loaded { "every core also computes; " } else { "" };
    let machine = match what {
        _ if !options.reach.hosts.is_empty() => {
            let hosts = options.reach.hosts.join(" and ");
            format!("between hosts {hosts}, started from here: {}", machine_with("no rank"))
        }
        What::Barrier => machine_with("ranks on any core"),
        _ => machine(),
    };
    format!(
        "weft {} {}\n{machine}\n{load}{repeat}; weft, floor and peer in turn; \
         ratios are weft/floor and weft/best peer\n",
        env!("CARGO_PKG_VERSION"),
        words::own(),
    )
}

/// Returns the links to measure, in order.
fn links(args: &Args) -> Vec<LinkName> {
    match (args.link.is_empty(), args.what) {
        (true, What::All | What::Barrier) => vec![LinkName::Shm, LinkName::Udp],
        (true, What::Auth) => vec![LinkName::Udp],
        (true, _) if !args.options.reach.hosts.is_empty() => vec![LinkName::Udp],
        (true, What::AgainstTcp) => against::LINKS.to_vec(),
        (true, What::Ethernet) => vec![LinkName::Packet, LinkName::Xdp, LinkName::Auto],
        (true, _) => vec![LinkName::Shm],
        _ => args.link.clone(),
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    takes::check(&args).map_err(misuse::of)?;
    let interrupt = Interrupt::watch("weft bench")?;
    interrupt.leaves(kept::write);
    let result = measure(args, &interrupt);
    interrupt.unless(result)
}

fn measure(args: Args, interrupt: &Interrupt) -> Result<ExitCode> {
    if args.what == What::Suite {
        if args.options.loaded {
            misuse!("the suite has situations for it: --situations inside-loaded");
        }
        return suite::run(&args.suite, &args.options, interrupt);
    }
    let _load = args.options.loaded.then(|| Load::start(1)).transpose()?;
    if args.what == What::Choices {
        return choice::grid::run(args.suite.out.as_deref(), &args.link, &args.options);
    }
    let all = [What::Pingpong, What::Bandwidth, What::Rate, What::Logp, What::Wait, What::Auth];
    let benches = if args.what == What::All { all.to_vec() } else { vec![args.what] };
    match print(&args, links(&args), &benches, interrupt) {
        // A closed pipe is no failure: the reader has seen enough.
        Err(e) if e.downcast_ref().is_some_and(broken_pipe) => Ok(weft_run::out::UNREAD.into()),
        other => other.map(|()| ExitCode::SUCCESS),
    }
}

fn broken_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

fn show(out: &mut impl Write, json: bool, table: &Table) -> Result<()> {
    if json {
        out.write_all(table.json().as_bytes())?;
    } else {
        writeln!(out, "{}", table.text())?;
    }
    Ok(())
}

fn print(args: &Args, links: Vec<LinkName>, benches: &[What], interrupt: &Interrupt) -> Result<()> {
    let mut out = Held(std::io::stdout());
    if !args.json {
        writeln!(out, "{}", header(args.what, &args.options))?;
    }
    let (options, json) = (&args.options, args.json);
    match args.what {
        What::Mpi => return mpi::print(options, json, &mut out),
        What::Busy => return busy::print(options, json, interrupt),
        What::Containers => return containers::print(options, json, &mut out),
        What::Names => return names::print(options, json, &mut out),
        What::Sockets => return sockets::print(options, json, &mut out),
        What::Sovia => {
            return sovia::print(options, args.suite.out.as_deref(), json, &mut out);
        }
        What::Mx | What::Via => {
            let out_in = (json, args.suite.out.as_deref());
            return faces::print(args.what, &args.link, options, out_in, &mut out);
        }
        What::Apps => return apps::print(options, json, &mut out),
        What::Python => return python::print(options, args.python.as_deref(), json, &mut out),
        What::Models => {
            let chosen = (&args.link[..], &args.table[..], &args.ranks[..]);
            let into = (json, args.suite.out.as_deref());
            return models::print(chosen, options, into, &mut out);
        }
        What::Mxoe => {
            return mxoe::print(options, (json, args.suite.out.as_deref()), &mut out);
        }
        What::Agent => return service::print(options, json, &mut out),
        What::Ethernet => {
            let table = ("ethernet", &ethernet::PARTS[..]);
            return target::print(table, &links, options, json, &mut out);
        }
        What::AgainstTcp => {
            let table = ("against-tcp", &against::PARTS[..]);
            return target::print(table, &links, options, json, &mut out);
        }
        _ => {}
    }
    for link in links {
        let chosen = matches!(args.what, What::Throughput | What::Multicast | What::FetchAdd);
        if chosen || !args.choices.given().is_empty() {
            for table in choice::tables(link, &args.options, &args.choices, args.what)? {
                show(&mut out, args.json, &table)?;
            }
            continue;
        }
        if args.what == What::Barrier {
            show(&mut out, args.json, &barrier::table(link, &args.ranks, &args.options)?)?;
            continue;
        }
        let mut bench = Bench::start(link, &args.options)?;
        for &what in benches {
            if what == What::Auth && link == LinkName::Shm && args.what == What::All {
                continue;
            }
            for table in bench.run(what)? {
                show(&mut out, args.json, &table)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__each_link_of_a_job_is_measured() {
        let all = LinkName::value_variants().iter().map(|link| link.name());
        let mut links: Vec<&str> = all.filter(|n| !["auto", "unprivileged"].contains(n)).collect();
        links.sort_unstable();
        let mut of_job = weft::Links::NAMES;
        of_job.sort_unstable();
        assert_eq!(links, of_job);
    }

    #[test]
    fn parse_size__takes_the_units_people_write() {
        for (text, size) in
            [("0", 0), ("64", 64), ("8B", 8), ("4k", 4096), ("64 KiB", 65536), ("1M", 1 << 20)]
        {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        for text in ["", "K", "2G", "-1", "1iB", "4Ki", "99999999999999999999G", "1.5K"] {
            assert!(parse_size(text).unwrap_err().contains("such as"), "{text}");
        }
    }
}

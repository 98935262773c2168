//! `weft bench`: weft's figures beside the floor (the least that this machine needs) and the peer
//! (what others do on it), measured in turn in the same run.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

#[macro_use]
mod own;

mod against;
mod apps;
mod auth;
pub mod barrier;
mod busy;
pub mod chain;
mod choice;
pub mod collectives;
mod consumers;
mod containers;
mod crowd;
mod ethernet;
mod faces;
mod logp;
mod migrate;
mod models;
mod mpi;
mod mxoe;
pub mod names;
mod paper000;
mod python;
mod register;
pub mod service;
mod shmem;
pub mod sockets;
mod sources;
pub mod sovia;
pub mod suite;
mod takes;
mod target;
mod torch;
mod wait;

pub use register::{work, ADDITION};

use anyhow::{bail, Result};
use clap::ValueEnum;
use load::Load;
use std::io::Write;
use std::process::ExitCode;
use table::Table;
use weft_measure::layout::{hanging, width};
use weft_measure::{
    bandwidth, date, kept, load, machine, machine_with, netns, others, pair, parse_size, peers,
    pingpong, progress, rank, rate, sys, table, volley, wire, Bench, LinkName, Options, Subject,
    CONFIG, MTU,
};
use weft_run::interrupt::{Held, Interrupt};
use weft_run::words;
use weft_run::{misuse, outputs};

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
    /// The Python of the benchmarks python and torch, with their packages [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
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
    /// Charm++ and OpenSHMEM, where they are built, over weft's provider beside libfabric's TCP and
    /// Charm++'s own UDP, each target met or not
    Consumers,
    /// A rank that moves between lab hosts beside bare CRIU, the time until its peers are quiet,
    /// and messages of ranks that could move and do not, each target met or not
    Migrate,
    /// Collective operations of groups beside the MPIs of this machine over TCP and over their own
    /// shared memory, each target met or not
    Collectives,
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
    /// torch.distributed over weft and over gloo, between lab hosts and inside this host, each
    /// target met or not
    Torch,
    /// Work of agents and kernels while ranks compute, compared with ranks, between lab hosts
    Agent,
    /// MPI programs over weft and over TCP, each target met or not: as root between lab hosts, else
    /// inside this host
    Mpi,
    /// MPI programs, endpoints, socket programs and names beside TCP while two others compute on
    /// each core, each target met or not
    Busy,
    /// Table 3 of paper 000: one way of a byte by pipes, queues, sockets and links, inside a host
    /// and between lab hosts, with the paper's figures
    Paper000,
    /// Pipes, sockets and links side by side, as a report in --out
    Suite,
}

/// Runs one benchmark of a link.
fn tables(bench: &mut Bench<'_>, what: What) -> Result<Vec<Table>> {
    let name = what.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
    bench.meter.title = format!("{name} over {}", bench.link.name());
    let mut tables = match what {
        What::Pingpong => vec![pingpong::table(bench)?],
        What::Bandwidth => vec![bandwidth::table(bench)?],
        What::Rate => vec![rate::table(bench)?],
        What::Logp => vec![logp::table(bench)?],
        What::Wait => wait::tables(bench)?,
        What::Auth => auth::tables(bench)?,
        _ => {
            bail!("one benchmark at a time")
        }
    };
    let absent = std::mem::take(&mut bench.meter.absent);
    for table in &mut tables {
        table.notes.extend(absent.clone());
    }
    Ok(tables)
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
         ratios are weft/floor and weft/best peer",
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
    if let Some(out) = &args.suite.out {
        outputs::check_folder("--out", out)?;
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
        writeln!(out, "{}", table.text(width()))?;
    }
    Ok(())
}

fn print(args: &Args, links: Vec<LinkName>, benches: &[What], interrupt: &Interrupt) -> Result<()> {
    let mut out = Held(std::io::stdout());
    if !args.json {
        let header = header(args.what, &args.options);
        header.lines().try_for_each(|line| writeln!(out, "{}", hanging("", line, width())))?;
        writeln!(out)?;
    }
    let (options, json) = (&args.options, args.json);
    let out_in = (json, args.suite.out.as_deref());
    match args.what {
        What::Mpi => return mpi::print(options, json, &mut out),
        What::Busy => return busy::print(options, json, interrupt),
        What::Containers => return containers::print(options, json, &mut out),
        What::Consumers => return consumers::print(options, json, &mut out),
        What::Migrate => return migrate::print(options, json, &mut out),
        What::Collectives => return collectives::print(options, json, &mut out),
        What::Names => return names::print(options, json, &mut out),
        What::Sockets => return sockets::print(options, json, &mut out),
        What::Sovia => {
            return sovia::print(options, args.suite.out.as_deref(), json, &mut out);
        }
        What::Mx | What::Via => {
            return faces::print(args.what, &args.link, options, out_in, &mut out);
        }
        What::Apps => return apps::print(options, json, &mut out),
        What::Python => return python::print(options, args.python.as_deref(), json, &mut out),
        What::Torch => return torch::print(options, args.python.as_deref(), json, &mut out),
        What::Models => {
            let chosen = (&args.link[..], &args.table[..], &args.ranks[..]);
            return models::print(chosen, options, out_in, &mut out);
        }
        What::Mxoe => return mxoe::print(options, out_in, &mut out),
        What::Agent => return service::print(options, json, &mut out),
        What::Paper000 => return paper000::print(options, json, &mut out),
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
            for table in tables(&mut bench, what)? {
                show(&mut out, args.json, &table)?;
            }
        }
    }
    Ok(())
}

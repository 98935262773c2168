//! The programming models beside the packet interface that they are made of: `weft bench models`,
//! each target met or not.

mod bytes;
mod entry;
mod figures;
mod grid;
mod members;
mod mpi;
mod others;
mod programs;
mod shmem;
mod streams;
mod systems;
mod two;

use crate::netns::Place;
use crate::own::Own;
use crate::rank::{Outcome, Rank, Task};
use crate::target::{self, Run};
use crate::{Bench, LinkName, Options};
use anyhow::Result;
use clap::ValueEnum;
use mpi::Mpi;
use serde::{Deserialize, Serialize};
use shmem::Peer;
use std::io::Write;
use std::path::Path;

/// A figure of the models, or of a peer of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Figure {
    /// A call and its answer.
    Call,
    /// A call and its answer, by a thread other than the one that has the endpoint.
    ThreadCall,
    /// A call and its answer over TCP.
    TcpCall,
    /// A message to an object that messages drive at the other rank, and one back.
    Entry,
    /// An operation that does nothing, on an object at the other rank.
    Operation,
    /// A read of an object that every rank has.
    Read,
    /// The begin of a write of a region that only its home has.
    Miss,
    /// A call of a stream that wants no answers.
    Casts,
    /// A call of a stream by threads, each of which waits for its answers.
    ThreadCalls,
    /// An operation of a stream on an object at the other rank.
    Operations,
    /// A read of a region of the other rank, of which there is no copy.
    Reads,
    /// A job of `size` bytes, of a stream in messages of many.
    Job,
    /// `INCR` of Redis.
    Redis,
    /// A multicast to all members, until the last one has it.
    Multicast,
    /// A multicast of a stream.
    MulticastStream,
    /// Fetch-and-add at another member, while all members wait.
    Ticket,
    /// A broadcast of a group without an order, until the last member has it.
    Cast,
    /// A broadcast without an order of a stream.
    CastStream,
    /// A message of an ordered group, until the last member has delivered it.
    Ordered,
    /// A message of an ordered group of a stream of one member.
    OrderedStream,
    /// A write of a replicated object, until the last member has done it.
    Write,
    /// A write of a replicated object of a stream of one member.
    WriteStream,
    /// A message of an ordered group, of streams of all members.
    OrderedRate,
}

probes!(Figure);

impl Own for Figure {
    const NUMBER: u8 = 6;

    fn name(self) -> &'static str {
        match self {
            Figure::Call => "call",
            Figure::ThreadCall => "call by another thread",
            Figure::TcpCall => "call over TCP",
            Figure::Entry => "entry methods",
            Figure::Operation => "operation on a remote object",
            Figure::Read => "read of a replicated object",
            Figure::Miss => "write miss",
            Figure::Casts => "stream of calls",
            Figure::ThreadCalls => "stream of calls by threads",
            Figure::Operations => "stream of operations",
            Figure::Reads => "reads of regions",
            Figure::Job => "jobs",
            Figure::Redis => "Redis INCR",
            Figure::Multicast => "multicast to members",
            Figure::MulticastStream => "stream of multicasts",
            Figure::Ticket => "fetch-and-add among members",
            Figure::Cast => "broadcast without an order",
            Figure::CastStream => "stream of broadcasts without an order",
            Figure::Ordered => "ordered broadcast",
            Figure::OrderedStream => "stream of ordered broadcasts",
            Figure::Write => "write of a replicated object",
            Figure::WriteStream => "stream of writes of a replicated object",
            Figure::OrderedRate => "rate of ordered broadcasts",
        }
    }

    fn is_local(self) -> bool {
        matches!(
            self,
            Figure::Multicast
                | Figure::MulticastStream
                | Figure::Ticket
                | Figure::Cast
                | Figure::CastStream
                | Figure::Ordered
                | Figure::OrderedStream
                | Figure::Write
                | Figure::WriteStream
                | Figure::OrderedRate
        )
    }

    fn run(self, rank: &mut Rank, task: &Task) -> Result<Outcome> {
        measure(rank, task, self)
    }
}

/// Measures a figure, in seconds.
fn measure(rank: &mut Rank, task: &Task, figure: Figure) -> Result<Outcome> {
    match figure {
        Figure::Call => two::call(rank, task),
        Figure::ThreadCall => two::thread_call(rank, task),
        Figure::TcpCall => others::tcp_call(rank, task),
        Figure::Entry => entry::entry(rank, task),
        Figure::Operation => two::operation(rank, task),
        Figure::Read => two::read(rank, task),
        Figure::Miss => two::miss(rank, task),
        Figure::Job => streams::job(rank, task),
        Figure::Casts => streams::casts(rank, task),
        Figure::ThreadCalls => streams::thread_calls(rank, task),
        Figure::Operations => streams::operations(rank, task),
        Figure::Reads => streams::reads(rank, task),
        Figure::Redis => others::redis(rank, task),
        figure => members::measure(rank, task, figure),
    }
}

/// The links that are compared.
const LINKS: [LinkName; 2] = [LinkName::Shm, LinkName::Auto];

/// A table or figure of paper 004 with today's figures, or what that has none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// Round trips and streams of two ranks
    #[value(name = "V")]
    Five,
    /// Broadcasts among four ranks
    #[value(name = "VI")]
    Six,
    /// Tickets, reads, jobs: figures that the paper has no table of
    Other,
    /// Efficiency of the programs on this host
    #[value(name = "VII")]
    Seven,
    /// Packets and bytes that come to a rank of the programs in a second
    #[value(name = "11")]
    Figure11,
    /// Programs with other reliability, between hosts of a lab
    #[value(name = "12")]
    Figure12,
    /// Programs with other transfers
    #[value(name = "13")]
    Figure13,
    /// SOR with remote-memory copy, and with rows that leave early
    #[value(name = "14")]
    Figure14,
    /// Programs with other maximum transfer units
    #[value(name = "15")]
    Figure15,
    /// Programs with other multicasts
    #[value(name = "16")]
    Figure16,
}

impl Wanted {
    /// Returns the figure of a number.
    fn of(number: &str) -> Wanted {
        let numbers = [Wanted::Figure12, Wanted::Figure13, Wanted::Figure14, Wanted::Figure15];
        let found = numbers.into_iter().zip(12..).find(|(_, n)| number == n.to_string());
        found.map_or(Wanted::Figure16, |(wanted, _)| wanted)
    }

    /// True if its programs run on hosts of a lab.
    pub fn is_between_hosts(self) -> bool {
        !self.is_of_links() && !matches!(self, Wanted::Seven | Wanted::Figure11)
    }

    /// True if ranks of a link are measured for it.
    pub fn is_of_links(self) -> bool {
        matches!(self, Wanted::Five | Wanted::Six | Wanted::Other)
    }
}

/// The tables over one link, in their order.
fn tables(
    run: &mut Run<'_>,
    (peer, mpi): (&mut Peer, &mut Mpi),
    wants: &dyn Fn(Wanted) -> bool,
    show: &mut dyn FnMut(&str, &mut Run<'_>) -> Result<()>,
) -> Result<()> {
    for (wanted, title) in [
        (Wanted::Five, "Table V: two ranks"),
        (Wanted::Six, "Table VI: four ranks"),
        (Wanted::Other, "tickets, reads, jobs"),
    ] {
        if !wants(wanted) {
            continue;
        }
        let measured = match wanted {
            Wanted::Five => run.table_v(peer, mpi),
            Wanted::Six => run.table_vi(mpi),
            _ => run.besides(peer),
        };
        run.notes.extend(measured.err().map(|why| format!("{why:#}")));
        run.notes.append(&mut run.bench.meter.absent);
        run.notes.extend(mpi.notes().into_iter().chain(peer.notes()));
        show(title, run)?;
    }
    Ok(())
}

/// Measures the models over their links and the programs that use them, and prints the tables.
pub fn print(
    (links, wanted, ranks): (&[LinkName], &[Wanted], &[u32]),
    options: &Options,
    (json, folder): (bool, Option<&Path>),
    out: &mut impl Write,
) -> Result<()> {
    let wants = |one: Wanted| wanted.is_empty() || wanted.contains(&one);
    if wanted.is_empty() || wanted.iter().any(|wanted| wanted.is_of_links()) {
        of_links(links, &wants, options, json, out)?;
    }
    figures::print(&wants, (ranks, options), (json, folder), out)
}

/// Measures the models over their links.
fn of_links(
    links: &[LinkName],
    wants: &dyn Fn(Wanted) -> bool,
    options: &Options,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    for &link in if links.is_empty() { &LINKS[..] } else { links } {
        let bench = Bench::start(link, options)?;
        if link != LinkName::Shm && bench.place == Place::Here {
            let why = bench.why_not.as_deref().unwrap_or("--netns off");
            log::info!("no lab hosts: {why}");
        }
        let name = "models";
        let mut mpi = Mpi::find(&bench, link);
        let mut run = Run { name, bench, link, checks: Vec::new(), notes: Vec::new() };
        run.notes.extend(run.bench.path());
        // Its PEs run on this host, over its own shared memory.
        let here = link == LinkName::Shm && run.bench.far.is_none();
        let mut peer = if here { Peer::find(options) } else { Peer::none() };
        let mut show = |title: &str, run: &mut Run<'_>| {
            target::show(&format!("{title} over {}", link.name()), run, json, out)?;
            (run.checks, run.notes) = (Vec::new(), Vec::new());
            Ok(())
        };
        tables(&mut run, (&mut peer, &mut mpi), wants, &mut show)?;
    }
    Ok(())
}

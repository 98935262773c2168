//! The programming models beside the packet interface that they are made of: `weft bench models`,
//! each target met or not.

mod members;
mod others;
mod shmem;
mod two;

pub use two::Models;

use crate::netns::Place;
use crate::pair::{Sample, Subject};
use crate::rank::{Outcome, Probe, Rank, Task};
use crate::table::{Better, Other};
use crate::target::{self, Aim, Run};
use crate::{Bench, LinkName, Options};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use shmem::{Operation, Peer};
use std::io::Write;

/// A figure of the models, or of a peer of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Figure {
    /// A call and its answer.
    Call,
    /// A call and its answer, by a thread other than the one that has the endpoint.
    ThreadCall,
    /// A call and its answer over TCP.
    TcpCall,
    /// An operation that does nothing, on an object at the other rank.
    Operation,
    /// A read of an object that every rank has.
    Read,
    /// The begin of a write of a region that only its home has.
    Miss,
    /// A job of `size` bytes, of a stream in messages of many.
    Job,
    /// `INCR` of Redis.
    Redis,
    /// A multicast to all members, until the last one has it.
    Multicast,
    /// Fetch-and-add at another member, while all members wait.
    Ticket,
    /// A message of an ordered group, until the last member has delivered it.
    Ordered,
    /// A message of an ordered group, of streams of all members.
    OrderedRate,
}

impl Figure {
    /// Returns its name in progress and notes.
    pub const fn name(self) -> &'static str {
        match self {
            Figure::Call => "call",
            Figure::ThreadCall => "call by another thread",
            Figure::TcpCall => "call over TCP",
            Figure::Operation => "operation on a remote object",
            Figure::Read => "read of a replicated object",
            Figure::Miss => "write miss",
            Figure::Job => "jobs",
            Figure::Redis => "Redis INCR",
            Figure::Multicast => "multicast to members",
            Figure::Ticket => "fetch-and-add among members",
            Figure::Ordered => "ordered broadcast",
            Figure::OrderedRate => "rate of ordered broadcasts",
        }
    }

    /// True if its ranks have to share a clock.
    pub const fn is_local(self) -> bool {
        matches!(self, Figure::Multicast | Figure::Ticket | Figure::Ordered | Figure::OrderedRate)
    }
}

/// Measures a figure, in seconds.
pub fn measure(rank: &mut Rank, task: &Task, figure: Figure) -> Result<Outcome> {
    match figure {
        Figure::Call => two::call(rank, task),
        Figure::ThreadCall => two::thread_call(rank, task),
        Figure::TcpCall => others::tcp_call(rank, task),
        Figure::Operation => two::operation(rank, task),
        Figure::Read => two::read(rank, task),
        Figure::Miss => two::miss(rank, task),
        Figure::Job => two::job(rank, task),
        Figure::Redis => others::redis(rank, task),
        Figure::Multicast | Figure::Ticket | Figure::Ordered | Figure::OrderedRate => {
            members::measure(rank, task, figure)
        }
    }
}

/// The links that are compared.
const LINKS: [LinkName; 2] = [LinkName::Shm, LinkName::Auto];
/// Bytes of short messages.
const SHORT: usize = 16;
/// Bytes of the messages of an ordered stream.
const LONG: usize = 1 << 10;
/// Bytes of a job.
const JOB: usize = 32;
/// Members of the groups.
const MEMBERS: u64 = 4;
/// Explains the figures of a clean write miss and of its peer.
const WRITE: &str =
    "clean write miss: ours is the begin of the write alone, which fetches the data and the right \
     to write; OpenSHMEM keeps no copies: its figure is a get of 16 B from the other PE, a put of \
     them back, and a quiet";
/// Lines that have a peer over OpenSHMEM.
const MISS: &str = "clean write miss of a region";
const TICKET: &str = "fetch-and-add: a ticket";
/// Argument of the probe of packets that arrive in upcalls.
const UPCALLS: u64 = 1;

fn subject(figure: Figure) -> Subject {
    Subject { arg: MEMBERS, ..Probe::Model(figure).into() }
}

/// A round trip of packets; the probe has the time of one way.
fn round_trip() -> Subject {
    Subject { arg: UPCALLS, ..Probe::PacketPingPong.into() }
}

/// Adds the parts of a time.
fn sum(parts: [Option<Sample>; 2]) -> Option<Sample> {
    let [a, b] = [parts[0]?, parts[1]?];
    Some(Sample { median: a.median + b.median, min: a.min + b.min, max: a.max + b.max })
}

impl Run<'_> {
    /// Measures subjects in turn, each in its unit: `scale` turns seconds into it.
    fn scaled<const N: usize>(
        &mut self,
        size: usize,
        subjects: [(Subject, f64); N],
    ) -> Result<[Option<Sample>; N]> {
        self.scaled_beside(size, subjects, &mut || {})
    }

    /// As [`scaled`](Self::scaled), with something else that is measured once in each turn.
    fn scaled_beside<const N: usize>(
        &mut self,
        size: usize,
        subjects: [(Subject, f64); N],
        other: &mut dyn FnMut(),
    ) -> Result<[Option<Sample>; N]> {
        let all = subjects.map(|(subject, _)| subject);
        let got = self.bench.meter.measure_beside(size, &all, other)?;
        let mut figures = [None; N];
        for ((figure, sample), (_, scale)) in figures.iter_mut().zip(got).zip(subjects) {
            *figure = sample.map(|sample| sample.map(|seconds| seconds * scale));
        }
        Ok(figures)
    }

    /// Round trips of two ranks.
    fn round_trips(&mut self, peer: &mut Peer) -> Result<()> {
        let tcp = self.bench.bare(Probe::Model(Figure::TcpCall));
        let [call, operation, miss, packets, tcp] = self.scaled_beside(
            SHORT,
            [
                (subject(Figure::Call), 1e6),
                (subject(Figure::Operation), 1e6),
                (subject(Figure::Miss), 1e6),
                (round_trip(), 2e6),
                (tcp, 1e6),
            ],
            &mut || peer.measure(Operation::Write),
        )?;
        for (what, ours, tcp, most) in [
            ("call and answer", call, tcp, 1.25),
            ("null operation, remote object", operation, None, 1.4),
            (MISS, miss, None, 1.25),
        ] {
            let named = if tcp.is_some() { "rpc over tcp" } else { "" };
            let aim = Aim { floor: Some(most), peer: None };
            let line = (what, SHORT, "us", Better::Lower);
            self.push(line, [ours, packets, tcp], ("packets", named), aim);
        }
        let shmem = peer.take();
        self.add_shmem(MISS, shmem);
        self.notes.extend(shmem.map(|_| WRITE.into()));
        Ok(())
    }

    /// Calls of the two forms: by the thread that has the endpoint (Panda-ST), and by another one
    /// (Panda-MT).
    fn threads(&mut self) -> Result<()> {
        let figures = [Figure::ThreadCall, Figure::Call];
        let [mt, st] = self.scaled(SHORT, figures.map(|figure| (subject(figure), 1e6)))?;
        let line = ("call and answer, multi-threaded", SHORT, "us", Better::Lower);
        self.push(line, [mt, st, None], ("single-threaded", ""), Aim::default());
        Ok(())
    }

    /// A read where it is.
    fn reads(&mut self) -> Result<()> {
        let [read] = self.scaled(8, [(subject(Figure::Read), 1e9)])?;
        let line = ("read of a replicated object", 8, "ns", Better::Lower);
        self.push(line, [read, None, None], ("", ""), Aim::default());
        self.goal(50.0);
        Ok(())
    }

    /// The ticket of ordered groups, by itself.
    fn tickets(&mut self, peer: &mut Peer) -> Result<()> {
        let redis = self.bench.bare(Probe::Model(Figure::Redis));
        let subjects = [(Probe::FetchAdd.into(), 1e6), (redis, 1e6)];
        let other = &mut || peer.measure(Operation::Ticket);
        let [add, redis] = self.scaled_beside(8, subjects, other)?;
        let line = (TICKET, 8, "us", Better::Lower);
        self.push(line, [add, None, redis], ("", "redis INCR"), Aim::default());
        let shmem = peer.take();
        self.add_shmem(TICKET, shmem);
        if let (Some(redis), Some(shmem)) = (redis, shmem) {
            let (redis, shmem) = (redis.median, shmem.median);
            self.notes.push(format!("ticket: redis INCR {redis:.2} us, OpenSHMEM {shmem:.2} us"));
        }
        Ok(())
    }

    /// A message of an ordered group beside what it is made of.
    fn ordered(&mut self) -> Result<()> {
        let figures = [Figure::Ordered, Figure::Multicast, Figure::Ticket];
        let [ours, cast, add] = self.scaled(SHORT, figures.map(|figure| (subject(figure), 1e6)))?;
        let line = ("ordered, 4 ranks, last delivery", SHORT, "us", Better::Lower);
        let aim = Aim { floor: Some(1.0), peer: None };
        self.push(line, [ours, sum([cast, add]), None], ("multicast + f&a", ""), aim);
        if let (Some(cast), Some(add)) = (cast, add) {
            let (cast, add) = (cast.median, add.median);
            self.notes.push(format!(
                "ordered: the multicast alone takes {cast:.2} us until its last delivery, the \
                 fetch-and-add {add:.2} us, among the same 4 ranks"
            ));
        }
        Ok(())
    }

    /// Streams.
    fn streams(&mut self) -> Result<()> {
        let [ordered] = self.scaled(LONG, [(subject(Figure::OrderedRate), 1.0)])?;
        let rate = ordered.map(|s| s.map(|seconds| 1e-3 / seconds));
        let line = ("ordered, 4 ranks on one host", LONG, "k/s", Better::Higher);
        self.push(line, [rate, None, None], ("", ""), Aim::default());
        self.goal(200.0);
        let [job] = self.scaled(JOB, [(subject(Figure::Job), 1.0)])?;
        let rate = job.map(|s| s.map(|seconds| 1e-6 / seconds));
        let line = ("jobs by the aggregator", JOB, "M/s", Better::Higher);
        self.push(line, [rate, None, None], ("", ""), Aim::default());
        self.goal(20.0);
        Ok(())
    }

    /// Adds the peer over OpenSHMEM to a line, if it was measured.
    fn add_shmem(&mut self, what: &str, sample: Option<Sample>) {
        let mut rows = self.checks.iter_mut().flat_map(|check| &mut check.table.rows);
        let row = rows.find(|row| row.what == what);
        if let (Some(row), true) = (row, sample.is_some()) {
            row.peers.push(Other { name: "openshmem", sample });
        }
    }

    /// Sets the goal of the line that has been added.
    fn goal(&mut self, goal: f64) {
        if let Some(check) = self.checks.last_mut() {
            check.goal = Some(goal);
        }
    }

    fn all(&mut self, peer: &mut Peer) -> Result<()> {
        self.round_trips(peer)?;
        self.threads()?;
        self.tickets(peer)?;
        self.ordered()?;
        if self.link == LinkName::Shm {
            self.reads()?;
            self.streams()?;
        }
        Ok(())
    }
}

/// Measures the models over their links, and prints the tables.
pub fn print(
    links: &[LinkName],
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
        let mut run = Run { name, bench, link, checks: Vec::new(), notes: Vec::new() };
        run.notes.extend(run.bench.path());
        // Its PEs run on this host, over its own shared memory.
        let here = link == LinkName::Shm && run.bench.far.is_none();
        let mut peer = if here { Peer::find(options) } else { Peer::none() };
        let measured = run.all(&mut peer);
        run.notes.extend(measured.err().map(|why| format!("{why:#}")));
        run.notes.append(&mut run.bench.meter.absent);
        run.notes.extend(peer.notes());
        run.notes.push("packets: a round trip of the packet interface, taken by upcalls".into());
        run.notes.push("clean write miss: the home has the only copy, and gives it away".into());
        target::show(&format!("models over {}", link.name()), &run, json, out)?;
    }
    Ok(())
}

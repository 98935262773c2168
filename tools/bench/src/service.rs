//! Services that agents do for their ranks: fetch-and-add and multicast while the ranks compute;
//! and multicast by the members' kernels (`chain.rs`).
//!
//! `weft bench agent` starts this as the ranks of a job over lab hosts, with an agent on each.

use super::chain;
use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft::{AtomicCode, Endpoint, Group, Job, PeerId, Rights};
use weft_agent::{GroupRole, ServicesHandle};
use weft_core::group::tree::{self, Tree};
use weft_measure::layout::{self, Columns};
use weft_run::program;

/// Run one rank of `weft bench agent`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The service to measure
    #[arg(value_enum)]
    what: Service,
    /// Repetitions
    #[arg(long, default_value_t = 100)]
    repeat: u32,
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Fetch-and-add on a word of rank 1.
    FetchAdd,
    /// Multicast from rank 0 to all.
    Multicast,
}

/// One figure, as rank 0 prints it: one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the figure.
    pub what: String,
    /// The server: `host` or `agent`.
    pub place: String,
    /// Median, microseconds.
    pub median_us: f64,
    /// The time that nine in ten samples do not exceed, microseconds.
    pub most_us: f64,
}

/// Key of the word at the agent, and of the word in the rank's memory.
const AGENT_KEY: u64 = 0x5eed_0000_0000_0001;
/// Time that an owner computes without a poll: far longer than any operation that is measured.
const COMPUTE: Duration = Duration::from_millis(20);
/// Longest wait for any event.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Handler number of packets forwarded by ranks.
const FORWARD: u32 = 4711;
/// Length of a multicast packet, in bytes.
pub(super) const PACKET: usize = 64;
/// Longest wait between two checks for the end.
pub(super) const WAIT: Duration = Duration::from_millis(1);
/// Number of streams that are measured.
const STREAMS: u32 = 5;
/// Time that a receiver computes between two polls.
const PIECE: Duration = Duration::from_millis(2);

/// Returns a time that all processes of the machine share.
pub(super) fn clock_us() -> f64 {
    weftd::sys::now().0 as f64 / 1e3
}

/// Computes for a while without a poll.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    let mut x = 1u64;
    while Instant::now() < end {
        for _ in 0..1_000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

pub(super) fn report(what: &str, place: &str, mut values: Vec<f64>) -> Result<()> {
    ensure!(!values.is_empty(), "{what} at the {place}: nothing was measured");
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values[(values.len() * share / 10).min(values.len() - 1)];
    let (median_us, most_us) = (at(5), at(9));
    let figure = Figure { what: what.into(), place: place.into(), median_us, most_us };
    println!("{}", serde_json::to_string(&figure)?);
    Ok(())
}

/// Runs a rank.
pub fn run(args: Args) -> Result<ExitCode> {
    let job = Job::init()?;
    let services = job.agent().context("no agent serves this rank: start it with --agent")?;
    match args.what {
        Service::FetchAdd => fetch_add(&job, &services, args.repeat)?,
        Service::Multicast => multicast(&job, &services, args.repeat)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes progress until `done` returns true.
fn until(endpoint: &Endpoint, what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        endpoint.wait(Some(Duration::from_millis(1)));
        ensure!(Instant::now() < end, "{what}: nothing for {TIMEOUT:?}");
    }
    Ok(())
}

fn add(job: &Job, peer: PeerId, key: u64) -> Result<f64> {
    let from = clock_us();
    let add = job.endpoint().atomic(peer, key, 0, AtomicCode::FetchAdd, 1, 0);
    job.block_on(add).0?;
    Ok(clock_us() - from)
}

/// Rank 0 adds to words of rank 1, at its agent and in its memory, while rank 1 waits and while it
/// computes.
fn fetch_add(job: &Job, services: &ServicesHandle, repeat: u32) -> Result<()> {
    let world = job.world();
    ensure!(world.size() == 2, "fetch-and-add is measured between two ranks");
    let own = job.endpoint().regions().register(8, Rights::ALL).context("registering a word")?;
    let keys = job.block_on(world.allgather(own.to_le_bytes().to_vec()))?;
    let host_key = u64::from_le_bytes(keys[1][..].try_into().context("a key is 8 bytes")?);
    if world.rank() == 1 {
        services.borrow_mut().open_counter(AGENT_KEY, 1, 0, false);
        let mut answer = None;
        until(job.endpoint(), "opening a word at the agent", || {
            answer = services.borrow_mut().counter(AGENT_KEY, 0);
            answer.is_some()
        })?;
        ensure!(answer == Some(Some(0)), "the agent refuses to keep a word");
    }
    let peer = world.peer(1 - world.rank())?;
    for (place, key) in [("host", host_key), ("agent", AGENT_KEY)] {
        for busy in [false, true] {
            job.block_on(world.barrier())?;
            if world.rank() == 1 {
                own_word(job, busy)?;
                continue;
            }
            // An owner that computes serves requests at its next poll, which takes long: fewer
            // repetitions.
            let count = if busy && place == "host" { repeat.min(20) } else { repeat };
            let what = if busy { "owner computes" } else { "owner waits" };
            let mut values = Vec::new();
            for _ in 0..count {
                values.push(add(job, peer, key)?);
            }
            job.block_on(world.send(1, 9, vec![0]))?;
            report(what, place, values)?;
        }
    }
    Ok(())
}

/// Runs the owner: waits, or computes with polls in between, until rank 0 is done.
fn own_word(job: &Job, busy: bool) -> Result<()> {
    let done = job.world().recv(0, 9, 1);
    if !busy {
        done.wait()?;
        return Ok(());
    }
    while !done.is_done() {
        compute(COMPUTE);
        job.endpoint().progress();
    }
    done.wait()?;
    Ok(())
}

/// The packets that arrived at a receiver: number and time of each.
pub(super) type Log = Rc<RefCell<Vec<(u32, f64)>>>;

fn multicast(job: &Job, services: &ServicesHandle, repeat: u32) -> Result<()> {
    let world = job.world();
    let tree = Tree::Binomial;
    let (me, size) = (world.rank(), world.size());
    let log = Log::default();
    forward_by_ranks(world, tree, &log)?;
    let peer = |rank: usize| world.peer(rank);
    let children: Vec<PeerId> =
        tree::children(tree, 0, me, size).map(peer).collect::<Result<_, _>>()?;
    let parent = tree::parent(tree, 0, me, size).map(peer).transpose()?;
    // Agents can use only sessions that are open.
    job.block_on(world.barrier())?;
    for &child in &children {
        job.endpoint().peer(child).open();
    }
    job.block_on(world.barrier())?;
    let role = GroupRole {
        group: 7,
        tree,
        size: size as u32,
        me: me as u32,
        parent: parent.unwrap_or(PeerId(u32::MAX)),
        children: children.clone(),
    };
    services.borrow_mut().join(role);
    job.block_on(world.barrier())?;
    let mut ranks = Ranks { endpoint: job.endpoint(), children };
    let mut agents = Agents { endpoint: job.endpoint(), services, sent: 0 };
    for server in [&mut ranks as &mut dyn Server, &mut agents] {
        receivers_compute(job, &log, server, repeat)?;
        stream(job, &log, server, repeat)?;
    }
    chain::multicast(job, &log, repeat)
}

/// Returns the bytes of packet `n`.
pub(super) fn packet(n: u32) -> [u8; PACKET] {
    let mut packet = [1; PACKET];
    packet[..4].copy_from_slice(&n.to_le_bytes());
    packet
}

/// Returns the number of a packet.
pub(super) fn number(packet: &[u8]) -> Result<u32> {
    let first = packet.first_chunk().context("a packet has a number")?;
    Ok(u32::from_le_bytes(*first))
}

/// A method of forwarding.
pub(super) trait Server {
    /// Returns its name in tables.
    fn place(&self) -> &'static str;
    /// Sends packet `n` from the root to all.
    fn send(&mut self, n: u32) -> Result<()>;
    /// Polls and adds the packets that arrived to the log.
    fn look(&mut self, log: &Log) -> Result<()>;
    /// Waits for packets.
    fn wait(&mut self, log: &Log) -> Result<()>;
    /// Called when the root has sent everything.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Ranks<'a> {
    endpoint: &'a Endpoint,
    children: Vec<PeerId>,
}

impl Server for Ranks<'_> {
    fn place(&self) -> &'static str {
        "host"
    }

    fn send(&mut self, n: u32) -> Result<()> {
        for &child in &self.children {
            self.endpoint.active().send(child, FORWARD, n, &packet(n))?;
        }
        Ok(())
    }

    fn look(&mut self, _: &Log) -> Result<()> {
        self.endpoint.progress();
        Ok(())
    }

    fn wait(&mut self, _: &Log) -> Result<()> {
        self.endpoint.wait(Some(WAIT));
        Ok(())
    }
}

struct Agents<'a> {
    endpoint: &'a Endpoint,
    services: &'a ServicesHandle,
    /// Number of packets sent to the group.
    sent: u32,
}

impl Server for Agents<'_> {
    fn place(&self) -> &'static str {
        "agent"
    }

    fn send(&mut self, n: u32) -> Result<()> {
        let packet = packet(n);
        until(self.endpoint, "the agent's grant", || {
            self.services.borrow_mut().multicast(7, self.sent, &packet)
        })?;
        self.sent += 1;
        self.endpoint.progress();
        Ok(())
    }

    fn look(&mut self, log: &Log) -> Result<()> {
        self.endpoint.progress();
        let mut more = false;
        while let Some((_, _, packet)) = self.services.borrow_mut().poll_packet() {
            log.borrow_mut().push((number(&packet)?, clock_us()));
            more = true;
        }
        if more {
            // Sends the credit that was granted.
            self.endpoint.progress();
        }
        Ok(())
    }

    fn wait(&mut self, log: &Log) -> Result<()> {
        self.endpoint.wait(Some(WAIT));
        self.look(log)
    }
}

/// Measures the time until the last of the receivers, which compute, has a packet.
pub(super) fn receivers_compute(
    job: &Job,
    log: &Log,
    server: &mut dyn Server,
    repeat: u32,
) -> Result<()> {
    let world = job.world();
    let mut sent = Vec::new();
    for n in 0..repeat {
        job.block_on(world.barrier())?;
        if world.rank() > 0 {
            await_packet(job, log, server, n)?;
            continue;
        }
        // After this time the receivers are at various points of their computations.
        let settle = PIECE * (3 + n * 7 % 5);
        let from = Instant::now();
        until(job.endpoint(), "the receivers' start", || from.elapsed() >= settle)?;
        sent.push(clock_us());
        server.send(n)?;
    }
    if let Some(all) = gathered(job, log)? {
        report("receivers compute", server.place(), latest(&sent, &all)?)?;
    }
    Ok(())
}

/// Measures the time per packet of a stream, until the last of the receivers, which poll, has the
/// last packet.
pub(super) fn stream(job: &Job, log: &Log, server: &mut dyn Server, repeat: u32) -> Result<()> {
    let world = job.world();
    let count = 10 * repeat;
    let (mut sent, ends) = (Vec::new(), Log::default());
    for turn in 0..STREAMS {
        job.block_on(world.barrier())?;
        if world.rank() == 0 {
            sent.push(clock_us());
            (0..count).try_for_each(|n| server.send(n))?;
            server.finish()?;
        } else {
            let end = Instant::now() + TIMEOUT;
            while log.borrow().len() < count as usize {
                server.wait(log)?;
                ensure!(
                    Instant::now() < end,
                    "of a stream of {count} packets by {} came {}",
                    server.place(),
                    log.borrow().len()
                );
            }
            ends.borrow_mut().push((turn, clock_us()));
            log.borrow_mut().clear();
        }
        job.block_on(world.barrier())?;
    }
    if let Some(all) = gathered(job, &ends)? {
        let times = latest(&sent, &all)?;
        let each = times.into_iter().map(|us| us / f64::from(count)).collect();
        report("stream, a packet", server.place(), each)?;
    }
    Ok(())
}

/// Gathers the times of each rank's log at rank 0.
fn gathered(job: &Job, log: &Log) -> Result<Option<Vec<Vec<u8>>>> {
    let mine = std::mem::take(&mut *log.borrow_mut());
    let times: Vec<u8> = mine.iter().flat_map(|(_, at)| at.to_le_bytes()).collect();
    Ok(job.block_on(job.world().gather(0, times))?)
}

/// Measures forwarding by ranks, which forward at their next poll.
fn forward_by_ranks(world: &Group, tree: Tree, log: &Log) -> Result<()> {
    let below = tree::children(tree, 0, world.rank(), world.size());
    let children: Vec<PeerId> = below.map(|c| world.peer(c)).collect::<Result<_, _>>()?;
    let log = Rc::clone(log);
    world.endpoint().active().handle(FORWARD, move |endpoint, message| {
        for &child in &children {
            if let Err(e) = endpoint.active().send(child, FORWARD, message.argument, &message.data)
            {
                log::error!("forwarding: {e}");
            }
        }
        log.borrow_mut().push((message.argument, clock_us()));
    });
    Ok(())
}

/// A receiver computes in pieces, with a poll after each, until packet `n` has arrived.
pub(super) fn await_packet(job: &Job, log: &Log, server: &mut dyn Server, n: u32) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    loop {
        // Pieces vary in length, so that no two ranks run in step.
        let share = 2 + (job.world().rank() as u32 * 5 + n * 3) % 5;
        compute(PIECE * share / 4);
        server.look(log)?;
        if log.borrow().last().is_some_and(|(number, _)| *number >= n) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("packet {n} did not come for {TIMEOUT:?}");
        }
    }
}

/// Returns the times from each send to the last receiver, microseconds.
fn latest(sent: &[f64], times: &[Vec<u8>]) -> Result<Vec<f64>> {
    let mut last = vec![0f64; sent.len()];
    for bytes in &times[1..] {
        ensure!(bytes.len() == 8 * sent.len(), "a receiver missed a packet");
        for (worst, at) in last.iter_mut().zip(bytes.chunks_exact(8)) {
            *worst = worst.max(f64::from_le_bytes(at.try_into()?));
        }
    }
    Ok(last.iter().zip(sent).map(|(at, from)| at - from).collect())
}

/// Measures a service by the ranks of a job over lab hosts; returns the figures that they print.
///
/// # Errors
/// No lab can be made, or a rank failed.
pub fn measure(what: &str, hosts: usize, repeat: u32) -> Result<Vec<Figure>> {
    let own = std::env::current_exe().context("finding this program")?;
    let (hosts, repeat) = (hosts.to_string(), repeat.to_string());
    let out = Command::new(program::weft()?)
        .args(["lab", "run", "--up", &hosts, "-n", &hosts, "--with=--agent"])
        .args(["--with=--timeout=120", "--with=--link=agent"])
        .arg(&own)
        .args(["bench-service", what, "--repeat", &repeat])
        .stderr(Stdio::inherit())
        .output()
        .context("starting a job over lab hosts")?;
    ensure!(out.status.success(), "the ranks that measure {what} failed");
    let lines = String::from_utf8_lossy(&out.stdout);
    lines.lines().map(|l| serde_json::from_str(l).with_context(|| format!("{l:?}"))).collect()
}

/// Number of hosts of the multicast: the smallest in the tables of the paper.
const HOSTS: usize = 8;

/// A figure of the agent, the figure that it is compared with, and the target.
struct Aim {
    what: &'static str,
    /// Name and server of the figure, and of the one it is compared with.
    ours: (&'static str, &'static str),
    other: (&'static str, &'static str),
    /// Largest allowed ratio `ours / other`.
    most: f64,
}

const AIMS: [Aim; 2] = [
    Aim {
        what: "fetch-and-add at the agent, owner computes / idle round trip at the host",
        ours: ("owner computes", "agent"),
        other: ("owner waits", "host"),
        most: 5.0,
    },
    Aim {
        what: "multicast by agents / by hosts, receivers compute",
        ours: ("receivers compute", "agent"),
        other: ("receivers compute", "host"),
        most: 0.5,
    },
];

/// Measures both services and prints them.
pub fn print(options: &super::Options, json: bool, out: &mut impl std::io::Write) -> Result<()> {
    let repeat = if options.quick { 5 } else { 100 };
    let mut all = measure("fetch-add", 2, repeat)?;
    all.extend(measure("multicast", HOSTS, repeat)?);
    if json {
        for figure in &all {
            writeln!(out, "{}", serde_json::to_string(figure)?)?;
        }
        return Ok(());
    }
    let mut columns = Columns::new("<<>>", 2);
    columns.row(["what", "by", "median us", "9 of 10 us"]);
    for f in &all {
        let [median, most] = [f.median_us, f.most_us].map(|us| format!("{us:.1}"));
        columns.row([f.what.as_str(), f.place.as_str(), &median, &most]);
    }
    writeln!(out, "{}", columns.text("", layout::width()))?;
    for aim in AIMS {
        let find = |(what, place)| all.iter().find(|f| f.what == what && f.place == place);
        let (Some(ours), Some(other)) = (find(aim.ours), find(aim.other)) else { continue };
        let ratio = ours.median_us / other.median_us;
        let verdict = if ratio <= aim.most { "met" } else { "not met" };
        writeln!(out, "{}: {ratio:.2} (at most {}): {verdict}", aim.what, aim.most)?;
    }
    Ok(())
}

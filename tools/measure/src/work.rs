//! The register of all probes, and the process of a rank: it runs the tasks that its parent sends.

use super::probe::{self, Added, Addition, Answer, Outcome, Probe, Task};
use super::rank::{Rank, Start};
use super::{bandwidth, floor, iperf, peers, pingpong, rate, sys, wire};
use anyhow::{bail, Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::OnceLock;

/// Run one rank of `weft bench`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// On another host: all start values come over standard input
    #[arg(long)]
    far: bool,
    /// 0 or 1
    #[arg(long, default_value_t = 0)]
    rank: usize,
    /// Both ranks share one core
    #[arg(long)]
    alone: bool,
    /// Link of the endpoint
    #[arg(long, default_value = "")]
    link: String,
    /// Job key, as the launcher writes it
    #[arg(long, default_value_t = 0)]
    key: u64,
    /// The inherited descriptors, in the order of `pair::Ends`
    #[arg(long, value_delimiter = ',')]
    fds: Vec<RawFd>,
    /// Address of each rank
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1,127.0.0.1")]
    hosts: Vec<IpAddr>,
}

/// Runs a probe of another crate on one of the ranks.
type Run = fn(&mut Rank, &Task, Added) -> Result<Outcome>;

/// The function that runs the probes of another crate, if this program has some.
static ADDED: OnceLock<Run> = OnceLock::new();

/// Adds the probes of another crate to this program.
pub fn add(addition: Addition, run: Run) {
    probe::know(addition);
    let _ = ADDED.set(run);
}

/// Runs a task on one of the ranks.
fn work(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    if rank.is_far() && task.probe.is_local() {
        return Ok(Outcome::Absent("it joins ranks of one machine".into()));
    }
    match task.probe {
        Probe::CacheLine => floor::cache_line(rank, task),
        Probe::Ring => floor::ring(rank, task),
        Probe::Copy => floor::copy(rank, task),
        Probe::RemoteCopy => floor::remote_copy(rank, task),
        Probe::Futex => floor::futex(rank, task),
        Probe::Udp => floor::udp(rank, task),
        Probe::Wire(socket, block) => wire::ping_pong(rank, task, socket, block),
        Probe::WireRate(socket) => wire::rate(rank, task, socket),
        Probe::UdpStream => floor::udp_stream(rank, task),
        Probe::UdpRate => floor::udp_rate(rank, task),
        Probe::PingPong(channel) => peers::ping_pong(rank, task, channel),
        Probe::Stream(channel) => peers::stream(rank, task, channel),
        Probe::Exchange(channel) => peers::exchange(rank, task, channel),
        Probe::UdpExchange => peers::udp_exchange(rank, task),
        Probe::UdpFlow => floor::udp_flow(rank, task),
        Probe::NoOffloads => {
            let off = sys::no_offloads(weft_lab::INTERFACE);
            off.map(|()| Outcome::Elsewhere).context("turning offloads off")
        }
        Probe::Iperf => iperf::rank(rank, task),
        Probe::Added(added) => {
            let run = ADDED.get().context("this program does not know the probe")?;
            run(rank, task, added)
        }
        Probe::Wake(channel) => peers::wake(rank, task, channel),
        Probe::Idle(channel) => peers::idle(rank, task, channel),
        Probe::WeftPingPong => pingpong::rank(rank, task),
        Probe::WeftBandwidth => bandwidth::rank(rank, task),
        Probe::WeftRate => rate::rank(rank, task),
        Probe::WeftCrowd => rank.load(task.arg),
        Probe::WeftEstimate => rank.estimate(task.arg),
    }
}

/// Reads the start values of a rank on another host, which come in the place of arguments.
fn start_far(args: &Args) -> Result<(Rank, UnixStream)> {
    let (far, ends) = super::far::ends()?;
    // The variables are set before any other code of this process reads them.
    far.env.iter().for_each(|(name, value)| std::env::set_var(name, value));
    let alone = super::pair::cores().is_none();
    let (rank, key, hosts) = (far.rank, far.key, &args.hosts[..]);
    start(&Start { rank, alone, far: true, link: &far.link, key, hosts }, ends)
}

fn inherited(args: &Args) -> Result<[OwnedFd; 6]> {
    let fds: Vec<OwnedFd> =
        args.fds.iter().map(|&fd| sys::inherit(fd)).collect::<Result<_, _>>()?;
    let Ok(ends) = fds.try_into() else {
        bail!("six descriptors are needed; this command is started by `weft bench`")
    };
    Ok(ends)
}

fn start(values: &Start<'_>, ends: [OwnedFd; 6]) -> Result<(Rank, UnixStream)> {
    let [control, ends @ ..] = ends;
    Ok((Rank::new(values, ends)?, control.into()))
}

fn start_near(args: &Args) -> Result<(Rank, UnixStream)> {
    let Args { rank, alone, key, .. } = *args;
    let (link, hosts) = (&args.link[..], &args.hosts[..]);
    start(&Start { rank, alone, far: false, link, key, hosts }, inherited(args)?)
}

/// Runs a rank until its parent closes the control socket.
pub fn run(args: Args) -> Result<ExitCode> {
    let (mut rank, mut control) = match args.far {
        true => start_far(&args)?,
        false => start_near(&args)?,
    };
    let mut lines = BufReader::new(control.try_clone()?).lines();
    while let Some(line) = lines.next().transpose()? {
        let task: Task = serde_json::from_str(&line)?;
        let before = sys::cpu_time();
        let outcome = work(&mut rank, &task).unwrap_or_else(|e| Outcome::Failed(format!("{e:#}")));
        let cpu = (sys::cpu_time() - before).as_secs_f64();
        let mut answer = serde_json::to_string(&Answer { outcome, cpu })?;
        answer.push('\n');
        control.write_all(answer.as_bytes())?;
        rank.settle()?;
    }
    Ok(ExitCode::SUCCESS)
}

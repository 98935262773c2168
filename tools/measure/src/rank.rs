//! One of the two processes that a benchmark measures: it runs the tasks that its parent sends.

use super::sys::{self, Shared};
use super::{bandwidth, floor, iperf, peers, pingpong, rate, wire};
use anyhow::{bail, ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weft::{Address, Config, Endpoint, Links, PeerId, SharedEndpoint};
use weft_run::meet::Meeting;

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

/// A probe of another crate, in the bytes that this crate understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added(pub [u8; 8]);

/// The knowledge that a program has of the probes that another crate adds.
pub struct Addition {
    /// Returns the name of a probe.
    pub name: fn(Added) -> &'static str,
    /// True if the probe needs a resource that only ranks of one machine share.
    pub is_local: fn(Added) -> bool,
    /// Runs the probe on one of the ranks.
    pub work: fn(&mut Rank, &Task, Added) -> Result<Outcome>,
    /// The words after `weft` that start a rank on another host.
    pub far: &'static [&'static str],
}

/// The probes of another crate, if this program has some. They are set once, at its start.
static ADDITION: OnceLock<Addition> = OnceLock::new();

/// Adds the probes of another crate to this program.
pub fn add(addition: Addition) {
    // A second addition would be the same one again: a program has one crate that adds probes.
    let _ = ADDITION.set(addition);
}

/// Returns the words after `weft` that start a rank on another host.
pub(crate) fn far_words() -> &'static [&'static str] {
    ADDITION.get().map_or(&["bench-rank", "--far"], |addition| addition.far)
}

/// A measurement between the two ranks. All return seconds per iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// One-way time of a cache line from one core to the other.
    CacheLine,
    /// A message through a ring of cache lines.
    Ring,
    /// memcpy in one process.
    Copy,
    /// process_vm_readv from the other process.
    RemoteCopy,
    /// Waking a process that sleeps on a futex.
    Futex,
    /// Bare UDP, spinning, one way.
    Udp,
    /// Round trips of frames on raw Ethernet, one-way time; spinning or, if the flag is set,
    /// blocking.
    Wire(wire::Socket, bool),
    /// Frames on raw Ethernet one after the other.
    WireRate(wire::Socket),
    /// A stream of `size` bytes per turn over UDP with GSO and GRO.
    UdpStream,
    /// Bare UDP datagrams one after the other.
    UdpRate,
    /// Ping-pong over a kernel channel, one way.
    PingPong(Channel),
    /// One direction over a kernel channel, in writes of `size` bytes.
    Stream(Channel),
    /// Ping-pong over a kernel channel with blocking calls, one way.
    Exchange(Channel),
    /// Ping-pong of datagrams with blocking calls, one way.
    UdpExchange,
    /// Datagrams of up to 64 KiB in one direction.
    UdpFlow,
    /// Turns the interface's offloads off; measures nothing.
    NoOffloads,
    /// One direction over TCP by iperf3, in writes of `size` bytes.
    Iperf,
    /// Waking a process that sleeps reading a kernel channel.
    Wake(Channel),
    /// Share of a core used by a process that waits for `iters` milliseconds in a read of a kernel
    /// channel.
    Idle(Channel),
    /// Ping-pong of weft messages, one way.
    WeftPingPong,
    /// Weft messages in one direction with a window of posted receives.
    WeftBandwidth,
    /// Small weft messages in one direction.
    WeftRate,
    /// Opens `arg` endpoints that stay idle beside the measured one; measures nothing.
    WeftCrowd,
    /// A figure that the link estimates, not a time. `arg` 0: one-way nanoseconds; 1: bytes per
    /// microsecond of data; 2: bytes per microsecond of data sent at once.
    WeftEstimate,
    /// A probe that another crate adds; see [`Addition`].
    Added(Added),
}

impl Probe {
    /// True if the probe needs a resource that only ranks of one machine share.
    fn is_local(self) -> bool {
        match self {
            Probe::CacheLine | Probe::Ring | Probe::RemoteCopy | Probe::Futex => true,
            Probe::PingPong(channel)
            | Probe::Stream(channel)
            | Probe::Exchange(channel)
            | Probe::Wake(channel)
            | Probe::Idle(channel) => !matches!(channel, Channel::Tcp | Channel::TcpNagle),
            Probe::Added(added) => ADDITION.get().is_some_and(|all| (all.is_local)(added)),
            _ => false,
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match *self {
            Probe::CacheLine => "cache line",
            Probe::Ring => "ring of cache lines",
            Probe::Copy => "memory copy",
            Probe::RemoteCopy => "process_vm_readv",
            Probe::Futex => "futex wake-up",
            Probe::Udp => "bare UDP",
            Probe::Wire(socket, false) => return write!(f, "bare {}", socket.name()),
            Probe::Wire(socket, true) => return write!(f, "bare {}, blocking", socket.name()),
            Probe::WireRate(socket) => return write!(f, "rate of bare {}", socket.name()),
            Probe::UdpStream => "stream over bare UDP",
            Probe::UdpRate => "rate of bare UDP",
            Probe::PingPong(channel) => return write!(f, "{} ping-pong", channel.name()),
            Probe::Stream(channel) => return write!(f, "{} stream", channel.name()),
            Probe::Exchange(channel) => {
                return write!(f, "{} ping-pong, blocking", channel.name());
            }
            Probe::UdpExchange => "UDP ping-pong, blocking",
            Probe::UdpFlow => "UDP stream",
            Probe::NoOffloads => "turning offloads off",
            Probe::Added(added) => match ADDITION.get() {
                Some(all) => (all.name)(added),
                None => "a probe of another program",
            },
            Probe::Iperf => "TCP stream as iperf3",
            Probe::Wake(channel) => return write!(f, "{} wake-up", channel.name()),
            Probe::Idle(channel) => return write!(f, "wait on {}", channel.name()),
            Probe::WeftPingPong => "weft ping-pong",
            Probe::WeftBandwidth => "weft bandwidth",
            Probe::WeftRate => "weft message rate",
            Probe::WeftCrowd => "idle endpoints",
            Probe::WeftEstimate => "estimates of the link",
        };
        f.write_str(words)
    }
}

/// A channel of the kernel that passes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// A pipe in each direction.
    Pipe,
    /// A Unix stream socket pair.
    Unix,
    /// TCP with TCP_NODELAY.
    Tcp,
    /// TCP that delays small segments while others are not acknowledged (Nagle).
    TcpNagle,
    /// A named pipe in each direction.
    Fifo,
    /// A System V message queue with a message type for each direction.
    SystemV,
}

impl Channel {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Channel::Pipe => "pipe",
            Channel::Unix => "unix",
            Channel::Tcp => "tcp",
            Channel::TcpNagle => "tcp nagle",
            Channel::Fifo => "fifo",
            Channel::SystemV => "system v",
        }
    }
}

/// A probe and its parameters. Both ranks get the same task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The probe.
    pub probe: Probe,
    /// Bytes of a message.
    pub size: usize,
    /// Iterations.
    pub iters: u64,
    /// Argument of the probe; see [`Probe`].
    pub arg: u64,
}

/// A rank's answer to a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Seconds per iteration; for `WeftIdle` and `Idle` the share of a core.
    Value(f64),
    /// A value where some bytes were lost: seconds per iteration, bytes arrived.
    Partial(f64, f64),
    /// The other rank returns the value.
    Elsewhere,
    /// The figure cannot be measured here; the reason.
    Absent(String),
    /// The task failed; the reason.
    Failed(String),
}

/// The answer of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Outcome of the task.
    pub outcome: Outcome,
    /// Processor time that the task took on this rank, user and system, in seconds.
    pub cpu: f64,
}

/// State of a rank.
pub struct Rank {
    /// 0 or 1.
    pub me: usize,
    /// True if both ranks share one core: then waiting must yield.
    pub alone: bool,
    /// The memory that both ranks share.
    pub shared: Shared,
    /// Pipe from the other rank.
    pub pipe_in: std::fs::File,
    /// Pipe to the other rank.
    pub pipe_out: std::fs::File,
    /// Unix socket to the other rank.
    pub unix: UnixStream,
    side: UnixStream,
    links: Links,
    key: [u8; 32],
    hosts: [IpAddr; 2],
    /// True if the other rank may be on another machine.
    far: bool,
    /// True if the rank is on another host than its parent and the addresses by which the hosts
    /// reach each other are not yet known.
    apart: bool,
    endpoint: Option<(Endpoint, PeerId)>,
    watched: Option<(SharedEndpoint, PeerId)>,
    idle: Vec<Endpoint>,
    /// The state that the probes of another crate have opened.
    pub opened: Option<Box<dyn Any>>,
}

const STEP: Duration = Duration::from_secs(120);
/// Longest time in which hosts find the addresses by which they reach each other.
const LOCATE: Duration = Duration::from_secs(5);

impl Rank {
    /// Waits until the other rank has called this too.
    pub fn sync(&mut self) -> Result<()> {
        self.tell(&[0])?;
        self.receive_note().map(|_| ())
    }

    /// Sends a short note to the other rank, on a channel that is not measured.
    pub fn tell(&mut self, note: &[u8]) -> Result<()> {
        self.side.write_all(&(note.len() as u32).to_le_bytes())?;
        self.side.write_all(note).context("telling the other rank")
    }

    /// Receives a note.
    pub fn receive_note(&mut self) -> Result<Vec<u8>> {
        let mut len = [0; 4];
        self.side.read_exact(&mut len).context("hearing the other rank")?;
        let mut note = vec![0; u32::from_le_bytes(len) as usize];
        self.side.read_exact(&mut note)?;
        Ok(note)
    }

    /// Receives a note of 8 bytes.
    pub fn hear_u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.receive_note()?.try_into().ok().context("a note of 8 bytes")?))
    }

    /// Sends a note and receives the note of the other rank.
    pub fn exchange(&mut self, note: &[u8]) -> Result<Vec<u8>> {
        self.tell(note)?;
        self.receive_note()
    }

    /// Returns the configuration of this process's variables.
    fn config(&self) -> Result<Config> {
        Ok(Config { rank: u32::try_from(self.me).ok(), ..weft::job::config_from_env()? })
    }

    /// Sends this rank's address and returns that of the other rank.
    fn meet(&mut self, mine: &Address) -> Result<Address> {
        let theirs = self.exchange(&mine.encode())?;
        Address::decode(&theirs).map_err(|e| anyhow::anyhow!("address: {e}"))
    }

    /// Returns the endpoint with the other rank as its peer; both ranks open it at the first use.
    pub fn weft(&mut self) -> Result<(Endpoint, PeerId)> {
        if let Some((endpoint, peer)) = &self.endpoint {
            return Ok((endpoint.clone(), *peer));
        }
        let endpoint = weft::job::open_endpoint(self.config()?, self.links, self.key)?;
        let peer = endpoint.connect(&self.meet(&endpoint.address())?)?;
        self.endpoint = Some((endpoint.clone(), peer));
        // The first message opens the session, which a measurement must not include.
        if self.me == 0 {
            endpoint.send_blocking(peer, TAG_ACK, &[1])?;
            endpoint.recv_blocking(Some(peer), TAG_ACK, 0, &mut [0])?;
        } else {
            endpoint.recv_blocking(Some(peer), TAG_ACK, 0, &mut [0])?;
            endpoint.send_blocking(peer, TAG_ACK, &[1])?;
        }
        self.settle()?;
        Ok((endpoint, peer))
    }

    /// Returns an endpoint as `weft` does, with a watchdog.
    pub fn watched(&mut self) -> Result<(SharedEndpoint, PeerId)> {
        if let Some((endpoint, peer)) = &self.watched {
            return Ok((endpoint.clone(), *peer));
        }
        let endpoint = SharedEndpoint::open(self.config()?, self.links, self.key)?;
        let peer = endpoint.connect(&self.meet(&endpoint.address())?)?;
        self.watched = Some((endpoint.clone(), peer));
        if self.me == 0 {
            endpoint.send(peer, TAG_ACK, &[1])?;
            endpoint.recv(Some(peer), TAG_ACK, 0, &mut [0])?;
        } else {
            endpoint.recv(Some(peer), TAG_ACK, 0, &mut [0])?;
            endpoint.send(peer, TAG_ACK, &[1])?;
        }
        self.sync()?;
        Ok((endpoint, peer))
    }

    /// True if the other rank has sent a note that was not received yet.
    pub fn has_note(&self) -> Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::new(&self.side, PollFlags::IN)], Some(&now))? > 0)
    }

    /// Opens endpoints as further ranks of this host would.
    fn load(&mut self, count: u64) -> Result<Outcome> {
        for _ in 0..count {
            let config = weft::job::config_from_env()?;
            self.idle.push(weft::job::open_endpoint(config, self.links, self.key)?);
        }
        Ok(Outcome::Elsewhere)
    }

    /// Makes progress until the other rank has arrived too: messages that it waits for may still be
    /// queued in this endpoint. Then lets acknowledgements flow, so that the next measurement
    /// starts with empty queues.
    pub fn settle(&mut self) -> Result<()> {
        let Some((endpoint, _)) = self.endpoint.clone() else { return Ok(()) };
        self.tell(&[0])?;
        let start = Instant::now();
        while !self.has_note()? {
            endpoint.wait(Some(Duration::from_millis(1)));
            ensure!(start.elapsed() < STEP, "the other rank does not finish");
        }
        self.receive_note()?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(500) {
            endpoint.progress();
        }
        Ok(())
    }

    /// Finds the addresses by which the hosts reach each other, if the user has not set them.
    pub fn locate(&mut self) -> Result<()> {
        if !self.apart {
            return Ok(());
        }
        let meeting = Meeting::open(weft::job::ports_from_env()?).context("a UDP socket")?;
        let mine = meeting.addresses();
        let theirs = self.exchange(&serde_json::to_vec(&mine)?)?;
        let theirs: Vec<SocketAddr> = serde_json::from_slice(&theirs)?;
        let took = meeting.ask(&theirs, LOCATE);
        let at = took.iter().position(Option::is_some);
        let note = at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX);
        let theirs_of_mine = self.exchange(&[note])?.first().copied().map_or(0, usize::from);
        let (Some(their), Some(own)) = (at.map(|at| theirs[at]), mine.get(theirs_of_mine)) else {
            bail!(
                "UDP does not pass between the hosts both ways: `weft doctor --hosts` tells more"
            );
        };
        (self.hosts[self.me], self.hosts[1 - self.me]) = (own.ip(), their.ip());
        self.apart = false;
        // The other rank may still be asking.
        self.sync()
    }

    /// Returns a UDP socket connected to that of the other rank.
    pub fn udp(&mut self, coalesce: bool) -> Result<UdpSocket> {
        self.locate()?;
        let (ip, ports) = (self.hosts[self.me], weft::job::ports_from_env()?);
        let socket = ports.bind(None, |port| UdpSocket::bind((ip, port)));
        let socket = socket.context("a UDP socket")?;
        // Without the right to more, the limit of the system applies.
        let _ = sys::set(&socket, sys::SocketOption::ReceiveBuffer, 64 << 20);
        let _ = sys::set(&socket, sys::SocketOption::SendBuffer, 16 << 20);
        if coalesce {
            sys::set(&socket, sys::SocketOption::Coalesce, 1).context("UDP_GRO")?;
        }
        let port = u64::from(socket.local_addr()?.port());
        self.tell(&port.to_le_bytes())?;
        let port = self.hear_u64()? as u16;
        socket.connect(SocketAddr::new(self.hosts[1 - self.me], port))?;
        self.sync()?;
        Ok(socket)
    }

    /// Returns a TCP connection to the other rank; `delay` leaves Nagle's algorithm on.
    pub fn tcp(&mut self, delay: bool) -> Result<TcpStream> {
        self.locate()?;
        let stream = if self.me == 1 {
            let (ip, ports) = (self.hosts[1], weft::job::ports_from_env()?);
            let listener = ports.bind(None, |port| TcpListener::bind((ip, port)));
            let listener = listener.context("a TCP socket")?;
            let port = u64::from(listener.local_addr()?.port());
            self.tell(&port.to_le_bytes())?;
            listener.accept().context("accept")?.0
        } else {
            let port = self.hear_u64()? as u16;
            let to = SocketAddr::new(self.hosts[1], port);
            TcpStream::connect_timeout(&to, STEP).context("TCP to the other rank")?
        };
        stream.set_nodelay(!delay)?;
        Ok(stream)
    }

    /// Returns the links of the endpoint.
    pub fn links(&self) -> Links {
        self.links
    }

    /// Returns the key of the job.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Returns the address of each rank.
    pub fn hosts(&self) -> [IpAddr; 2] {
        self.hosts
    }

    fn estimate(&mut self, which: u64) -> Result<Outcome> {
        let (endpoint, _) = self.weft()?;
        // Index 0 is the link of an endpoint to itself.
        let caps = *endpoint.link_caps().get(1).context("no link")?;
        let figures = [caps.latency_ns, caps.bytes_per_us, caps.small_bytes_per_us];
        let figure = *figures.get(which as usize).context("no such figure")?;
        Ok(if self.me == 0 { Outcome::Value(figure.into()) } else { Outcome::Elsewhere })
    }

    fn work(&mut self, task: &Task) -> Result<Outcome> {
        if self.far && task.probe.is_local() {
            return Ok(Outcome::Absent("it joins ranks of one machine".into()));
        }
        match task.probe {
            Probe::CacheLine => floor::cache_line(self, task),
            Probe::Ring => floor::ring(self, task),
            Probe::Copy => floor::copy(self, task),
            Probe::RemoteCopy => floor::remote_copy(self, task),
            Probe::Futex => floor::futex(self, task),
            Probe::Udp => floor::udp(self, task),
            Probe::Wire(socket, block) => wire::ping_pong(self, task, socket, block),
            Probe::WireRate(socket) => wire::rate(self, task, socket),
            Probe::UdpStream => floor::udp_stream(self, task),
            Probe::UdpRate => floor::udp_rate(self, task),
            Probe::PingPong(channel) => peers::ping_pong(self, task, channel),
            Probe::Stream(channel) => peers::stream(self, task, channel),
            Probe::Exchange(channel) => peers::exchange(self, task, channel),
            Probe::UdpExchange => peers::udp_exchange(self, task),
            Probe::UdpFlow => floor::udp_flow(self, task),
            Probe::NoOffloads => {
                let off = sys::no_offloads(weft_lab::INTERFACE);
                off.map(|()| Outcome::Elsewhere).context("turning offloads off")
            }
            Probe::Iperf => iperf::rank(self, task),
            Probe::Added(added) => {
                let all = ADDITION.get().context("this program does not know the probe")?;
                (all.work)(self, task, added)
            }
            Probe::Wake(channel) => peers::wake(self, task, channel),
            Probe::Idle(channel) => peers::idle(self, task, channel),
            Probe::WeftPingPong => pingpong::rank(self, task),
            Probe::WeftBandwidth => bandwidth::rank(self, task),
            Probe::WeftRate => rate::rank(self, task),
            Probe::WeftCrowd => self.load(task.arg),
            Probe::WeftEstimate => self.estimate(task.arg),
        }
    }
}

/// Tag of measured messages.
pub const TAG: u64 = 1;
/// Tag of the message that ends a measurement.
pub const TAG_ACK: u64 = 2;

fn key_bytes(seed: u64) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key
}

/// Reads the start values of a rank on another host, which come in the place of arguments.
fn start_far(args: &Args) -> Result<(Rank, UnixStream)> {
    let (far, ends) = super::far::ends()?;
    // The variables are set before any other code of this process reads them.
    far.env.iter().for_each(|(name, value)| std::env::set_var(name, value));
    let alone = super::pair::cores().is_none();
    let args = Args {
        far: true,
        rank: far.rank,
        alone,
        link: far.link,
        key: far.key,
        fds: Vec::new(),
        hosts: args.hosts.clone(),
    };
    start(&args, ends)
}

fn inherited(args: &Args) -> Result<[OwnedFd; 6]> {
    let fds: Vec<OwnedFd> =
        args.fds.iter().map(|&fd| sys::inherit(fd)).collect::<Result<_, _>>()?;
    let Ok(ends) = fds.try_into() else {
        bail!("six descriptors are needed; this command is started by `weft bench`")
    };
    Ok(ends)
}

fn start(args: &Args, ends: [OwnedFd; 6]) -> Result<(Rank, UnixStream)> {
    ensure!(args.rank < 2, "there are two ranks");
    let [control, side, unix, pipe_in, pipe_out, memory] = ends;
    let [a, b] = args.hosts[..] else { bail!("two addresses are needed") };
    sys::allow_readers();
    let side = UnixStream::from(side);
    side.set_read_timeout(Some(STEP))?;
    let rank = Rank {
        me: args.rank,
        alone: args.alone,
        shared: Shared::map(&memory)?,
        pipe_in: pipe_in.into(),
        pipe_out: pipe_out.into(),
        unix: unix.into(),
        side,
        links: Links::parse(&args.link).context("unknown link")?,
        key: key_bytes(args.key),
        hosts: [a, b],
        far: args.far,
        apart: args.far,
        endpoint: None,
        watched: None,
        idle: Vec::new(),
        opened: None,
    };
    Ok((rank, control.into()))
}

/// Runs a rank until its parent closes the control socket.
pub fn run(args: Args) -> Result<ExitCode> {
    let (mut rank, mut control) = match args.far {
        true => start_far(&args)?,
        false => start(&args, inherited(&args)?)?,
    };
    let mut lines = BufReader::new(control.try_clone()?).lines();
    while let Some(line) = lines.next().transpose()? {
        let task: Task = serde_json::from_str(&line)?;
        let before = sys::cpu_time();
        let outcome = rank.work(&task).unwrap_or_else(|e| Outcome::Failed(format!("{e:#}")));
        let cpu = (sys::cpu_time() - before).as_secs_f64();
        let mut answer = serde_json::to_string(&Answer { outcome, cpu })?;
        answer.push('\n');
        control.write_all(answer.as_bytes())?;
        rank.settle()?;
    }
    Ok(ExitCode::SUCCESS)
}

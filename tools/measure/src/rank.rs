//! One of the two processes that a benchmark measures: its ways to the other one.

pub use super::probe::{Added, Addition, Channel, Outcome, Probe, Task, TAG, TAG_ACK};

use super::sys::{self, Shared};
use anyhow::{bail, ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::any::Any;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weft::{Address, Config, Endpoint, Links, OpError, PeerId, SharedEndpoint, Status};
use weft_run::reachability::Reachability;

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
    hosts: Hosts,
    endpoint: Option<(Endpoint, PeerId)>,
    watched: Option<(SharedEndpoint, PeerId)>,
    idle: Vec<Endpoint>,
    /// The state that the probes of another crate have opened.
    pub opened: Option<Box<dyn Any>>,
}

/// The addresses of the hosts of both ranks.
struct Hosts {
    addresses: [IpAddr; 2],
    /// True if the other rank may be on another machine.
    far: bool,
    /// True if the rank is on another host than its parent and the addresses by which the hosts
    /// reach each other are not yet known.
    apart: bool,
}

/// The start values of a rank.
pub(crate) struct Start<'a> {
    pub rank: usize,
    pub alone: bool,
    pub far: bool,
    pub link: &'a str,
    pub key: u64,
    pub hosts: &'a [IpAddr],
}

const STEP: Duration = Duration::from_secs(120);
/// Longest time in which hosts find the addresses by which they reach each other.
const LOCATE: Duration = Duration::from_secs(5);

impl Rank {
    /// Makes a rank of these descriptors: side, Unix socket, both pipes, memory.
    pub(crate) fn new(start: &Start, ends: [OwnedFd; 5]) -> Result<Rank> {
        ensure!(start.rank < 2, "there are two ranks");
        let [side, unix, pipe_in, pipe_out, memory] = ends;
        let [a, b] = start.hosts[..] else { bail!("two addresses are needed") };
        sys::allow_readers();
        let side = UnixStream::from(side);
        side.set_read_timeout(Some(STEP))?;
        Ok(Rank {
            me: start.rank,
            alone: start.alone,
            shared: Shared::map(&memory)?,
            pipe_in: pipe_in.into(),
            pipe_out: pipe_out.into(),
            unix: unix.into(),
            side,
            links: Links::parse(start.link).context("unknown link")?,
            key: key_bytes(start.key),
            hosts: Hosts { addresses: [a, b], far: start.far, apart: start.far },
            endpoint: None,
            watched: None,
            idle: Vec::new(),
            opened: None,
        })
    }

    /// True if the other rank may be on another machine.
    pub(crate) fn is_far(&self) -> bool {
        self.hosts.far
    }

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

    /// Sends a message each way: the first one opens the session, which a measurement must not
    /// include.
    fn first_messages(
        &self,
        send: impl Fn() -> Result<(), OpError>,
        recv: impl Fn() -> Result<Status, OpError>,
    ) -> Result<(), OpError> {
        if self.me == 0 {
            send()?;
            recv().map(drop)
        } else {
            recv()?;
            send()
        }
    }

    /// Returns the endpoint with the other rank as its peer; both ranks open it at the first use.
    pub fn weft(&mut self) -> Result<(Endpoint, PeerId)> {
        if let Some((endpoint, peer)) = &self.endpoint {
            return Ok((endpoint.clone(), *peer));
        }
        let endpoint = weft::job::open_endpoint(self.config()?, self.links, self.key)?;
        let peer = endpoint.connect(&self.meet(&endpoint.address())?)?;
        self.endpoint = Some((endpoint.clone(), peer));
        self.first_messages(
            || endpoint.send_blocking(peer, TAG_ACK, &[1]),
            || endpoint.recv_blocking(Some(peer), TAG_ACK, 0, &mut [0]),
        )?;
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
        self.first_messages(
            || endpoint.send(peer, TAG_ACK, &[1]),
            || endpoint.recv(Some(peer), TAG_ACK, 0, &mut [0]),
        )?;
        self.sync()?;
        Ok((endpoint, peer))
    }

    /// True if the other rank has sent a note that was not received yet.
    pub fn has_note(&self) -> Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::new(&self.side, PollFlags::IN)], Some(&now))? > 0)
    }

    /// Opens endpoints as further ranks of this host would.
    pub(crate) fn load(&mut self, count: u64) -> Result<Outcome> {
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
        if !self.hosts.apart {
            return Ok(());
        }
        let reachability =
            Reachability::open(weft::job::ports_from_env()?).context("a UDP socket")?;
        let mine = reachability.addresses();
        let theirs = self.exchange(&serde_json::to_vec(&mine)?)?;
        let theirs: Vec<SocketAddr> = serde_json::from_slice(&theirs)?;
        let took = reachability.ask(&theirs, LOCATE);
        let at = took.iter().position(Option::is_some);
        let note = at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX);
        let theirs_of_mine = self.exchange(&[note])?.first().copied().map_or(0, usize::from);
        let (Some(their), Some(own)) = (at.map(|at| theirs[at]), mine.get(theirs_of_mine)) else {
            bail!(
                "UDP does not pass between the hosts both ways: `weft doctor --hosts` tells more"
            );
        };
        (self.hosts.addresses[self.me], self.hosts.addresses[1 - self.me]) = (own.ip(), their.ip());
        self.hosts.apart = false;
        // The other rank may still be asking.
        self.sync()
    }

    /// Returns a UDP socket connected to that of the other rank.
    pub fn udp(&mut self, coalesce: bool) -> Result<UdpSocket> {
        self.locate()?;
        let (ip, ports) = (self.hosts.addresses[self.me], weft::job::ports_from_env()?);
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
        socket.connect(SocketAddr::new(self.hosts.addresses[1 - self.me], port))?;
        self.sync()?;
        Ok(socket)
    }

    /// Returns a TCP connection to the other rank; `delay` leaves Nagle's algorithm on.
    pub fn tcp(&mut self, delay: bool) -> Result<TcpStream> {
        self.locate()?;
        let stream = if self.me == 1 {
            let (ip, ports) = (self.hosts.addresses[1], weft::job::ports_from_env()?);
            let listener = ports.bind(None, |port| TcpListener::bind((ip, port)));
            let listener = listener.context("a TCP socket")?;
            let port = u64::from(listener.local_addr()?.port());
            self.tell(&port.to_le_bytes())?;
            listener.accept().context("accept")?.0
        } else {
            let port = self.hear_u64()? as u16;
            let to = SocketAddr::new(self.hosts.addresses[1], port);
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
        self.hosts.addresses
    }

    pub(crate) fn estimate(&mut self, which: u64) -> Result<Outcome> {
        let (endpoint, _) = self.weft()?;
        // Index 0 is the link of an endpoint to itself.
        let caps = *endpoint.link_caps().get(1).context("no link")?;
        let figures = [caps.latency_ns, caps.bytes_per_us, caps.small_bytes_per_us];
        let figure = *figures.get(which as usize).context("no such figure")?;
        Ok(if self.me == 0 { Outcome::Value(figure.into()) } else { Outcome::Elsewhere })
    }
}

fn key_bytes(seed: u64) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key
}

//! The helper of `weft doctor --hosts` on one of the hosts: answers each request of the command
//! with one line.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weft_link::ether::{EtherHead, Interface, Interfaces, Mac};
use weft_link::{BarePacket, Ports};
use weft_run::reachability::Reachability;
use weft_run::tcp_check::{self, TcpCheck};

/// The start of the helper's first line, before which login shells may print, and the whole line of
/// this version.
pub const NAME: &str = "weft doctor visit ";
pub const MAGIC: &str = "weft doctor visit 2";
/// Longest time until addresses answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a frame; within that time the frame is sent repeatedly.
const FRAME_TIMEOUT: Duration = Duration::from_secs(3);
const FRAMES: u32 = 10;
/// Ring of the packet socket, bytes.
const RING: usize = 1 << 20;
/// First bytes of the frames of this check.
const FRAME: &[u8; 16] = b"weft doctor here";

/// A request of the command.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The facts about the host.
    About,
    /// Find out which of these addresses answer.
    Reach(Vec<SocketAddr>),
    /// Find out at which of these addresses TCP connections are taken.
    Connect(Vec<SocketAddr>),
    /// The number of questions received from the reachability with this number.
    Heard(u32),
    /// The longest of these IP packets that reaches an address.
    Longest(SocketAddr, Vec<usize>),
    /// Open a packet socket on the interface of an address.
    Open(IpAddr),
    /// Send frames to a station.
    Throw([u8; 6]),
    /// Wait for frames from a station.
    Catch([u8; 6]),
}

/// Facts about a host.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    /// Version of weft.
    pub version: String,
    /// Version of the wire format.
    pub wire: u8,
    /// Version of the kernel.
    pub kernel: String,
    /// Time since 1970.
    pub now: Duration,
    /// Port setting of UDP sockets.
    pub ports: String,
    /// Addresses at which it answers.
    pub addresses: Vec<SocketAddr>,
    /// Port setting of TCP sockets.
    pub tcp_ports: String,
    /// Addresses at which it takes TCP connections; the reason if there are none.
    pub tcp: Result<Vec<SocketAddr>, String>,
    /// The number in its questions.
    pub number: u32,
    /// EtherType of its frames.
    pub ether_type: u16,
}

/// An interface with a packet socket on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its address.
    pub mac: [u8; 6],
    /// Its MTU.
    pub mtu: u32,
    /// The reason why it has no packet socket.
    pub closed: Option<String>,
}

/// An answer of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Ask::About`].
    About(About),
    /// To [`Ask::Reach`]: microseconds of a round trip for each address.
    Reached(Vec<Option<f64>>),
    /// To [`Ask::Connect`]: microseconds until the answer of each address, or the reason for none.
    Connected(Vec<Result<f64, String>>),
    /// To [`Ask::Heard`].
    Heard(u64),
    /// To [`Ask::Longest`].
    Longest(Option<usize>),
    /// To [`Ask::Open`].
    Opened(Port),
    /// To [`Ask::Throw`]: true if all were sent; to [`Ask::Catch`]: true if any came.
    Frames(bool),
    /// The request failed.
    No(String),
}

struct Partner {
    reachability: Reachability,
    door: Result<TcpCheck, String>,
    port: Option<(BarePacket, Interface)>,
}

fn tcp_ports() -> Result<Ports> {
    Ok(weft::job::tcp_from_env(&weft::Config::default())?.ports)
}

fn interface_of(ip: IpAddr) -> Result<Interface> {
    let all = Interfaces::list().context("listing the network interfaces")?;
    let has = |i: &Interface| i.ips.iter().any(|(own, _)| *own == ip);
    all.0.into_iter().find(has).with_context(|| format!("no interface has the address {ip}"))
}

impl Partner {
    fn about(&self) -> Result<About> {
        let uname = rustix::system::uname();
        Ok(About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wire: weft_core::wire::VERSION,
            kernel: uname.release().to_string_lossy().into_owned(),
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            ports: weft::job::ports_from_env()?.to_string(),
            addresses: self.reachability.addresses(),
            tcp_ports: tcp_ports()?.to_string(),
            tcp: self.door.as_ref().map(TcpCheck::addresses).map_err(Clone::clone),
            number: self.reachability.number(),
            ether_type: weft::job::packet_from_env()?.kind.get(),
        })
    }

    fn open(&mut self, ip: IpAddr) -> Result<Port> {
        let interface = interface_of(ip)?;
        let kind = weft::job::packet_from_env()?.kind;
        let Interface { name, mac, mtu, .. } = interface.clone();
        let closed = match BarePacket::open(&interface, kind, RING) {
            Ok(socket) => {
                self.port = Some((socket, interface));
                None
            }
            Err(e) => Some(e.to_string()),
        };
        Ok(Port { name, mac: mac.0, mtu, closed })
    }

    fn throw(&mut self, to: [u8; 6]) -> Result<bool> {
        let (socket, interface) = self.port.as_mut().context("no packet socket")?;
        let kind = weft::job::packet_from_env()?.kind;
        let len = FRAME.len() as u16;
        let head = EtherHead { dst: Mac(to), src: interface.mac, kind, slot: 0, len };
        let mut frame = head.encode().to_vec();
        frame.extend(FRAME);
        // The shortest frame of Ethernet has 60 bytes.
        frame.resize(frame.len().max(60), 0);
        let mut sent = 0;
        for _ in 0..FRAMES {
            sent += u32::from(socket.send(&frame).is_ok());
            std::thread::sleep(FRAME_TIMEOUT / (2 * FRAMES));
        }
        Ok(sent == FRAMES)
    }

    fn catch(&mut self, from: [u8; 6]) -> Result<bool> {
        let (socket, _) = self.port.as_mut().context("no packet socket")?;
        let until = Instant::now() + FRAME_TIMEOUT;
        let mut frame = [0; 64];
        while Instant::now() < until {
            let Some(len) = socket.take_into(&mut frame) else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let ours = frame[6..12] == from && frame[EtherHead::LEN..].starts_with(FRAME);
            if ours && len >= EtherHead::LEN + FRAME.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn answer(&mut self, ask: Ask) -> Result<Answer> {
        Ok(match ask {
            Ask::About => Answer::About(self.about()?),
            Ask::Reach(to) => {
                let took = self.reachability.ask(&to, TIMEOUT);
                let us = |took: Duration| took.as_secs_f64() * 1e6;
                Answer::Reached(took.into_iter().map(|took| took.map(us)).collect())
            }
            Ask::Connect(to) => {
                let took = tcp_check::connect(&to, TIMEOUT);
                let us = |took: Duration| took.as_secs_f64() * 1e6;
                Answer::Connected(took.into_iter().map(|took| took.map(us)).collect())
            }
            Ask::Heard(number) => Answer::Heard(self.reachability.heard(number)),
            Ask::Longest(to, lengths) => Answer::Longest(self.reachability.longest(to, &lengths)),
            Ask::Open(ip) => Answer::Opened(self.open(ip)?),
            Ask::Throw(to) => Answer::Frames(self.throw(to)?),
            Ask::Catch(from) => Answer::Frames(self.catch(from)?),
        })
    }
}

/// Answers requests until the input ends.
///
/// # Errors
/// No UDP socket opens, a setting is wrong, or a request is invalid.
pub fn run() -> Result<ExitCode> {
    let mut out = std::io::stdout();
    writeln!(out, "{MAGIC}")?;
    out.flush()?;
    let ports = weft::job::ports_from_env()?;
    let opened = Reachability::open(ports);
    let reachability = opened.with_context(|| format!("opening UDP sockets on ports {ports}"))?;
    let tcp = tcp_ports()?;
    let door = TcpCheck::open(tcp).map_err(|e| format!("opening TCP sockets on ports {tcp}: {e}"));
    let mut visit = Partner { reachability, door, port: None };
    for line in std::io::stdin().lock().lines() {
        let ask: Ask = serde_json::from_str(&line?).context("an invalid request")?;
        let answer = visit.answer(ask).unwrap_or_else(|e| Answer::No(format!("{e:#}")));
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

//! Measurements between the two ranks: the tasks that their parent sends, and the answers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// A probe of another crate, in the bytes that this crate understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added(pub [u8; 8]);

/// The knowledge that a program has of the probes that another crate adds.
pub struct Addition {
    /// Returns the name of a probe.
    pub name: fn(Added) -> &'static str,
    /// True if the probe needs a resource that only ranks of one machine share.
    pub is_local: fn(Added) -> bool,
    /// The words after `weft` that start a rank on another host.
    pub far: &'static [&'static str],
}

/// The probes of another crate, if this program has some. They are set once, at its start.
static ADDITION: OnceLock<Addition> = OnceLock::new();

/// Returns the words after `weft` that start a rank on another host.
pub fn far_words() -> &'static [&'static str] {
    ADDITION.get().map_or(&["bench-rank", "--far"], |addition| addition.far)
}

/// Adds the knowledge of the probes of another crate; see [`work::add`](super::work::add).
pub(crate) fn know(addition: Addition) {
    // A second addition would be the same one again: a program has one crate that adds probes.
    let _ = ADDITION.set(addition);
}

/// The kind of a socket on raw Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Socket {
    /// AF_PACKET with a receive ring.
    Packet,
    /// AF_XDP, in the mode that the link would use.
    Xdp,
}

impl Socket {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Socket::Packet => "AF_PACKET",
            Socket::Xdp => "AF_XDP",
        }
    }
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
    Wire(Socket, bool),
    /// Frames on raw Ethernet one after the other.
    WireRate(Socket),
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
    pub fn is_local(self) -> bool {
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

/// Tag of measured messages.
pub const TAG: u64 = 1;
/// Tag of the message that ends a measurement.
pub const TAG_ACK: u64 = 2;

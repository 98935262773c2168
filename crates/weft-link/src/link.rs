//! The `Link` trait.

use crate::secure::NumbersUsedUp;
use crate::shm::Block;
use crate::{Address, Bytes};
use std::fmt;
use std::os::fd::RawFd;
use weft_core::wire::{advance, PacketType, HEADER_MAX};
use weft_core::{EndpointId, LinkCaps, PeerFailure, PeerId, Pulse};

/// One frame to send: a weft header and the payload bytes that follow it on the wire.
/// The link gathers the two; `send` returns only after the link copied or sent both.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The peer that receives the frame; `connect` was called for this peer before.
    pub peer: PeerId,
    /// Encoded weft header, 24 to 128 bytes.
    pub header: &'a [u8],
    /// Payload, possibly empty. `header.len() + payload.len() <= mtu`.
    pub payload: &'a [u8],
}

/// The data about a peer that a link needs.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// This endpoint's number for the peer, as used in `Frame::peer`.
    pub peer: PeerId,
    /// The session number that the peer puts into the header of its packets to us (bytes 4..8). It
    /// tells which peer sent an incoming packet.
    pub session: u32,
    /// The peer's identity and incarnation.
    pub endpoint: EndpointId,
    /// The address at which the peer can be reached.
    pub address: Address,
}

/// An event that a link reports to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// The peer's process ended (only links that can see this report it).
    PeerGone(PeerId),
    /// The agent of this host over which the peer was reached has ended.
    AgentGone(PeerId),
    /// The agent that keeps packets for the peer on behalf of this endpoint has given the peer up.
    PeerFailed(PeerId, PeerFailure),
    /// The peer's process refused the connection, for this reason.
    PeerRefused(PeerId, String),
    /// The path to this peer now carries packets of this size (the path's MTU, in bytes).
    Mtu(PeerId, u32),
    /// Bulk data to this peer may be spread over this number of interfaces
    /// ([`Network::send_run`]).
    Stripes(PeerId, u8),
    /// True: from now on the link takes no frames for this peer, while it may take frames for
    /// others. False: the link takes frames for this peer again.
    Held(PeerId, bool),
    /// The link lost a capability or uses a fallback; reported once.
    Warning(String),
}

/// The reason why a link refused an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer cannot be reached over this link, with the reason.
    Unreachable(String),
    /// The peer's process has ended, as a link inside the host sees: no other link reaches it.
    Ended,
    /// The operating system refused an operation.
    System {
        /// The operation.
        what: String,
        /// The error of the system.
        source: std::io::Error,
        /// The advice how to mend it.
        fix: &'static str,
    },
    /// The link has no packet numbers left for another connection under its key.
    UsedUp,
    /// The link does not offer this operation.
    Unsupported,
}

impl From<NumbersUsedUp> for LinkError {
    fn from(_: NumbersUsedUp) -> LinkError {
        LinkError::UsedUp
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Unreachable(why) => write!(f, "unreachable: {why}"),
            LinkError::Ended => write!(f, "it does not listen: its process ended"),
            LinkError::System { what, source, fix } => write!(f, "{what}: {source} ({fix})"),
            LinkError::UsedUp => NumbersUsedUp.fmt(f),
            LinkError::Unsupported => write!(f, "not offered by this link"),
        }
    }
}

impl std::error::Error for LinkError {}

impl LinkError {
    /// Joins the errors of all interfaces: one reason if all agree, else each interface with its
    /// own.
    pub(crate) fn of_all(mut failed: Vec<(String, LinkError)>) -> LinkError {
        let reasons: Vec<String> = failed.iter().map(|(_, error)| error.to_string()).collect();
        if reasons.windows(2).all(|two| two[0] == two[1]) {
            return failed.pop().map_or(LinkError::Unsupported, |(_, error)| error);
        }
        let each = failed.iter().zip(&reasons).map(|((name, _), why)| format!("{name}: {why}"));
        LinkError::Unreachable(each.collect::<Vec<_>>().join("; "))
    }
}

/// Memory for the payload of expected bulk packets. A link may write the payload of a matching
/// packet there while it checks the packet.
pub struct Prediction<'a> {
    /// Memory that has not received anything yet.
    pub memory: &'a mut [u8],
    /// Packet type: DATA or EAGER_MORE.
    pub kind: PacketType,
    /// Session number in the headers of the expected packets.
    pub session: u32,
    /// The field `imm` of the expected packets.
    pub imm: u32,
    /// The `offset` of the packet whose payload goes to the start of `memory`.
    pub offset: u64,
}

/// Receives packets from a link. Implemented by the reactor.
pub trait Sink {
    /// Takes one packet. `from` is the peer if the link itself knows it (shared memory); else
    /// `from` is `None`, and the session number in the (authenticated) header names the peer.
    /// `payload` may be in memory that another process can write: copy first, then check the copy.
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>);

    /// Takes `count` DATA or EAGER_MORE packets whose payload, `len` bytes in all, the link already
    /// wrote into the memory of the last prediction. `header` is the header of the first packet;
    /// the others differ only in sequence number and offset, which increase from packet to packet.
    /// Returns false if the link must give the packets to `frame` one by one instead.
    fn run(&mut self, _header: &[u8], _count: u32, _len: u64) -> bool {
        false
    }

    /// Predicts the memory for expected bulk payload, if the sink can.
    fn predict(&mut self) -> Option<Prediction<'_>> {
        None
    }

    /// Predicts the memory for the packet with this header, of type DATA or EAGER_MORE and as long
    /// as [`Data::LEN`](weft_core::wire::Data::LEN), whose payload is still to be read.
    fn predict_for(&mut self, _header: &[u8]) -> Option<Prediction<'_>> {
        self.predict()
    }
}

/// DATA packets to one peer that share a payload in equal parts.
#[derive(Clone, Copy, Debug)]
pub struct DataRun<'a> {
    /// The peer.
    pub peer: PeerId,
    /// The index of an interface among those that share bulk data to the peer
    /// ([`LinkEvent::Stripes`]); 0 the only or the first one.
    pub stripe: u8,
    /// The header of the first packet; the others differ in sequence number and offset
    /// ([`wire::advance`](weft_core::wire::advance)).
    pub header: &'a [u8],
    /// The payload of all packets.
    pub payload: &'a [u8],
    /// Number of packets.
    pub packets: usize,
}

impl DataRun<'_> {
    /// Returns the payload bytes of each packet.
    #[inline]
    pub fn each(&self) -> usize {
        self.payload.len() / self.packets.max(1)
    }
}

/// Sends the first packets of a run, and returns their number, by [`Network::send_run`] or, on a
/// link without it, by [`Link::send`].
#[inline]
pub fn send_run<L: Link + ?Sized>(link: &mut L, run: &DataRun<'_>) -> usize {
    let network = link.network();
    match network.and_then(|of| of.send_run(run)) {
        Some(sent) => sent,
        None => send_apart(link, run),
    }
}

/// Does the work of [`send_run`] by calls of [`Link::send`].
pub fn send_apart<L: Link + ?Sized>(link: &mut L, run: &DataRun<'_>) -> usize {
    const AT_ONCE: usize = 64;
    let (DataRun { peer, header, payload, packets, .. }, each) = (*run, run.each());
    let mut headers = [[0; HEADER_MAX]; AT_ONCE];
    let mut done = 0;
    while done < packets {
        let n = (packets - done).min(AT_ONCE);
        for (i, own) in headers[..n].iter_mut().enumerate() {
            own[..header.len()].copy_from_slice(header);
            advance(own, (done + i) as u32, ((done + i) * each) as u64);
        }
        let frames: [Frame<'_>; AT_ONCE] = std::array::from_fn(|i| {
            let (i, at) = (i.min(n - 1), (done + i.min(n - 1)) * each);
            Frame { peer, header: &headers[i][..header.len()], payload: &payload[at..at + each] }
        });
        let sent = link.send(&frames[..n]);
        done += sent;
        if sent < n {
            return done;
        }
    }
    packets
}

/// Calls `f` with header and payload of the first `sent` packets of a run.
pub(crate) fn each_of(run: &DataRun<'_>, sent: usize, mut f: impl FnMut(&[u8], &[u8])) {
    let (DataRun { header, payload, .. }, each) = (*run, run.each());
    for i in 0..sent {
        let mut own = [0; HEADER_MAX];
        own[..header.len()].copy_from_slice(header);
        advance(&mut own, i as u32, (i * each) as u64);
        f(&own[..header.len()], &payload[i * each..(i + 1) * each]);
    }
}

/// A descriptor that becomes readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFd {
    /// The descriptor; owned by the link.
    pub fd: RawFd,
}

/// The methods of [`Link`] of a link with the methods `send_frames` and `recv_frames`, and the
/// field `events`.
macro_rules! own_frames {
    () => {
        fn send(&mut self, frames: &[crate::Frame<'_>]) -> usize {
            self.send_frames(frames)
        }

        fn recv(&mut self, budget: usize, sink: &mut dyn crate::Sink) -> usize {
            self.recv_frames(budget, sink)
        }

        fn poll_event(&mut self) -> Option<crate::LinkEvent> {
            self.events.pop()
        }
    };
}
pub(crate) use own_frames;

/// Several paths to a peer, for links over networks. A link of one path has none of this.
pub trait Network {
    /// Sends the first packets of a run, and returns their number. Otherwise as
    /// [`send`](Link::send). `None` if the link sends each packet by itself: [`send_run`] does
    /// that.
    fn send_run(&mut self, _run: &DataRun<'_>) -> Option<usize> {
        None
    }

    /// Reports that packets to this peer stay unacknowledged. If the link has several paths to the
    /// peer, it sends the next HELLO over all of them and then uses the path of the first answer.
    fn doubt(&mut self, peer: PeerId);

    /// True if the link has paths to the peer over which no answer came, and which could share bulk
    /// data if one came.
    fn has_unanswered(&mut self, _peer: PeerId) -> bool {
        false
    }

    /// Sends the last question to the peer over these paths, again.
    fn ask_unanswered(&mut self, _peer: PeerId) {}
}

/// A link whose sockets can be closed and opened again while its endpoint goes on: the endpoint
/// moves to another host.
pub trait Movable {
    /// Closes all descriptors and forgets the peers but for the packet numbers accepted from them.
    /// No packet number is left: nothing can be sent before [`open`](Self::open).
    fn close(&mut self);

    /// Opens the descriptors anew, on the host where the process runs now. Peers are connected by
    /// [`Link::connect`]. Packet numbers are taken from these runs alone, none of which was ever
    /// used under this key.
    ///
    /// # Errors
    /// The system refuses a descriptor, or the runs are not above all those used before.
    fn open(&mut self, runs: std::ops::Range<u64>) -> Result<(), LinkError>;
}

/// The processes of peers, for links that see them ([`LinkCaps::sees_end`]).
pub trait Processes {
    /// Tells an endpoint that this process will not make a peer of it. The endpoint connected by
    /// itself, sent HELLO, and would else wait for an answer.
    fn reject(&mut self, _endpoint: EndpointId) {}

    /// Returns the link's observation of a peer's process. Asked after the peer has been silent for
    /// a while.
    fn pulse(&self, peer: PeerId) -> Pulse;
}

/// Memory of peers in the same host, for links that reach it.
pub trait SharedMemory {
    /// Waits a short time for room for a short packet, if the peer is receiving. Returns false if
    /// there is no room or the link cannot tell.
    fn room_soon(&mut self, peer: PeerId) -> bool;

    /// Copies memory of the peer at `addr` into `into`, without its help: all bytes, or an error.
    fn read_direct(&mut self, peer: PeerId, addr: u64, into: &mut [u8]) -> Result<(), LinkError>;

    /// Copies `from` to memory of the peer at `addr`, without its help: all bytes, or an error.
    fn write_direct(&mut self, peer: PeerId, addr: u64, from: &[u8]) -> Result<(), LinkError>;

    /// Adds to the 8 bytes at `addr` of memory that the peer has shared, in one step for all that
    /// add, and returns the value before. `None` if it is not mapped here; then nothing was added.
    fn add_direct(&mut self, peer: PeerId, addr: u64, n: u64) -> Option<u64>;

    /// Revokes a peer's access to the memory of this process. After this call the peer copies
    /// nothing from or to addresses that it may know, for the rest of this connection.
    fn take_back_memory(&mut self, peer: PeerId);

    /// Shares memory of this process with a peer under a key of the caller's choice, for
    /// [`write_direct`](Self::write_direct) without the kernel. Returns false if the link cannot
    /// now.
    fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool;

    /// Maps the memory that a peer shared so far now, instead of at some later time.
    fn take_shared(&mut self, peer: PeerId);

    /// Forgets the memory that a peer shared under this key: its address may belong to other memory
    /// from now on.
    fn forget_shared(&mut self, peer: PeerId, key: u64);

    /// True if the peer is polling now, as far as the link can see, and would serve a request at
    /// once.
    fn attentive(&self, peer: PeerId) -> bool;
}

/// A carrier of frames. A link that can do more implements the traits above, and says so by
/// [`memory`](Self::memory), [`processes`](Self::processes) or [`network`](Self::network).
pub trait Link {
    /// Returns the capabilities of the link as a whole.
    fn caps(&self) -> LinkCaps;

    /// Adds this link's part to the address that peers will use.
    fn advertise(&self, address: &mut Address);

    /// Makes a peer usable for `send`. Takes a bounded time; does not wait for the peer's process.
    /// Returns the capabilities of the path (its MTU may be smaller than the link's).
    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError>;

    /// Forgets a peer and frees the memory and descriptors kept for it.
    fn disconnect(&mut self, peer: PeerId);

    /// Sends the first frames of `frames` and returns their number. Fewer than all means that the
    /// link is full now (backpressure); the caller tries the rest again later. Frames to a peer
    /// that the link knows to be gone are dropped and counted as sent.
    fn send(&mut self, frames: &[Frame<'_>]) -> usize;

    /// Delivers up to `budget` received packets to `sink`; returns their number.
    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize;

    /// Polls for received packets up to `rounds` times, at the shortest interval that the link can,
    /// and delivers them as [`recv`](Self::recv) does as soon as there is one. Only for links whose
    /// poll needs no system call ([`LinkCaps::polled`]).
    fn recv_soon(&mut self, _rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        self.recv(budget, sink)
    }

    /// Returns the next event of the link.
    fn poll_event(&mut self) -> Option<LinkEvent> {
        None
    }

    /// Appends the descriptors that become readable when there is a packet to receive.
    fn wait_fds(&self, out: &mut Vec<WaitFd>);

    /// Prepares to sleep on `wait_fds`. Returns false if there is already a packet: do not sleep.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Ends the wait; called after sleeping, and with `ready` after a long absence. `ready`: one of
    /// `wait_fds` may be readable. Without it, no system call is needed.
    fn finish_wait(&mut self, _ready: bool) {}

    /// Names the path to a peer (interface and addresses) for messages to people. Empty where the
    /// name of the link is enough.
    fn path_text(&self, _peer: PeerId) -> String {
        String::new()
    }

    /// Lists the counters of the link by name, for `weft top`, `info` and tests.
    fn counters(&self, _each: &mut dyn FnMut(&'static str, u64)) {}

    /// Returns the part of the link that reaches memory of peers in the same host.
    fn memory(&mut self) -> Option<&mut dyn SharedMemory> {
        None
    }

    /// Returns the part of the link that sees the processes of peers.
    fn processes(&mut self) -> Option<&mut dyn Processes> {
        None
    }

    /// Returns the part of the link that closes and opens its descriptors, if it can.
    fn movable(&mut self) -> Option<&mut dyn Movable> {
        None
    }

    /// Returns the part of the link that knows several paths to a peer, or sends trains.
    fn network(&mut self) -> Option<&mut dyn Network> {
        None
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn of_all__names_each_interface_unless_all_have_one_reason() {
        let refused = || LinkError::System {
            what: "open a socket".into(),
            source: std::io::Error::from_raw_os_error(libc::EPERM),
            fix: "be root",
        };
        let taken = || LinkError::Unreachable("taken".into());
        let of = |errors: Vec<LinkError>| {
            let names = ["eth0", "eth1", "eth2"].map(String::from);
            LinkError::of_all(names.into_iter().zip(errors).collect())
        };
        let one = of(vec![refused(), refused()]);
        assert!(matches!(one, LinkError::System { .. }), "{one}");
        let all = of(vec![taken(), refused(), taken()]).to_string();
        for part in ["eth0: unreachable: taken", "eth1: open a socket", "eth2: "] {
            assert!(all.contains(part), "{all}");
        }
        assert!(matches!(of(Vec::new()), LinkError::Unsupported));
    }
}

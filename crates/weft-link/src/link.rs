//! The `Link` trait.

use crate::secure::NumbersUsedUp;
use crate::shm::Block;
use crate::{Address, Bytes};
use std::fmt;
use std::os::fd::RawFd;
use weft_core::wire::{advance, PacketType, HEADER_MAX};
use weft_core::{EndpointId, LinkCaps, PeerFailure, PeerId, Pulse};

/// One frame to send: a weft header and the payload bytes that follow it on the wire.
/// The link gathers the two; it must have copied or sent both when `send` returns.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The peer it goes to; `connect` was called for it.
    pub peer: PeerId,
    /// Encoded weft header, 24 to 128 bytes.
    pub header: &'a [u8],
    /// Payload, possibly empty. `header.len() + payload.len() <= mtu`.
    pub payload: &'a [u8],
}

/// What a link needs to know of a peer.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// This endpoint's number for the peer, as used in `Frame::peer`.
    pub peer: PeerId,
    /// The session number that the peer puts into the header of its packets to us
    /// (bytes 4..8): names the peer of an incoming packet.
    pub session: u32,
    /// The peer's identity and incarnation.
    pub endpoint: EndpointId,
    /// Where it can be reached.
    pub address: Address,
}

/// Something a link noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// The peer's process ended (only links that can tell say so).
    PeerGone(PeerId),
    /// The agent of this host that the peer was reached through has ended.
    AgentGone(PeerId),
    /// Who keeps packets for the peer in this endpoint's place has given it up.
    PeerFailed(PeerId, PeerFailure),
    /// The peer's process refused the connection.
    PeerRefused(PeerId),
    /// The path to this peer now carries packets of this size.
    Mtu(PeerId, u32),
    /// Pulled data to this peer may be spread over so many interfaces
    /// ([`Link::send_striped`]).
    Stripes(PeerId, u8),
    /// The link takes nothing more for this peer (true), whatever it takes for others, until it
    /// says so (false).
    Held(PeerId, bool),
    /// The link lost a capability or fell back; said once.
    Warning(String),
}

/// Why a link refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer cannot be reached over this link, and why.
    Unreachable(String),
    /// The operating system refused; what was tried and how to fix it.
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// The link has no packet numbers left for another connection under its key.
    UsedUp,
    /// The link does not offer this.
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
            LinkError::System { what, source, fix } => write!(f, "{what}: {source} ({fix})"),
            LinkError::UsedUp => NumbersUsedUp.fmt(f),
            LinkError::Unsupported => write!(f, "not offered by this link"),
        }
    }
}

impl std::error::Error for LinkError {}

impl LinkError {
    /// Where no interface can be used: the one reason of all, or each with its own.
    pub(crate) fn of_all(mut failed: Vec<(String, LinkError)>) -> LinkError {
        let reasons: Vec<String> = failed.iter().map(|(_, error)| error.to_string()).collect();
        if reasons.windows(2).all(|two| two[0] == two[1]) {
            return failed.pop().map_or(LinkError::Unsupported, |(_, error)| error);
        }
        let each = failed.iter().zip(&reasons).map(|((name, _), why)| format!("{name}: {why}"));
        LinkError::Unreachable(each.collect::<Vec<_>>().join("; "))
    }
}

/// Where bulk payload is expected to go: a link may write the payload of a matching packet there
/// while it checks the packet.
pub struct Prediction<'a> {
    /// Memory that has not received anything yet.
    pub memory: &'a mut [u8],
    /// DATA, or EAGER_MORE.
    pub kind: PacketType,
    /// Session number in the headers of the expected packets.
    pub session: u32,
    /// Their `imm`.
    pub imm: u32,
    /// The `offset` of the packet whose payload belongs at the start of the memory.
    pub offset: u64,
}

/// Takes what a link receives. Implemented by the driver.
pub trait Sink {
    /// One packet. `from` is the peer where the link itself knows it (shared memory), else `None`
    /// and the session number in the (authenticated) header names the peer.
    /// `payload` may lie in memory that another process can write: copy, then check.
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>);

    /// `count` DATA or EAGER_MORE packets, `len` payload bytes in all, whose payload was written to
    /// where the last prediction says: their headers differ from `header`, the first one's, only in
    /// sequence number and offset, which go on from packet to packet. False if they must be given
    /// to `frame` one by one instead.
    fn run(&mut self, _header: &[u8], _count: u32, _len: u64) -> bool {
        false
    }

    /// Where bulk payload is expected to go, if the driver can tell.
    fn predict(&mut self) -> Option<Prediction<'_>> {
        None
    }
}

/// [`Link::send_run`] by [`Link::send`].
pub(crate) fn send_apart<L: Link + ?Sized>(
    link: &mut L,
    peer: PeerId,
    header: &[u8],
    payload: &[u8],
    packets: usize,
) -> usize {
    const AT_ONCE: usize = 64;
    let each = payload.len() / packets.max(1);
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

/// A descriptor to wait on, with the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFd {
    /// The descriptor; owned by the link.
    pub fd: RawFd,
}

/// A carrier of frames.
pub trait Link {
    /// Capabilities of the link as a whole.
    fn caps(&self) -> LinkCaps;

    /// Adds this link's part to the address that peers will use.
    fn advertise(&self, address: &mut Address);

    /// Makes a peer usable for `send`. Bounded in time; does not wait for the peer's process.
    /// Returns the capabilities of the path (its MTU may be smaller than the link's).
    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError>;

    /// Forgets a peer and frees what it held.
    fn disconnect(&mut self, peer: PeerId);

    /// An endpoint connected of itself, said HELLO, and no peer is made of it: a link that can lets
    /// it know, since it would wait for an answer.
    fn reject(&mut self, _endpoint: EndpointId) {}

    /// Packets to this peer stay unacknowledged: the link doubts the way it uses, if it knows
    /// others. The next HELLO takes them all, and the one it is answered over is used.
    fn doubt(&mut self, _peer: PeerId) {}

    /// Sends a prefix of `frames`, returns its length. Fewer than all means the link is full now
    /// (backpressure): the driver tries the rest again later. Frames to a peer the link knows to be
    /// gone are dropped and counted as sent.
    fn send(&mut self, frames: &[Frame<'_>]) -> usize;

    /// Sends a prefix of a run of `packets` DATA packets to `peer`, returns its length: they share
    /// `payload` in equal parts, and their headers differ from `header`, the first one's, in
    /// sequence number and offset ([`wire::advance`](weft_core::wire::advance)). Otherwise as
    /// [`send`](Link::send). Only asked of a link that names a train in its capabilities.
    fn send_run(&mut self, peer: PeerId, header: &[u8], payload: &[u8], packets: usize) -> usize {
        send_apart(self, peer, header, payload, packets)
    }

    /// As [`send_run`](Link::send_run), over one of the interfaces that share data to the peer, by
    /// its place among them ([`LinkEvent::Stripes`]).
    fn send_striped(
        &mut self,
        peer: PeerId,
        _stripe: u8,
        header: &[u8],
        payload: &[u8],
        packets: usize,
    ) -> usize {
        self.send_run(peer, header, payload, packets)
    }

    /// Waits a moment for room for a short packet to a peer that takes what it is sent. False:
    /// there is none, or the link cannot tell.
    fn room_soon(&mut self, _peer: PeerId) -> bool {
        false
    }

    /// Delivers up to `budget` received packets to `sink`; returns how many.
    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize;

    /// Looks for something to receive up to `rounds` times, as closely as it can; true as soon as
    /// there is.
    fn spin(&mut self, _rounds: u32) -> bool {
        false
    }

    /// [`spin`](Self::spin), and [`recv`](Self::recv) of what there is then.
    #[inline]
    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        match self.spin(rounds) {
            true => self.recv(budget, sink),
            false => 0,
        }
    }

    /// Next thing the link noticed.
    fn poll_event(&mut self) -> Option<LinkEvent> {
        None
    }

    /// Descriptors that become readable when there is something to receive.
    fn wait_fds(&self, out: &mut Vec<WaitFd>);

    /// Called before sleeping on `wait_fds`. False: something is already there, do not sleep.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    /// Called after sleeping.
    fn finish_wait(&mut self) {}

    /// Copies from the peer's memory at `addr` into `into`, in one step. Whole or error.
    fn read_direct(
        &mut self,
        _peer: PeerId,
        _addr: u64,
        _into: &mut [u8],
    ) -> Result<(), LinkError> {
        Err(LinkError::Unsupported)
    }

    /// Copies `from` to the peer's memory at `addr`, in one step. Whole or error.
    fn write_direct(&mut self, _peer: PeerId, _addr: u64, _from: &[u8]) -> Result<(), LinkError> {
        Err(LinkError::Unsupported)
    }

    /// Takes memory of this process back from a peer that may know addresses of it: when this
    /// returns the peer copies nothing from or to it, and never will again over this connection.
    fn take_back_memory(&mut self, _peer: PeerId) {}

    /// Gives a peer memory of this process under a key of the caller's, for
    /// [`write_direct`](Self::write_direct) without the kernel. False: the link cannot, or not now.
    fn share(&mut self, _peer: PeerId, _key: u64, _block: &Block) -> bool {
        false
    }

    /// Takes the memory that a peer has given by now; without it, it is taken at some time.
    fn take_shared(&mut self, _peer: PeerId) {}

    /// Forgets the memory that a peer has given before under this key: its address may be that of
    /// other memory from now on.
    fn forget_shared(&mut self, _peer: PeerId, _key: u64) {}

    /// Whether the peer is polling right now, as far as the link can see: it would serve a request
    /// at once.
    fn attentive(&self, _peer: PeerId) -> bool {
        false
    }

    /// What the link sees of a peer's process; asked of links that see its end
    /// ([`LinkCaps::sees_end`]), when the peer has been silent for a while.
    fn pulse(&self, _peer: PeerId) -> Pulse {
        Pulse::Unseen
    }

    /// The way to a peer, for messages to people: interface and addresses. Empty where the link's
    /// name says it all.
    fn way(&self, _peer: PeerId) -> String {
        String::new()
    }

    /// Counters of the link, by name: for `weft top`, `info` and tests.
    fn counters(&self, _each: &mut dyn FnMut(&'static str, u64)) {}
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

//! The messages between a rank and its agent, beside packets.
//!
//! A message is a number (u8) and its fields, little-endian, without gaps; a list or text at the
//! end takes the remaining bytes. `PROTOCOL.md` has the table. Messages that are too short, too
//! long or unknown are refused.

use std::fmt;
use weft_core::group::tree::Tree;
use weft_core::wire::{self, Atomic, PacketType};
use weft_core::{Config, EndpointId, PeerId, Reliability};
use weft_link::address;
use weft_link::secure::Mode;

/// Version of the messages between rank and agent. Its parts: the messages themselves, the
/// addresses and the packets in them. An agent that knows another version of any of them would be
/// understood in part.
pub const VERSION: u16 = MESSAGES << 10 | (address::VERSION as u16) << 5 | wire::VERSION as u16;
/// Version of the messages.
const MESSAGES: u16 = 5;
const _: () = assert!(address::VERSION < 32 && wire::VERSION < 32, "each has five bits");

/// Returns a version for people: its parts, or the number of builds whose version had none.
pub fn version_text(version: u16) -> String {
    match version >> 10 {
        0 => version.to_string(),
        messages => {
            format!("{messages} (addresses {}, packets {})", version >> 5 & 31, version & 31)
        }
    }
}

/// A rank's request for service.
#[derive(Clone, PartialEq, Eq)]
pub struct Attach {
    /// The rank's identity.
    pub endpoint: EndpointId,
    /// The protection of frames.
    pub mode: Mode,
    /// The method of retransmission.
    pub reliability: Reliability,
    /// `window`, `ack_every`, `ack_delay_us`, `rto_min_us`, `rto_max_us`, `peer_timeout_ms` and
    /// `peers_max` of the rank's configuration.
    pub numbers: [u32; 7],
    /// The job's key.
    pub key: [u8; 32],
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attach({})", self.endpoint)
    }
}

impl Attach {
    /// Makes the request of a rank with this configuration.
    pub fn new(endpoint: EndpointId, mode: Mode, key: [u8; 32], c: &Config) -> Attach {
        let numbers = [
            c.window,
            c.ack_every,
            c.ack_delay_us,
            c.rto_min_us,
            c.rto_max_us,
            c.peer_timeout_ms,
            c.peers_max,
        ];
        Attach { endpoint, mode, reliability: c.reliability, numbers, key }
    }

    /// Returns the part of the configuration that concerns reliability.
    pub fn config(&self) -> Config {
        let [window, ack_every, ack_delay_us, rto_min_us, rto_max_us, peer_timeout_ms, peers_max] =
            self.numbers;
        Config {
            reliability: self.reliability,
            window: window.clamp(1, 1024),
            ack_every: ack_every.max(1),
            ack_delay_us: ack_delay_us.min(1_000_000),
            rto_min_us: rto_min_us.clamp(100, 10_000_000),
            rto_max_us: rto_max_us.clamp(1_000, 60_000_000).max(rto_min_us.min(10_000_000)),
            peer_timeout_ms: peer_timeout_ms.max(100),
            peers_max,
            ..Config::default()
        }
    }
}

/// An agent's description of its service for a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// [`VERSION`] of the agent.
    pub version: u16,
    /// Process id of the agent, for messages to people; 0 when unknown.
    pub pid: u32,
    /// Largest packet of its links.
    pub mtu: u32,
    /// Estimated latency of the agent's fastest link, nanoseconds.
    pub latency_ns: u32,
    /// Estimated throughput, bytes per microsecond.
    pub bytes_per_us: u32,
    /// The address at which peers reach the rank through the agent: an encoded
    /// [`Address`](weft_link::Address).
    pub address: Vec<u8>,
}

/// A rank's role in a multicast group of agents. Members are numbered from the root, which is 0 and
/// the only one that sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRole {
    /// The group, unique in the job.
    pub group: u64,
    /// The tree along which agents forward.
    pub tree: Tree,
    /// Members of the group.
    pub size: u32,
    /// This member's number.
    pub me: u32,
    /// The rank's peer that is its parent in the tree; `u32::MAX` for the root.
    pub parent: PeerId,
    /// The rank's peers that are its children, in the order of their member numbers.
    pub children: Vec<PeerId>,
}

/// A message between rank and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Rank: a request for service.
    Attach(Attach),
    /// Rank: a request in another version of these messages, and the bytes that follow the version.
    Foreign(u16, Vec<u8>),
    /// Agent: the request is accepted.
    Attached(Served),
    /// Agent: the request is refused, with the reason.
    Refused(String),
    /// Rank: connect a peer. The fields: the peer, the session number that the peer puts into
    /// packets to this rank, the count of numbered packets to the peer so far, its identity, and
    /// its encoded address.
    Connect(PeerId, u32, u32, EndpointId, Vec<u8>),
    /// Rank: forget a peer.
    Disconnect(PeerId),
    /// Agent: the path to a peer carries packets of this size.
    Path(PeerId, u32),
    /// Agent: a peer cannot be reached, or not any more; the reason.
    Lost(PeerId, String),
    /// Agent: this many of the numbered packets to a peer, counted from the first, do not wait any
    /// more.
    Left(PeerId, u32),
    /// Agent: a peer is lost. It sends packets, but for this time (milliseconds) no packet of this
    /// type and length has reached it. Fields: peer, milliseconds, type, length.
    Stuck(PeerId, u32, PacketType, u32),
    /// Agent: a text for people.
    Notice(String),
    /// Rank: keep words for fetch-and-add (key, count, initial value); in the kernel if the flag is
    /// true and the kernel can.
    CounterOpen(u64, u32, u64, bool),
    /// Rank: read a word (key, index).
    CounterRead(u64, u32),
    /// Agent: the value of a word, or `None` if the key is unknown; also the answer to
    /// `CounterOpen`.
    CounterIs(u64, u32, Option<u64>),
    /// Rank: forget the words under this key.
    CounterClose(u64),
    /// Rank: do this operation on a word of this rank. The answer has the same number.
    CounterDo(u64, Atomic),
    /// Agent: the result of the `CounterDo` with this number; `None` if it was refused.
    CounterDone(u64, Option<u64>),
    /// Rank: join a multicast group.
    GroupJoin(GroupRole),
    /// Agent: the answer to `GroupJoin`; true if the agent takes part in the group for the rank.
    GroupJoined(u64, bool),
    /// Rank: leave a multicast group.
    GroupLeave(u64),
    /// Rank or agent: a packet of a group, its number and its bytes.
    GroupPacket(u64, u32, Vec<u8>),
    /// Agent, to the root, or rank, to its agent: packets before this number may be sent now.
    GroupGrant(u64, u32),
    /// Agent: a member blocks the group (true), or is lost (false).
    GroupMember(u64, u32, bool),
}

/// The error for bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlError;

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a message between rank and agent")
    }
}

impl std::error::Error for ControlError {}

/// Highest number of children of a member.
const CHILDREN_MAX: usize = 4096;
/// Longest text, in bytes.
const TEXT_MAX: usize = 1024;

struct Writer(Vec<u8>);

impl Writer {
    fn u16(mut self, n: u16) -> Writer {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }
    fn u32(mut self, n: u32) -> Writer {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }
    fn u64(mut self, n: u64) -> Writer {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }
    fn bytes(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        self.0
    }
    fn text(self, text: &str) -> Vec<u8> {
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end])
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ControlError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(ControlError)?;
        self.0 = tail;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, ControlError> {
        Ok(self.take::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, ControlError> {
        Ok(u16::from_le_bytes(self.take()?))
    }
    fn u32(&mut self) -> Result<u32, ControlError> {
        Ok(u32::from_le_bytes(self.take()?))
    }
    fn u64(&mut self) -> Result<u64, ControlError> {
        Ok(u64::from_le_bytes(self.take()?))
    }
    fn peer(&mut self) -> Result<PeerId, ControlError> {
        Ok(PeerId(self.u32()?))
    }
    /// Reads a flag and a number: `None` if the flag is 0. The number is then 0, too.
    fn maybe(&mut self) -> Result<Option<u64>, ControlError> {
        match (self.u32()?, self.u64()?) {
            (0, 0) => Ok(None),
            (1, value) => Ok(Some(value)),
            _ => Err(ControlError),
        }
    }
    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
    fn text(&mut self) -> Result<String, ControlError> {
        if self.0.len() > TEXT_MAX {
            return Err(ControlError);
        }
        String::from_utf8(self.rest()).map_err(|_| ControlError)
    }
}

fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Auth => 0,
        Mode::Encrypt => 1,
        Mode::None => 2,
    }
}

fn reliability_number(reliability: Reliability) -> u8 {
    match reliability {
        Reliability::None => 0,
        Reliability::GoBackN => 1,
        Reliability::Selective | Reliability::Agent => 2,
    }
}

const TREES: [Tree; 4] = [Tree::Flat, Tree::Chain, Tree::Binary, Tree::Binomial];

impl Control {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let new = |number: u8| Writer(vec![number]);
        match self {
            Control::Attach(a) => {
                let w = new(1).u16(VERSION).u64(a.endpoint.0);
                let w = w.u16(u16::from_le_bytes([
                    mode_number(a.mode),
                    reliability_number(a.reliability),
                ]));
                a.numbers.iter().fold(w, |w, &n| w.u32(n)).bytes(&a.key)
            }
            Control::Foreign(version, rest) => new(1).u16(*version).bytes(rest),
            Control::Attached(s) => {
                let w = new(2).u16(s.version).u32(s.pid).u32(s.mtu).u32(s.latency_ns);
                w.u32(s.bytes_per_us).bytes(&s.address)
            }
            Control::Refused(why) => new(3).text(why),
            Control::Connect(peer, session, given, endpoint, address) => {
                let w = new(4).u32(peer.0).u32(*session).u32(*given);
                w.u64(endpoint.0).bytes(address)
            }
            Control::Disconnect(peer) => new(5).u32(peer.0).0,
            Control::Path(peer, mtu) => new(6).u32(peer.0).u32(*mtu).0,
            Control::Lost(peer, why) => new(7).u32(peer.0).text(why),
            Control::Notice(text) => new(8).text(text),
            Control::CounterOpen(key, words, value, kernel) => {
                new(9).u64(*key).u32(*words).u64(*value).u32((*kernel).into()).0
            }
            Control::CounterRead(key, word) => new(10).u64(*key).u32(*word).0,
            Control::CounterIs(key, word, value) => {
                let w = new(11).u64(*key).u32(*word);
                w.u32(value.is_some().into()).u64(value.unwrap_or(0)).0
            }
            Control::CounterClose(key) => new(12).u64(*key).0,
            Control::GroupJoin(g) => {
                let tree = TREES.iter().position(|t| *t == g.tree).unwrap_or(0) as u32;
                let w = new(13).u64(g.group).u32(tree).u32(g.size).u32(g.me).u32(g.parent.0);
                g.children.iter().take(CHILDREN_MAX).fold(w, |w, c| w.u32(c.0)).0
            }
            Control::GroupLeave(group) => new(14).u64(*group).0,
            Control::GroupPacket(group, number, bytes) => {
                new(15).u64(*group).u32(*number).bytes(bytes)
            }
            Control::GroupGrant(group, number) => new(16).u64(*group).u32(*number).0,
            Control::GroupMember(group, member, slow) => {
                new(17).u64(*group).u32(*member).u32((*slow).into()).0
            }
            Control::CounterDo(number, a) => {
                let w = new(18).u64(*number).u64(a.key).u64(a.offset).u64(a.operand);
                w.u64(a.compare).u32(a.code.into()).0
            }
            Control::CounterDone(number, value) => {
                let w = new(19).u64(*number).u32(value.is_some().into());
                w.u64(value.unwrap_or(0)).0
            }
            Control::GroupJoined(group, joined) => new(20).u64(*group).u32((*joined).into()).0,
            Control::Left(peer, left) => new(21).u32(peer.0).u32(*left).0,
            Control::Stuck(peer, after_ms, kind, len) => {
                new(22).u32(peer.0).u32(*after_ms).u32(*kind as u32).u32(*len).0
            }
        }
    }

    /// Decodes the message, which must fill `bytes` exactly.
    ///
    /// # Errors
    /// The bytes are not a message.
    pub fn decode(bytes: &[u8]) -> Result<Control, ControlError> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            1 => match r.u16()? {
                VERSION => Control::Attach(attach(&mut r)?),
                other => Control::Foreign(other, r.rest()),
            },
            2 => Control::Attached(Served {
                version: r.u16()?,
                pid: r.u32()?,
                mtu: r.u32()?,
                latency_ns: r.u32()?,
                bytes_per_us: r.u32()?,
                address: r.rest(),
            }),
            3 => Control::Refused(r.text()?),
            4 => {
                let (peer, session, given) = (r.peer()?, r.u32()?, r.u32()?);
                Control::Connect(peer, session, given, EndpointId(r.u64()?), r.rest())
            }
            5 => Control::Disconnect(r.peer()?),
            6 => Control::Path(r.peer()?, r.u32()?),
            7 => Control::Lost(r.peer()?, r.text()?),
            8 => Control::Notice(r.text()?),
            9 => match (r.u64()?, r.u32()?, r.u64()?, r.u32()?) {
                (key, words, value, kernel @ 0..=1) => {
                    Control::CounterOpen(key, words, value, kernel == 1)
                }
                _ => return Err(ControlError),
            },
            10 => Control::CounterRead(r.u64()?, r.u32()?),
            11 => {
                let (key, word) = (r.u64()?, r.u32()?);
                Control::CounterIs(key, word, r.maybe()?)
            }
            12 => Control::CounterClose(r.u64()?),
            13 => Control::GroupJoin(group_role(&mut r)?),
            14 => Control::GroupLeave(r.u64()?),
            15 => Control::GroupPacket(r.u64()?, r.u32()?, r.rest()),
            16 => Control::GroupGrant(r.u64()?, r.u32()?),
            17 => match (r.u64()?, r.u32()?, r.u32()?) {
                (group, member, slow @ 0..=1) => Control::GroupMember(group, member, slow == 1),
                _ => return Err(ControlError),
            },
            18 => Control::CounterDo(r.u64()?, atomic(&mut r)?),
            19 => Control::CounterDone(r.u64()?, r.maybe()?),
            20 => match (r.u64()?, r.u32()?) {
                (group, joined @ 0..=1) => Control::GroupJoined(group, joined == 1),
                _ => return Err(ControlError),
            },
            21 => Control::Left(r.peer()?, r.u32()?),
            22 => Control::Stuck(r.peer()?, r.u32()?, kind(&mut r)?, r.u32()?),
            _ => return Err(ControlError),
        };
        r.0.is_empty().then_some(message).ok_or(ControlError)
    }
}

fn attach(r: &mut Reader<'_>) -> Result<Attach, ControlError> {
    let endpoint = EndpointId(r.u64()?);
    let mode = match r.u8()? {
        0 => Mode::Auth,
        1 => Mode::Encrypt,
        2 => Mode::None,
        _ => return Err(ControlError),
    };
    let reliability = match r.u8()? {
        0 => Reliability::None,
        1 => Reliability::GoBackN,
        2 => Reliability::Selective,
        _ => return Err(ControlError),
    };
    let mut numbers = [0; 7];
    for n in &mut numbers {
        *n = r.u32()?;
    }
    Ok(Attach { endpoint, mode, reliability, numbers, key: r.take()? })
}

fn atomic(r: &mut Reader<'_>) -> Result<Atomic, ControlError> {
    let (key, offset, operand, compare) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let code = u8::try_from(r.u32()?).map_err(|_| ControlError)?;
    Ok(Atomic { key, offset, operand, compare, code })
}

fn kind(r: &mut Reader<'_>) -> Result<PacketType, ControlError> {
    let number = u8::try_from(r.u32()?).map_err(|_| ControlError)?;
    PacketType::try_from(number).map_err(|_| ControlError)
}

fn group_role(r: &mut Reader<'_>) -> Result<GroupRole, ControlError> {
    let group = r.u64()?;
    let tree = *TREES.get(r.u32()? as usize).ok_or(ControlError)?;
    let (size, me, parent) = (r.u32()?, r.u32()?, r.peer()?);
    let mut children = Vec::new();
    while !r.0.is_empty() {
        if children.len() == CHILDREN_MAX {
            return Err(ControlError);
        }
        children.push(r.peer()?);
    }
    if me >= size || (me == 0) != (parent.0 == u32::MAX) {
        return Err(ControlError);
    }
    Ok(GroupRole { group, tree, size, me, parent, children })
}

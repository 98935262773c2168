//! The messages between an agent and the programs of its host, on a Unix socket beside the agent's
//! (`NAME-names`).
//!
//! A frame is a length (u32, of the rest), a type (u8), a serial (u32) and the body. A program
//! numbers its requests; each gets one answer with its serial, or, to a question for a list,
//! several, of which all but the last say so; one ([`Request::Took`]) gets none. Events have serial
//! 0. [`Request::Show`] comes with a descriptor. Both ends are of one version: the first request
//! says it. Nothing here trusts its input.

use crate::group::{GroupNotice, To};
use crate::ranks::OfHost;
use weft_names::directory::Gone;
use weft_names::membership::Cause;
use weft_names::wire::{Publication, Reader, WireError, Writer};
use weft_names::{Binding, BindingId, Claim, HostId, Life, Mode, NameEvent, Notice, Owner, Scope};

/// Version of these messages.
pub const VERSION: u32 = 5;
/// Longest frame.
pub const FRAME_MAX: usize = 1 << 17;
/// Length of a frame's head.
pub const HEAD: usize = 9;
/// Longest message to a name.
pub const MAIL_MAX: usize = 66_000;

/// Bytes with a length in front.
pub(crate) fn put_bytes(to: &mut Writer, bytes: &[u8]) {
    to.value(&(bytes.len() as u32));
    to.bytes(bytes);
}

pub(crate) fn bytes<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let len: u32 = from.value()?;
    from.bytes(len as usize)
}

fn put_text(to: &mut Writer, text: &str) {
    put_bytes(to, text.as_bytes());
}

fn text(from: &mut Reader<'_>) -> Result<String, WireError> {
    let found = std::str::from_utf8(bytes(from)?);
    found.map(str::to_string).map_err(|_| WireError::Value { name: "text" })
}

fn put_claim(to: &mut Writer, claim: &Claim) {
    to.value(&u8::from(claim.scope == Scope::Host));
    to.value(&Publication { claim: 1, stamp: 0, name: claim.clone() });
}

fn scoped(scope: u8, mut name: Claim) -> Result<Claim, WireError> {
    name.scope = match scope {
        0 => Scope::Cluster,
        1 => Scope::Host,
        _ => return Err(WireError::Value { name: "scope" }),
    };
    Ok(name)
}

fn claim(from: &mut Reader<'_>) -> Result<Claim, WireError> {
    let (scope, publication): (u8, Publication) = (from.value()?, from.value()?);
    if publication.claim != 1 || publication.stamp != 0 {
        return Err(WireError::Reserved);
    }
    scoped(scope, publication.name)
}

pub(crate) fn put_binding(to: &mut Writer, binding: &Binding) {
    let Binding { id, stamp, name } = binding;
    to.value(&id.host);
    to.value(&id.life);
    to.value(&u8::from(name.scope == Scope::Host));
    to.value(&Publication { claim: id.claim, stamp: *stamp, name: name.clone() });
}

pub(crate) fn binding(from: &mut Reader<'_>) -> Result<Binding, WireError> {
    let (host, life, scope): (HostId, Life, u8) = (from.value()?, from.value()?, from.value()?);
    let Publication { claim, stamp, name } = from.value()?;
    let id = BindingId { host, life, claim };
    Ok(Binding { id, stamp, name: scoped(scope, name)? })
}

fn put_cause(to: &mut Writer, cause: &Cause) {
    let (code, detail): (u8, u64) = match *cause {
        Cause::Started => (1, 0),
        Cause::Returned => (2, 0),
        Cause::Left => (4, 0),
        Cause::Ended { status } => (5, status.into()),
        Cause::Lost { by } => (6, by.0),
        Cause::Replaced { incarnation } => (7, incarnation),
        _ => (3, 0),
    };
    to.value(&code);
    to.value(&detail);
}

fn cause(from: &mut Reader<'_>) -> Result<Cause, WireError> {
    let (code, detail): (u8, u64) = (from.value()?, from.value()?);
    let none = |cause| match detail {
        0 => Ok(cause),
        _ => Err(WireError::Reserved),
    };
    match code {
        1 => none(Cause::Started),
        2 => none(Cause::Returned),
        3 => none(Cause::Elsewhere),
        4 => none(Cause::Left),
        5 => match u32::try_from(detail) {
            Ok(status) => Ok(Cause::Ended { status }),
            Err(_) => Err(WireError::Value { name: "status" }),
        },
        6 => Ok(Cause::Lost { by: HostId(detail) }),
        7 => Ok(Cause::Replaced { incarnation: detail }),
        _ => Err(WireError::Value { name: "cause" }),
    }
}

pub(crate) fn put_gone(to: &mut Writer, gone: &Gone) {
    match gone {
        Gone::Host(cause) => {
            to.value(&2u8);
            put_cause(to, cause);
        }
        Gone::CutOff => to.value(&3u8),
        Gone::Missing => to.value(&4u8),
        other => {
            to.value(&1u8);
            to.value(other);
        }
    }
}

pub(crate) fn gone(from: &mut Reader<'_>) -> Result<Gone, WireError> {
    match from.value::<u8>()? {
        1 => from.value(),
        2 => cause(from).map(Gone::Host),
        3 => Ok(Gone::CutOff),
        4 => Ok(Gone::Missing),
        _ => Err(WireError::Value { name: "gone" }),
    }
}

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first: the version of these messages.
    Hello(u32),
    /// Claims a name; the agent puts the owner in. True if the owner takes messages.
    Claim(Claim, bool),
    /// Withdraws a claim.
    Withdraw(u64),
    /// Watches the instances of a type.
    Watch {
        /// The type.
        kind: u32,
        /// First instance.
        lower: u32,
        /// Last instance.
        upper: u32,
        /// Each name, or the first and last.
        mode: Mode,
        /// Time in ms after which it ends; 0: never.
        timeout_ms: u64,
    },
    /// Ends a subscription.
    Unwatch(u64),
    /// Asks for all names that this user sees: those of types from the first to the last.
    List(u32, u32),
    /// Asks for the hosts.
    Hosts,
    /// Asks for the events of hosts, from now on.
    WatchHosts,
    /// Asks for the state of the agent, as lines of names and values.
    Report,
    /// Sends a message to one owner of a name (by turns), or to all.
    Mail {
        /// The type.
        kind: u32,
        /// The first instance.
        lower: u32,
        /// The last instance.
        upper: u32,
        /// The word of the type; empty: the type was given as a number.
        alias: String,
        /// To all owners.
        all: bool,
        /// The message.
        payload: Vec<u8>,
    },
    /// Claims a name as a member of the group of its type: the time in ms after which a member
    /// that takes nothing is named, and that after which it is evicted (0: never).
    Join(Claim, u64, u64),
    /// Sends a message to members of a group.
    Cast {
        /// The claim by which the program is a member.
        claim: u64,
        /// The receivers.
        to: To,
        /// Time in ms for which it waits for credit.
        wait_ms: u64,
        /// The message.
        payload: Vec<u8>,
    },
    /// The program has taken so many messages of a group, or, with claim 0, to its names. It is not
    /// answered.
    Took(u64, u32),
    /// The program is a rank; the descriptor that comes with the request is the page of its
    /// counters. A later one takes the place of an earlier one.
    Show,
    /// Asks for the ranks of all hosts that this user sees.
    Ranks,
}

/// A host, as the agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its number.
    pub host: HostId,
    /// The life of its agent.
    pub life: Life,
    /// True if it is there.
    pub is_up: bool,
    /// Number of the last step of its history.
    pub step: u32,
    /// Version of its agent.
    pub agent: u32,
    /// The address of its agent.
    pub address: std::net::SocketAddr,
    /// The cause of that step.
    pub cause: Cause,
    /// Time since that step, in ms, as seen here.
    pub since_ms: u64,
    /// Its name.
    pub name: String,
    /// The names of its processes.
    pub names: u32,
    /// Round-trip time in ns, if this host watches it; 0: it does not.
    pub round_trip_ns: u64,
    /// Probes sent to it.
    pub probes: u64,
    /// Probes that it answered.
    pub answers: u64,
    /// Public number of the key of the session with it; 0: there is no session.
    pub key: u64,
}

/// Answers and events of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Answers the first request: the cluster's name, this host, and its life.
    Welcome(String, HostId, Life),
    /// The request is done; the number of the claim or the subscription.
    Done(u64),
    /// The request is not done; the reason.
    Refused(String),
    /// Names; true if more follow.
    Names(bool, Vec<Binding>),
    /// Hosts; true if more follow.
    Hosts(bool, Vec<Host>),
    /// Text.
    Text(String),
    /// An event of a subscription.
    Name(u64, NameEvent),
    /// A claim of this program was ended by others.
    Lost(u64, Gone),
    /// An event of a host: number, host, its name, life, step, true if it is there, and the cause.
    Member(u64, HostId, String, Life, u32, bool, Cause),
    /// This host hears no other (false), or hears others again (true).
    Hears(bool),
    /// A message for a name of this program: the claim, the sender's host, and the message.
    Mail(u64, HostId, Owner, Vec<u8>),
    /// An event of a group: the claim of this program, number and event.
    Group(u64, u64, GroupNotice),
    /// Ranks of a host; true if more follow, of this host or of others.
    Ranks(bool, OfHost),
    /// A message of this program came back after it was sent: its number, and the reason.
    Returned(u64, String),
}

fn put_event(to: &mut Writer, event: &NameEvent) {
    to.value(&event.seq);
    match &event.notice {
        Notice::Published(b) => {
            to.value(&1u8);
            put_binding(to, b);
        }
        Notice::Withdrawn(b, why) => {
            to.value(&2u8);
            put_binding(to, b);
            put_gone(to, why);
        }
        Notice::SnapshotEnd => to.value(&3u8),
        Notice::Missed { events } => {
            to.value(&4u8);
            to.value(events);
        }
        Notice::Timeout => to.value(&5u8),
    }
}

fn event(from: &mut Reader<'_>) -> Result<NameEvent, WireError> {
    let seq = from.value()?;
    let notice = match from.value::<u8>()? {
        1 => Notice::Published(binding(from)?),
        2 => Notice::Withdrawn(binding(from)?, gone(from)?),
        3 => Notice::SnapshotEnd,
        4 => Notice::Missed { events: from.value()? },
        5 => Notice::Timeout,
        _ => return Err(WireError::Value { name: "notice" }),
    };
    Ok(NameEvent { seq, notice })
}

fn put_host(to: &mut Writer, h: &Host) {
    to.value(&h.host);
    to.value(&h.life);
    to.value(&u8::from(h.is_up));
    to.value(&h.step);
    to.value(&h.agent);
    to.value(&h.address);
    put_cause(to, &h.cause);
    to.value(&h.since_ms);
    put_text(to, &h.name);
    to.value(&h.names);
    for number in [h.round_trip_ns, h.probes, h.answers, h.key] {
        to.value(&number);
    }
}

fn flag(from: &mut Reader<'_>) -> Result<bool, WireError> {
    match from.value::<u8>()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Value { name: "flag" }),
    }
}

fn host(from: &mut Reader<'_>) -> Result<Host, WireError> {
    Ok(Host {
        host: from.value()?,
        life: from.value()?,
        is_up: flag(from)?,
        step: from.value()?,
        agent: from.value()?,
        address: from.value()?,
        cause: cause(from)?,
        since_ms: from.value()?,
        name: text(from)?,
        names: from.value()?,
        round_trip_ns: from.value()?,
        probes: from.value()?,
        answers: from.value()?,
        key: from.value()?,
    })
}

fn list<T>(
    from: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<(bool, Vec<T>), WireError> {
    let more = flag(from)?;
    let mut items = Vec::new();
    while !from.0.is_empty() {
        items.push(one(from)?);
    }
    Ok((more, items))
}

/// Begins a frame; its length is not known yet.
fn begin(kind: u8, serial: u32) -> Writer {
    let mut to = Writer::default();
    to.value(&0u32);
    to.value(&kind);
    to.value(&serial);
    to
}

fn end(mut to: Writer) -> Vec<u8> {
    let len = to.0.len() as u32 - 4;
    to.0[..4].copy_from_slice(&len.to_le_bytes());
    to.0
}

impl Request {
    /// True if the work for it, or the answer, may be as large as the cluster.
    pub fn is_large(&self) -> bool {
        matches!(self, Request::List(..) | Request::Hosts | Request::Mail { all: true, .. })
    }

    /// Encodes it as a frame.
    pub fn encode(&self, serial: u32) -> Vec<u8> {
        let kind = match self {
            Request::Hello(_) => 1,
            Request::Claim(..) => 2,
            Request::Withdraw(_) => 3,
            Request::Watch { .. } => 4,
            Request::Unwatch(_) => 5,
            Request::List(..) => 6,
            Request::Hosts => 7,
            Request::WatchHosts => 8,
            Request::Report => 9,
            Request::Mail { .. } => 10,
            Request::Join(..) => 11,
            Request::Cast { .. } => 12,
            Request::Took(..) => 13,
            Request::Show => 14,
            Request::Ranks => 15,
        };
        let mut to = begin(kind, serial);
        match self {
            Request::Hello(version) => to.value(version),
            Request::Claim(claim, takes_mail) => {
                put_claim(&mut to, claim);
                to.value(&u8::from(*takes_mail));
            }
            Request::Withdraw(number) | Request::Unwatch(number) => to.value(number),
            Request::Watch { kind, lower, upper, mode, timeout_ms } => {
                [kind, lower, upper].iter().for_each(|n| to.value(*n));
                to.value(&u8::from(*mode == Mode::FirstLast));
                to.value(timeout_ms);
            }
            Request::List(first, last) => [first, last].iter().for_each(|n| to.value(*n)),
            Request::Mail { kind, lower, upper, alias, all, payload } => {
                [kind, lower, upper].iter().for_each(|n| to.value(*n));
                put_text(&mut to, alias);
                to.value(&u8::from(*all));
                put_bytes(&mut to, payload);
            }
            Request::Join(claim, slow_ms, evict_ms) => {
                put_claim(&mut to, claim);
                [slow_ms, evict_ms].iter().for_each(|n| to.value(*n));
            }
            Request::Cast { claim, to: receivers, wait_ms, payload } => {
                to.value(claim);
                receivers.put(&mut to);
                to.value(wait_ms);
                put_bytes(&mut to, payload);
            }
            Request::Took(claim, count) => {
                to.value(claim);
                to.value(count);
            }
            _ => {}
        }
        end(to)
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Request, WireError> {
        Ok(match kind {
            1 => Request::Hello(from.value()?),
            2 => Request::Claim(claim(from)?, flag(from)?),
            3 => Request::Withdraw(from.value()?),
            4 => {
                let (kind, lower, upper) = (from.value()?, from.value()?, from.value()?);
                let mode = if flag(from)? { Mode::FirstLast } else { Mode::Each };
                Request::Watch { kind, lower, upper, mode, timeout_ms: from.value()? }
            }
            5 => Request::Unwatch(from.value()?),
            6 => Request::List(from.value()?, from.value()?),
            7 => Request::Hosts,
            8 => Request::WatchHosts,
            9 => Request::Report,
            10 => Request::Mail {
                kind: from.value()?,
                lower: from.value()?,
                upper: from.value()?,
                alias: text(from)?,
                all: flag(from)?,
                payload: bytes(from)?.to_vec(),
            },
            11 => Request::Join(claim(from)?, from.value()?, from.value()?),
            12 => Request::Cast {
                claim: from.value()?,
                to: To::read(from)?,
                wait_ms: from.value()?,
                payload: bytes(from)?.to_vec(),
            },
            13 => Request::Took(from.value()?, from.value()?),
            14 => Request::Show,
            15 => Request::Ranks,
            found => return Err(WireError::Type { found }),
        })
    }
}

impl Say {
    fn kind(&self) -> u8 {
        match self {
            Say::Welcome(..) => 1,
            Say::Done(_) => 2,
            Say::Refused(_) => 3,
            Say::Names(..) => 4,
            Say::Hosts(..) => 5,
            Say::Text(_) => 6,
            Say::Name(..) => 7,
            Say::Lost(..) => 8,
            Say::Member(..) => 9,
            Say::Hears(_) => 10,
            Say::Mail(..) => 11,
            Say::Group(..) => 12,
            Say::Ranks(..) => 13,
            Say::Returned(..) => 14,
        }
    }

    /// Encodes it as a frame.
    pub fn encode(&self, serial: u32) -> Vec<u8> {
        let mut to = begin(self.kind(), serial);
        match self {
            Say::Welcome(name, host, life) => {
                put_text(&mut to, name);
                to.value(host);
                to.value(life);
            }
            Say::Done(number) => to.value(number),
            Say::Refused(text) | Say::Text(text) => put_text(&mut to, text),
            Say::Names(more, items) => {
                to.value(&u8::from(*more));
                items.iter().for_each(|item| put_binding(&mut to, item));
            }
            Say::Hosts(more, items) => {
                to.value(&u8::from(*more));
                items.iter().for_each(|item| put_host(&mut to, item));
            }
            Say::Name(watch, event) => {
                to.value(watch);
                put_event(&mut to, event);
            }
            Say::Lost(claim, gone) => {
                to.value(claim);
                put_gone(&mut to, gone);
            }
            Say::Member(seq, host, name, life, step, is_up, cause) => {
                to.value(seq);
                to.value(host);
                put_text(&mut to, name);
                to.value(life);
                to.value(step);
                to.value(&u8::from(*is_up));
                put_cause(&mut to, cause);
            }
            Say::Hears(hears) => to.value(&u8::from(*hears)),
            Say::Mail(claim, host, owner, payload) => {
                to.value(claim);
                to.value(host);
                [owner.user, owner.process].iter().for_each(|n| to.value(n));
                to.value(&owner.serial);
                put_bytes(&mut to, payload);
            }
            Say::Group(claim, seq, notice) => {
                to.value(claim);
                to.value(seq);
                notice.put(&mut to);
            }
            Say::Ranks(more, of_host) => {
                to.value(&u8::from(*more));
                of_host.put(&mut to);
            }
            Say::Returned(number, why) => {
                to.value(number);
                put_text(&mut to, why);
            }
        }
        end(to)
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Say, WireError> {
        Ok(match kind {
            1 => Say::Welcome(text(from)?, from.value()?, from.value()?),
            2 => Say::Done(from.value()?),
            3 => Say::Refused(text(from)?),
            4 => list(from, binding).map(|(more, items)| Say::Names(more, items))?,
            5 => list(from, host).map(|(more, items)| Say::Hosts(more, items))?,
            6 => Say::Text(text(from)?),
            7 => Say::Name(from.value()?, event(from)?),
            8 => Say::Lost(from.value()?, gone(from)?),
            9 => Say::Member(
                from.value()?,
                from.value()?,
                text(from)?,
                from.value()?,
                from.value()?,
                flag(from)?,
                cause(from)?,
            ),
            10 => Say::Hears(flag(from)?),
            11 => {
                let (claim, host) = (from.value()?, from.value()?);
                let owner =
                    Owner { user: from.value()?, process: from.value()?, serial: from.value()? };
                Say::Mail(claim, host, owner, bytes(from)?.to_vec())
            }
            12 => Say::Group(from.value()?, from.value()?, GroupNotice::read(from)?),
            13 => Say::Ranks(flag(from)?, OfHost::read(from)?),
            14 => Say::Returned(from.value()?, text(from)?),
            found => return Err(WireError::Type { found }),
        })
    }
}

/// The state of bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<T> {
    /// The bytes of the next frame are not all there.
    Part,
    /// A frame of so many bytes, its serial and its content.
    Whole(usize, u32, T),
    /// The bytes are no frame: the connection has to end.
    Wrong(WireError),
}

fn frame<T>(bytes: &[u8], read: impl Fn(u8, &mut Reader<'_>) -> Result<T, WireError>) -> Frame<T> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Frame::Part };
    let len = u32::from_le_bytes(*len) as usize;
    if !(HEAD - 4..=FRAME_MAX).contains(&len) {
        return Frame::Wrong(WireError::Long);
    }
    let Some(body) = rest.get(..len) else { return Frame::Part };
    let mut from = Reader(body);
    let parsed = (|| {
        let (kind, serial) = (from.value()?, from.value()?);
        let content = read(kind, &mut from)?;
        match from.0.is_empty() {
            true => Ok((serial, content)),
            false => Err(WireError::Long),
        }
    })();
    match parsed {
        Ok((serial, content)) => Frame::Whole(4 + len, serial, content),
        Err(why) => Frame::Wrong(why),
    }
}

/// Takes a request from the front of bytes that came from a program.
pub fn request(bytes: &[u8]) -> Frame<Request> {
    frame(bytes, Request::read)
}

/// Takes what an agent says from the front of bytes that came from it.
pub fn said(bytes: &[u8]) -> Frame<Say> {
    frame(bytes, Say::read)
}

fn mail_example() -> Request {
    let (kind, lower, upper) = (1, 2, 3);
    let (alias, payload) = ("a word".into(), b"hello".to_vec());
    Request::Mail { kind, lower, upper, alias, all: true, payload }
}

/// Returns one of each message, for tests.
pub fn examples() -> (Vec<Request>, Vec<Say>) {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], 7117));
    let owner = Owner { user: 1, process: 2, serial: 3 };
    let claim = Claim::new(Owner::default(), 1000, 1..=9).alias("pump").address(address);
    let life = Life { incarnation: 7, nonce: 8 };
    let id = BindingId { host: HostId(5), life, claim: 4 };
    let name = Claim { owner, ..claim.clone() }.on_host();
    let binding = Binding { id, stamp: 6, name };
    let cast = |to| Request::Cast { claim: 1, to, wait_ms: 5, payload: b"hello".to_vec() };
    let mut requests = vec![
        Request::Hello(VERSION),
        Request::Claim(claim.clone().unique(), true),
        Request::Withdraw(1),
        Request::Watch { kind: 1, lower: 2, upper: 3, mode: Mode::FirstLast, timeout_ms: 4 },
        Request::Unwatch(2),
        Request::List(0, u32::MAX),
        Request::Hosts,
        Request::WatchHosts,
        Request::Report,
        mail_example(),
        Request::Join(claim.group(), 1000, 0),
        Request::Took(1, 2),
        Request::Show,
        Request::Ranks,
    ];
    let (receivers, notices) = crate::group::examples(&binding);
    requests.extend(receivers.into_iter().map(cast));
    let told = |notice| Say::Name(1, NameEvent { seq: 2, notice });
    let gone = Gone::Host(Cause::Lost { by: HostId(3) });
    let host = Host {
        host: HostId(5),
        life,
        is_up: true,
        step: 1,
        agent: 1,
        address,
        cause: Cause::Started,
        since_ms: 9,
        name: "h1".into(),
        names: 3,
        round_trip_ns: 100,
        probes: 5,
        answers: 4,
        key: 6,
    };
    let mut says = vec![
        Say::Welcome("c".into(), HostId(5), life),
        Say::Done(1),
        Say::Refused("no".into()),
        Say::Names(true, vec![binding.clone(), binding.clone()]),
        Say::Hosts(false, vec![host]),
        Say::Text("x 1\n".into()),
        told(Notice::Published(binding.clone())),
        told(Notice::Withdrawn(binding.clone(), gone)),
        told(Notice::Withdrawn(binding, Gone::Killed { signal: 9 })),
        told(Notice::SnapshotEnd),
        told(Notice::Missed { events: 3 }),
        told(Notice::Timeout),
        Say::Lost(1, Gone::Conflict { winner: HostId(1) }),
        Say::Member(1, HostId(2), "h2".into(), life, 2, false, Cause::Replaced { incarnation: 9 }),
        Say::Hears(true),
        Say::Mail(1, HostId(2), owner, b"hello".to_vec()),
        Say::Ranks(true, crate::ranks::examples().1),
        Say::Returned(7, "its owner ended".into()),
    ];
    says.extend(notices.into_iter().map(|notice| Say::Group(1, 2, notice)));
    (requests, says)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn frames__are_read_as_they_were_written_and_in_no_other_way() {
        let (requests, says) = examples();
        for one in requests {
            let bytes = one.encode(7);
            assert_eq!(request(&bytes), Frame::Whole(bytes.len(), 7, one));
            assert_eq!(request(&bytes[..bytes.len() - 1]), Frame::Part);
        }
        for one in says {
            let bytes = one.encode(7);
            assert_eq!(said(&bytes), Frame::Whole(bytes.len(), 7, one));
            assert_eq!(said(&bytes[..bytes.len() - 1]), Frame::Part);
        }
        let long = (FRAME_MAX as u32 + 1).to_le_bytes();
        assert!(matches!(request(&long), Frame::Wrong(_)));
    }
}

//! TIPC sockets of the programs of this host.
//!
//! A program has one end of a pair of Unix sockets, and here is the other end with the state of the
//! socket: its names, its connection, and what waits for the program. `weft_streams::tipc` has the
//! messages. Names are claims of the directory; a message to a socket of another host goes from
//! agent to agent ([`route`]), those of one socket to one host in order.

mod groups;
mod lines;
mod outbox;
mod ports;
mod requests;
mod route;
mod settings;
mod topology;

use super::Cluster;
use crate::listening;
use crate::sys::{self, pairs, passing};
use lines::Lines;
use outbox::Outbox;
use ports::Ports;
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use weft_cluster::names::directory::Gone;
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{HostId, Owner, SubscriptionId};
use weft_cluster::share;
use weft_core::Instant;
use weft_link::LinkError;
use weft_streams::tipc::{
    control, kind, reason, Answer, Kind, RecordHead, Request, MARK, MESSAGE_MAX,
};
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign::{self, Listener};
use weft_sys::passing::Received;
use weft_sys::user::payer;
use weft_sys::{Foreign, Peer};

/// Most sockets; one user has at most half of what others leave.
const PORTS_MAX: usize = 4096;
/// Most connections for requests, likewise.
const ASKERS_MAX: usize = 1024;
/// Connections accepted, and messages of a socket or a connection read, in a round.
const AT_ONCE: usize = 16;
/// Bytes that wait for a program of one importance; each next one has twice as many.
const QUEUE: usize = 1 << 20;
/// Bytes that wait for all programs of a user.
const QUEUE_OF_USER: usize = 1 << 26;
/// Bytes of a connection that wait for the other end's program, or for its host, from which on no
/// more are read.
const WINDOW: usize = 1 << 16;
/// The listener's number in the set of descriptors. Socket N has 2 N there, connection N 2 N + 1.
const LISTENER: u64 = 0;
/// The number of the set of those whose programs are to read. No connection has number 0.
const READERS: u64 = 1;
/// The mark of the owners of sockets, apart from those of connections to names.
const OWNER: u64 = 1 << 63;

/// Number of a connection for requests.
type AskerId = u64;
/// A socket of the cluster.
type Far = (HostId, u32);

/// True if the owner of a claim is a socket, and no connection to names.
pub(super) fn is_port(caller: u64) -> bool {
    caller & OWNER != 0
}

/// The number of a host, as TIPC has it.
fn node_of(host: HostId) -> u32 {
    host.0 as u32
}

/// A connection that a listener's program has not taken yet.
struct Calling {
    from: Far,
    name: Option<(u32, u32, u32)>,
    data: Vec<u8>,
    /// The caller has sent this and ended its connection, for this reason.
    over: Option<u32>,
}

/// The connection of a socket.
enum State {
    /// None.
    Idle,
    /// The socket listens.
    Listening { most: usize, calls: VecDeque<Calling> },
    /// The socket waits for the other end; the time at which that is over; who asked.
    Connecting { to: Far, until: Instant, asker: Option<AskerId> },
    /// The socket has a connection.
    Connected { peer: Far },
    /// The socket is a subscriber.
    Topology(Vec<topology::Watching>),
    /// The socket had a connection.
    Over,
}

/// A name that a socket is bound to.
struct Bound {
    range: (u32, u32, u32),
    is_of_host: bool,
    claim: ClaimId,
}

/// The messages of a socket to other hosts.
#[derive(Default)]
struct Outbound {
    /// Bytes on their way.
    under_way: usize,
    /// Messages that wait until there are fewer: who asked, the request and the data.
    waiting: VecDeque<(AskerId, Request, Vec<u8>)>,
}

impl Outbound {
    /// True if another message has to wait.
    fn is_full(&self) -> bool {
        self.under_way > route::UNDER_WAY
    }
}

/// A socket.
struct Port {
    kind: u8,
    owner: Owner,
    socket: Foreign,
    cookie: u64,
    interest: Interest,
    /// The bytes and records that wait for the program.
    out: Outbox,
    /// The program has ended its connection: the other end hears of it after all data.
    is_shut: bool,
    names: Vec<Bound>,
    state: State,
    group: Option<groups::Group>,
    /// The name by which its connection was made.
    name: Option<(u32, u32, u32)>,
    /// The address of messages that are given none.
    peer: Option<weft_streams::tipc::SockAddr>,
    settings: Settings,
    /// The error of an attempt to connect that nobody waited for.
    error: i32,
    outbound: Outbound,
}

impl Port {
    fn is_connectionless(&self) -> bool {
        matches!(self.kind, kind::DGRAM | kind::RDM)
    }

    /// Gives the program bytes.
    fn give(&mut self, bytes: Vec<u8>) {
        self.out.give(&self.socket, bytes, false);
    }

    /// Gives the program a record.
    fn record(&mut self, head: &RecordHead, data: &[u8]) {
        self.record_of(head, data, false);
    }

    /// Gives the program a record. `returns`: its sender wants it back if it is not read.
    fn record_of(&mut self, head: &RecordHead, data: &[u8], returns: bool) {
        let mut bytes = head.encode().to_vec();
        bytes.extend_from_slice(data);
        self.out.give(&self.socket, bytes, returns);
    }

    /// Ends the connection: the program reads what came, then the end.
    fn end(&mut self, from: Far, error: u32, data: &[u8]) {
        self.state = State::Over;
        self.say_end(from, error, data);
    }

    /// Tells the program that the connection has ended.
    fn say_end(&mut self, from: Far, error: u32, data: &[u8]) {
        if self.out.is_ending() {
            return;
        }
        if self.kind != kind::STREAM {
            let (name, port) = (self.name, (from.1, node_of(from.0)));
            let head =
                RecordHead { error, name, ..RecordHead::new(Kind::Returned, port, data.len()) };
            self.record(&head, data);
        }
        self.out.end(&self.socket);
    }
}

/// A connection for requests about sockets.
struct Asker {
    socket: Foreign,
    user: u32,
    process: u32,
    /// Its request waits, for this socket.
    waits: Option<u32>,
}

/// Counts of events.
#[derive(Default)]
struct Counters {
    /// Messages that were delivered to programs, and those that were not.
    delivered: u64,
    rejected: u64,
    malformed: u64,
    turned_away: u64,
}

/// The TIPC sockets of this host.
pub struct Tipc {
    host: HostId,
    listener: Listener,
    set: Epoll,
    /// Sockets of which the agent is told when their programs read.
    readers: Epoll,
    ready: Vec<u64>,
    ports: Ports,
    askers: BTreeMap<AskerId, Asker>,
    last_asker: AskerId,
    subscriptions: BTreeMap<SubscriptionId, u32>,
    /// Turn of look-ups.
    turn: usize,
    lines: Lines,
    /// Sockets whose descriptors have to be looked at again.
    changed: BTreeSet<u32>,
    scratch: Box<[u8]>,
    counters: Counters,
}

/// Returns the name of the socket for TIPC programs of the agent at `name`.
pub fn socket_name(name: &str) -> String {
    format!("{name}-tipc")
}

impl Tipc {
    /// Listens beside the agent's own socket.
    ///
    /// # Errors
    /// Another process has the name, or the system has no descriptors left.
    pub fn open(agent: &str, host: HostId) -> Result<Tipc, LinkError> {
        let name = socket_name(agent);
        let (listener, set) = listening::open(&name, LISTENER)?;
        let fail = listening::failed(&name);
        sys::raise_files();
        let readers = Epoll::new().map_err(fail)?;
        set.add(&readers, READERS, Interest::READ).map_err(fail)?;
        Ok(Tipc {
            host,
            listener: Listener::new(listener),
            set,
            readers,
            ready: Vec::new(),
            ports: Ports::new(),
            askers: BTreeMap::new(),
            last_asker: 0,
            subscriptions: BTreeMap::new(),
            turn: 0,
            lines: Lines::new(),
            changed: BTreeSet::new(),
            scratch: vec![0; MESSAGE_MAX + control::HEAD + 1].into(),
            counters: Counters::default(),
        })
    }

    /// Returns the descriptor that is readable while a program wants something.
    pub fn listener_fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Lists the counters by name.
    pub fn counters(&self, show: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
        show("tipc_sockets", &self.ports.len());
        show("tipc_delivered", &self.counters.delivered);
        show("tipc_rejected", &self.counters.rejected);
        show("tipc_sent", &self.lines.post.begun);
        show("tipc_malformed", &self.counters.malformed);
        show("tipc_turned_away", &self.counters.turned_away);
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        let connects = self.ports.values().filter_map(|port| match port.state {
            State::Connecting { until, .. } => Some(until),
            _ => None,
        });
        connects.chain(self.lines.next_timeout()).min()
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            // Earlier connections have to be closed first.
            if !foreign::has_room() {
                return;
            }
            let Ok(socket) = passing::accept(&self.listener) else { return };
            let Ok(Peer { pid, uid: user }) = Peer::of(&socket) else { continue };
            let (socket, process) = (Foreign::connection(socket, user), pid as u32);
            let of_user = share::count(user, self.askers.values().map(|asker| asker.user));
            let is_admitted = share::admits(user, of_user, self.askers.len(), ASKERS_MAX);
            if let Some(why) = foreign::refusal(user) {
                log::warn!("a TIPC program of user {user} is not served: {why}");
                self.counters.turned_away += 1;
                continue;
            }
            if !is_admitted {
                self.counters.turned_away += 1;
                continue;
            }
            self.last_asker += 1;
            if self.set.add(&socket, 2 * self.last_asker + 1, Interest::READ).is_ok() {
                let asker = Asker { socket, user, process, waits: None };
                self.askers.insert(self.last_asker, asker);
            }
        }
    }

    /// Answers a request. A program that does not read loses it.
    fn answer(&mut self, id: AskerId, answer: &Answer, pass: Option<&OwnedFd>) {
        if let Some(asker) = self.askers.get_mut(&id) {
            asker.waits = None;
            let _ = passing::send(&asker.socket, &answer.encode(), pass.map(AsFd::as_fd));
        }
    }

    /// Makes a socket. Returns its number and the program's end.
    fn make(&mut self, kind: u8, user: u32, process: u32) -> io::Result<(u32, OwnedFd)> {
        let of_user = share::count(user, self.ports.values().map(|port| port.owner.user));
        if !share::admits(user, of_user, self.ports.len(), PORTS_MAX) {
            self.counters.turned_away += 1;
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let id = self.ports.next_number();
        let random = format!("{kind}-{:016x}", weft_link::random_u64());
        let name = [MARK, random.as_bytes()].concat();
        let (socket, other) = pairs::pair(kind == kind::STREAM, &name)?;
        let socket = Foreign::connection(socket, user);
        let no_number = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let cookie = pairs::cookie(&other).ok_or_else(no_number)?;
        self.set.add(&socket, 2 * u64::from(id), Interest::READ)?;
        let owner = Owner { user, process, serial: OWNER | u64::from(id) };
        let port = Port {
            kind,
            owner,
            socket,
            cookie,
            interest: Interest::READ,
            out: Outbox::new(kind),
            is_shut: false,
            names: Vec::new(),
            state: State::Idle,
            group: None,
            name: None,
            peer: None,
            settings: Settings::of(kind),
            error: 0,
            outbound: Outbound::default(),
        };
        self.ports.insert(id, port);
        Ok((id, other))
    }

    /// Bytes that wait for the programs of a user.
    fn waiting_of(&self, user: u32) -> usize {
        let of_user = self.ports.values().filter(|port| payer(port.owner.user) == payer(user));
        of_user.map(|port| port.out.bytes()).sum()
    }

    /// True if a socket's data are read now.
    fn may_read(&self, port: &Port) -> bool {
        match port.state {
            State::Connecting { .. } => false,
            State::Connected { peer } => {
                let near = self.ports.get(&peer.1).filter(|_| peer.0 == self.host);
                port.outbound.under_way < WINDOW
                    && near.is_none_or(|other| other.out.bytes() < WINDOW)
            }
            _ => port.out.is_closed() || port.out.bytes() < WINDOW,
        }
    }

    /// Has the set of descriptors tell what a socket waits for.
    fn follow(&mut self, id: u32) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let waits = !port.out.is_empty() && !port.out.is_closed();
        let for_reader = waits && port.out.awaits_reader(&port.socket);
        if for_reader != port.out.is_watched {
            match for_reader {
                true => drop(self.readers.add_edges(&port.socket, id.into())),
                false => self.readers.remove(&port.socket),
            }
            port.out.is_watched = for_reader;
        }
        let Some(port) = self.ports.get(&id) else { return };
        let interest = Interest { read: self.may_read(port), write: waits && !for_reader };
        let other = match port.state {
            State::Connected { peer } if peer.0 == self.host => Some(peer.1),
            _ => None,
        };
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.interest != interest) else {
            return;
        };
        let (drained, number) = (port.interest.write && !interest.write, 2 * u64::from(id));
        let none = Interest::default();
        // A socket that the program has closed is ready all the time.
        match (port.interest == none, interest == none) {
            (_, true) => self.set.remove(&port.socket),
            (true, _) => drop(self.set.add(&port.socket, number, interest)),
            _ => drop(self.set.change(&port.socket, number, interest)),
        }
        port.interest = interest;
        if let Some(other) = other.filter(|_| drained) {
            self.changed.insert(other);
        }
    }
}

impl Cluster {
    /// Serves the programs' sockets; never blocks.
    pub(super) fn serve_tipc(&mut self, now: Instant) {
        let mut ready = std::mem::take(&mut self.tipc.ready);
        self.tipc.set.ready(&mut ready);
        for &number in &ready {
            match (number / 2, number % 2) {
                _ if number == LISTENER => self.tipc.accept(),
                _ if number == READERS => self.serve_readers(now),
                (id, 0) => self.serve_port(now, id as u32),
                (asker, _) => self.serve_asker(now, asker),
            }
        }
        self.tipc.ready = ready;
        self.tipc_settle();
    }

    fn tipc_settle(&mut self) {
        while let Some(id) = self.tipc.changed.pop_first() {
            self.tipc.follow(id);
        }
    }

    /// Programs have read: what waited for that goes on.
    fn serve_readers(&mut self, now: Instant) {
        let mut ready = Vec::new();
        self.tipc.readers.ready(&mut ready);
        ready.into_iter().for_each(|id| self.serve_port(now, id as u32));
    }

    fn serve_port(&mut self, now: Instant, id: u32) {
        let Some(port) = self.tipc.ports.get_mut(&id) else { return };
        port.out.push(&port.socket);
        self.tipc.changed.insert(id);
        self.tell_rest(id);
        self.groups_of_port(id);
        self.read_port(now, id);
        self.tipc_settle();
    }

    /// Reads what the program of a socket sent by itself: data of its connection.
    fn read_port(&mut self, now: Instant, id: u32) {
        for _ in 0..AT_ONCE {
            let Some(port) = self.tipc.ports.get(&id) else { return };
            if !self.tipc.may_read(port) {
                break;
            }
            let is_stream = port.kind == kind::STREAM;
            let most = if is_stream { 1 << 16 } else { MESSAGE_MAX + 1 };
            let (socket, user) = (&port.socket, port.owner.user);
            let got = passing::recv(socket, &mut self.tipc.scratch[..most], user);
            let got = got.and_then(Received::only);
            let len = match got {
                Ok((0, _)) => return self.end_port(now, id),
                Ok((len, _)) => len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The program has ended before it had read all. Its last messages are still there.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    if let Some(port) = self.tipc.ports.get_mut(&id) {
                        port.out.has_failed(&e);
                    }
                    continue;
                }
                // A record that no library sends.
                Err(_) => return self.end_port(now, id),
            };
            let from = usize::from(!is_stream);
            let data = self.tipc.scratch[from..len].to_vec();
            self.on_data(now, id, data);
        }
        self.ends_if_shut(now, id);
        self.tipc.changed.insert(id);
    }

    /// The program has ended the connection of a socket: the other end hears of it once it has what
    /// was sent before.
    fn ends_if_shut(&mut self, now: Instant, id: u32) {
        let Some(port) = self.tipc.ports.get(&id) else { return };
        let may_end = port.is_shut && matches!(port.state, State::Connected { .. });
        if may_end && passing::unread(&port.socket).is_ok_and(|bytes| bytes == 0) {
            self.hang_up(now, id, reason::SHUTDOWN);
        }
    }

    /// The program has closed a socket.
    fn end_port(&mut self, now: Instant, id: u32) {
        self.hang_up_with_rest(now, id);
        let Some(port) = self.tipc.ports.remove(id) else { return };
        self.tipc.set.remove(&port.socket);
        if port.out.is_watched {
            self.tipc.readers.remove(&port.socket);
        }
        self.tipc.subscriptions.retain(|_, of| *of != id);
        self.claims.retain(|_, claimed| claimed.caller != port.owner.serial);
        self.groups.remove_caller(port.owner.serial);
        self.node.owner_ended(now, port.owner, Gone::Ended);
        for (asker, ..) in port.outbound.waiting {
            self.tipc.answer(asker, &Answer::error(libc::EBADF), None);
        }
        for record in port.out.returned() {
            self.return_unread(now, (id, port.owner), &record);
        }
        self.flush_tipc(now);
    }

    fn serve_asker(&mut self, now: Instant, id: AskerId) {
        for _ in 0..AT_ONCE {
            let Some(asker) = self.tipc.askers.get(&id) else { return };
            let got = passing::recv(&asker.socket, &mut self.tipc.scratch, asker.user);
            let got = got.and_then(Received::only);
            let (len, passed) = match got {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok((0, _)) => return self.end_asker(id),
                Ok(got) if asker.waits.is_none() => got,
                // The program asks again before it was answered, or sends no request.
                _ => return self.dismiss_asker(id, "no request, or one too many"),
            };
            let bytes = self.tipc.scratch[..len].to_vec();
            match Request::decode(&bytes) {
                Ok((request, data)) => self.on_request(now, id, request, passed, data),
                Err(why) => return self.dismiss_asker(id, why),
            }
            self.flush_tipc(now);
        }
    }

    /// A program asks no more: a request of it that waits is not carried out, and it is told so.
    fn end_asker(&mut self, id: AskerId) {
        let Some(asker) = self.tipc.askers.get(&id) else { return };
        if let Some(port) = asker.waits.and_then(|port| self.tipc.ports.get_mut(&port)) {
            port.outbound.waiting.retain(|(asker, ..)| *asker != id);
            port.group.iter_mut().for_each(|group| group.gives_up(id));
            if let State::Connecting { asker, .. } = &mut port.state {
                *asker = asker.filter(|one| *one != id);
            }
            self.tipc.answer(id, &Answer::error(libc::EINTR), None);
        }
        if let Some(asker) = self.tipc.askers.remove(&id) {
            self.tipc.set.remove(&asker.socket);
        }
    }

    fn dismiss_asker(&mut self, id: AskerId, why: &str) {
        let user = self.tipc.askers.get(&id).map_or(0, |asker| asker.user);
        log::warn!("a TIPC program of user {user}: {why}; its request is not served");
        self.tipc.counters.malformed += 1;
        self.end_asker(id);
    }
}

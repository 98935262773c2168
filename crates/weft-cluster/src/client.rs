//! A program's connection to the agent of its host: claims, look-ups, subscriptions.

use crate::local::{self, Frame, Host, Request, Say, MAIL_MAX, VERSION};
use crate::name::Name;
use crate::ranks::Ranks;
use crate::socket_name;
use crate::watch::{HostWatch, Watch};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weft_names::directory::Gone;
use weft_names::{
    Binding, BindingId, Claim, HostId, Life, Mode, NameEvent, Notice, Owner, Pick, Scope,
};
use weft_sys::agent::{self, Kind};

/// Longest wait for an answer of the agent, which has its bound of a claim of a unique name within.
const ANSWER: Duration = Duration::from_secs(30);
/// Messages after which the agent is told that they were taken; before that, where no other waits.
const TOOK: u32 = 8;
/// Bytes read at a time.
const READ: usize = 1 << 16;
/// Time for which a look-up that finds an owner takes no further events.
const FRESH: Duration = Duration::from_micros(20);

/// The reason why a call did not do its work.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamesError {
    /// The text is no name.
    Name(String),
    /// No agent of a cluster listens at these places.
    Absent {
        /// The places, with the reason for each.
        tried: Vec<(String, io::Error)>,
    },
    /// The agent refused; its reason.
    Refused(String),
    /// The connection to the agent ended.
    Ended(io::Error),
    /// The membership of a group was ended by others, for this reason.
    Put(Gone),
    /// The agent is of another version, or not an agent.
    Nonsense(String),
    /// Not as many owners as wanted were there in time.
    Timeout {
        /// The name.
        name: Name,
        /// The owners that were there.
        found: usize,
        /// The owners that were wanted.
        wanted: usize,
    },
}

impl fmt::Display for NamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamesError::Name(text) => write!(
                f,
                "{text:?} is no name: WORD, WORD:INSTANCE or WORD:FIRST-LAST, where the word is a \
                 type from 64 to 4294967295, or at most 63 bytes without blanks"
            ),
            NamesError::Absent { tried } => {
                f.write_str("no agent of a cluster serves here:")?;
                for (place, why) in tried {
                    write!(f, " {place}: {why};")?;
                }
                f.write_str(" start one by `weftd --cluster NAME`, or name its place in WEFT_AGENT")
            }
            NamesError::Refused(why) => f.write_str(why),
            NamesError::Ended(why) => {
                write!(f, "the agent ended the connection ({why}); its claims have ended as well")
            }
            NamesError::Put(gone) => write!(f, "the membership of the group has ended: {gone}"),
            NamesError::Nonsense(why) => write!(f, "the agent is of another version: {why}"),
            NamesError::Timeout { name, found, wanted } => write!(
                f,
                "{found} of {wanted} owners of {name} are there; `weft names list` shows all \
                 names, `weft cluster status` the hosts"
            ),
        }
    }
}

impl std::error::Error for NamesError {}

/// A name as a program claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    claim: Claim,
    takes_messages: bool,
}

impl Spec {
    /// Makes a claim that all hosts see and others may share.
    pub fn new(name: &Name) -> Spec {
        let claim = Claim::new(Owner::default(), name.kind, name.lower..=name.upper);
        Spec { claim: claim.alias(&name.alias), takes_messages: false }
    }

    /// Adds a name to read, where the type is a number.
    pub fn alias(self, alias: &str) -> Spec {
        Spec { claim: self.claim.alias(alias), ..self }
    }

    /// Names the socket address that serves it. Without one, and without an endpoint, the name is
    /// a mark: it says that its owner is there.
    pub fn address(self, address: SocketAddr) -> Spec {
        Spec { claim: self.claim.address(address), ..self }
    }

    /// Names the endpoint that serves it.
    pub fn endpoint(self, endpoint: u64) -> Spec {
        Spec { claim: self.claim.endpoint(endpoint), ..self }
    }

    /// Excludes other owners.
    pub fn unique(self) -> Spec {
        Spec { claim: self.claim.unique(), ..self }
    }

    /// Restricts it to this host.
    pub fn on_host(self) -> Spec {
        Spec { claim: Claim { scope: Scope::Host, ..self.claim }, ..self }
    }

    /// Returns the claim.
    pub(crate) fn claimed(&self) -> Claim {
        self.claim.clone()
    }

    /// Takes messages that are sent to the name ([`Names::send`]), as events of the connection
    /// that claims it. Without this they go back to their senders.
    pub fn messages(self) -> Spec {
        Spec { takes_messages: true, ..self }
    }
}

/// An event of a connection, beside those of subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A claim was ended by others.
    Lost {
        /// The claim.
        claim: u64,
        /// The cause.
        gone: Gone,
    },
    /// A message for a name of this program.
    Mail {
        /// The claim that it was sent to.
        claim: u64,
        /// The sender's host.
        host: HostId,
        /// The sender.
        from: Owner,
        /// The message.
        payload: Vec<u8>,
    },
    /// A message of this program came back after [`Names::send`] had sent it: an owner of the name
    /// ended before it took the message, or its host was lost.
    Returned {
        /// Its number, as `send` returned it.
        message: u64,
        /// The reason.
        why: String,
    },
}

/// A socket to an agent, with the bytes that came.
pub(crate) struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
    read: usize,
    scratch: Box<[u8]>,
    serial: u32,
    /// The time limit that the socket has; `None`: it does not wait.
    limit: Option<Duration>,
}

impl Connection {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Opens a connection to the agent at a place, which root or this user runs, and greets it.
    /// Returns its answer.
    fn open(place: &str) -> Result<(Connection, Say), NamesError> {
        let absent = |e| NamesError::Absent { tried: vec![(place.to_string(), e)] };
        let name = socket_name(place);
        let (socket, peer) = agent::reach_at(&name, Kind::Stream).map_err(absent)?;
        let (stream, scratch) = (UnixStream::from(socket), vec![0; READ].into());
        stream.set_nonblocking(true).map_err(absent)?;
        let mut connection =
            Connection { stream, bytes: Vec::new(), read: 0, scratch, serial: 0, limit: None };
        let serial = connection.say(&Request::Hello(VERSION))?;
        match connection.answer(serial, &mut Vec::new(), agent::PATIENCE) {
            Err(NamesError::Ended(e)) if e.kind() == io::ErrorKind::TimedOut => {
                Err(absent(agent::silent(&name, peer)))
            }
            answer => Ok((connection, answer?)),
        }
    }

    /// Sets how long the next read waits: not at all, or at most for a time.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|l| l.max(Duration::from_micros(1)));
        if limit != self.limit {
            self.stream.set_nonblocking(limit.is_none())?;
            if limit.is_some() {
                self.stream.set_read_timeout(limit)?;
            }
            self.limit = limit;
        }
        Ok(())
    }

    /// Takes a frame that is there.
    pub(crate) fn buffered(&mut self) -> Result<Option<(u32, Say)>, NamesError> {
        match local::said(&self.bytes[self.read..]) {
            Frame::Whole(len, serial, say) => {
                self.read += len;
                if self.read == self.bytes.len() {
                    self.bytes.clear();
                    self.read = 0;
                }
                Ok(Some((serial, say)))
            }
            Frame::Part => Ok(None),
            Frame::Wrong(why) => Err(NamesError::Nonsense(why.to_string())),
        }
    }

    /// Takes the next frame, and waits for it at most until a time; `None`: not at all.
    pub(crate) fn next(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<(u32, Say)>, NamesError> {
        loop {
            if let Some(found) = self.buffered()? {
                return Ok(Some(found));
            }
            let left = until.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.filter(|l| !l.is_zero());
            self.wait(left).map_err(NamesError::Ended)?;
            match self.stream.read(&mut self.scratch) {
                Ok(0) => return Err(NamesError::Ended(io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => {
                    self.bytes.drain(..self.read);
                    self.read = 0;
                    self.bytes.extend_from_slice(&self.scratch[..got]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && left.is_none() => {
                    return Ok(None)
                }
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(NamesError::Ended(e)),
            }
        }
    }

    pub(crate) fn say(&mut self, request: &Request) -> Result<u32, NamesError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        let bytes = request.encode(self.serial);
        self.stream.set_nonblocking(false).map_err(NamesError::Ended)?;
        self.limit = Some(Duration::MAX);
        self.stream.write_all(&bytes).map_err(NamesError::Ended)?;
        Ok(self.serial)
    }

    /// Sends a request, and waits for its answer; events that come before are put into `events`.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        events: &mut Vec<Say>,
    ) -> Result<Say, NamesError> {
        self.ask_for(request, events, Duration::ZERO)
    }

    /// Sends a request and returns the agent's answer, which may come later than for `ask` by
    /// `later`.
    pub(crate) fn ask_for(
        &mut self,
        request: &Request,
        events: &mut Vec<Say>,
        later: Duration,
    ) -> Result<Say, NamesError> {
        let serial = self.say(request)?;
        self.answer(serial, events, ANSWER + later)
    }

    fn answer(
        &mut self,
        serial: u32,
        events: &mut Vec<Say>,
        limit: Duration,
    ) -> Result<Say, NamesError> {
        let end = Instant::now() + limit;
        loop {
            match self.next(Some(end))? {
                Some((of, Say::Refused(why))) if of == serial => {
                    return Err(NamesError::Refused(why))
                }
                Some((of, say)) if of == serial => return Ok(say),
                Some((0, event)) => events.push(event),
                Some(_) => {}
                None => return Err(NamesError::Ended(io::ErrorKind::TimedOut.into())),
            }
        }
    }
}

pub(crate) fn nonsense<T>(say: Say) -> Result<T, NamesError> {
    Err(NamesError::Nonsense(format!("it answered {say:?}")))
}

/// The names of one type, kept up to date by a subscription.
#[derive(Default)]
struct Cached {
    is_whole: bool,
    names: BTreeMap<(u32, BindingId), Binding>,
    /// The most instances of a name so far: one that begins farther before does not contain it.
    longest: u32,
    turn: usize,
}

impl Cached {
    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Published(b) => {
                self.longest = self.longest.max(b.name.upper - b.name.lower);
                self.names.insert((b.name.lower, b.id), b);
            }
            Notice::Withdrawn(b, _) => {
                self.names.remove(&(b.name.lower, b.id));
            }
            Notice::SnapshotEnd => self.is_whole = true,
            Notice::Missed { .. } | Notice::Timeout => {}
        }
    }

    fn matches<'a, 'n>(
        &'a self,
        name: &'n Name,
    ) -> impl Iterator<Item = &'a Binding> + use<'a, 'n> {
        let from = (name.lower.saturating_sub(self.longest), BindingId::default());
        let to = move |(key, _): &(&(u32, BindingId), &Binding)| key.0 <= name.upper;
        self.names.range(from..).take_while(to).map(|(_, b)| b).filter(|b| name.has(&b.name))
    }
}

/// A connection to the agent of this host. Claims end with it.
pub struct Names {
    connection: Connection,
    place: String,
    cluster: String,
    host: HostId,
    life: Life,
    cache: HashMap<u32, Cached>,
    kind_of_watch: HashMap<u64, u32>,
    /// The agent gives no further message while 256 were not taken; other events are bounded by the
    /// claims and messages of this program.
    events: VecDeque<Event>,
    /// Messages taken of which the agent does not know.
    took: u32,
    /// The last time at which all events were taken.
    pumped: Instant,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Names at {} of cluster {}", self.place, self.cluster)
    }
}

/// Returns the places at which a program looks for an agent: that of `WEFT_AGENT`, or the usual
/// ones.
pub fn places() -> Vec<String> {
    match std::env::var("WEFT_AGENT").ok().filter(|name| !name.is_empty()) {
        Some(name) => vec![name],
        None => {
            let mut names = vec!["/run/weft/agent.sock".to_string()];
            if let Some(folder) = std::env::var("XDG_RUNTIME_DIR").ok().filter(|f| !f.is_empty()) {
                names.push(format!("{folder}/weft/agent.sock"));
            }
            names.push("@weft-agent".to_string());
            names
        }
    }
}

impl Names {
    /// Connects to the agent of this host, at the place that `WEFT_AGENT` names or the usual ones.
    ///
    /// # Errors
    /// No agent of a cluster serves there.
    pub fn connect() -> Result<Names, NamesError> {
        let mut tried = Vec::new();
        for place in places() {
            match Names::at(&place) {
                Err(NamesError::Absent { tried: one }) => tried.extend(one),
                other => return other,
            }
        }
        Err(NamesError::Absent { tried })
    }

    /// Connects to the agent at this place.
    ///
    /// # Errors
    /// No agent of a cluster serves there; it is not believed, as another user runs it; it says
    /// nothing within 2 s; or it refuses this user.
    pub fn at(place: &str) -> Result<Names, NamesError> {
        let (connection, answer) = Connection::open(place)?;
        match answer {
            Say::Welcome(cluster, host, life) => Ok(Names {
                connection,
                place: place.into(),
                cluster,
                host,
                life,
                cache: HashMap::new(),
                kind_of_watch: HashMap::new(),
                events: VecDeque::new(),
                took: 0,
                pumped: Instant::now(),
            }),
            other => nonsense(other),
        }
    }

    /// Returns the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the number of this host.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Returns the life of this host's agent.
    pub fn life(&self) -> Life {
        self.life
    }

    /// Opens another connection to the same agent.
    pub(crate) fn other(&self) -> Result<Connection, NamesError> {
        Ok(Names::at(&self.place)?.connection)
    }

    /// Returns a descriptor that is readable when [`Names::event`] may have something.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.connection.stream.as_fd()
    }

    fn ask(&mut self, request: &Request) -> Result<Say, NamesError> {
        let mut events = Vec::new();
        let answer = self.connection.ask(request, &mut events);
        events.into_iter().for_each(|event| self.take(event));
        answer
    }

    fn done(&mut self, request: &Request) -> Result<u64, NamesError> {
        match self.ask(request)? {
            Say::Done(number) => Ok(number),
            other => nonsense(other),
        }
    }

    fn take(&mut self, event: Say) {
        match event {
            Say::Name(watch, NameEvent { notice, .. }) => {
                let kind = self.kind_of_watch.get(&watch);
                if let Some(cached) = kind.and_then(|kind| self.cache.get_mut(kind)) {
                    cached.take(notice);
                }
            }
            Say::Lost(claim, gone) => self.events.push_back(Event::Lost { claim, gone }),
            Say::Mail(claim, host, from, payload) => {
                self.events.push_back(Event::Mail { claim, host, from, payload });
            }
            Say::Returned(message, why) => self.events.push_back(Event::Returned { message, why }),
            _ => {}
        }
    }

    /// Tells the agent, now and then, how many messages were taken.
    fn note_taken(&mut self, event: &Event) -> Result<(), NamesError> {
        self.took += u32::from(matches!(event, Event::Mail { .. }));
        if self.took >= TOOK || self.took > 0 && self.events.is_empty() {
            self.connection.say(&Request::Took(0, self.took))?;
            self.took = 0;
        }
        Ok(())
    }

    /// Takes all events that are there.
    fn pump(&mut self) -> Result<(), NamesError> {
        while let Some((serial, say)) = self.connection.next(None)? {
            if serial == 0 {
                self.take(say);
            }
        }
        self.pumped = Instant::now();
        Ok(())
    }

    /// Claims a name until it is withdrawn or this process ends, and returns the claim's number. A
    /// unique name is asked for at its arbiter, which takes some ms.
    ///
    /// # Errors
    /// The agent refuses: another owner has the name, the policy forbids it, a quota is used up.
    pub fn claim(&mut self, spec: &Spec) -> Result<u64, NamesError> {
        self.done(&Request::Claim(spec.claim.clone(), spec.takes_messages))
    }

    /// Withdraws a claim.
    ///
    /// # Errors
    /// The connection ended.
    pub fn withdraw(&mut self, claim: u64) -> Result<(), NamesError> {
        self.done(&Request::Withdraw(claim)).map(drop)
    }

    /// Has the names of a type in this process from now on.
    fn cached(&mut self, kind: u32) -> Result<(), NamesError> {
        if !self.cache.contains_key(&kind) {
            let (lower, upper) = (0, u32::MAX);
            let mode = Mode::Each;
            let watch = Request::Watch { kind, lower, upper, mode, timeout_ms: 0 };
            let mut events = Vec::new();
            let number = match self.connection.ask(&watch, &mut events)? {
                Say::Done(number) => number,
                other => return nonsense(other),
            };
            events.into_iter().for_each(|event| self.take(event));
            self.kind_of_watch.insert(number, kind);
            // A program that looks up once and ends shall not always get the same owner.
            let turn = weft_link::random_u64() as usize;
            self.cache.insert(kind, Cached { turn, ..Cached::default() });
        }
        let end = Instant::now() + ANSWER;
        while !self.cache[&kind].is_whole {
            match self.connection.next(Some(end))? {
                Some((0, event)) => self.take(event),
                Some(_) => {}
                None => return Err(NamesError::Ended(io::ErrorKind::TimedOut.into())),
            }
        }
        Ok(())
    }

    /// Finds an owner of a name. The first look-up of a type asks the agent, and subscribes; later
    /// ones send no message, and see all that the agent has told so far. An owner that is known
    /// may have withdrawn its claim within the last 20 us.
    ///
    /// # Errors
    /// The connection ended.
    pub fn resolve(&mut self, name: &Name, pick: Pick) -> Result<Option<&Binding>, NamesError> {
        let whole = self.cache.get(&name.kind).filter(|c| c.is_whole);
        match whole.map(|cached| cached.matches(name).next().is_some()) {
            // Before each message of a stream this would cost a system call each.
            Some(true) if self.pumped.elapsed() < FRESH => {}
            Some(_) => self.pump()?,
            None => self.cached(name.kind)?,
        }
        let (me, cached) = (self.host, self.cache.entry(name.kind).or_default());
        cached.turn = cached.turn.wrapping_add(1);
        let turn = cached.turn;
        let cached: &Cached = cached;
        if pick == Pick::Nearest {
            let here = || cached.matches(name).filter(|b| b.id.host == me);
            let count = here().count();
            if count > 0 {
                return Ok(here().nth(turn % count));
            }
        }
        let mut all = cached.matches(name);
        let first = all.next();
        match all.next() {
            None => Ok(first),
            Some(_) => Ok(cached.matches(name).nth(turn % (2 + all.count()))),
        }
    }

    /// Finds all owners of a name.
    ///
    /// # Errors
    /// The connection ended.
    pub fn resolve_all(&mut self, name: &Name) -> Result<Vec<Binding>, NamesError> {
        self.cached(name.kind)?;
        self.pump()?;
        Ok(self.cache[&name.kind].matches(name).cloned().collect())
    }

    /// Waits until a name has so many owners, and returns them all.
    ///
    /// # Errors
    /// The owners are not there in time, or the connection ended.
    pub fn wait(
        &mut self,
        name: &Name,
        wanted: usize,
        limit: Duration,
    ) -> Result<Vec<Binding>, NamesError> {
        let end = Instant::now() + limit;
        loop {
            let found = self.resolve_all(name)?;
            if found.len() >= wanted {
                return Ok(found);
            }
            match self.connection.next(Some(end))? {
                Some((0, event)) => self.take(event),
                Some(_) => {}
                None => {
                    let found = found.len();
                    return Err(NamesError::Timeout { name: name.clone(), found, wanted });
                }
            }
        }
    }

    /// Watches a name, on a connection of its own: a subscriber that does not read holds up nothing
    /// else.
    ///
    /// # Errors
    /// The agent refuses, or has ended.
    pub fn watch(
        &self,
        name: &Name,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Watch, NamesError> {
        let mut other = self.other()?;
        let timeout_ms = timeout.map_or(0, |t| (t.as_millis() as u64).max(1));
        let Name { kind, lower, upper, .. } = *name;
        let mut early = Vec::new();
        match other.ask(&Request::Watch { kind, lower, upper, mode, timeout_ms }, &mut early)? {
            Say::Done(_) => {
                Ok(Watch { connection: other, early: early.into(), name: name.clone() })
            }
            say => nonsense(say),
        }
    }

    /// Takes an event of this connection, and waits for it at most for a time.
    ///
    /// # Errors
    /// The connection ended.
    pub fn event(&mut self, limit: Duration) -> Result<Option<Event>, NamesError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(event) = self.events.pop_front() {
                self.note_taken(&event)?;
                return Ok(Some(event));
            }
            match self.connection.next(Some(end))? {
                Some((0, event)) => self.take(event),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Sends a message to an owner of a name, by turns, or to all of them, and returns its number.
    /// It then waits in the connection of its owner. If that one ends before it takes the message,
    /// [`Event::Returned`] says so.
    ///
    /// # Errors
    /// Nobody has the name, the owner vanished before it had the message, takes none, or does not
    /// read; or 256 messages of this connection wait to be read.
    pub fn send(&mut self, name: &Name, all: bool, payload: &[u8]) -> Result<u64, NamesError> {
        if payload.len() > MAIL_MAX {
            let why = format!("a message to a name has at most {MAIL_MAX} bytes");
            return Err(NamesError::Refused(why));
        }
        let Name { kind, lower, upper, alias } = name.clone();
        let payload = payload.to_vec();
        self.done(&Request::Mail { kind, lower, upper, alias, all, payload })
    }

    /// Lists all names that this user sees.
    ///
    /// # Errors
    /// The connection ended.
    pub fn list(&mut self) -> Result<Vec<Binding>, NamesError> {
        self.collect(&Request::List(0, u32::MAX), |said| match said {
            Say::Names(more, items) => Ok((more, items)),
            other => nonsense(other),
        })
    }

    /// Lists the hosts that the agent knows.
    ///
    /// # Errors
    /// The connection ended.
    pub fn hosts(&mut self) -> Result<Vec<Host>, NamesError> {
        self.collect(&Request::Hosts, |said| match said {
            Say::Hosts(more, items) => Ok((more, items)),
            other => nonsense(other),
        })
    }

    /// Asks for the ranks of all hosts that this user sees: its own, or all, for root and the user
    /// of the agent.
    ///
    /// # Errors
    /// The connection ended.
    pub fn ranks(&mut self) -> Result<Ranks, NamesError> {
        let told = self.collect(&Request::Ranks, |said| match said {
            Say::Ranks(more, of_host) => Ok((more, vec![of_host])),
            other => nonsense(other),
        })?;
        Ok(Ranks::of(told))
    }

    /// Asks for a list, which comes in parts. `part` returns true if more follow, and the items.
    fn collect<T>(
        &mut self,
        request: &Request,
        part: impl Fn(Say) -> Result<(bool, Vec<T>), NamesError>,
    ) -> Result<Vec<T>, NamesError> {
        let (mut all, mut events) = (Vec::new(), Vec::new());
        let serial = self.connection.say(request)?;
        loop {
            let (more, items) = part(self.connection.answer(serial, &mut events, ANSWER)?)?;
            all.extend(items);
            if !more {
                break;
            }
        }
        events.into_iter().for_each(|event| self.take(event));
        Ok(all)
    }

    /// Returns the state of the agent's part in the cluster: lines of names and values.
    ///
    /// # Errors
    /// The connection ended.
    pub fn report(&mut self) -> Result<String, NamesError> {
        match self.ask(&Request::Report)? {
            Say::Text(text) => Ok(text),
            other => nonsense(other),
        }
    }

    /// Watches the hosts, on a connection of its own.
    ///
    /// # Errors
    /// The agent refuses, or has ended.
    pub fn watch_hosts(&self) -> Result<HostWatch, NamesError> {
        let mut other = self.other()?;
        let mut early = Vec::new();
        match other.ask(&Request::WatchHosts, &mut early)? {
            Say::Done(_) => Ok(HostWatch { connection: other, early: early.into() }),
            say => nonsense(say),
        }
    }
}

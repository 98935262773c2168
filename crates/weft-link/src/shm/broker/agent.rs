//! The agent's end: the ranks that are registered, and the passing of sockets between them.
//!
//! Nothing here waits for a rank. A socket is passed on only while its receiver reads: a rank has
//! at most `UNREAD_MAX` sockets unread, and what one user asked for at most `UNREAD_OF_USER`.
//! Beyond that, the request of a rank is kept, one for each rank, and the rank is not read
//! meanwhile. So the descriptors of the agent, in its table and under way, are bounded for each
//! user.

use super::connection::socket_name;
use super::{Message, MESSAGE_MAX, VERSION};
use crate::shm::rendezvous::{self, system};
use crate::shm::sys::misc;
use crate::shm::sys::socket;
use crate::{random_u64, LinkError, WaitFd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use weft_core::EndpointId;
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign::{has_room, refusal, Listener};
use weft_sys::{user, Foreign, Peer};

/// Sockets passed to one rank that it has not read.
const UNREAD_MAX: usize = 16;
/// Sockets passed to all ranks that one user asked for, and that the ranks have not read.
const UNREAD_OF_USER: usize = 256;
/// Connections accepted, and messages read of one rank, in one call.
const ACCEPTS: usize = 8;
const MESSAGES: usize = 16;
/// Longest time from connecting to registering, in nanoseconds.
const PATIENCE_NS: u64 = 20_000_000_000;
/// The token of the listener; connections count from 1.
const LISTENER: u64 = 0;

/// Highest numbers of registered ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerLimits {
    /// Of all users.
    pub ranks: usize,
    /// Of one user.
    pub of_user: usize,
}

#[derive(Debug)]
struct Guest {
    socket: Foreign,
    token: u64,
    cred: Peer,
    /// Job and endpoint, once it has registered.
    who: Option<(u64, EndpointId)>,
    since: u64,
    /// The request that waits until more sockets may be passed.
    kept: Option<(EndpointId, Foreign)>,
    /// The users who asked for the sockets passed to it since it had read all.
    unread: Vec<u32>,
    gone: bool,
}

#[derive(Debug, Default)]
struct Counters {
    joined: u64,
    refused: u64,
    nonsense: u64,
}

/// Brings ranks of one host together that share no namespace.
#[derive(Debug)]
pub struct Broker {
    epoll: Epoll,
    listener: Listener,
    identity: u64,
    limits: BrokerLimits,
    guests: Vec<Guest>,
    last_token: u64,
    ready: Vec<u64>,
    count: Counters,
}

/// The outcome for a request: pass the socket to the guest of this index, keep it for later, or
/// tell the reason.
enum Outcome {
    Pass(usize),
    Keep,
    Refuse(String),
}

impl Broker {
    /// Listens beside the agent's own socket at `name`.
    ///
    /// # Errors
    /// Another agent has the name, or the system refuses.
    pub fn listen(name: &str, limits: BrokerLimits) -> Result<Broker, LinkError> {
        let listener = rendezvous::listen_at(&socket_name(name))?;
        let epoll = Epoll::new().map_err(|e| system("making an epoll set", e))?;
        epoll
            .add(&listener, LISTENER, Interest::READ)
            .map_err(|e| system("watching the listener", e))?;
        Ok(Broker {
            epoll,
            listener: Listener::new(listener),
            identity: random_u64().max(1),
            limits,
            guests: Vec::new(),
            last_token: LISTENER,
            ready: Vec::new(),
            count: Counters::default(),
        })
    }

    /// Returns the name of the socket at which the agent at `name` brokers.
    pub fn socket_name(name: &str) -> String {
        socket_name(name)
    }

    /// Appends the descriptor that becomes readable when a rank wants something.
    pub fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.epoll.as_raw_fd() });
    }

    /// True if no rank has a connection here: only its descriptor tells that there is something.
    pub fn is_idle(&self) -> bool {
        self.guests.is_empty()
    }

    /// True if a request waits until a rank has read, which no descriptor tells.
    pub fn keeps(&self) -> bool {
        self.guests.iter().any(|g| g.kept.is_some())
    }

    /// Lists the counters by name: registered ranks, pairs joined, requests refused, messages that
    /// are none.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let ranks = self.guests.iter().filter(|g| g.who.is_some()).count();
        each("share_ranks", ranks as u64);
        each("share_joined", self.count.joined);
        each("share_refused", self.count.refused);
        each("share_nonsense", self.count.nonsense);
    }

    /// Handles what ranks want; never blocks. `may` tells if ranks of these two users may share
    /// memory, or the reason why not.
    pub fn serve(&mut self, may: &dyn Fn(u32, u32) -> Result<(), String>) {
        let mut ready = std::mem::take(&mut self.ready);
        self.epoll.ready(&mut ready);
        for &token in &ready {
            if token == LISTENER {
                self.accept();
            } else if let Some(at) = self.guests.iter().position(|g| g.token == token) {
                self.read(at, may);
            }
        }
        self.ready = ready;
        for at in 0..self.guests.len() {
            if let Some((to, end)) = self.guests[at].kept.take() {
                match socket::hung_up(&self.guests[at].socket) {
                    true => self.guests[at].gone = true,
                    false => self.join(at, to, end, may),
                }
                if self.guests[at].kept.is_none() {
                    self.watch(at);
                }
            }
        }
        let now = misc::clock_ns();
        let late = |g: &Guest| g.who.is_none() && now.saturating_sub(g.since) > PATIENCE_NS;
        self.guests.retain(|g| !g.gone && !late(g));
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            // Without room, accepted connections have to be closed first.
            if !has_room() {
                return;
            }
            let Ok(socket) = socket::accept(&self.listener) else { return };
            let Ok(cred) = Peer::of(&socket) else { continue };
            let socket = Foreign::connection(socket, cred.uid);
            let payer = user::payer(cred.uid);
            let of_user = self.guests.iter().filter(|g| user::payer(g.cred.uid) == payer).count();
            let full = if let Some(why) = refusal(cred.uid) {
                Some(why)
            } else if of_user >= self.limits.of_user {
                Some(format!("user {} has {of_user} ranks that share memory, the limit", cred.uid))
            } else if self.guests.len() >= self.limits.ranks {
                Some(format!("{} ranks share memory, the limit", self.guests.len()))
            } else {
                None
            };
            if let Some(why) = full {
                self.refuse(&socket, why);
                continue;
            }
            self.last_token += 1;
            let token = self.last_token;
            if self.epoll.add(&socket, token, Interest::READ).is_err() {
                continue;
            }
            let since = misc::clock_ns();
            let (kept, unread, gone) = (None, Vec::new(), false);
            self.guests.push(Guest { socket, token, cred, who: None, since, kept, unread, gone });
        }
    }

    /// Waits for messages of a guest again.
    fn watch(&mut self, at: usize) {
        let guest = &mut self.guests[at];
        guest.gone |= self.epoll.add(&guest.socket, guest.token, Interest::READ).is_err();
    }

    /// Reads the messages of a guest, until a request has to be kept.
    fn read(&mut self, at: usize, may: &dyn Fn(u32, u32) -> Result<(), String>) {
        let mut buf = [0; MESSAGE_MAX];
        for _ in 0..MESSAGES {
            let guest = &mut self.guests[at];
            if guest.gone || guest.kept.is_some() {
                return;
            }
            let got = match socket::recv(&guest.socket, &mut buf, guest.cred.uid) {
                Ok(got) if got.len > 0 => got,
                Err(e) if is_early(&e) => return,
                // No descriptor is left for the socket that came: the request is lost, and the rank
                // sees the end of its pair.
                Err(e) if e.raw_os_error() == Some(libc::EMFILE) => {
                    self.count.refused += 1;
                    crate::warn!("a request to share memory is lost: {e} (raise ulimit -n)");
                    continue;
                }
                Ok(_) => return guest.gone = true,
                Err(_) => return self.nonsense(at, "message"),
            };
            match (Message::decode(&buf[..got.len]), got.passed) {
                (Ok(Message::Register { job, endpoint }), None) => self.register(at, job, endpoint),
                (Ok(Message::Join(to)), Some(end)) => self.join(at, to, end, may),
                (Ok(_), _) => self.nonsense(at, "kind"),
                (Err(what), _) => self.nonsense(at, what),
            }
        }
    }

    /// Ends the connection of a guest that sends no message.
    fn nonsense(&mut self, at: usize, what: &str) {
        self.count.nonsense += 1;
        let guest = &mut self.guests[at];
        let why = match what {
            "version" => format!(
                "it speaks another version of these messages, this agent {VERSION}: use weftd and \
                 weft of one build"
            ),
            _ => format!("its message is not understood: {what}"),
        };
        crate::warn!("process {} of user {}: {why}", guest.cred.pid, guest.cred.uid);
        let _ = socket::send(&guest.socket, &Message::Refused(why).encode(), None);
        guest.gone = true;
    }

    fn refuse(&mut self, socket: &OwnedFd, why: String) {
        self.count.refused += 1;
        log::debug!("a rank is not registered: {why}");
        let _ = socket::send(socket, &Message::Refused(why).encode(), None);
    }

    fn register(&mut self, at: usize, job: u64, endpoint: EndpointId) {
        let user = self.guests[at].cred.uid;
        let same = |g: &Guest| g.who == Some((job, endpoint)) && g.cred.uid == user && !g.gone;
        let guest = &self.guests[at];
        if guest.who.is_some() || self.guests.iter().any(same) {
            let why = format!("endpoint {endpoint} is registered already");
            self.count.refused += 1;
            let refused = Message::Refused(why).encode();
            let _ = socket::send(&guest.socket, &refused, None);
            self.guests[at].gone = true;
            return;
        }
        let registered = Message::Registered { identity: self.identity, user }.encode();
        let sent = socket::send(&guest.socket, &registered, None);
        let guest = &mut self.guests[at];
        (guest.who, guest.gone) = (Some((job, endpoint)), sent.is_err());
    }

    /// Passes a socket of a guest on to a rank of its job, keeps it, or refuses it.
    fn join(
        &mut self,
        at: usize,
        to: EndpointId,
        end: Foreign,
        may: &dyn Fn(u32, u32) -> Result<(), String>,
    ) {
        // A socket that connects a rank to somebody else would deceive the one that gets it.
        let cred = self.guests[at].cred;
        if !weft_sys::passing::is_connection(&end) || Peer::of(&end).ok() != Some(cred) {
            return self.nonsense(at, "the descriptor is no end of a pair of its own");
        }
        let passed = match self.decide(at, to, may) {
            Outcome::Keep => {
                let guest = &mut self.guests[at];
                self.epoll.remove(&guest.socket);
                guest.kept = Some((to, end));
                return;
            }
            Outcome::Refuse(why) => Err(why),
            Outcome::Pass(target) => self.pass(at, target, &end),
        };
        match passed {
            Ok(()) => self.count.joined += 1,
            Err(why) => {
                self.count.refused += 1;
                log::debug!("not joined to endpoint {to}: {why}");
                // The rank reads it at the other end.
                let _ = socket::send(&end, &rendezvous::refusal(&why), None);
            }
        }
    }

    fn pass(&mut self, at: usize, target: usize, end: &OwnedFd) -> Result<(), String> {
        let (user, from) = (self.guests[at].cred.uid, self.guests[at].who);
        let from = from.map_or(EndpointId(0), |(_, endpoint)| endpoint);
        let guest = &mut self.guests[target];
        socket::send(&guest.socket, &Message::Joined(from).encode(), Some(end.as_fd()))
            .map_err(|e| format!("the rank cannot be told: {e}"))?;
        guest.unread.push(user);
        Ok(())
    }

    fn decide(
        &mut self,
        at: usize,
        to: EndpointId,
        may: &dyn Fn(u32, u32) -> Result<(), String>,
    ) -> Outcome {
        let (cred, who) = (self.guests[at].cred, self.guests[at].who);
        let Some((job, from)) = who else { return Outcome::Refuse("it has not registered".into()) };
        if to == from {
            return Outcome::Refuse("a rank is not joined to itself".into());
        }
        let mut why = format!("endpoint {to} is not registered here: its process has ended");
        let mut target = None;
        for (i, guest) in self.guests.iter().enumerate() {
            match guest.who {
                Some((of, id)) if id == to && !guest.gone && of == job => {
                    match may(cred.uid, guest.cred.uid) {
                        Ok(()) => target = Some(i),
                        Err(no) => why = no,
                    }
                }
                Some((_, id)) if id == to && !guest.gone => {
                    why = format!("endpoint {to} belongs to another job");
                }
                _ => {}
            }
        }
        let Some(target) = target else { return Outcome::Refuse(why) };
        for guest in self.guests.iter_mut().filter(|g| !g.unread.is_empty()) {
            if socket::all_read(&guest.socket) {
                guest.unread.clear();
            }
        }
        let payer = user::payer(cred.uid);
        let by = |g: &Guest| g.unread.iter().filter(|&&of| user::payer(of) == payer).count();
        let of_user: usize = self.guests.iter().map(by).sum();
        match self.guests[target].unread.len() < UNREAD_MAX && of_user < UNREAD_OF_USER {
            true => Outcome::Pass(target),
            false => Outcome::Keep,
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

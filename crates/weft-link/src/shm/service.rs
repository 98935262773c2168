//! The sockets of the link: accepts connections, reads answers, notices the end of peers. Runs
//! rarely while polling, and on every wake-up.

use super::broker::Said;
use super::peer::{Peer, Socket};
use super::rendezvous::{self, system, Hello, Kind, Proof, Shared, BELL, LONGEST, SHARED};
use super::ring::Violation;
use super::sys::map;
use super::sys::socket;
use super::{DirectCopy, ShmLink};
use crate::{user, LinkError};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign::{has_room, refusal, Listener, ANYBODY};
use weft_sys::{memory, Foreign, Peer as Process};

/// Highest number of accepted sockets without a hello. Beyond it, the oldest socket of the user
/// with most of them is closed.
const MAX_PENDING: usize = 64;
/// Connections accepted, and messages read from a socket, in one call: more than a socket holds.
const BURST: usize = 1024;
/// Connections accepted, and messages read from a socket, in one call by a hub, to which any
/// process may connect. Further connections and messages wait for the next call, so that the hub
/// can serve its ranks in the meantime.
const HUB_ACCEPTS: usize = 8;
const HUB_MESSAGES: usize = 64;
/// Reasons of refusals.
const TOO_MANY: &str = "too many connections without a hello";
const NO_DESCRIPTOR: &str = "no descriptor is left there (raise ulimit -n)";
/// Refusals of which each has a line in the log; then the line comes at each doubling. Any process
/// of the host may ask again and again.
const TOLD: u64 = 16;
/// The tokens of the listener and of the connection to the agent; those to peers count from 2.
const LISTENER: u64 = 0;
const AGENT: u64 = 1;

/// The sockets of a link.
#[derive(Debug)]
pub(super) struct Listeners {
    pub epoll: Epoll,
    pub key: u64,
    pub listener: Listener,
    /// Closed for a moment when no descriptors are left, to refuse a waiting connection.
    spare: Option<OwnedFd>,
    /// The listener is not in the epoll set because no descriptors are left.
    paused: bool,
    last_token: u64,
    pending: Vec<Socket>,
    /// Working memory of `service`.
    ready: Vec<u64>,
}

impl Listeners {
    /// Opens the listener at an agent's name, or under a key.
    pub(super) fn open(name: Option<&str>, key: u64) -> Result<Listeners, LinkError> {
        let epoll = Epoll::new().map_err(|e| system("making an epoll set", e))?;
        let (listener, key) = match name {
            Some(name) => (rendezvous::listen_at(name)?, 0),
            None => rendezvous::listen(key)?,
        };
        epoll
            .add(&listener, LISTENER, Interest::READ)
            .map_err(|e| system("watching the listener", e))?;
        let spare = listener.try_clone().map_err(|e| system("keeping a spare descriptor", e))?;
        Ok(Listeners {
            epoll,
            key,
            listener: Listener::new(listener),
            spare: Some(spare),
            paused: false,
            last_token: AGENT,
            pending: Vec::new(),
            ready: Vec::new(),
        })
    }

    /// Adds a connected socket to the epoll set.
    pub(super) fn watch(&mut self, fd: Foreign) -> Result<Socket, LinkError> {
        self.last_token += 1;
        let (token, user) = (self.last_token, fd.user());
        self.epoll.add(&fd, token, Interest::READ).map_err(|e| system("watching a socket", e))?;
        Ok(Socket { fd, token, user, joined: false })
    }

    /// Adds the connection to the agent that brokers to the epoll set.
    pub(super) fn watch_agent(&self, connection: &OwnedFd) -> Result<(), LinkError> {
        self.epoll
            .add(connection, AGENT, Interest::READ)
            .map_err(|e| system("watching a socket", e))
    }

    /// Closes the oldest of the accepted sockets of the user who has most of them, so that no other
    /// user loses a connection because of processes that send no hello.
    fn give_up_pending(&mut self) {
        let mut of: BTreeMap<u32, usize> = BTreeMap::new();
        self.pending.iter().for_each(|s| *of.entry(user::payer(s.user)).or_default() += 1);
        let most = of.values().copied().max().unwrap_or(0);
        if let Some(at) =
            self.pending.iter().position(|s| of.get(&user::payer(s.user)) == Some(&most))
        {
            self.pending.remove(at).refuse(TOO_MANY);
        }
    }

    /// Refuses the next waiting connection; else its process would wait for long, without knowing
    /// the reason. False if no connection waits.
    ///
    /// # Errors
    /// No descriptor is left even for that.
    fn refuse(&mut self) -> io::Result<bool> {
        self.spare = None;
        let told = match socket::accept(&self.listener) {
            Ok(fd) => {
                let peer = Process::of(&fd);
                let fd = Foreign::connection(fd, peer.as_ref().map_or(ANYBODY, |peer| peer.uid));
                // Unread bytes at the end of the connection would be an error for the other side.
                // Of a stranger nothing is received: it could be a descriptor.
                if peer.is_ok_and(|peer| peer.is_own().is_ok()) {
                    let _hello = receive(&fd);
                }
                // If the message cannot be sent, the end of the connection tells the other side.
                let _ = socket::send(&fd, &rendezvous::refusal(NO_DESCRIPTOR), None);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        };
        self.spare = self.listener.try_clone().ok();
        told
    }
}

/// The result of a read of a connected socket.
enum Received {
    Nothing,
    Closed,
    Bell,
    Refused(String),
    /// No descriptor was left for the one that came with the message.
    NoRoom,
    Hello(Hello, Option<Proof>, Option<Foreign>),
    Shared(Shared, Foreign),
    Nonsense(&'static str),
}

fn is_reported(count: u64) -> bool {
    count < TOLD || count.is_power_of_two()
}

fn receive(fd: &Foreign) -> Received {
    let mut buf = [0; LONGEST + 1];
    let mut got = socket::recv(fd, &mut buf, fd.user());
    if got.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset) {
        // The other side ended before it read all our messages. The kernel reports that before it
        // returns the messages of the other side.
        got = socket::recv(fd, &mut buf, fd.user());
    }
    match got {
        Ok(got) if got.len == 0 => Received::Closed,
        Ok(got) if buf[..got.len] == BELL => Received::Bell,
        Ok(got) if rendezvous::reason_of(&buf[..got.len]).is_some() => {
            Received::Refused(rendezvous::reason_of(&buf[..got.len]).unwrap_or_default())
        }
        Ok(got) if got.len == SHARED => match (Shared::decode(&buf[..SHARED]), got.passed) {
            (Ok(shared), Some(file)) => Received::Shared(shared, file),
            (Ok(_), None) => Received::Nonsense("shared memory without a file"),
            (Err(what), _) => Received::Nonsense(what),
        },
        Ok(got) => match rendezvous::decode_proven(&buf[..got.len]) {
            Ok((hello, proof)) => Received::Hello(hello, proof, got.passed),
            Err(what) => Received::Nonsense(what),
        },
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => Received::NoRoom,
        Err(e) => match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Nothing,
            io::ErrorKind::InvalidData => Received::Nonsense("message"),
            _ => Received::Closed,
        },
    }
}

impl ShmLink {
    /// Handles all sockets that are ready; a hub does not accept connections here.
    #[cold]
    pub(super) fn service(&mut self) {
        self.poll(if self.is_hub { 0 } else { BURST });
    }

    /// Handles all sockets that are ready; a hub also accepts some waiting connections.
    pub fn poll_sockets(&mut self) {
        self.poll(if self.is_hub { HUB_ACCEPTS } else { BURST });
    }

    fn poll(&mut self, accepts: usize) {
        if std::mem::take(&mut self.listeners.paused) {
            let _ = self.listeners.epoll.add(&self.listeners.listener, LISTENER, Interest::READ);
        }
        let mut ready = std::mem::take(&mut self.listeners.ready);
        self.listeners.epoll.ready(&mut ready);
        for &token in &ready {
            if token == LISTENER {
                self.accept(accepts);
            } else if token == AGENT {
                self.listen_to_agent();
            } else if let Some(at) = self.listeners.pending.iter().position(|s| s.token == token) {
                self.read_hello(at);
            } else if let Some(at) = self.peers.iter().position(|p| p.socket(token).is_some()) {
                self.listen_to(at, token);
            }
        }
        self.listeners.ready = ready;
    }

    fn accept(&mut self, most: usize) {
        for _ in 0..most {
            // Without room, accepted connections have to be closed first.
            if !has_room() {
                return;
            }
            let fd = match socket::accept(&self.listeners.listener) {
                Ok(fd) => fd,
                Err(e) => return self.accept_failed(&e),
            };
            let Ok(peer) = Process::of(&fd) else { continue };
            let fd = Foreign::connection(fd, peer.uid);
            if let Some(why) = refusal(peer.uid) {
                let _ = socket::send(&fd, &rendezvous::refusal(&why), None);
                self.note_refusal(&why);
                continue;
            }
            // Of a stranger a rank receives nothing: it could be a descriptor.
            if let Some(why) = user::same(self.user, peer.uid).err().filter(|_| !self.is_hub) {
                // The other side would take the end of the connection for that of the process.
                let _ = socket::send(&fd, &rendezvous::refusal(&why), None);
                self.note_refusal(&why);
                continue;
            }
            match self.listeners.watch(fd) {
                Ok(socket) => self.receive(socket),
                Err(e) => return self.note_refusal(&e.to_string()),
            }
        }
    }

    /// Takes a new connection, whose hello may have come already.
    fn receive(&mut self, socket: Socket) {
        self.listeners.pending.push(socket);
        self.read_hello(self.listeners.pending.len() - 1);
        if self.listeners.pending.len() > MAX_PENDING {
            self.listeners.give_up_pending();
            self.note_refusal(TOO_MANY);
        }
    }

    /// Reads the messages of the agent that brokers.
    fn listen_to_agent(&mut self) {
        for _ in 0..BURST {
            let Ok(connection) = &self.agent else { return };
            match connection.said() {
                None => return,
                Some(Said::Joined(fd)) => match self.listeners.watch(fd.into_connection()) {
                    Ok(mut socket) => {
                        socket.joined = true;
                        self.receive(socket);
                    }
                    Err(e) => self.note_refusal(&e.to_string()),
                },
                Some(Said::Refused(why)) => {
                    let name = &connection.standing().name;
                    self.agent = Err(format!("the agent at {name} refuses: {why}"));
                    return;
                }
                Some(Said::Nonsense(what)) => {
                    self.note_refusal(&format!("from the agent: {what}"));
                }
                Some(Said::Ended) => {
                    let name = &connection.standing().name;
                    let why = format!("the agent at {name} has ended: start it for new programs");
                    log::info!("{why}; peers in other containers stay where they are joined");
                    self.agent = Err(why);
                    return;
                }
            }
        }
    }

    fn accept_failed(&mut self, error: &io::Error) {
        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) {
            if self.counters.refused == 0 {
                self.warn(format!("cannot accept: {error} (raise ulimit -n)"));
            }
            self.counters.refused += 1;
            for _ in 0..BURST {
                match self.listeners.refuse() {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(_) => break,
                }
            }
            // The listener would stay readable, so that waiting would become spinning.
            self.listeners.epoll.remove(&self.listeners.listener);
            self.listeners.paused = true;
        }
    }

    fn note_refusal(&mut self, why: &str) {
        self.counters.refused += 1;
        let count = self.counters.refused;
        if is_reported(count) {
            let so_far = if count < TOLD { String::new() } else { format!(" ({count} so far)") };
            crate::warn!("shared-memory connection refused: {why}{so_far}");
        }
    }

    /// Reads the hello of an accepted connection.
    fn read_hello(&mut self, at: usize) {
        let heard = receive(&self.listeners.pending[at].fd);
        if matches!(heard, Received::Nothing) {
            return;
        }
        let socket = self.listeners.pending.remove(at);
        let checked = match heard {
            Received::Hello(hello, proof, Some(segment)) => {
                self.check(&socket, &hello, proof, &segment).map(|place| (hello, place))
            }
            Received::Hello(_, _, None) => Err("hello without a segment".into()),
            Received::Closed => return,
            Received::Bell | Received::Refused(_) | Received::Nothing | Received::Shared(..) => {
                Err("no hello".into())
            }
            Received::NoRoom => Err(NO_DESCRIPTOR.into()),
            Received::Nonsense(what) => Err(what.into()),
        };
        match checked {
            Ok((hello, (crossed, halves))) => self.admit(socket, &hello, crossed, halves),
            // The caller connected and ended before it was accepted.
            Err(_) if socket::hung_up(&socket.fd) => {}
            Err(why) => {
                socket.refuse(&why);
                self.note_refusal(&why);
            }
        }
    }

    /// Checks an accepted connection and, if it is admitted, answers it. Returns the index of this
    /// side's own connection to the same endpoint, if both connected at the same time, and the
    /// halves to receive and to send in.
    fn check(
        &mut self,
        Socket { fd, user, joined, .. }: &Socket,
        hello: &Hello,
        proof: Option<Proof>,
        segment: &Foreign,
    ) -> Result<(Option<usize>, [map::Half; 2]), String> {
        let endpoint = hello.from;
        self.check_proof(*joined, hello, proof)?;
        // Larger rings take more memory; smaller ones have no room for the agent's messages.
        if self.is_hub && hello.sizes != self.config.sizes() {
            return Err(format!("endpoint {endpoint} uses other ring sizes than the agent"));
        }
        if hello.kind != Kind::Offer || hello.to != self.config.endpoint {
            return Err(format!("endpoint {endpoint} wants to reach endpoint {}", hello.to));
        }
        if !memory::is_steady(segment, hello.sizes.segment_len()) {
            return Err(format!(
                "the segment of endpoint {endpoint} is not sealed, has another length, or has \
                 other pages than ordinary ones"
            ));
        }
        // An endpoint may have ended since it connected, and this side's own connection with it:
        // its packets are in the segment.
        let ended_unheard = |p: &Peer| p.end.hung_up && p.end.refused.is_none() && p.may_cross();
        let is_same = |p: &Peer| p.endpoint == endpoint && (!p.end.hung_up || ended_unheard(p));
        let same = self.peers.iter().position(is_same);
        let crossed = same.filter(|&at| self.peers[at].may_cross());
        if let Some(at) = same.filter(|_| crossed.is_none()) {
            // A new connection after the end of the old one is allowed, a second one is not.
            if !self.peers[at].closed() {
                return Err(format!("endpoint {endpoint} is connected already"));
            }
            self.peers[at].end.hung_up = true;
        }
        if crossed.is_none() && self.peers.len() >= self.config.max_peers {
            return Err(format!("no room for endpoint {endpoint}"));
        }
        let payer = user::payer(*user);
        let own = || self.peers.iter().filter(|p| user::payer(p.socket.user) == payer).count();
        if self.is_hub && own() >= self.of_user {
            return Err(format!("user {user} has {} connections, the limit", self.of_user));
        }
        let answer = self.hello(Kind::Answer, endpoint, hello.sizes);
        let halves = map::map(segment, hello.sizes).map_err(|e| e.to_string())?;
        let proven = match (self.job_key(), proof) {
            (Some(key), Some(proof)) => Proof::of(key, &answer, proof.nonce).encode().into(),
            _ => Vec::new(),
        };
        let answer = [&answer.encode()[..], &proven].concat();
        match socket::send(fd, &answer, None) {
            Err(e) if crossed.is_none() || !socket::hung_up(fd) => Err(e.to_string()),
            // One that has ended needs no answer.
            _ => Ok((crossed, halves)),
        }
    }

    /// Checks that a hello has a proof where the agent joined the two, and only there.
    fn check_proof(&self, joined: bool, hello: &Hello, proof: Option<Proof>) -> Result<(), String> {
        let endpoint = hello.from;
        match (joined, proof) {
            (false, None) => Ok(()),
            (false, Some(_)) => Err(format!("endpoint {endpoint} was not joined by the agent")),
            (true, proof) => match (self.job_key(), proof) {
                (Some(key), Some(proof)) if proof.holds(key, hello) => Ok(()),
                _ => Err(format!("endpoint {endpoint} does not know the key of this job")),
            },
        }
    }

    /// Makes a caller of a connection, or adds the connection to the peer `crossed`.
    fn admit(
        &mut self,
        socket: Socket,
        hello: &Hello,
        crossed: Option<usize>,
        [rx, tx]: [map::Half; 2],
    ) {
        let at = match crossed {
            Some(at) => {
                self.peers[at].cross(socket, hello.sizes, rx);
                at
            }
            None => {
                let choice = if socket.joined { DirectCopy::Off } else { self.config.direct };
                let direct = Peer::direct_to(&socket.fd, choice);
                let halves = [tx, rx];
                let mut peer = Peer::new(hello.from, socket, hello.sizes, halves, direct);
                // A hub reads nothing from a caller before it has admitted it.
                peer.muted = self.is_hub;
                self.peers.add(peer)
            }
        };
        self.on_hello(at, hello);
    }

    fn on_hello(&mut self, at: usize, hello: &Hello) {
        let barrier = self.barrier && hello.barrier;
        let peer = &mut self.peers[at];
        let warning = peer.on_hello(barrier, hello.probe_addr, hello.probe_word);
        // The memory of one that has ended is gone.
        if let Some(warning) = warning.filter(|_| !peer.closed()) {
            self.warn(warning);
        }
    }

    /// Checks the answer of a peer that the agent was asked to join. From a proven peer packets are
    /// taken; one without proof is no peer.
    fn is_proven(&mut self, at: usize, hello: &Hello, proof: Option<Proof>) -> bool {
        let Some(nonce) = self.peers[at].unproven else { return true };
        let holds = |p: Proof| self.job_key().is_some_and(|key| p.holds(key, hello));
        let is_right = |p: Proof| p.nonce == nonce && hello.to == self.config.endpoint && holds(p);
        let proven = proof.is_some_and(is_right);
        let peer = &mut self.peers[at];
        if proven {
            (peer.unproven, peer.muted) = (None, false);
            return true;
        }
        let why = "it does not know the key of this job";
        (peer.end.refused, peer.end.hung_up) = (Some(why.into()), true);
        self.note_refusal(why);
        false
    }

    /// Reads the messages of a connection.
    pub(super) fn listen_to(&mut self, at: usize, token: u64) {
        for _ in 0..if self.is_hub { HUB_MESSAGES } else { BURST } {
            let peer = &mut self.peers[at];
            let Some(fd) = peer.socket(token) else { return };
            match receive(fd) {
                Received::Nothing => return,
                Received::Bell => {}
                Received::Closed => {
                    self.listeners.epoll.remove(fd);
                    peer.end.hung_up = true;
                    return;
                }
                Received::Hello(hello, proof, None)
                    if hello.kind == Kind::Answer
                        && hello.from == peer.endpoint
                        && peer.dialed
                        && peer.socket.token == token =>
                {
                    if self.is_proven(at, &hello, proof) {
                        self.on_hello(at, &hello);
                    }
                }
                Received::Shared(shared, file) if self.takes_memory => peer.map(&shared, &file),
                // The other side cannot know that this side does not map memory.
                Received::Shared(..) => {}
                Received::Refused(why) => {
                    self.counters.unjoined += u64::from(peer.socket.joined);
                    peer.end.refused = Some(why);
                }
                Received::NoRoom => peer.end.violation = Some(Violation("unexpected descriptor")),
                Received::Hello(..) => peer.end.violation = Some(Violation("unexpected hello")),
                Received::Nonsense(what) => peer.end.violation = Some(Violation(what)),
            }
            if self.peers[at].end.violation.is_some() {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hear__a_refusal_by_a_peer_that_did_not_read_the_hello() {
        let (listener, key) = rendezvous::listen(0).unwrap();
        let ours = socket::connect(socket::Name::Key(key)).unwrap();
        let theirs = socket::accept(&listener).unwrap();
        let why = "x".repeat(300);
        socket::send(&theirs, &rendezvous::refusal(&why), None).unwrap();
        socket::send(&ours, &BELL, None).unwrap();
        drop(theirs);
        let ours = Foreign::connection(ours, user::effective());
        assert!(matches!(receive(&ours), Received::Refused(text) if text == why[..200]));
    }

    #[test]
    fn is_logged__the_first_and_then_at_each_doubling() {
        let told = (1..=1_000_000).filter(|&count| is_reported(count)).count();
        assert_eq!(told, 15 + 16);
    }

    #[test]
    fn give_up_pending__it_is_the_oldest_of_the_user_with_most() {
        let mut listeners = Listeners::open(None, 0).unwrap();
        for user in [1, 2, 3, 2, 2, 3] {
            let socket = socket::connect(socket::Name::Key(listeners.key)).unwrap();
            let socket = listeners.watch(Foreign::connection(socket, user));
            listeners.pending.push(socket.unwrap());
        }
        let mut left = || {
            listeners.give_up_pending();
            listeners.pending.iter().map(|s| s.user).collect::<Vec<u32>>()
        };
        assert_eq!(left(), [1, 3, 2, 2, 3]);
        assert_eq!(left(), [1, 2, 2, 3]);
        assert_eq!(left(), [1, 2, 3]);
        assert_eq!(left(), [2, 3]);
    }
}

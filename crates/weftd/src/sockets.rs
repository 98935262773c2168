//! Socket programs of this host whose connections are to share memory: it brings the two ends of a
//! connection together, and has no part in it after that.
//!
//! `weft_streams::pairing` decides; here are the connections of programs, the sockets that they
//! show, and the memory.

use crate::handback::{is_early, Declined, Handback, Way};
use crate::listening;
use crate::paths::Paths;
use crate::questions::{Answer, Heard, Questions, Thing};
use crate::sys::passing;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use weft_cluster::share;
use weft_core::Instant;
use weft_link::LinkError;
use weft_streams::message::{Message, Other, MESSAGE_MAX, VERSION};
use weft_streams::pairing::{Do, End, Facts, Pairing, Program};
use weft_streams::socket_name;
use weft_streams::words::SEGMENT;
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign::{self, Listener};
use weft_sys::passing::Received;
use weft_sys::{memory, Foreign, Peer};

/// Most programs; one user has at most half of what others leave.
const PROGRAMS_MAX: usize = 1024;
/// Programs accepted, and messages of a program read, in a round.
const AT_ONCE: usize = 16;
/// Most lists in one answer: a socket holds more messages.
const LISTS: usize = 32;
/// The listener's number in the set of descriptors; programs count from 1.
const LISTENER: u64 = 0;
/// The number of the answers to questions there.
const ANSWERS: u64 = u64::MAX;
/// Mark of the number of a program's bell.
const BELL: u64 = 1 << 63;

struct Guest {
    socket: Foreign<UnixStream>,
    user: u32,
    /// Its network namespace.
    namespace: u64,
    /// The number of its process, and the list of its connections.
    list: Option<(u64, Foreign)>,
    /// The socket by which the agent may interrupt it.
    bell: Option<Arc<Foreign<UnixStream>>>,
}

/// The programs, and what they ask.
pub struct Sockets {
    listener: Listener,
    set: Epoll,
    ready: Vec<u64>,
    guests: BTreeMap<Program, Guest>,
    last: Program,
    pairing: Pairing,
    /// Sockets that are shown, until their other ends are.
    held: BTreeMap<End, (Foreign, Option<Facts>)>,
    questions: Questions,
    /// Bytes that go back to TCP.
    handback: Handback,
    /// Ends in different networks.
    paths: Paths,
    to_do: Vec<Do>,
    turned_away: u64,
}

impl Sockets {
    /// Listens beside the agent's own socket.
    ///
    /// # Errors
    /// Another process has the name, or the system has no descriptors left.
    pub fn open(name: &str) -> Result<Sockets, LinkError> {
        let name = socket_name(name);
        let (listener, set) = listening::open(&name, LISTENER)?;
        let fail = listening::failed(&name);
        let questions = Questions::new().map_err(fail)?;
        set.add(&questions, ANSWERS, Interest::READ).map_err(fail)?;
        Ok(Sockets {
            listener: Listener::new(listener),
            set,
            ready: Vec::new(),
            guests: BTreeMap::new(),
            last: LISTENER,
            pairing: Pairing::new(weft_sys::user::payer),
            held: BTreeMap::new(),
            questions,
            handback: Handback::default(),
            paths: Paths::default(),
            to_do: Vec::new(),
            turned_away: 0,
        })
    }

    /// Returns the descriptor that is readable while a program wants something.
    pub fn listener_fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// True if nothing waits for its time.
    pub fn is_idle(&self) -> bool {
        self.pairing.is_empty()
    }

    /// True if a socket is held, which is to be for a moment only.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Lists the counters by name.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let counts = self.pairing.counts;
        each("sockets_programs", self.guests.len() as u64);
        each("sockets_asking", self.pairing.len() as u64);
        each("sockets_asked", counts.asked);
        each("sockets_paired", counts.paired);
        each("sockets_refused", counts.refused);
        each("sockets_turned_away", self.turned_away);
        each("sockets_given_back", self.handback.asked);
    }

    /// Serves the programs; never blocks. `may` tells if two users may share memory.
    pub fn serve(&mut self, now: Instant, may: &dyn Fn(u32, u32) -> bool) {
        let mut ready = std::mem::take(&mut self.ready);
        self.set.ready(&mut ready);
        for &one in &ready {
            match one {
                LISTENER => self.accept(),
                ANSWERS => self.hear_answers(now),
                bell if bell & BELL != 0 => self.hear_bell(bell & !BELL),
                program => self.read(now, program, may),
            }
        }
        self.ready = ready;
        self.look_at_paths();
        self.pairing.on_time(now.0, &mut self.to_do);
        self.act();
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            // Earlier connections have to be closed first.
            if !foreign::has_room() {
                return;
            }
            let Ok(socket) = passing::accept(&self.listener) else { return };
            let Ok(Peer { uid: user, .. }) = Peer::of(&socket) else { continue };
            let socket = Foreign::connection(UnixStream::from(socket), user);
            let of_user = share::count(user, self.guests.values().map(|guest| guest.user));
            let is_admitted = share::admits(user, of_user, self.guests.len(), PROGRAMS_MAX);
            if let Some(why) = foreign::refusal(user) {
                self.turned_away += 1;
                let _ = passing::send(&socket, &Message::None { token: 0, why }.encode(), None);
                continue;
            }
            if !is_admitted {
                self.turned_away += 1;
                continue;
            }
            self.last += 1;
            if self.set.add(&socket, self.last, Interest::READ).is_ok() {
                let namespace = passing::namespace(&socket).unwrap_or(0);
                let guest = Guest { socket, user, namespace, list: None, bell: None };
                self.guests.insert(self.last, guest);
            }
        }
    }

    fn read(&mut self, now: Instant, program: Program, may: &dyn Fn(u32, u32) -> bool) {
        let mut buf = [0; MESSAGE_MAX];
        for _ in 0..AT_ONCE {
            let Some(guest) = self.guests.get(&program) else { return };
            let (user, namespace) = (guest.user, guest.namespace);
            let got = passing::recv(&guest.socket, &mut buf, user).and_then(Received::only);
            let (len, passed) = match got {
                Ok(got) => got,
                Err(e) if is_early(&e) => return,
                // The program ended before it read all.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return self.end(program, "");
                }
                Err(_) => return self.end(program, "a message that is none"),
            };
            if len == 0 {
                return self.end(program, "");
            }
            match (Message::decode(&buf[..len]), passed) {
                (Ok(Message::Ask { token, local, remote }), None) => {
                    let end = (program, token);
                    self.let_go(end);
                    let (who, out) = ((end, user, namespace), &mut self.to_do);
                    self.pairing.ask(now.0, who, (local, remote), may, out);
                }
                (Ok(Message::Here(token)), Some(socket)) => {
                    self.shows(now, (program, token), socket, may);
                }
                (Ok(Message::Board(process)), Some(list))
                    if memory::steady_len(&list).is_some() =>
                {
                    if let Some(guest) = self.guests.get_mut(&program) {
                        guest.list = Some((process, list));
                    }
                }
                (Ok(Message::Back { token, before, other }), Some(record)) => {
                    self.handback.shows((program, token), record, before, other);
                }
                (Ok(Message::Path(token)), Some(path)) => {
                    if self.pairing.is_called((program, token)) {
                        self.questions.path((program, token), path);
                    }
                }
                (Ok(Message::Bell(_)), Some(bell)) => self.has_bell(program, bell),
                (Ok(Message::List(after)), None) => self.list(program, user, after),
                (Ok(Message::Cancel(token)), None) => {
                    self.let_go((program, token));
                    self.paths.forget((program, token));
                    self.pairing.cancel((program, token), &mut self.to_do);
                }
                (Err("version"), _) => {
                    return self.end(program, "it speaks another version of these messages");
                }
                _ => return self.end(program, "a message that is none"),
            }
            self.act();
        }
    }

    /// An end shows its socket.
    fn shows(&mut self, now: Instant, end: End, socket: Foreign, may: &dyn Fn(u32, u32) -> bool) {
        if let Some(lender) = self.handback.awaits(end) {
            self.give_back(end, socket, lender, may);
        } else if !self.pairing.is_called(end) || !self.questions.socket(end, socket) {
            self.pairing.shown(now.0, end, None, &mut self.to_do);
        }
    }

    /// Hears what the kernel says of things that programs have passed.
    fn hear_answers(&mut self, now: Instant) {
        self.questions.begin();
        while let Some((end, answer)) = self.questions.next() {
            match answer {
                Answer::Socket(socket, facts) => {
                    self.held.insert(end, (socket, facts));
                    self.pairing.shown(now.0, end, facts, &mut self.to_do);
                }
                Answer::Path(path, Some(facts)) if self.pairing.is_called(end) => {
                    self.paths.shows(end, path, facts);
                }
                Answer::Path(..) => {}
                Answer::Bell(heard) => self.heard(end.0, heard),
            }
            self.act();
        }
    }

    /// An end shows nothing any more.
    fn let_go(&mut self, end: End) {
        self.held.remove(&end);
        self.questions.forget(end);
    }

    /// Returns a way to the bell of an end's program.
    fn bell_of(&self, (program, token): End) -> Option<Way> {
        way(self.guests.get(&program)?.bell.as_deref().map(|bell| &**bell), token)
    }

    /// A program has a bell from now on.
    fn has_bell(&mut self, program: Program, bell: Foreign) {
        if !weft_sys::passing::is_connection(&bell) {
            return self.end(program, "the descriptor is no end of a pair of its own");
        }
        let added = self.set.add(&bell, program | BELL, Interest::READ).is_ok();
        self.lose_bell(program);
        if let Some(guest) = self.guests.get_mut(&program).filter(|_| added) {
            let user = bell.user();
            let bell = UnixStream::from(bell.into_inner());
            guest.bell = Some(Arc::new(Foreign::new(bell, user)));
        }
    }

    /// A program has no bell any more. A thread may have a copy. The thread of its user closes it:
    /// the program may have a copy too, from which it reads.
    fn lose_bell(&mut self, program: Program) {
        self.questions.forget_thing((program, 0), Thing::Bell);
        if let Some(bell) = self.guests.get_mut(&program).and_then(|guest| guest.bell.take()) {
            self.set.remove(&*bell);
            foreign::ask(bell.user(), move || drop(bell));
        }
    }

    /// A program says something by its bell: it lends a socket, or has none. Nothing more is told
    /// of the bell until that is read.
    fn hear_bell(&mut self, program: Program) {
        let bell = self.guests.get(&program).and_then(|guest| guest.bell.clone());
        let Some(bell) = bell else { return };
        self.set.remove(&*bell);
        if !self.questions.bell((program, 0), bell) {
            self.lose_bell(program);
        }
    }

    /// Words of a program have come by its bell.
    fn heard(&mut self, program: Program, heard: Heard) {
        for (message, fd) in heard.messages {
            match (message, fd) {
                (Message::Lent(token), Some(fd)) => self.lent((program, token), fd),
                (Message::Soon(token), None) => self.handback.lends_soon((program, token)),
                (Message::Cancel(token), None) => self.handback.lends_not((program, token)),
                _ => return self.lose_bell(program),
            }
        }
        let bell = self.guests.get(&program).and_then(|guest| guest.bell.as_ref());
        let is_told = bell.is_some_and(|bell| {
            !heard.is_over && self.set.add(&**bell, program | BELL, Interest::READ).is_ok()
        });
        if !is_told {
            self.lose_bell(program);
        }
    }

    /// A program lends a socket. It hears at once that the socket is free if nobody waits for it.
    fn lent(&mut self, end: End, fd: Foreign) {
        if !self.handback.lent(end, fd) {
            if let Some(bell) = self.guests.get(&end.0).and_then(|one| one.bell.as_deref()) {
                let _ = passing::send(bell, &Message::Free(end.1).encode(), None);
            }
        }
    }

    /// An end shows the socket whose bytes are to go back to TCP. Another one is to lend its own.
    fn give_back(
        &mut self,
        end: End,
        socket: Foreign,
        lender: End,
        may: &dyn Fn(u32, u32) -> bool,
    ) {
        let user_of = |program| self.guests.get(&program).map(|guest| guest.user);
        let user = user_of(end.0).unwrap_or(u32::MAX);
        let is_allowed = user_of(lender.0).is_some_and(|other| other == user || may(user, other));
        let bell = self.bell_of(lender).filter(|_| is_allowed);
        let asker = way(self.guests.get(&end.0).map(|guest| &*guest.socket), end.1);
        let (Some(bell), Some(asker)) = (bell, asker) else {
            self.handback.forget(end);
            let why = "the other end's program is not known to the agent, or cannot be asked";
            return self.say(end, &Message::None { token: end.1, why: why.into() }, None);
        };
        match self.handback.begin((end, user), asker, socket, bell, lender) {
            Ok(()) => {}
            Err(Declined::Later) => self.say(end, &Message::Later(end.1), None),
            Err(Declined::Never) => {
                let why = "no bytes were shown".to_string();
                self.say(end, &Message::None { token: end.1, why }, None);
            }
        }
    }

    /// Shows lists of programs to somebody who asks: those of the same user, to root all.
    fn list(&self, asker: Program, user: u32, after: u64) {
        let allowed = |guest: &Guest| weft_link::user::sees(user, guest.user);
        let mut next = self.guests.range(after.saturating_add(1)..);
        let mut told = 0;
        let last = next.find_map(|(&program, guest)| {
            if let Some((process, list)) = guest.list.as_ref().filter(|_| allowed(guest)) {
                self.say((asker, *process), &Message::Listed(*process), Some(list.as_fd()));
                told += 1;
            }
            (told == LISTS).then_some(program)
        });
        self.say((asker, 0), &Message::More(last.unwrap_or(0)), None);
    }

    /// Ends the connection of a program; the reason is empty if it has left.
    fn end(&mut self, program: Program, why: &str) {
        if !why.is_empty() {
            let user = self.guests.get(&program).map_or(0, |guest| guest.user);
            log::warn!("a socket program of user {user}: {why} (this agent speaks {VERSION})");
        }
        self.lose_bell(program);
        if let Some(guest) = self.guests.remove(&program) {
            self.set.remove(&guest.socket);
        }
        self.held.retain(|end, _| end.0 != program);
        self.questions.gone(program);
        self.handback.gone(program);
        self.paths.gone(program);
        self.pairing.gone(program, &mut self.to_do);
        self.act();
    }

    fn act(&mut self) {
        for what in std::mem::take(&mut self.to_do) {
            match what {
                Do::Call(end) => self.say(end, &Message::Call(end.1), None),
                Do::Far(end) => self.say(end, &Message::Far(end.1), None),
                Do::Prove(one, other) => self.prove(one, other),
                Do::Refuse(end, why) => {
                    self.let_go(end);
                    self.paths.forget(end);
                    let (token, why) = (end.1, why.to_string());
                    self.say(end, &Message::None { token, why }, None);
                }
                Do::Pair(one, other) => self.pair(one, other),
            }
        }
    }

    /// Tries the network between two ends whose sockets are held.
    fn prove(&mut self, one: End, other: End) {
        let named = |end: End| (end, self.held.get(&end).and_then(|(_, facts)| *facts));
        if self.paths.begin([named(one), named(other)]) {
            self.look_at_paths();
        } else {
            self.pairing.tried(one, other, false, &mut self.to_do);
        }
        self.act();
    }

    fn look_at_paths(&mut self) {
        for (one, other) in self.paths.look() {
            self.pairing.tried(one, other, true, &mut self.to_do);
        }
    }

    fn pair(&mut self, one: End, other: End) {
        [one, other].iter().for_each(|end| drop(self.held.remove(end)));
        let memory = match passing::shared_memory(SEGMENT) {
            Ok(memory) => memory,
            Err(e) => {
                log::warn!("no memory for a connection of socket programs: {e}");
                for end in [one, other] {
                    let why = "the agent has no memory for it".to_string();
                    self.say(end, &Message::None { token: end.1, why }, None);
                }
                return;
            }
        };
        // An end that does not get it never takes bytes from a ring, and puts none there.
        let key = weft_link::random_u64();
        for (end, (program, token), first) in [(one, other, true), (other, one, false)] {
            let other = Other { program, token, key };
            self.say(end, &Message::Pair { token: end.1, first, other }, Some(memory.as_fd()));
        }
    }

    /// Tells a program something. One that does not read loses it, and its connection stays TCP.
    fn say(&self, end: End, message: &Message, pass: Option<BorrowedFd<'_>>) {
        if let Some(guest) = self.guests.get(&end.0) {
            let _ = passing::send(&guest.socket, &message.encode(), pass);
        }
    }
}

/// Returns a way by a socket, for another thread too.
fn way(socket: Option<&UnixStream>, token: u64) -> Option<Way> {
    Some(Way { socket: socket?.try_clone().ok()?, token })
}

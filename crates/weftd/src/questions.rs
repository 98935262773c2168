//! Questions about what socket programs have passed, and their answers.
//!
//! The kernel answers a question about a socket when no other call has the socket's lock, and a
//! call of the program may have it for as long as the program likes. So the thread of the program's
//! user asks ([`weft_sys::foreign::ask`]), and the agent goes on. An answer that comes too late
//! meets nobody who waits: each question is forgotten with what it was asked for.

use crate::sys::passing::{self, Facts, PathFacts};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use weft_streams::message::{Message, MESSAGE_MAX};
use weft_streams::pairing::End;
use weft_sys::passing::Received;
use weft_sys::{foreign, Foreign};

/// Messages of a bell that are read together.
const AT_ONCE: usize = 16;

/// A thing that a program has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// The socket of an end.
    Socket,
    /// The path of an end.
    Path,
    /// The bell of a program, whose ends all have it.
    Bell,
}

/// An answer.
pub enum Answer {
    /// A socket, and what it says of itself.
    Socket(Foreign, Option<Facts>),
    /// A path, and what it says of itself.
    Path(Foreign, Option<PathFacts>),
    /// Messages from a bell.
    Bell(Heard),
}

/// Messages from a bell.
pub struct Heard {
    /// The messages with their descriptors.
    pub messages: Vec<(Message, Option<Foreign>)>,
    /// Nothing more comes: the program has ended, or it said nonsense.
    pub is_over: bool,
}

/// An answer, by the question.
type Answered = ((End, Thing), u64, Answer);

/// The questions that are not answered.
pub struct Questions {
    open: BTreeMap<(End, Thing), u64>,
    last: u64,
    answers: Receiver<Answered>,
    /// Each thread has copies of these.
    to_answer: Sender<Answered>,
    wakes: Arc<UnixStream>,
    woken: UnixStream,
}

impl Questions {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Questions> {
        let (woken, wakes) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        let (to_answer, answers) = channel();
        let (open, last, wakes) = (BTreeMap::new(), 0, Arc::new(wakes));
        Ok(Questions { open, last, answers, to_answer, wakes, woken })
    }

    /// Asks about a thing of a user's program. A question about the same thing of the same end is
    /// forgotten. False: too many questions of this user wait.
    fn ask(
        &mut self,
        (end, thing): (End, Thing),
        user: u32,
        find: impl FnOnce() -> Answer + Send + 'static,
    ) -> bool {
        self.last += 1;
        let (number, to, wakes) = (self.last, self.to_answer.clone(), Arc::clone(&self.wakes));
        let is_asked = foreign::ask(user, move || {
            // The agent may have ended, or have answers that it has not looked at.
            let _ = to.send(((end, thing), number, find()));
            let _ = io::Write::write(&mut &*wakes, &[0]);
        });
        match is_asked {
            true => drop(self.open.insert((end, thing), number)),
            false => drop(self.open.remove(&(end, thing))),
        }
        is_asked
    }

    /// Asks what a socket says of itself. False: too many questions of its user wait.
    pub fn socket(&mut self, end: End, socket: Foreign) -> bool {
        let user = socket.user();
        self.ask((end, Thing::Socket), user, move || {
            let facts = passing::facts(&socket);
            Answer::Socket(socket, facts)
        })
    }

    /// Asks what a path says of itself.
    pub fn path(&mut self, end: End, path: Foreign) -> bool {
        let user = path.user();
        self.ask((end, Thing::Path), user, move || {
            let facts = passing::facts_of_path(&path);
            Answer::Path(path, facts)
        })
    }

    /// Reads a program's bell: the program may have a copy of this end, and read it as well.
    pub fn bell(&mut self, end: End, bell: Arc<Foreign<UnixStream>>) -> bool {
        self.ask((end, Thing::Bell), bell.user(), move || Answer::Bell(hear(&bell)))
    }

    /// Forgets the questions about an end's socket and path.
    pub fn forget(&mut self, end: End) {
        self.open.remove(&(end, Thing::Socket));
        self.open.remove(&(end, Thing::Path));
    }

    /// Forgets the question about a thing.
    pub fn forget_thing(&mut self, end: End, thing: Thing) {
        self.open.remove(&(end, thing));
    }

    /// Forgets the questions about all that a program has passed.
    pub fn gone(&mut self, program: u64) {
        self.open.retain(|((of, _), _), _| *of != program);
    }

    /// Returns the next answer to a question that is not forgotten.
    pub fn next(&mut self) -> Option<(End, Answer)> {
        loop {
            let ((end, thing), number, answer) = self.answers.try_recv().ok()?;
            if self.open.get(&(end, thing)) == Some(&number) {
                self.open.remove(&(end, thing));
                return Some((end, answer));
            }
        }
    }

    /// Clears the sign that answers have come: they are looked at after this.
    pub fn begin(&self) {
        let mut some = [0; 256];
        while matches!(io::Read::read(&mut &self.woken, &mut some), Ok(256)) {}
    }
}

impl AsRawFd for Questions {
    /// Returns the descriptor that is readable when an answer has come.
    fn as_raw_fd(&self) -> RawFd {
        self.woken.as_raw_fd()
    }
}

fn hear(bell: &Foreign<UnixStream>) -> Heard {
    let mut heard = Heard { messages: Vec::new(), is_over: false };
    while heard.messages.len() < AT_ONCE && !heard.is_over {
        let mut buf = [0; MESSAGE_MAX];
        match passing::recv(bell, &mut buf, bell.user()).and_then(Received::only) {
            Err(e) if crate::handback::is_early(&e) => break,
            Ok((len @ 1.., fd)) => match Message::decode(&buf[..len]) {
                Ok(message) => heard.messages.push((message, fd)),
                Err(_) => heard.is_over = true,
            },
            _ => heard.is_over = true,
        }
    }
    heard
}

//! The gatekeeper of a host: it listens at the port, and asks the processes of its host by name.
//!
//! A socket of the abstract namespace elects it: one process has it, the others are connected to
//! it, and learn by the end of the connection that it is gone.

use super::{is_short, unix_address, Name};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use weft_link::Address;
use weft_sys::foreign::{Listener, ANYBODY};
use weft_sys::{passing, Foreign, Peer};

/// Most questions at a time. The oldest one without a name makes room for a further one.
const QUESTIONS_MAX: usize = 64;
/// Most processes that watch the gatekeeper; further ones do not take over.
const WATCHERS_MAX: usize = 1024;
/// Time for a question.
const TIME: Duration = Duration::from_secs(5);
/// Time between tries to take part, while the system refuses.
const AGAIN: Duration = Duration::from_secs(1);

/// A question of another host.
struct Question {
    stream: TcpStream,
    name: Name,
    /// Bytes of the name that have come.
    len: usize,
    /// The process that is asked.
    asked: Option<Foreign<UnixStream>>,
    /// Its answer so far.
    answer: Vec<u8>,
    until: Instant,
}

/// True if a read or write would have to wait.
fn has_to_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Question {
    fn new(stream: TcpStream) -> Question {
        let until = Instant::now() + TIME;
        Question { stream, name: [0; 32], len: 0, asked: None, answer: Vec::new(), until }
    }

    /// Returns the descriptor from which the next bytes come.
    fn fd(&self) -> RawFd {
        self.asked.as_ref().map_or(self.stream.as_raw_fd(), AsRawFd::as_raw_fd)
    }

    /// Does all that is possible now. False at the end.
    fn step(&mut self) -> bool {
        match self.try_step() {
            Err(e) if has_to_wait(&e) => Instant::now() < self.until,
            Ok(()) | Err(_) => false,
        }
    }

    /// Does all that is possible now, until the end.
    fn try_step(&mut self) -> io::Result<()> {
        while self.len < self.name.len() {
            match self.stream.read(&mut self.name[self.len..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                got => self.len += got,
            }
        }
        if self.asked.is_none() {
            match UnixStream::connect_addr(&unix_address(&self.name)?) {
                Ok(asked) => {
                    asked.set_nonblocking(true)?;
                    self.asked = Some(of_anybody(asked));
                }
                Err(_) => return self.reply(),
            }
        }
        let Some(asked) = &self.asked else { return Ok(()) };
        let mut part = [0; Address::MAX];
        while self.answer.len() <= Address::MAX {
            match passing::recv(asked, &mut part, asked.user()).map(|got| got.len) {
                Ok(0) => break,
                Ok(got) => self.answer.extend_from_slice(&part[..got]),
                Err(e) if has_to_wait(&e) => return Err(e),
                Err(_) => break,
            }
        }
        self.reply()
    }

    /// Sends the answer, which fits the memory of the socket.
    fn reply(&mut self) -> io::Result<()> {
        let len = self.answer.len().min(Address::MAX) as u16;
        self.stream.write_all(&[&len.to_le_bytes()[..], &self.answer].concat())
    }
}

/// The part of this process.
enum Role {
    Keeper {
        elected: Listener<UnixListener>,
        watchers: Vec<Foreign<UnixStream>>,
        listener: Option<TcpListener>,
    },
    Watcher(Foreign<UnixStream>),
    /// The process takes no part until this time: the system has refused it.
    Outsider(Instant),
}

/// The door of this host, as this process sees it.
pub struct Door {
    port: u16,
    role: Role,
    questions: Vec<Question>,
}

/// Wraps a connection to a process of any user, which may pass descriptors.
fn of_anybody(stream: UnixStream) -> Foreign<UnixStream> {
    let user = Peer::of(&stream).map_or(ANYBODY, |peer| peer.uid);
    Foreign::connection(stream, user)
}

fn elected_name(port: u16) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("weft-meet-door-{port}"))
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Becomes the gatekeeper, or watches the one that is.
fn elect(port: u16) -> io::Result<Role> {
    let name = elected_name(port)?;
    let mut tries = 0;
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(elected) => {
                elected.set_nonblocking(true)?;
                let listener = match listen(port) {
                    Err(why) if is_short(&why) => return Err(why),
                    listener => listener,
                };
                if let Err(why) = &listener {
                    log::warn!(
                        "processes of other hosts do not find those of this one: TCP port {port}: \
                         {why}; another program has it, and WEFT_MEET_PORT names another port on \
                         all hosts"
                    );
                }
                let elected = Listener::new(elected);
                return Ok(Role::Keeper { elected, watchers: Vec::new(), listener: listener.ok() });
            }
            Err(e) if e.kind() != ErrorKind::AddrInUse => return Err(e),
            Err(_) => {}
        }
        match UnixStream::connect_addr(&name) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                return Ok(Role::Watcher(of_anybody(stream)));
            }
            // The keeper has just ended.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && tries < 100 => tries += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Returns the part of this process from now on.
fn role_at(port: u16) -> Role {
    elect(port).unwrap_or_else(|why| {
        log::warn!("processes of other hosts may not find this one for now: {why}");
        outside()
    })
}

fn outside() -> Role {
    Role::Outsider(Instant::now() + AGAIN)
}

impl Door {
    /// Takes part in the service of a port, now or as soon as the system lets it.
    pub fn open(port: u16) -> Door {
        Door::with(port, role_at(port))
    }

    /// Serves a port without an election.
    ///
    /// # Errors
    /// Returns the errors of the system.
    #[cfg(test)]
    pub fn open_at(port: u16) -> io::Result<Door> {
        let elected = UnixListener::bind_addr(&UnixAddress::from_abstract_name(format!(
            "weft-meet-test-{:016x}",
            weft_link::random_u64()
        ))?)?;
        elected.set_nonblocking(true)?;
        let listener = Some(listen(port)?);
        let elected = Listener::new(elected);
        Ok(Door::with(port, Role::Keeper { elected, watchers: Vec::new(), listener }))
    }

    fn with(port: u16, role: Role) -> Door {
        Door { port, role, questions: Vec::new() }
    }

    /// Returns the port that it listens at.
    #[cfg(test)]
    pub fn port(&self) -> Option<u16> {
        match &self.role {
            Role::Keeper { listener: Some(listener), .. } => {
                listener.local_addr().ok().map(|address| address.port())
            }
            _ => None,
        }
    }

    /// Adds the descriptors to wait for; returns the longest wait.
    pub fn prepare(&mut self, fds: &mut Vec<RawFd>) -> Option<Duration> {
        match &self.role {
            Role::Keeper { elected, watchers, listener } => {
                fds.push(elected.as_raw_fd());
                fds.extend(listener.iter().map(TcpListener::as_raw_fd));
                fds.extend(watchers.iter().map(AsRawFd::as_raw_fd));
            }
            Role::Watcher(stream) => fds.push(stream.as_raw_fd()),
            Role::Outsider(_) => {}
        }
        fds.extend(self.questions.iter().map(Question::fd));
        let again = match self.role {
            Role::Outsider(until) => Some(until),
            _ => None,
        };
        let ends = self.questions.iter().map(|question| question.until);
        let end = ends.chain(again).min()?;
        Some(end.saturating_duration_since(Instant::now()))
    }

    /// Does all that is possible now. False if the system has no room for one who asks.
    pub fn step(&mut self) -> bool {
        let followed = self.follow();
        let taken = self.take_questions();
        self.questions.retain_mut(Question::step);
        followed && taken
    }

    /// Accepts questions. False as of [`step`](Door::step).
    fn take_questions(&mut self) -> bool {
        let Role::Keeper { listener: Some(listener), .. } = &self.role else { return true };
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(why) => return !is_short(&why),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.questions.len() >= QUESTIONS_MAX {
                // Strangers that say nothing keep nobody out.
                let silent = |question: &Question| question.len < question.name.len();
                let Some(at) = self.questions.iter().position(silent) else { continue };
                self.questions.remove(at);
            }
            self.questions.push(Question::new(stream));
        }
    }

    /// Follows the gatekeeper, or those that watch this one. False as of [`step`](Door::step).
    fn follow(&mut self) -> bool {
        let end = |stream: &Foreign<UnixStream>| passing::recv(stream, &mut [0], stream.user());
        let ended = |stream: &Foreign<UnixStream>| match end(stream) {
            Ok(_) => true,
            Err(e) => !has_to_wait(&e),
        };
        match &mut self.role {
            Role::Keeper { elected, watchers, .. } => {
                watchers.retain(|stream| !ended(stream));
                loop {
                    let stream = match elected.accept() {
                        Ok((stream, _)) => stream,
                        Err(why) => return !is_short(&why),
                    };
                    let stream = of_anybody(stream);
                    if watchers.len() < WATCHERS_MAX && stream.set_nonblocking(true).is_ok() {
                        watchers.push(stream);
                    }
                }
            }
            Role::Watcher(stream) if ended(stream) => self.role = role_at(self.port),
            Role::Outsider(until) if Instant::now() >= *until => {
                self.role = elect(self.port).unwrap_or_else(|_| outside());
            }
            Role::Watcher(_) | Role::Outsider(_) => {}
        }
        true
    }
}

/// Serves a door in a thread, for a test.
#[cfg(test)]
pub fn serve(mut door: Door) {
    std::thread::spawn(move || loop {
        let mut fds = Vec::new();
        let timeout = door.prepare(&mut fds);
        crate::sys::bell::wait(&fds, timeout);
        door.step();
    });
}

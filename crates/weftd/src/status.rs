//! The status socket (the desk), beside the agent's socket: any user may ask for the status, and
//! the owner may ask the agent to end. [`weft_cluster::desk`] has the asking side.

use crate::sys::{self, passing};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;
pub use weft_cluster::desk::{distrust, serves, socket_name, status, status_of_any, stop};
use weft_cluster::desk::{STATUS, STOP};
use weft_cluster::share;
use weft_core::Instant;
use weft_link::{LinkError, WaitFd};
use weft_sys::foreign::{self, Listener};
use weft_sys::{Foreign, Peer};

/// Most connections accepted in one call.
const AT_ONCE: usize = 2;
/// Longest time of a connection, from its start to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most open connections; beyond, the oldest of the user with most is closed.
const VISITORS_MAX: usize = 32;
/// A question to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The status.
    Status,
    /// To end, if no ranks are attached.
    Stop,
}

/// The listener, and the open connections.
pub struct StatusServer {
    listener: Listener<UnixListener>,
    visitors: VecDeque<Visitor>,
}

/// An open connection.
struct Visitor {
    stream: Foreign<UnixStream>,
    until: Instant,
    /// The rest of the answer; empty: no question has arrived.
    answer: Vec<u8>,
}

fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(format!("{name}-desk")),
        None => SocketAddr::from_pathname(format!("{name}-desk")),
    }
}

impl StatusServer {
    /// Listens beside the agent's own socket.
    ///
    /// # Errors
    /// Another process has it.
    pub fn open(name: &str) -> Result<StatusServer, LinkError> {
        let fail = |source| LinkError::System {
            what: format!("listening beside {name}"),
            source,
            fix: "another agent may serve there (`weftd --status`)",
        };
        sys::prepare_socket_path(&format!("{name}-desk"));
        let listener = address(name).and_then(|a| UnixListener::bind_addr(&a)).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        sys::let_all_connect(&format!("{name}-desk"));
        let listener = Listener::new(listener);
        Ok(StatusServer { listener, visitors: VecDeque::new() })
    }

    /// Returns the descriptor that becomes readable when somebody connects.
    pub fn listener_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// True if nobody is connected: only the listener has something.
    pub fn is_idle(&self) -> bool {
        self.visitors.is_empty()
    }

    /// Adds the descriptors of connections that become readable when a question arrives.
    pub fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        let silent = self.visitors.iter().filter(|v| v.answer.is_empty());
        out.extend(silent.map(|v| WaitFd { fd: v.stream.as_raw_fd() }));
    }

    /// Answers questions by `answer(question, user)`; never blocks.
    pub fn serve(&mut self, now: Instant, mut answer: impl FnMut(Question, u32) -> String) {
        for _ in 0..AT_ONCE {
            // Earlier connections have to be closed first.
            if !foreign::has_room() {
                break;
            }
            let Ok((stream, _)) = self.listener.accept() else { break };
            let Ok(peer) = Peer::of(&stream) else { continue };
            let stream = Foreign::connection(stream, peer.uid);
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Some(why) = foreign::refusal(peer.uid) {
                let _ = (&*stream).write(format!("refused: {why}\n").as_bytes());
                continue;
            }
            let until = now + TIMEOUT;
            self.visitors.push_back(Visitor { stream, until, answer: Vec::new() });
        }
        self.visitors.retain_mut(|visitor| visitor.goes_on(&mut answer) && now < visitor.until);
        while self.visitors.len() > VISITORS_MAX {
            let users = || self.visitors.iter().map(|v| v.stream.user());
            let of = |user| share::count(user, users());
            let most = users().map(of).max();
            let oldest = self.visitors.iter().position(|v| Some(of(v.stream.user())) == most);
            oldest.and_then(|at| self.visitors.remove(at));
        }
    }
}

impl Visitor {
    /// Reads and writes as much as is possible without blocking. False: the connection is done or
    /// closed.
    fn goes_on(&mut self, answer: &mut impl FnMut(Question, u32) -> String) -> bool {
        if self.answer.is_empty() {
            let mut question = [0];
            let user = self.stream.user();
            // A descriptor may come with it, for which there must be room.
            match passing::recv(&self.stream, &mut question, user) {
                Ok(got) if got.len > 0 => {}
                Err(e) if is_early(&e) => return true,
                _ => return false,
            }
            self.answer = match question[0] {
                STATUS => answer(Question::Status, user).into_bytes(),
                STOP => answer(Question::Stop, user).into_bytes(),
                _ => b"not understood\n".to_vec(),
            };
        }
        match (&*self.stream).write(&self.answer) {
            Ok(0) => false,
            Ok(n) => {
                self.answer.drain(..n);
                !self.answer.is_empty()
            }
            Err(e) => is_early(&e),
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::Read;
    use weft_sys::agent::{self, Kind};

    fn connect(name: &str) -> UnixStream {
        agent::connect_to(&socket_name(name), Kind::Stream).unwrap().0.into()
    }

    fn desk() -> (String, StatusServer) {
        let name = format!("@weft-desk-test-{:016x}", weft_link::random_u64());
        let desk = StatusServer::open(&name).unwrap();
        (name, desk)
    }

    /// Serves once; the answer is the question and the user.
    fn serve(desk: &mut StatusServer, now: Instant) {
        desk.serve(now, |question, user| format!("{question:?} of {user}\n"));
    }

    fn read(stream: &mut UnixStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    }

    #[test]
    fn serve__a_silent_caller_is_not_waited_for_and_answered_when_it_asks() {
        let (name, mut desk) = desk();
        let now = Instant(1);
        let (mut silent, mut asking) = (connect(&name), connect(&name));
        asking.write_all(&[STATUS]).unwrap();
        serve(&mut desk, now);
        let me = sys::effective_user();
        assert_eq!(read(&mut asking), format!("Status of {me}\n"));
        assert_eq!(desk.visitors.len(), 1, "the other one is still there");
        serve(&mut desk, now);
        silent.write_all(&[STOP]).unwrap();
        serve(&mut desk, now);
        assert_eq!(read(&mut silent), format!("Stop of {me}\n"));
        assert!(desk.visitors.is_empty());
    }

    #[test]
    fn serve__silent_callers_are_few_and_end() {
        let (name, mut desk) = desk();
        let all: Vec<UnixStream> = (0..100).map(|_| connect(&name)).collect();
        for _ in 0..100 {
            serve(&mut desk, Instant(1));
            assert!(desk.visitors.len() <= VISITORS_MAX);
        }
        let mut asking = connect(&name);
        asking.write_all(&[STATUS]).unwrap();
        // The connections before it must be accepted first.
        asking.set_nonblocking(true).unwrap();
        let mut answer = [0; 64];
        let got = (0..200).find_map(|_| {
            serve(&mut desk, Instant(1));
            asking.read(&mut answer).ok()
        });
        assert!(answer[..got.unwrap()].starts_with(b"Status"));
        serve(&mut desk, Instant(1) + TIMEOUT);
        assert!(desk.visitors.is_empty());
        drop(all);
    }

    #[test]
    fn serve__a_long_answer_goes_as_it_is_read() {
        let (name, mut desk) = desk();
        let mut asking = connect(&name);
        asking.write_all(&[STATUS]).unwrap();
        let long = "x".repeat(900_000);
        desk.serve(Instant(1), |_, _| long.clone());
        assert_eq!(desk.visitors.len(), 1, "it does not fit a socket");
        asking.set_nonblocking(true).unwrap();
        let (mut got, mut some) = (0, [0; 4096]);
        while got < long.len() {
            match asking.read(&mut some) {
                Ok(n) => got += n,
                Err(_) => desk.serve(Instant(1), |_, _| String::new()),
            }
        }
        desk.serve(Instant(1), |_, _| String::new());
        assert!(desk.visitors.is_empty());
    }
}

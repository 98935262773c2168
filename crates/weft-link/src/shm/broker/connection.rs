//! The rank's end: its connection to the agent that brokers.

use super::{Message, MESSAGE_MAX, VERSION};
use crate::secure::JobKey;
use crate::shm::rendezvous::system;
use crate::shm::sys::misc;
use crate::shm::sys::socket::{self, Name};
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use weft_core::EndpointId;
use weft_sys::foreign::ANYBODY;
use weft_sys::{agent, Foreign, Peer};

/// The way to an agent that brokers, and the key that ranks prove to each other.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Addresses of agents: each a path, or `@` and an abstract name. The first that answers is
    /// used.
    pub names: Vec<String>,
    /// The key of the job.
    pub job_key: JobKey,
    /// Longest wait for the agent's answer.
    pub patience: Duration,
}

impl BrokerConfig {
    /// Returns the configuration with the usual patience.
    pub fn new(names: Vec<String>, job_key: JobKey) -> BrokerConfig {
        BrokerConfig { names, job_key, patience: Duration::from_secs(10) }
    }
}

/// The position of this rank at its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Address of the agent's socket.
    pub name: String,
    /// The agent's identity: two ranks with the same one are on one host.
    pub identity: u64,
    /// The user of this process, as the agent sees it.
    pub user: u32,
}

/// A connection to an agent at which this rank is registered.
#[derive(Debug)]
pub struct AgentConnection {
    socket: OwnedFd,
    standing: Standing,
}

/// A message of the agent, as the link handles it.
#[derive(Debug)]
pub(in crate::shm) enum Said {
    /// The other end of this socket is the peer's.
    Joined(Foreign),
    /// The agent ends the registration, for this reason.
    Refused(String),
    /// A message is invalid, or its descriptor is: the reason.
    Nonsense(&'static str),
    /// The agent has ended.
    Ended,
}

impl Drop for AgentConnection {
    /// Lets the agent see the end now, also while a child process that was just started still has a
    /// copy of the descriptor.
    fn drop(&mut self) {
        socket::shutdown(&self.socket);
    }
}

/// Returns the name of the socket at which the agent at `name` brokers.
pub(in crate::shm) fn socket_name(name: &str) -> String {
    format!("{name}-share")
}

impl AgentConnection {
    /// Registers an endpoint at the first of the agents that answers. Waits for the answer, a
    /// bounded time.
    ///
    /// # Errors
    /// [`LinkError::Unreachable`] with a reason for each agent.
    pub fn open(config: &BrokerConfig, endpoint: EndpointId) -> Result<AgentConnection, LinkError> {
        let mut reasons = Vec::new();
        for name in &config.names {
            match AgentConnection::register(name, config, endpoint) {
                Ok(connection) => return Ok(connection),
                Err(LinkError::Unreachable(why)) => reasons.push(why),
                Err(e) => reasons.push(e.to_string()),
            }
        }
        Err(LinkError::Unreachable(reasons.join("; ")))
    }

    fn register(
        name: &str,
        config: &BrokerConfig,
        endpoint: EndpointId,
    ) -> Result<AgentConnection, LinkError> {
        let fail = |why: String| LinkError::Unreachable(format!("the agent at {name} {why}"));
        let text = socket_name(name);
        let socket = socket::connect(Name::Text(&text)).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT | libc::ECONNREFUSED) if serves(name) => fail(
                "joins no ranks of containers: it is of another build, use weftd and weft of one"
                    .into(),
            ),
            Some(libc::ECONNREFUSED) if name.starts_with('@') => {
                LinkError::Unreachable(format!("no agent listens at {name}"))
            }
            Some(libc::ENOENT) => LinkError::Unreachable(format!(
                "no agent listens at {name}: start weftd, and mount its folder into containers"
            )),
            Some(libc::ECONNREFUSED) => fail(
                "has ended: start weftd again; a container that mounts the socket instead of its \
                 folder has to be started again too"
                    .into(),
            ),
            Some(libc::EACCES) => fail(format!("cannot be reached: no right to {text}")),
            _ => system(&format!("connecting to the agent at {text}"), e),
        })?;
        let cred = Peer::of(&socket).map_err(|e| system("asking who listens", e))?;
        agent::check_at(name, cred).map_err(|why| fail(format!("is not trusted: {why}")))?;
        let job = config.job_key.public_id();
        let register = Message::Register { job, endpoint }.encode();
        // One that refused already has closed the connection: its answer says why.
        let _ = socket::send(&socket, &register, None);
        let (identity, user) = answer(&socket, config.patience).map_err(fail)?;
        Ok(AgentConnection { socket, standing: Standing { name: name.into(), identity, user } })
    }

    /// Returns the position of this rank at its agent.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(in crate::shm) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Asks the agent to pass a socket to a peer.
    pub(in crate::shm) fn join(&self, peer: EndpointId, end: &OwnedFd) -> Result<(), LinkError> {
        let name = &self.standing.name;
        let join = Message::Join(peer).encode();
        socket::send(&self.socket, &join, Some(end.as_fd())).map_err(|e| {
            let why = match e.raw_os_error() {
                Some(libc::EAGAIN) => "takes no further request now",
                Some(libc::ETOOMANYREFS) => "has too many requests of this user (raise ulimit -n)",
                _ => "has ended",
            };
            LinkError::Unreachable(format!("the agent at {name} {why}"))
        })
    }

    /// Reads the next message; `None` if there is none.
    pub(in crate::shm) fn said(&self) -> Option<Said> {
        let mut buf = [0; MESSAGE_MAX];
        let got = match socket::recv(&self.socket, &mut buf, ANYBODY) {
            Ok(got) if got.len == 0 => return Some(Said::Ended),
            Ok(got) => got,
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) => {
                return Some(Said::Nonsense("no descriptor is left for a peer (raise ulimit -n)"))
            }
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return None,
                io::ErrorKind::InvalidData => return Some(Said::Nonsense("message")),
                _ => return Some(Said::Ended),
            },
        };
        Some(match (Message::decode(&buf[..got.len]), got.passed) {
            (Ok(Message::Joined(_)), Some(end)) if weft_sys::passing::is_connection(&end) => {
                Said::Joined(end)
            }
            (Ok(Message::Joined(_)), _) => Said::Nonsense("a peer without a socket"),
            (Ok(Message::Refused(why)), _) => Said::Refused(why),
            (Ok(_), _) => Said::Nonsense("kind"),
            (Err(what), _) => Said::Nonsense(what),
        })
    }
}

/// True if an agent listens at its own socket.
fn serves(name: &str) -> bool {
    socket::connect(Name::Text(name)).is_ok()
}

/// Waits for the answer to a registration.
fn answer(socket: &OwnedFd, patience: Duration) -> Result<(u64, u32), String> {
    let end = Instant::now() + patience;
    let mut buf = [0; MESSAGE_MAX];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut got = socket::recv(socket, &mut buf, ANYBODY);
        if got.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset) {
            // The agent refused before it read the request. The kernel reports that first.
            got = socket::recv(socket, &mut buf, ANYBODY);
        }
        let got = match got {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && !left.is_zero() => {
                misc::wait_readable(socket.as_raw_fd(), left.as_millis().max(1) as i32);
                continue;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err("does not answer".into()),
            Err(e) => return Err(format!("closed the connection: {e}")),
            Ok(got) => got,
        };
        return match Message::decode(&buf[..got.len]) {
            Ok(Message::Registered { identity, user }) if identity != 0 => Ok((identity, user)),
            Ok(Message::Refused(why)) => Err(format!("refuses: {why}")),
            _ if got.len == 0 => Err("closed the connection".into()),
            Err("version") => Err(format!(
                "speaks another version of these messages, this program {VERSION}: use weftd and \
                 weft of one build"
            )),
            _ => Err("sends an answer that this program does not understand".into()),
        };
    }
}

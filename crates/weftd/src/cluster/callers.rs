//! Programs of this host that claim, look up and watch names: their connections.
//!
//! A program is known by the process and the user that the kernel names. Its claims and
//! subscriptions end with its connection or its process, whichever ends first: a child that
//! inherited the socket keeps nothing alive.

use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;
use weft_cluster::local::{self, Frame, Request, Say};
use weft_cluster::names::directory::Gone;
use weft_cluster::names::Owner;
use weft_core::Instant;
use weft_link::{LinkError, WaitFd};

/// Most connections.
const CALLERS_MAX: usize = 2048;
/// Most connections of one user; others always find room.
const OF_USER: usize = 1024;
/// Connections accepted in a round.
const AT_ONCE: usize = 16;
/// Requests of one connection that are served in a round.
const REQUESTS: usize = 16;
/// A connection with so many bytes to be read gets no events and is not served meanwhile.
const OUT_MAX: usize = 1 << 16;
/// Bytes read at a time.
const READ: usize = 1 << 14;
/// Time for which the kernel is asked how a process ended that closed its connection.
const ENDING: Duration = Duration::from_millis(4);

/// Number of a connection.
pub type CallerId = u64;

/// A request: the connection, its serial and its content.
pub type Asked = (CallerId, u32, Request);

/// A connection of a program.
pub struct Caller {
    stream: UnixStream,
    process: Option<OwnedFd>,
    /// The process, and a number that tells this connection from others.
    pub owner: Owner,
    /// The first request was right.
    pub is_greeted: bool,
    /// It wants the events of hosts.
    pub watches_hosts: bool,
    /// Subscriptions that have something to read.
    pub readable: BTreeSet<u64>,
    input: Vec<u8>,
    out: Vec<u8>,
    /// The socket ended at this time.
    closed: Option<Instant>,
    is_over: bool,
}

/// The listener, and the connections.
pub struct Callers {
    listener: UnixListener,
    name: String,
    table: BTreeMap<CallerId, Caller>,
    next: CallerId,
    /// Connections refused because there were too many.
    pub turned_away: u64,
    scratch: Box<[u8]>,
}

fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

impl Caller {
    /// Appends what the agent says, and sends as much as goes.
    pub fn say(&mut self, serial: u32, say: &Say) {
        self.out.extend(say.encode(serial));
        self.push();
    }

    /// True if it reads what it is told.
    pub fn has_room(&self) -> bool {
        self.out.len() < OUT_MAX
    }

    fn push(&mut self) {
        while !self.out.is_empty() && !self.is_over {
            match self.stream.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The end of the socket is seen when it is read.
                Err(_) => self.out.clear(),
            }
        }
    }

    /// Reads requests. Returns those that are complete.
    fn requests(&mut self, now: Instant, scratch: &mut [u8]) -> Vec<(u32, Request)> {
        let mut all = Vec::new();
        self.push();
        while self.has_room() && all.len() < REQUESTS && !self.is_over {
            match local::request(&self.input) {
                Frame::Whole(len, serial, request) => {
                    self.input.drain(..len);
                    all.push((serial, request));
                    continue;
                }
                Frame::Wrong(why) => {
                    log::warn!("{} asks nonsense ({why}); its connection is ended", self.owner);
                    self.is_over = true;
                    return all;
                }
                Frame::Part => {}
            }
            if self.closed.is_some() {
                break;
            }
            match self.stream.read(scratch) {
                Ok(0) => self.closed = Some(now),
                Ok(n) => self.input.extend_from_slice(&scratch[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.closed = Some(now),
            }
        }
        all
    }

    /// Returns the cause of its end, if it has ended. `is_dead`: the kernel says that the process
    /// has.
    fn ended(&self, now: Instant, is_dead: bool) -> Option<Gone> {
        match self.closed {
            _ if is_dead => Some(how_ended(self.owner)),
            _ if self.is_over => Some(Gone::Withdrawn),
            Some(_) if self.process.is_none() => Some(Gone::Ended),
            Some(at) if now.since(at) >= ENDING => Some(Gone::Withdrawn),
            _ => None,
        }
    }
}

/// Returns how a process ended, as far as this process may know: of its own user and without
/// rights, while the parent has not asked yet. To those who may not know the kernel shows 0.
fn how_ended(owner: Owner) -> Gone {
    let read = std::fs::read_to_string(format!("/proc/{}/stat", owner.process));
    let status = || -> Option<u32> {
        let text = read.ok()?;
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
        // State, then 48 fields more, then the status as wait(2) gives it.
        (fields.first() == Some(&"Z")).then(|| fields.get(49)?.parse().ok())?
    };
    match status() {
        Some(status) if status & 0x7f != 0 => Gone::Killed { signal: status & 0x7f },
        Some(status) if status > 0 => Gone::Exited { status: status >> 8 & 0xff },
        _ => Gone::Ended,
    }
}

impl Callers {
    /// Listens beside the agent's own socket.
    ///
    /// # Errors
    /// Another process has it.
    pub fn open(agent: &str) -> Result<Callers, LinkError> {
        let name = weft_cluster::socket_name(agent);
        let fail = |source| LinkError::System {
            what: format!("listening at {name}"),
            source,
            fix: "another agent may serve there (`weftd --status`)",
        };
        sys::make_way(&name);
        let listener = address(&name).and_then(|a| UnixListener::bind_addr(&a)).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        sys::let_all_connect(&name);
        let (table, scratch) = (BTreeMap::new(), vec![0; READ].into());
        Ok(Callers { listener, name, table, next: 0, turned_away: 0, scratch })
    }

    /// Returns the name of the socket.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns a connection.
    pub fn get_mut(&mut self, id: CallerId) -> Option<&mut Caller> {
        self.table.get_mut(&id)
    }

    /// Returns all connections.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (CallerId, &mut Caller)> {
        self.table.iter_mut().map(|(id, caller)| (*id, caller))
    }

    /// Adds the descriptors that become readable when there is something to do.
    pub fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.listener.as_raw_fd() });
        for caller in self.table.values() {
            if caller.has_room() && caller.closed.is_none() {
                out.push(WaitFd { fd: caller.stream.as_raw_fd() });
            }
            out.extend(caller.process.as_ref().map(|p| WaitFd { fd: p.as_raw_fd() }));
        }
    }

    /// True if something has to be done soon that no descriptor tells.
    pub fn keeps(&self) -> bool {
        self.table.values().any(|c| !c.out.is_empty() || c.closed.is_some())
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Some((process, user)) = sys::peer_process(&stream) else { continue };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next += 1;
            let owner = Owner { user, process, serial: self.next };
            let of_user = self.table.values().filter(|c| c.owner.user == user).count();
            let mut caller = Caller {
                stream,
                process: sys::process_fd(process),
                owner,
                is_greeted: false,
                watches_hosts: false,
                readable: BTreeSet::new(),
                input: Vec::new(),
                out: Vec::new(),
                closed: None,
                is_over: false,
            };
            if of_user >= OF_USER || self.table.len() >= CALLERS_MAX {
                self.turned_away += 1;
                let why = format!("the agent has {of_user} connections of user {user}");
                caller.say(1, &Say::Refused(why));
                continue;
            }
            self.table.insert(self.next, caller);
        }
    }

    /// Reads what came. Returns requests, and the owners that ended with the cause.
    pub fn serve(&mut self, now: Instant) -> (Vec<Asked>, Vec<(Owner, Gone)>) {
        self.accept();
        let mut fds = Vec::with_capacity(2 * self.table.len());
        for caller in self.table.values() {
            fds.push(caller.stream.as_raw_fd());
            fds.push(caller.process.as_ref().map_or(-1, AsRawFd::as_raw_fd));
        }
        let ready = sys::readable(&fds);
        let (mut requests, mut ended) = (Vec::new(), Vec::new());
        let scratch = &mut self.scratch;
        for ((id, caller), ready) in self.table.iter_mut().zip(ready.chunks(2)) {
            // Requests that came before the end are served, and undone with it.
            if ready[0] || !caller.input.is_empty() || !caller.out.is_empty() {
                let all = caller.requests(now, scratch);
                requests.extend(all.into_iter().map(|(serial, request)| (*id, serial, request)));
            }
            if let Some(gone) = caller.ended(now, ready[1]) {
                ended.push((*id, caller.owner, gone));
            }
        }
        for (id, ..) in &ended {
            self.table.remove(id);
        }
        requests.retain(|(id, ..)| self.table.contains_key(id));
        (requests, ended.into_iter().map(|(_, owner, gone)| (owner, gone)).collect())
    }

    /// Ends a connection that broke the rules; its claims end in the next round.
    pub fn dismiss(&mut self, id: CallerId) {
        if let Some(caller) = self.table.get_mut(&id) {
            caller.is_over = true;
        }
    }
}

//! Programs of this host that claim, look up and watch names: their connections.
//!
//! A program is known by the process and the user that the kernel names. Its claims and
//! subscriptions end with its connection or its process, whichever ends first: a child that
//! inherited the socket keeps nothing alive.

use crate::sys::{self, passing};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;
use weft_cluster::local::{self, Frame, Request, Say};
use weft_cluster::names::directory::Gone;
use weft_cluster::names::Owner;
use weft_cluster::share;
use weft_core::Instant;
use weft_link::LinkError;
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign::{self, Listener};
use weft_sys::user::payer;
use weft_sys::{Foreign, Peer};

/// Most connections. One user has at most half of what others leave.
const CALLERS_MAX: usize = 2048;
/// Connections accepted in a round.
const AT_ONCE: usize = 16;
/// Requests of one connection that are served in a round.
const REQUESTS: usize = 16;
/// Connections that are served in a round, those of different users by turns, until one of them
/// asks for something large.
const SERVED: usize = 64;
/// Bytes of answers that the programs of one user have not read. With more there is no large answer
/// for one of them.
const UNREAD_OF_USER: usize = 1 << 24;
/// A connection with so many bytes to be read gets no events and is not served meanwhile.
const OUT_MAX: usize = 1 << 16;
/// Bytes read at a time.
const READ: usize = 1 << 14;
/// Time for which the kernel is asked how a process ended that closed its connection.
const ENDING: Duration = Duration::from_millis(4);

/// Number of the listener in the set of descriptors. Connection N has 2 N there, its process
/// 2 N + 1.
const LISTENER: u64 = 0;

/// Number of a connection, from 1.
pub type CallerId = u64;

/// A request: the connection, its serial and its content.
pub type Asked = (CallerId, u32, Request);

/// A connection of a program.
pub struct Caller {
    stream: Foreign<UnixStream>,
    id: CallerId,
    set: Arc<Epoll>,
    interest: Interest,
    process: Option<OwnedFd>,
    /// The process, and a number that tells this connection from others.
    pub owner: Owner,
    /// The first request was right.
    pub is_greeted: bool,
    /// True if the program wants the events of hosts.
    pub watches_hosts: bool,
    /// Subscriptions that have something to read.
    pub readable: BTreeSet<u64>,
    input: Vec<u8>,
    /// The last descriptor that came.
    pub passed: Option<Foreign>,
    out: Vec<u8>,
    /// The socket ended at this time.
    closed: Option<Instant>,
    is_over: bool,
}

/// The listener, and the connections.
pub struct Callers {
    listener: Listener<UnixListener>,
    /// Listener, connections and processes.
    set: Arc<Epoll>,
    ready: Vec<u64>,
    /// Connections of which more requests may have been read than were served.
    behind: BTreeSet<CallerId>,
    /// The connection of each user that was served last.
    last: BTreeMap<u32, CallerId>,
    /// Connections that ended, or are to end.
    ending: BTreeSet<CallerId>,
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
            match (&*self.stream).write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The end of the socket is seen when it is read.
                Err(_) => self.out.clear(),
            }
        }
        self.follow();
    }

    /// Has the set of descriptors tell what this connection waits for.
    fn follow(&mut self) {
        let interest = Interest { read: self.has_room(), write: !self.out.is_empty() };
        if self.closed.is_some() || self.is_over {
            // An ended socket is ready all the time.
            self.set.remove(&self.stream);
        } else if interest != self.interest {
            self.interest = interest;
            let _ = self.set.change(&self.stream, 2 * self.id, interest);
        }
    }

    /// Takes the descriptors out of the set.
    fn leave(&self) {
        self.set.remove(&self.stream);
        self.process.iter().for_each(|process| self.set.remove(process));
    }

    /// Reads requests. Returns those that are complete, and true if there may be more that no
    /// descriptor tells.
    fn requests(&mut self, now: Instant, scratch: &mut [u8]) -> (Vec<(u32, Request)>, bool) {
        let mut all = Vec::new();
        self.push();
        while self.has_room() && all.len() < REQUESTS && !self.is_over {
            match local::request(&self.input) {
                Frame::Whole(len, serial, request) => {
                    self.input.drain(..len);
                    let is_large = request.is_large();
                    all.push((serial, request));
                    if is_large {
                        return (all, true);
                    }
                    continue;
                }
                Frame::Wrong(why) => {
                    log::warn!("{} asks nonsense ({why}); its connection is ended", self.owner);
                    self.is_over = true;
                    return (all, false);
                }
                Frame::Part => {}
            }
            if self.closed.is_some() {
                return (all, false);
            }
            match passing::recv(&self.stream, scratch, self.owner.user) {
                Ok(got) if got.len == 0 => self.closed = Some(now),
                Ok(got) => {
                    self.input.extend_from_slice(&scratch[..got.len]);
                    self.passed = got.passed.into_iter().next().or(self.passed.take());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return (all, false),
                Err(_) => self.closed = Some(now),
            }
        }
        (all, true)
    }

    /// Returns the time at which its end is certain, if it has ended.
    fn ends_at(&self) -> Option<Instant> {
        match self.closed {
            _ if self.is_over => Some(Instant(0)),
            Some(_) if self.process.is_none() => Some(Instant(0)),
            closed => closed.map(|at| at + ENDING),
        }
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
        sys::prepare_socket_path(&name);
        let listener = address(&name).and_then(|a| UnixListener::bind_addr(&a)).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        sys::let_all_connect(&name);
        let set = Epoll::new().map_err(fail)?;
        set.add(&listener, LISTENER, Interest::READ).map_err(fail)?;
        Ok(Callers {
            listener: Listener::new(listener),
            set: Arc::new(set),
            ready: Vec::new(),
            behind: BTreeSet::new(),
            last: BTreeMap::new(),
            ending: BTreeSet::new(),
            table: BTreeMap::new(),
            next: 0,
            turned_away: 0,
            scratch: vec![0; READ].into(),
        })
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

    /// Returns the time at which there is something to do that no descriptor tells.
    pub fn next_timeout(&self) -> Option<Instant> {
        let is_served = |id: &CallerId| self.table.get(id).is_some_and(Caller::has_room);
        let behind = self.behind.iter().find(|id| is_served(id)).map(|_| Instant(0));
        let ends = self.ending.iter().filter_map(|id| self.table.get(id)?.ends_at());
        ends.chain(behind).min()
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            // Earlier connections have to be closed first.
            if !foreign::has_room() {
                return;
            }
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Ok(Peer { pid, uid: user }) = Peer::of(&stream) else { continue };
            let (stream, process) = (Foreign::connection(stream, user), pid as u32);
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next += 1;
            let owner = Owner { user, process, serial: self.next };
            let of_user = share::count(user, self.table.values().map(|c| c.owner.user));
            let mut caller = Caller {
                stream,
                id: self.next,
                set: Arc::clone(&self.set),
                interest: Interest::READ,
                process: sys::process_fd(process),
                owner,
                is_greeted: false,
                watches_hosts: false,
                readable: BTreeSet::new(),
                input: Vec::new(),
                passed: None,
                out: Vec::new(),
                closed: None,
                is_over: false,
            };
            let is_admitted = share::admits(user, of_user, self.table.len(), CALLERS_MAX);
            let many = (!is_admitted)
                .then(|| format!("the agent has {of_user} connections of user {user}"));
            if let Some(why) = foreign::refusal(user).or(many) {
                self.turned_away += 1;
                caller.say(1, &Say::Refused(why));
                continue;
            }
            match self.watch(&caller) {
                Ok(()) => drop(self.table.insert(self.next, caller)),
                Err(why) => {
                    self.turned_away += 1;
                    caller.say(1, &Say::Refused(format!("the agent cannot watch it: {why}")));
                    caller.leave();
                }
            }
        }
    }

    /// Adds the descriptors of a connection to the set.
    fn watch(&self, caller: &Caller) -> io::Result<()> {
        self.set.add(&caller.stream, 2 * caller.id, caller.interest)?;
        match &caller.process {
            Some(process) => self.set.add(process, 2 * caller.id + 1, Interest::READ),
            None => Ok(()),
        }
    }

    /// Reads what came. Returns requests, and the owners that ended with the cause. Connections
    /// that have nothing cost nothing.
    pub fn serve(&mut self, now: Instant) -> (Vec<Asked>, Vec<(Owner, Gone)>) {
        let mut dead = BTreeSet::new();
        let mut due = std::mem::take(&mut self.behind);
        self.set.ready(&mut self.ready);
        let ready = std::mem::take(&mut self.ready);
        for &number in &ready {
            match (number / 2, number % 2) {
                _ if number == LISTENER => self.accept(),
                (id, 0) => drop(due.insert(id)),
                (id, _) => drop(dead.insert(id)),
            }
        }
        self.ready = ready;
        let (mut requests, mut ended) = (Vec::new(), Vec::new());
        let mut turns = self.turns(due).into_iter();
        let scratch = &mut self.scratch;
        for id in turns.by_ref() {
            // Requests that came before the end are served, and undone with it.
            let Some(caller) = self.table.get_mut(&id) else { continue };
            let (all, is_behind) = caller.requests(now, scratch);
            self.last.insert(caller.owner.user, id);
            let is_large = all.iter().any(|(_, request)| request.is_large());
            requests.extend(all.into_iter().map(|(serial, request)| (id, serial, request)));
            if is_behind {
                self.behind.insert(id);
            }
            if caller.ends_at().is_some() {
                caller.follow();
                self.ending.insert(id);
            }
            if is_large {
                break;
            }
        }
        self.behind.extend(turns);
        self.ending.extend(&dead);
        for id in &self.ending {
            let Some(caller) = self.table.get(id) else { continue };
            if let Some(gone) = caller.ended(now, dead.contains(id)) {
                ended.push((*id, caller.owner, gone));
            }
        }
        for (id, ..) in &ended {
            self.table.remove(id).iter().for_each(Caller::leave);
        }
        self.ending.retain(|id| self.table.contains_key(id));
        // Of those that ended it counts which messages they took.
        let counts = |request: &Request| matches!(request, Request::Took(0, _));
        requests.retain(|(id, _, request)| self.table.contains_key(id) || counts(request));
        (requests, ended.into_iter().map(|(_, owner, gone)| (owner, gone)).collect())
    }

    /// Returns the connections that are served now, of those that have something; the others wait
    /// for the next round.
    fn turns(&mut self, due: BTreeSet<CallerId>) -> Vec<CallerId> {
        let mut of_user: BTreeMap<u32, Vec<CallerId>> = BTreeMap::new();
        for id in due {
            let Some(caller) = self.table.get(&id) else { continue };
            of_user.entry(payer(caller.owner.user)).or_default().push(id);
        }
        self.last.retain(|user, _| of_user.contains_key(user));
        for (user, ids) in &mut of_user {
            let last = self.last.get(user).copied().unwrap_or(0);
            let begins = ids.partition_point(|id| *id <= last) % ids.len();
            ids.rotate_left(begins);
        }
        let mut all = by_turns(of_user.into_values().collect());
        self.behind.extend(all.drain(SERVED.min(all.len())..));
        all
    }

    /// True if the programs of a user have read enough of what they were told for a large answer.
    pub fn reads(&self, user: u32) -> bool {
        let of_user = self.table.values().filter(|c| payer(c.owner.user) == payer(user));
        of_user.map(|c| c.out.len()).sum::<usize>() < UNREAD_OF_USER
    }

    /// Ends a connection that broke the rules; its claims end in the next round.
    pub fn dismiss(&mut self, id: CallerId) {
        if let Some(caller) = self.table.get_mut(&id) {
            caller.is_over = true;
            self.ending.insert(id);
        }
    }
}

/// Returns the first of each list, then the second of each, and so on.
fn by_turns(lists: Vec<Vec<CallerId>>) -> Vec<CallerId> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let turn = |at: usize| lists.iter().filter_map(move |list| list.get(at).copied());
    (0..longest).flat_map(turn).collect()
}

/// Readable when one of them has something.
impl AsRawFd for Callers {
    fn as_raw_fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn by_turns__a_user_with_many_connections_is_served_no_more_than_one_with_one() {
        assert_eq!(by_turns(vec![vec![1, 2, 3], vec![9], vec![4, 5]]), [1, 9, 4, 2, 5, 3]);
        assert!(by_turns(Vec::new()).is_empty());
    }
}

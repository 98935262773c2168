//! Connections of socket programs to other hosts: `weft_streams::reach` decides; here are the paths
//! of the ends, their memory, and what is told to other agents.

use crate::back::Backs;
use crate::cluster::Cluster;
use crate::giving::Shown;
use crate::sys::passing;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use weft_core::Instant;
use weft_streams::far::{statement_of, Pos, AT, STATEMENT};
use weft_streams::message::{Message, Place};
use weft_streams::pairing::{End, Facts};
use weft_streams::reach::back::message::Back;
use weft_streams::reach::message::{Between, Names, Number, NUMBER};
use weft_streams::reach::{HostStep, Reach};
use weft_streams::words::SEGMENT;

/// A path that an end has shown, and the number that is to come there.
struct Path {
    socket: OwnedFd,
    awaited: Option<Number>,
}

/// Something for an end of this host.
pub enum Said {
    /// A message by its program's line.
    Line(End, Message),
    /// The same, with the memory of the end.
    WithMemory(End, Message),
    /// A message by its program's bell.
    Bell(End, Message),
    /// Bytes to send by the socket that the end has lent; then it is told.
    Put(End, OwnedFd, Vec<u8>),
}

/// The ends that look for others on other hosts.
#[derive(Default)]
pub struct Hosts {
    reach: Reach,
    /// Ends that begin to look.
    wanted: Vec<(End, u32, Names)>,
    paths: BTreeMap<End, Path>,
    memory: BTreeMap<End, OwnedFd>,
    /// Joined ends by the places of their paths: children of their programs know these.
    by_path: BTreeMap<(u64, Place), End>,
    /// The last child that asked for the statement of an end's peer, and its number of the end.
    heirs: BTreeMap<End, End>,
    /// Sockets that are shown, until their ends are joined.
    held: BTreeMap<End, OwnedFd>,
    /// Joined ends by their sockets: namespace and cookie.
    by_socket: BTreeMap<(u64, u64), End>,
    /// Ends whose bytes go back to TCP.
    backs: Backs,
    to_do: Vec<HostStep>,
    /// Messages of other agents that were none.
    malformed: u64,
    /// Times that an end asked how long a phase of its peer was.
    asked: u64,
}

fn number() -> Number {
    let mut number = [0; NUMBER];
    let random = [weft_link::random_u64(), weft_link::random_u64()].map(u64::to_le_bytes);
    number.copy_from_slice(&random.concat());
    number
}

impl Hosts {
    /// An end has no other end on this host.
    pub fn wants(&mut self, end: End, user: u32, names: Names) {
        self.wanted.push((end, user, names));
    }

    /// There are no other hosts.
    pub fn is_alone(&mut self) {
        self.wanted.clear();
    }

    /// True if an end was called to show a path and its socket.
    pub fn is_called(&self, end: End) -> bool {
        self.reach.is_called(end)
    }

    /// True if nothing waits for its time.
    pub fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.reach.is_idle() && self.backs.is_idle()
    }

    /// True if a socket is held, or about to be.
    pub fn is_busy(&self) -> bool {
        self.reach.is_busy() || !self.wanted.is_empty() || !self.backs.is_idle()
    }

    /// Lists the counters by name.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("sockets_paired_between_hosts", self.reach.paired);
        each("sockets_between_hosts", self.reach.joined() as u64);
        each("sockets_messages_malformed", self.malformed);
        each("sockets_phases_asked", self.asked);
    }

    /// An end shows its path.
    pub fn shows_path(&mut self, end: End, socket: OwnedFd) {
        self.paths.insert(end, Path { socket, awaited: None });
    }

    /// An end shows its socket.
    pub fn shows(&mut self, now: Instant, end: End, socket: OwnedFd) {
        let of_path = |path: &Path| passing::facts_of_path(&path.socket);
        let is_of_it = |facts: &Facts, (namespace, place): &(u64, Place)| {
            (*namespace, place.address()) == (facts.namespace, facts.local.address())
        };
        let path = self.paths.get(&end).and_then(of_path);
        let facts = passing::facts(&socket).filter(|facts| {
            let names = Names { local: facts.local, remote: facts.remote };
            self.reach.names(end) == Some(names)
        });
        match facts.zip(path).filter(|(facts, path)| is_of_it(facts, path)) {
            Some((_, (_, place))) => {
                self.held.insert(end, socket);
                self.reach.shown(now.0, end, place.port(), &mut self.to_do);
            }
            None => self.gone(now, end),
        }
    }

    /// An end does not look any more, or its connection has ended.
    pub fn gone(&mut self, now: Instant, end: End) {
        self.wanted.retain(|one| one.0 != end);
        self.reach.gone(now.0, end, &mut self.to_do);
    }

    /// A program has ended.
    pub fn program_gone(&mut self, now: Instant, program: u64) {
        self.wanted.retain(|one| one.0 .0 != program);
        self.reach.program_gone(now.0, program, &mut self.to_do);
    }

    /// An end asks how long a phase of its peer was.
    pub fn asks(&mut self, end: End, phase: u32) {
        self.asked += 1;
        self.reach.asks(end, phase, &mut self.to_do);
    }

    /// The same by a child of the end's program, which shows the end's path.
    pub fn heir_asks(&mut self, heir: End, path: &OwnedFd, phase: u32) {
        let place = passing::facts_of_path(path);
        if let Some(end) = place.and_then(|place| self.by_path.get(&place)).copied() {
            self.heirs.insert(end, heir);
            self.asks(end, phase);
        }
    }

    /// Returns the joined end of a socket.
    pub fn end_of(&self, socket: &OwnedFd) -> Option<End> {
        let facts = passing::facts_of_any(socket)?;
        self.by_socket.get(&(facts.namespace, facts.cookie)).copied()
    }

    /// Brings bytes back to TCP that `asker` has shown, before the socket of an end.
    pub fn gives(&mut self, now: Instant, asker: End, end: End, socket: OwnedFd, shown: Shown) {
        match self.reach.other(end) {
            Some(other) => self.backs.begin(now, asker, other, socket, shown),
            None => self.backs.refuse(asker, "the other end is not known"),
        }
    }

    /// True if this end is asked for its socket, for an agent of another host.
    pub fn awaits_loan(&self, end: End) -> bool {
        self.backs.awaits_loan(end)
    }

    /// An end lends its socket, or has none.
    pub fn lent(&mut self, now: Instant, end: End, fd: Option<OwnedFd>) {
        self.backs.lent(now, end, fd);
    }

    /// Does what there is to do; returns what ends are told.
    pub fn serve(&mut self, now: Instant, cluster: &mut Cluster) -> Vec<Said> {
        for (end, user, names) in std::mem::take(&mut self.wanted) {
            let agents = cluster.agents_at(names.remote);
            let random = (weft_link::random_u64(), number());
            self.reach.seeks(now.0, (end, user), names, agents, random, &mut self.to_do);
        }
        for (from, bytes) in cluster.take_of_sockets() {
            if Back::is_one(&bytes) {
                match Back::decode(&bytes) {
                    Ok(message) => self.backs.hear(now, from, &message, &self.reach),
                    Err(_) => self.malformed += 1,
                }
                continue;
            }
            match Between::decode(&bytes) {
                Ok(message) => self.reach.hear(now.0, from, &message, &mut self.to_do),
                Err(_) => self.malformed += 1,
            }
        }
        self.look_at_paths(now);
        self.reach.on_time(now.0, &mut self.to_do);
        let (mut told, mut said) = self.backs.on_time(now);
        while !self.to_do.is_empty() {
            for what in std::mem::take(&mut self.to_do) {
                self.act(now, what, cluster, &mut told, &mut said);
            }
        }
        cluster.tell_of_sockets(now, &told);
        said
    }

    /// Looks if numbers have come.
    fn look_at_paths(&mut self, now: Instant) {
        for (end, path) in &mut self.paths {
            let mut came = [0; NUMBER + 1];
            // Datagrams of others may be there as well.
            for _ in 0..8 {
                let Some(awaited) = path.awaited else { break };
                match passing::recv_datagram(&path.socket, &mut came) {
                    Some(NUMBER) if came[..NUMBER] == awaited => {
                        path.awaited = None;
                        self.reach.has_come(now.0, *end, &mut self.to_do);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
    }

    fn act(
        &mut self,
        now: Instant,
        what: HostStep,
        cluster: &Cluster,
        told: &mut Vec<(SocketAddr, Vec<u8>)>,
        said: &mut Vec<Said>,
    ) {
        match what {
            HostStep::Tell(agent, message) => told.push((agent, message.encode())),
            HostStep::Call(end) => said.push(Said::Line(end, Message::Reach(end.1))),
            HostStep::Send { end, to, number, awaited } => {
                if let Some(path) = self.paths.get_mut(&end) {
                    passing::send_to(&path.socket, to, &number);
                    if !self.reach.came(end) {
                        path.awaited = Some(awaited);
                    }
                }
            }
            HostStep::Join { end, agent, to, numbers, is_first } => {
                let about = numbers.concat();
                let key = cluster.key_with(agent, &about);
                let facts = self.held.remove(&end).as_ref().and_then(passing::facts);
                let path = self.paths.remove(&end);
                let memory = passing::memory_of_one(SEGMENT).ok();
                let (Some(key), Some(memory), Some(facts)) = (key, memory, facts) else {
                    self.reach.gone(now.0, end, &mut self.to_do);
                    let why = "its connection to another host could not be joined".into();
                    return said.push(Said::Line(end, Message::None { token: end.1, why }));
                };
                self.memory.insert(end, memory);
                let place = path.and_then(|path| passing::facts_of_path(&path.socket));
                place.map(|place| self.by_path.insert(place, end));
                self.by_socket.insert((facts.namespace, facts.cookie), end);
                let host = cluster.name_at(agent);
                let message = Message::Link { token: end.1, first: is_first, to, key, host };
                said.push(Said::WithMemory(end, message));
            }
            HostStep::Drop(end) => {
                self.paths.remove(&end);
                self.held.remove(&end);
                self.memory.remove(&end);
                self.heirs.remove(&end);
                self.by_path.retain(|_, of| *of != end);
                self.by_socket.retain(|_, of| *of != end);
            }
            HostStep::Check(end) => {
                if !self.memory.get(&end).is_some_and(passing::is_mapped) {
                    self.reach.is_over(end, &mut self.to_do);
                }
            }
            HostStep::State(end, agent, of) => {
                let stated = self.memory.get(&end).and_then(statement);
                let message = stated.map(|(stop, acked)| Between::Stopped { of, stop, acked });
                told.extend(message.map(|message| (agent, message.encode())));
            }
            HostStep::Stopped(end, (stop, acked)) => {
                let (stop, acked) = (stop.0, acked.0);
                for end in [Some(end), self.heirs.get(&end).copied()].into_iter().flatten() {
                    said.push(Said::Line(end, Message::Stopped { token: end.1, stop, acked }));
                }
            }
        }
    }

    /// Returns the memory of an end.
    pub fn memory(&self, end: End) -> Option<&OwnedFd> {
        self.memory.get(&end)
    }
}

/// Reads the statement of an end in its memory.
fn statement(memory: &OwnedFd) -> Option<(Pos, Pos)> {
    let mut words = [0; STATEMENT];
    let file = File::from(memory.try_clone().ok()?);
    file.read_exact_at(&mut words, AT as u64).ok()?;
    Some(statement_of(&words))
}

//! Bytes that wait in the ring of an end go back to TCP, while the other end is on another host:
//! `weft_streams::reach::back` decides; here are the sockets of both ends.
//!
//! Nothing here waits. The bytes are sent by a thread of `giving`.

use crate::giving::Shown;
use crate::reach::Said;
use crate::sys::passing;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use weft_core::Instant;
use weft_streams::message::Message;
use weft_streams::pairing::End;
use weft_streams::reach::back::message::{Back, BackContent};
use weft_streams::reach::back::{Giver, GiverStep, Lender, LenderStep, TOTAL_MAX};
use weft_streams::reach::message::Names;
use weft_streams::reach::Reach;

/// Most connections of either kind at one moment.
const JOBS_MAX: usize = 64;

/// A connection whose bytes go back.
struct Give {
    agent: SocketAddr,
    asker: End,
    /// The socket, until the other agent has all of its bytes.
    fd: Option<OwnedFd>,
    shown: Shown,
    /// Bytes by TCP that were taken out.
    taken: Vec<u8>,
    machine: Giver,
}

/// A connection whose socket an end of this host lends.
struct Lend {
    end: End,
    names: Names,
    fd: Option<OwnedFd>,
    machine: Lender,
}

/// The connections to other hosts whose bytes go back.
#[derive(Default)]
pub struct Backs {
    gives: BTreeMap<u64, Give>,
    lends: BTreeMap<(SocketAddr, u64), Lend>,
    told: Vec<(SocketAddr, Vec<u8>)>,
    said: Vec<Said>,
}

impl Backs {
    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.gives.is_empty() && self.lends.is_empty() && self.said.is_empty()
    }

    /// Begins: `asker` has shown the bytes and its socket, whose other end another agent has.
    pub fn begin(
        &mut self,
        now: Instant,
        asker: End,
        (agent, of): (SocketAddr, u64),
        fd: OwnedFd,
        shown: Shown,
    ) {
        if self.gives.len() >= JOBS_MAX || shown.bytes.is_empty() {
            return self.refuse(asker, "the agent cannot bring its bytes back now");
        }
        let (machine, taken) = (Giver::new(now.0, of), Vec::new());
        let give = Give { agent, asker, fd: Some(fd), shown, taken, machine };
        self.gives.insert(weft_link::random_u64(), give);
    }

    /// Tells who has asked that the bytes stay where they are.
    pub fn refuse(&mut self, asker: End, why: &str) {
        let message = Message::None { token: asker.1, why: why.to_string() };
        self.said.push(Said::Line(asker, message));
    }

    /// True if this end is asked for its socket.
    pub fn awaits_loan(&self, end: End) -> bool {
        self.lends.values().any(|one| one.end == end && one.machine.awaits())
    }

    /// An end lends its socket, or has none.
    pub fn lent(&mut self, now: Instant, end: End, fd: Option<OwnedFd>) {
        let found = self.lends.iter_mut().find(|(_, one)| one.end == end && one.machine.awaits());
        let Some((&job, one)) = found else { return };
        let names = |fd: &OwnedFd| {
            let facts = passing::facts_of_sender(fd)?;
            Some(Names { local: facts.local, remote: facts.remote })
        };
        one.fd = fd.filter(|fd| names(fd) == Some(one.names));
        let mut steps = Vec::new();
        one.machine.lent(now.0, one.fd.is_some(), &mut steps);
        self.lend(job, steps);
    }

    /// Takes a message of another agent.
    pub fn hear(&mut self, now: Instant, from: SocketAddr, message: &Back, reach: &Reach) {
        let Back { job, what } = message;
        match what {
            BackContent::Lent(_) | BackContent::Have(_) | BackContent::None => {
                let Some(one) = self.gives.get_mut(job).filter(|one| one.agent == from) else {
                    return;
                };
                let mut steps = Vec::new();
                one.machine.hear(now.0, what, &mut steps);
                self.give(now, *job, steps);
            }
            BackContent::Lend { of } if !self.lends.contains_key(&(from, *job)) => {
                let end = reach.joined_to(*of, from).filter(|_| self.lends.len() < JOBS_MAX);
                let Some((end, names)) = end.and_then(|end| Some((end, reach.names(end)?))) else {
                    return self.tell(from, *job, BackContent::None);
                };
                let one = Lend { end, names, fd: None, machine: Lender::new(now.0) };
                self.lends.insert((from, *job), one);
                self.work(now, (from, *job));
            }
            BackContent::Lend { .. } | BackContent::Piece { .. } | BackContent::Over { .. } => {
                let Some(one) = self.lends.get_mut(&(from, *job)) else { return };
                let mut steps = Vec::new();
                one.machine.hear(now.0, what, &mut steps);
                self.lend((from, *job), steps);
            }
        }
    }

    fn work(&mut self, now: Instant, job: (SocketAddr, u64)) {
        let mut steps = Vec::new();
        if let Some(one) = self.lends.get_mut(&job) {
            one.machine.on_time(now.0, &mut steps);
        }
        self.lend(job, steps);
    }

    /// Does what is due; hands over what other agents and ends are told.
    pub fn on_time(&mut self, now: Instant) -> (Vec<(SocketAddr, Vec<u8>)>, Vec<Said>) {
        self.gives.retain(|_, one| !one.machine.is_over(now.0));
        self.lends.retain(|_, one| !one.machine.is_over(now.0));
        for job in self.gives.keys().copied().collect::<Vec<_>>() {
            let mut steps = Vec::new();
            if let Some(one) = self.gives.get_mut(&job) {
                one.machine.on_time(now.0, &mut steps);
            }
            self.give(now, job, steps);
        }
        for job in self.lends.keys().copied().collect::<Vec<_>>() {
            self.work(now, job);
        }
        (std::mem::take(&mut self.told), std::mem::take(&mut self.said))
    }

    fn tell(&mut self, agent: SocketAddr, job: u64, what: BackContent) {
        self.told.push((agent, Back { job, what }.encode()));
    }

    fn give(&mut self, now: Instant, job: u64, steps: Vec<GiverStep>) {
        for step in steps {
            let Some(one) = self.gives.get_mut(&job) else { return };
            let (agent, asker) = (one.agent, one.asker);
            match step {
                GiverStep::Tell(what) => self.tell(agent, job, what),
                GiverStep::Take { is_all } => {
                    let mut more = Vec::new();
                    one.take(now, is_all, &mut more);
                    self.give(now, job, more);
                }
                GiverStep::Given => {
                    one.fd = None;
                    self.said.push(Said::Line(asker, Message::Given(asker.1)));
                }
                GiverStep::Failed { is_lost } => {
                    let fd = one.fd.take();
                    if is_lost {
                        fd.iter().for_each(passing::reset);
                    }
                    log::warn!("bytes of a socket program do not go back to TCP: {agent}");
                    self.refuse(asker, "the other host does not bring its bytes back");
                }
            }
        }
    }

    fn lend(&mut self, job: (SocketAddr, u64), steps: Vec<LenderStep>) {
        for step in steps {
            let Some(one) = self.lends.get_mut(&job) else { return };
            let end = one.end;
            match step {
                LenderStep::Ring => self.said.push(Said::Bell(end, Message::Lend(end.1))),
                LenderStep::SayLeft => {
                    let left = one.fd.as_ref().map(passing::unacknowledged);
                    // One that has ended says so to the other end.
                    let left = left.and_then(Result::ok).unwrap_or(0);
                    self.tell(job.0, job.1, BackContent::Lent(left as u64));
                }
                LenderStep::Tell(what) => self.tell(job.0, job.1, what),
                LenderStep::Put(bytes) => {
                    let put = one.fd.take().map(|fd| Said::Put(end, fd, bytes));
                    self.said.extend(put);
                }
                LenderStep::Free | LenderStep::Reset => {
                    let fd = one.fd.take();
                    if step == LenderStep::Reset {
                        fd.iter().for_each(passing::reset);
                    }
                    self.said.push(Said::Bell(end, Message::Free(end.1)));
                }
            }
        }
    }
}

impl Give {
    /// Takes bytes out that came by TCP after those of the ring.
    fn take(&mut self, now: Instant, is_all: bool, out: &mut Vec<GiverStep>) {
        let before = self.shown.before;
        let Some(fd) = &self.fd else { return };
        let had = self.taken.len();
        let took = passing::unread(fd).and_then(|there| match had == 0 && there <= before {
            true => Ok(()),
            false => passing::take(fd, &mut self.taken, TOTAL_MAX),
        });
        self.machine.took(now.0, self.taken.len() - had);
        if took.is_err() || self.taken.len() + self.shown.bytes.len() > TOTAL_MAX {
            return self.machine.cannot(now.0, out);
        }
        passing::acknowledge(fd);
        if is_all {
            let (before, after) = self.taken.split_at(before.min(self.taken.len()));
            let all = [before, &self.shown.bytes, after].concat();
            self.taken = Vec::new();
            self.machine.gathered(now.0, all, out);
        }
    }
}

//! The agents' part for the two ends of a connection on two hosts: each agent looks for the other
//! end of those that ask at the agent of the peer's address.
//!
//! Both ends have to ask, and show sockets that are established at one moment, as inside a host.
//! The same names may exist in several networks. So each end gives a path, a UDP socket at the
//! address of its connection. Each agent tells the other one a number, and sends it by the path,
//! too. If both arrive, the network leads from one end to the other and back. The ends are one
//! user's.
//!
//! Messages between agents may be lost, doubled and reordered: each tells all that its sender
//! knows, and is told again until the time is over. An end that is joined alone takes no harm:
//! nobody answers its packets, and its bytes go by TCP.

pub mod back;
pub mod message;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::far::Pos;
use crate::message::Place;
use crate::pairing::End;
use message::{Between, Names, Number};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most ends that look for others, as many as may ask.
const ENDS_MAX: usize = 8192;
/// Most ends that are joined, of which the statements are kept.
const LINKS_MAX: usize = 4096;
/// Times after which an end is looked for again, in nanoseconds; then it is left.
const FIND_AGAIN: [u64; 5] =
    [50_000_000, 200_000_000, 1_000_000_000, 5_000_000_000, 20_000_000_000];
/// Time after which what was said is said again.
const SAY_AGAIN: u64 = 20_000_000;
/// Time from the first answer until both ends are joined.
const MOST: u64 = 2_000_000_000;
/// Time for which the statement of an end that has gone is kept.
const KEPT: u64 = 60_000_000_000;

/// A step for the agent to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// Tell another agent something.
    Tell(SocketAddr, Between),
    /// Ask an end to show a path and its socket.
    Call(End),
    /// Send a number by the path of an end to this place, and look if this other one comes.
    Send {
        /// The end.
        end: End,
        /// The place.
        to: Place,
        /// The number to send.
        number: Number,
        /// The number that is to come.
        awaited: Number,
    },
    /// Join the end to that of another host, if its socket is still established.
    Join {
        /// The end.
        end: End,
        /// The other agent.
        agent: SocketAddr,
        /// The place of the other end's path.
        to: Place,
        /// The numbers of both agents, in an order that both know.
        numbers: [Number; 2],
        /// True if this agent's is the first.
        is_first: bool,
    },
    /// Forget what is kept for an end: it was not joined, or is over.
    Drop(End),
    /// Look if a process still has the memory of an end that has gone: a child of its program may
    /// use the connection. If none has, [`Reach::is_over`].
    Check(End),
    /// Tell another agent the statement of an end.
    State(End, SocketAddr, u64),
    /// Tell an end the statement of the other one.
    Stopped(End, (Pos, Pos)),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Other {
    agent: SocketAddr,
    id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offered {
    id: u64,
    port: u16,
    number: Number,
    has_come: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// The agents of its peer's address were asked so often.
    Seeks { agents: Vec<SocketAddr>, tries: usize },
    /// It was called to show its socket.
    Called,
    /// It has shown its socket and a path with this port.
    Shown { port: u16, has_come: bool },
    /// It is joined.
    Joined { port: u16 },
    /// It was joined, and has gone.
    Gone,
}

#[derive(Clone, Debug)]
struct One {
    id: u64,
    names: Names,
    user: u32,
    number: Number,
    state: State,
    /// The agent that has the other end.
    agent: Option<SocketAddr>,
    offered: Option<Offered>,
    next: u64,
    until: u64,
}

/// The ends that look for others on other hosts, and those that are joined.
#[derive(Debug, Default)]
pub struct Reach {
    ends: BTreeMap<End, One>,
    by_id: BTreeMap<u64, End>,
    joined: usize,
    /// Those of them that have gone.
    leaving: usize,
    /// Connections joined.
    pub paired: u64,
}

impl Reach {
    /// An end looks for its other one at these agents. `random` are numbers that nobody knows: that
    /// of the end, and the one that is sent by its path.
    pub fn seeks(
        &mut self,
        now: u64,
        (end, user): (End, u32),
        names: Names,
        agents: Vec<SocketAddr>,
        (id, number): (u64, Number),
        out: &mut Vec<HostStep>,
    ) {
        self.forget(end);
        if agents.is_empty() || self.ends.len() >= ENDS_MAX {
            return;
        }
        let state = State::Seeks { agents, tries: 0 };
        let until = now + MOST + FIND_AGAIN.iter().sum::<u64>();
        let one =
            One { id, names, user, number, state, agent: None, offered: None, next: now, until };
        self.by_id.insert(id, end);
        self.ends.insert(end, one);
        self.work(now, end, out);
    }

    /// True if an end was called, and has not shown its socket.
    pub fn is_called(&self, end: End) -> bool {
        self.ends.get(&end).is_some_and(|one| matches!(one.state, State::Called))
    }

    /// Returns the names of an end that looks for another.
    pub fn names(&self, end: End) -> Option<Names> {
        self.ends.get(&end).map(|one| one.names)
    }

    /// True if the number of the other agent has come by the path of an end.
    pub fn came(&self, end: End) -> bool {
        let is_shown = |one: &One| matches!(one.state, State::Shown { has_come: false, .. });
        !self.ends.get(&end).is_some_and(is_shown)
    }

    /// True if an end is about to be joined: that is to take a moment only.
    pub fn is_busy(&self) -> bool {
        let is_busy = |one: &One| matches!(one.state, State::Called | State::Shown { .. });
        self.ends.values().any(is_busy)
    }

    /// True if nothing waits for its time.
    pub fn is_idle(&self) -> bool {
        self.ends.len() == self.joined && self.leaving == 0
    }

    /// Returns the number of ends that are joined, or were of late.
    pub fn joined(&self) -> usize {
        self.joined
    }

    /// An end has shown its socket, whose names are right, and a path with this port.
    pub fn shown(&mut self, now: u64, end: End, port: u16, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get_mut(&end) else { return };
        if matches!(one.state, State::Called) {
            one.state = State::Shown { port, has_come: false };
            one.next = now;
            self.work(now, end, out);
        }
    }

    /// The number of the other agent came by the path of an end.
    pub fn has_come(&mut self, now: u64, end: End, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get_mut(&end) else { return };
        if let State::Shown { has_come: has_come @ false, .. } = &mut one.state {
            *has_come = true;
            one.next = now;
            self.work(now, end, out);
            self.join(end, out);
        }
    }

    /// Takes a message of another agent.
    pub fn hear(&mut self, now: u64, from: SocketAddr, message: &Between, out: &mut Vec<HostStep>) {
        match *message {
            Between::Find { id, names, user } => {
                let is_it = |one: &One| one.names.is_other(&names) && one.user == user;
                let found = self.ends.iter().find(|(_, one)| {
                    is_it(one) && !matches!(one.state, State::Joined { .. } | State::Gone)
                });
                let Some(end) = found.map(|(end, _)| *end) else { return };
                self.answers(now, end, Other { agent: from, id }, out);
            }
            Between::Offer { id, of, port, number, has_come, is_joined } => {
                let Some(end) = self.by_id.get(&of).copied() else { return };
                self.answers(now, end, Other { agent: from, id }, out);
                let offered = Offered { id, port, number, has_come };
                self.offers(now, end, from, (offered, is_joined), out);
            }
            Between::Ask { of, phase: _ } => {
                if let Some((end, Some(offered))) = self.of(of, from) {
                    out.push(HostStep::State(end, from, offered.id));
                }
            }
            Between::Stopped { of, stop, acked } => {
                if let Some((end, _)) = self.of(of, from) {
                    out.push(HostStep::Stopped(end, (stop, acked)));
                }
            }
        }
    }

    /// Returns the agent that has the other end of a joined one, and its number of it.
    pub fn other(&self, end: End) -> Option<(SocketAddr, u64)> {
        let one = self.ends.get(&end)?;
        let is_joined = matches!(one.state, State::Joined { .. } | State::Gone);
        is_joined.then_some((one.agent?, one.offered?.id))
    }

    /// Returns the end of a number, if it is joined to one of this agent.
    pub fn joined_to(&self, id: u64, agent: SocketAddr) -> Option<End> {
        self.of(id, agent).map(|(end, _)| end)
    }

    /// Returns the end of a number, if it is joined to one of this agent.
    fn of(&self, id: u64, agent: SocketAddr) -> Option<(End, Option<Offered>)> {
        let end = *self.by_id.get(&id)?;
        let one = self.ends.get(&end).filter(|one| one.agent == Some(agent))?;
        matches!(one.state, State::Joined { .. } | State::Gone).then_some((end, one.offered))
    }

    /// An end asks for the statement of the other one.
    pub fn asks(&self, end: End, phase: u32, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get(&end) else { return };
        if let (Some(agent), Some(offered)) = (one.agent, one.offered) {
            out.push(HostStep::Tell(agent, Between::Ask { of: offered.id, phase }));
        }
    }

    /// Another agent has the other end.
    fn answers(&mut self, now: u64, end: End, other: Other, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get_mut(&end) else { return };
        if let State::Seeks { .. } = one.state {
            // It may not know this end's number yet.
            let find = Between::Find { id: one.id, names: one.names, user: one.user };
            out.push(HostStep::Tell(other.agent, find));
            one.agent = Some(other.agent);
            one.state = State::Called;
            (one.next, one.until) = (now + SAY_AGAIN, now + MOST);
            out.push(HostStep::Call(end));
        }
        if one.agent == Some(other.agent) && one.offered.is_none() {
            let (port, number, has_come) = (0, [0; message::NUMBER], false);
            one.offered = Some(Offered { id: other.id, port, number, has_come });
        }
    }

    /// Another agent has told what it knows.
    fn offers(
        &mut self,
        now: u64,
        end: End,
        from: SocketAddr,
        (new, is_joined): (Offered, bool),
        out: &mut Vec<HostStep>,
    ) {
        let Some(one) = self.ends.get_mut(&end).filter(|one| one.agent == Some(from)) else {
            return;
        };
        match one.state {
            State::Joined { port } => {
                // The other agent may not know yet that its number has come.
                let is_it = one.offered.is_some_and(|known| known.id == new.id);
                if is_it && !is_joined {
                    out.push(HostStep::Tell(from, offer(one, new.id, port, (true, true))));
                }
            }
            State::Gone => {}
            _ => {
                let has_come = one.offered.is_some_and(|known| {
                    known.has_come && known.id == new.id && known.number == new.number
                });
                let is_news = one.offered.is_none_or(|known| known.port != new.port);
                one.offered = Some(Offered { has_come: new.has_come || has_come, ..new });
                if is_news {
                    one.next = now;
                    self.work(now, end, out);
                }
                self.join(end, out);
            }
        }
    }

    /// Joins an end if both numbers have come.
    fn join(&mut self, end: End, out: &mut Vec<HostStep>) {
        let joined = self.joined;
        let Some(one) = self.ends.get_mut(&end) else { return };
        let (State::Shown { port, has_come: true }, Some(offered), Some(agent)) =
            (&one.state, one.offered, one.agent)
        else {
            return;
        };
        if !offered.has_come || joined >= LINKS_MAX {
            return;
        }
        let is_first = one.number < offered.number;
        let numbers = match is_first {
            true => [one.number, offered.number],
            false => [offered.number, one.number],
        };
        one.state = State::Joined { port: *port };
        (one.next, one.until) = (u64::MAX, u64::MAX);
        let to = one.names.remote.with_port(offered.port);
        self.joined += 1;
        self.paired += 1;
        out.push(HostStep::Join { end, agent, to, numbers, is_first });
    }

    /// Says what is due for an end.
    fn work(&mut self, now: u64, end: End, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get_mut(&end) else { return };
        let find = Between::Find { id: one.id, names: one.names, user: one.user };
        match &mut one.state {
            State::Seeks { agents, tries } => {
                out.extend(agents.iter().map(|agent| HostStep::Tell(*agent, find)));
                one.next = FIND_AGAIN.get(*tries).map_or(u64::MAX, |after| now + after);
                *tries += 1;
            }
            State::Called => {
                out.extend(one.agent.map(|agent| HostStep::Tell(agent, find)));
                one.next = now + SAY_AGAIN;
            }
            State::Shown { port, has_come } => {
                let (port, has_come) = (*port, *has_come);
                one.next = now + SAY_AGAIN;
                let (Some(agent), Some(offered)) = (one.agent, one.offered) else { return };
                out.push(HostStep::Tell(agent, offer(one, offered.id, port, (has_come, false))));
                if offered.port != 0 {
                    let to = one.names.remote.with_port(offered.port);
                    let (number, awaited) = (one.number, offered.number);
                    out.push(HostStep::Send { end, to, number, awaited });
                }
            }
            State::Joined { .. } | State::Gone => {}
        }
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: u64, out: &mut Vec<HostStep>) {
        let due = |one: &One| one.next <= now || one.until <= now;
        let ends: Vec<End> =
            self.ends.iter().filter(|(_, one)| due(one)).map(|(end, _)| *end).collect();
        for end in ends {
            let Some(one) = self.ends.get_mut(&end) else { continue };
            if one.until <= now && matches!(one.state, State::Gone) {
                one.until = now + KEPT;
                out.push(HostStep::Check(end));
            } else if one.until <= now {
                self.forget(end);
                out.push(HostStep::Drop(end));
            } else {
                self.work(now, end, out);
            }
        }
    }

    /// An end does not look for another any more, or its connection has ended. The statement of one
    /// that was joined is kept for a while.
    pub fn gone(&mut self, now: u64, end: End, out: &mut Vec<HostStep>) {
        let Some(one) = self.ends.get_mut(&end) else { return };
        match one.state {
            State::Joined { .. } => {
                one.state = State::Gone;
                one.until = now + KEPT;
                self.leaving += 1;
            }
            State::Gone => {}
            _ => {
                self.forget(end);
                out.push(HostStep::Drop(end));
            }
        }
    }

    /// Nobody has the memory of an end that has gone.
    pub fn is_over(&mut self, end: End, out: &mut Vec<HostStep>) {
        if self.ends.get(&end).is_some_and(|one| matches!(one.state, State::Gone)) {
            self.forget(end);
            out.push(HostStep::Drop(end));
        }
    }

    /// A program has ended.
    pub fn program_gone(&mut self, now: u64, program: u64, out: &mut Vec<HostStep>) {
        let ends: Vec<End> =
            self.ends.range((program, 0)..=(program, u64::MAX)).map(|(end, _)| *end).collect();
        ends.into_iter().for_each(|end| self.gone(now, end, out));
    }

    fn forget(&mut self, end: End) {
        if let Some(one) = self.ends.remove(&end) {
            self.by_id.remove(&one.id);
            let is_gone = matches!(one.state, State::Gone);
            self.joined -= usize::from(is_gone || matches!(one.state, State::Joined { .. }));
            self.leaving -= usize::from(is_gone);
        }
    }
}

fn offer(one: &One, of: u64, port: u16, (has_come, is_joined): (bool, bool)) -> Between {
    Between::Offer { id: one.id, of, port, number: one.number, has_come, is_joined }
}

//! The agent's part: it finds the two ends of a connection among those that ask.
//!
//! An ask names a connection and proves nothing. If the other end asks too, both are called to show
//! their sockets. The facts are those of the sockets themselves, and a pair is made only while both
//! sockets are there: so neither a name that somebody made up nor one of a former connection is
//! paired. A socket is held for a moment only, as its connection cannot end meanwhile.
//!
//! Names may exist several times on a host with several network namespaces. Ends in different ones
//! are those of one connection if packets to the address of each come to the other, which the agent
//! tries: within a namespace there is one socket of each pair of names.

use crate::message::Place;
use std::collections::BTreeMap;

/// Most asks remembered.
const ASKS_MAX: usize = 8192;
/// Most asks of one user remembered.
const ASKS_OF_USER: usize = 4096;
/// Time for which an ask is remembered, in nanoseconds.
const ASK_NS: u64 = 30_000_000_000;
/// Time in which an end that was called has to show its socket.
const CALL_NS: u64 = 2_000_000_000;
/// Time for which a socket is held.
const HELD_NS: u64 = 300_000_000;

/// The reason for an end that newer ones replaced, or that found no room.
const TOO_MANY: &str = "too many connections of this user wait for their other ends";
/// The reason for two ends whose networks are not joined, or lose the agent's datagrams.
const NO_PATH: &str = "no datagram came from one end's network to the other's";

/// A program's connection to the agent.
pub type Program = u64;

/// One end: the program, and its number of the connection.
pub type End = (Program, u64);

/// A socket as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of its network namespace.
    pub namespace: u64,
    /// Number of the socket.
    pub cookie: u64,
    /// Its own name.
    pub local: Place,
    /// The name of its peer.
    pub remote: Place,
}

/// A step for the agent to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    /// Ask an end to show its socket.
    Call(End),
    /// Ask an end to show a path and its socket.
    Far(End),
    /// Try the network between two ends, whose sockets are held.
    Prove(End, End),
    /// Give both ends shared memory, and close their sockets.
    Pair(End, End),
    /// Tell an end that it is not paired, and close its socket.
    Refuse(End, &'static str),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Since then, for the other end to ask.
    Waits(u64),
    /// Since then, for its socket.
    Called(u64, End),
    /// Its socket is held since then.
    Shown(u64, End, Facts),
    /// The network to the other end is tried since then.
    Tried(u64, End),
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    user: u32,
    /// The network namespace of its program.
    namespace: u64,
    local: Place,
    remote: Place,
    state: State,
}

/// Numbers of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Asks ever.
    pub asked: u64,
    /// Connections paired.
    pub paired: u64,
    /// Ends refused.
    pub refused: u64,
}

/// The ends that ask.
#[derive(Debug)]
pub struct Pairing {
    /// Returns the user who answers for what a user takes.
    payer: fn(u32) -> u32,
    asks: BTreeMap<End, Ask>,
    /// The ends that wait for another end, by their names.
    waiting: BTreeMap<(Place, Place), Vec<End>>,
    /// Numbers of events so far.
    pub counts: Counts,
}

impl Pairing {
    /// Returns none; `payer` names the user who answers for what a user takes.
    pub fn new(payer: fn(u32) -> u32) -> Pairing {
        let (asks, waiting, counts) = (BTreeMap::new(), BTreeMap::new(), Counts::default());
        Pairing { payer, asks, waiting, counts }
    }

    /// Returns the number of asks remembered.
    pub fn len(&self) -> usize {
        self.asks.len()
    }

    /// True if nobody asks.
    pub fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// An end asks, with its user and its network namespace. `may` tells if two users may share
    /// memory; those in different namespaces have to be one.
    pub fn ask(
        &mut self,
        now: u64,
        (end, user, namespace): (End, u32, u64),
        (local, remote): (Place, Place),
        may: &dyn Fn(u32, u32) -> bool,
        out: &mut Vec<Do>,
    ) {
        self.counts.asked += 1;
        self.forget(end);
        if !self.has_room(user, out) {
            return self.refuse(end, TOO_MANY, out);
        }
        let mut foreign = false;
        let others = self.waiting.get(&(remote, local)).map_or(&[][..], Vec::as_slice);
        let other = others.iter().copied().find(|other| {
            let allowed = self.asks.get(other).is_some_and(|ask| {
                ask.user == user || ask.namespace == namespace && may(ask.user, user)
            });
            foreign |= !allowed;
            allowed
        });
        match other {
            Some(other) => {
                self.stop_waiting(other);
                let state = State::Called(now, other);
                self.insert(end, Ask { user, namespace, local, remote, state });
                let Some(ask) = self.asks.get_mut(&other) else { return };
                ask.state = State::Called(now, end);
                let call = if ask.namespace == namespace { Do::Call } else { Do::Far };
                out.extend([call(other), call(end)]);
            }
            None if foreign => self.refuse(end, "the other end is another user's", out),
            None => {
                let state = State::Waits(now);
                self.insert(end, Ask { user, namespace, local, remote, state });
                self.waiting.entry((local, remote)).or_default().push(end);
            }
        }
    }

    /// Makes room for one more ask of a user, and returns true if there is some. A user at its
    /// limit loses the ask that has waited longest: a connection that was used just now is the more
    /// likely one to be used again.
    fn has_room(&mut self, user: u32, out: &mut Vec<Do>) -> bool {
        let mut of_user = 0;
        let mut oldest: Option<(u64, End)> = None;
        let payer = (self.payer)(user);
        for (&end, ask) in self.asks.iter().filter(|(_, ask)| (self.payer)(ask.user) == payer) {
            of_user += 1;
            if let State::Waits(since) = ask.state {
                oldest = Some(oldest.map_or((since, end), |old| old.min((since, end))));
            }
        }
        if of_user < ASKS_OF_USER {
            return self.asks.len() < ASKS_MAX;
        }
        let Some((_, oldest)) = oldest else { return false };
        self.forget(oldest);
        self.refuse(oldest, TOO_MANY, out);
        true
    }

    /// True if an end was called, and has not shown its socket.
    pub fn is_called(&self, end: End) -> bool {
        self.asks.get(&end).is_some_and(|ask| matches!(ask.state, State::Called(..)))
    }

    /// An end shows its socket: its facts, or `None` if it is no TCP socket that is connected.
    pub fn shown(&mut self, now: u64, end: End, facts: Option<Facts>, out: &mut Vec<Do>) {
        let Some(ask) = self.asks.get_mut(&end) else {
            return out.push(Do::Refuse(end, "it came too late"));
        };
        let State::Called(_, other) = ask.state else {
            self.forget(end);
            return self.refuse(end, "it was not called", out);
        };
        let named = |f: &Facts| f.local == ask.local && f.remote == ask.remote;
        let Some(facts) = facts.filter(named) else {
            return self.part(end, other, "the socket is not the one that was named", out);
        };
        ask.state = State::Shown(now, other, facts);
        let Some(State::Shown(_, back, others)) = self.asks.get(&other).map(|ask| ask.state) else {
            return;
        };
        let known = |end: &End, facts: &Facts| {
            self.asks.get(end).is_some_and(|ask| ask.namespace == facts.namespace)
        };
        if back != end || others.namespace != facts.namespace {
            if back != end || !known(&end, &facts) || !known(&other, &others) {
                return self.part(end, other, "the ends are in different network namespaces", out);
            }
            for (one, of) in [(end, other), (other, end)] {
                if let Some(ask) = self.asks.get_mut(&one) {
                    ask.state = State::Tried(now, of);
                }
            }
            return out.push(Do::Prove(end, other));
        }
        if others.cookie == facts.cookie {
            return self.part(end, other, "both ends are one socket", out);
        }
        self.pair(end, other, out);
    }

    /// The network between two ends was tried.
    pub fn tried(&mut self, one: End, other: End, leads: bool, out: &mut Vec<Do>) {
        let state = self.asks.get(&one).map(|ask| ask.state);
        if !matches!(state, Some(State::Tried(_, of)) if of == other) {
            return;
        }
        match leads {
            true => self.pair(one, other, out),
            false => self.part(one, other, NO_PATH, out),
        }
    }

    fn pair(&mut self, one: End, other: End, out: &mut Vec<Do>) {
        self.forget(one);
        self.forget(other);
        self.counts.paired += 1;
        out.push(Do::Pair(one.min(other), one.max(other)));
    }

    /// An end does not ask any more.
    pub fn cancel(&mut self, end: End, out: &mut Vec<Do>) {
        let Some(ask) = self.forget(end) else { return };
        let (State::Called(_, other) | State::Shown(_, other, _) | State::Tried(_, other)) =
            ask.state
        else {
            return;
        };
        {
            self.forget(other);
            self.refuse(other, "the other end has closed", out);
        }
    }

    /// A program has ended.
    pub fn gone(&mut self, program: Program, out: &mut Vec<Do>) {
        let ends: Vec<End> =
            self.asks.range((program, 0)..=(program, u64::MAX)).map(|(end, _)| *end).collect();
        ends.into_iter().for_each(|end| self.cancel(end, out));
    }

    /// Ends what has waited too long.
    pub fn on_time(&mut self, now: u64, out: &mut Vec<Do>) {
        let late = |since: u64, most: u64| now.saturating_sub(since) > most;
        let over: Vec<(End, State)> =
            self.asks.iter().map(|(end, ask)| (*end, ask.state)).collect();
        for (end, state) in over {
            match state {
                State::Waits(since) if late(since, ASK_NS) => {
                    self.forget(end);
                    self.refuse(end, "the other end does not ask", out);
                }
                State::Called(since, other) if late(since, CALL_NS) => {
                    self.part(end, other, "an end did not show its socket", out);
                }
                State::Tried(since, other) if late(since, HELD_NS) => {
                    self.part(end, other, NO_PATH, out);
                }
                State::Shown(since, other, _) if late(since, HELD_NS) => {
                    self.part(end, other, "the other end did not show its socket in time", out);
                }
                _ => {}
            }
        }
    }

    fn insert(&mut self, end: End, ask: Ask) {
        self.asks.insert(end, ask);
    }

    fn stop_waiting(&mut self, end: End) {
        let Some(ask) = self.asks.get(&end) else { return };
        let names = (ask.local, ask.remote);
        if let Some(ends) = self.waiting.get_mut(&names) {
            ends.retain(|other| *other != end);
            if ends.is_empty() {
                self.waiting.remove(&names);
            }
        }
    }

    fn forget(&mut self, end: End) -> Option<Ask> {
        self.stop_waiting(end);
        self.asks.remove(&end)
    }

    fn refuse(&mut self, end: End, why: &'static str, out: &mut Vec<Do>) {
        self.counts.refused += 1;
        out.push(Do::Refuse(end, why));
    }

    fn part(&mut self, one: End, other: End, why: &'static str, out: &mut Vec<Do>) {
        for end in [one, other] {
            if self.forget(end).is_some() {
                self.refuse(end, why, out);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const A: End = (1, 10);
    const B: End = (2, 20);
    /// Tokens of ends in another network namespace.
    const FAR: u64 = 1 << 50;
    const C: End = (1, FAR);

    fn place(port: u16) -> Place {
        Place::v4([127, 0, 0, 1], port)
    }

    fn facts(cookie: u64, local: u16, remote: u16) -> Facts {
        Facts { namespace: 1, cookie, local: place(local), remote: place(remote) }
    }

    struct Agent {
        pairing: Pairing,
        now: u64,
    }

    impl Default for Agent {
        fn default() -> Agent {
            Agent { pairing: Pairing::new(|user| user), now: 0 }
        }
    }

    impl Agent {
        fn ask(&mut self, end: End, local: u16, remote: u16) -> Vec<Do> {
            let (mut out, names) = (Vec::new(), (place(local), place(remote)));
            // The user's number is the program's.
            let may = |one, other| one < 100 && other < 100;
            let namespace = if end.1 >= FAR { 2 } else { 1 };
            self.pairing.ask(self.now, (end, end.0 as u32, namespace), names, &may, &mut out);
            out
        }

        fn shown(&mut self, end: End, facts: Option<Facts>) -> Vec<Do> {
            let mut out = Vec::new();
            self.pairing.shown(self.now, end, facts, &mut out);
            out
        }

        fn both_called() -> Agent {
            let mut agent = Agent::default();
            assert_eq!(agent.ask(A, 5, 80), []);
            assert_eq!(agent.ask(B, 80, 5), [Do::Call(A), Do::Call(B)]);
            agent
        }

        fn is_empty(&self) -> bool {
            self.pairing.is_empty() && self.pairing.waiting.is_empty()
        }
    }

    #[test]
    fn pairing__both_ends_ask_and_show_their_sockets() {
        let mut agent = Agent::both_called();
        assert_eq!(agent.shown(B, Some(facts(2, 80, 5))), []);
        assert_eq!(agent.shown(A, Some(facts(1, 5, 80))), [Do::Pair(A, B)]);
        assert!(agent.is_empty());
    }

    #[test]
    fn pairing__a_stranger_who_names_a_connection_has_no_socket_of_it() {
        for stranger in [None, Some(facts(9, 81, 5)), Some(facts(9, 80, 6))] {
            let mut agent = Agent::both_called();
            assert_eq!(agent.shown(A, Some(facts(1, 5, 80))), []);
            let told = agent.shown(B, stranger);
            assert!(matches!(told[..], [Do::Refuse(B, _), Do::Refuse(A, _)]), "{told:?}");
            assert!(agent.is_empty());
        }
    }

    #[test]
    fn pairing__not_across_namespaces_and_not_a_socket_with_itself() {
        let mut agent = Agent::both_called();
        agent.shown(A, Some(facts(1, 5, 80)));
        let told = agent.shown(B, Some(Facts { namespace: 2, ..facts(2, 80, 5) }));
        assert!(matches!(told[..], [Do::Refuse(..), Do::Refuse(..)]));
        let mut agent = Agent::default();
        agent.ask(A, 5, 5);
        agent.ask(B, 5, 5);
        agent.shown(A, Some(facts(1, 5, 5)));
        assert!(matches!(
            agent.shown(B, Some(facts(1, 5, 5)))[..],
            [Do::Refuse(..), Do::Refuse(..)]
        ));
    }

    #[test]
    fn pairing__another_namespace_takes_a_path_and_the_same_user() {
        for leads in [true, false] {
            let mut agent = Agent::default();
            agent.ask(A, 5, 80);
            assert_eq!(agent.ask(C, 80, 5), [Do::Far(A), Do::Far(C)]);
            assert_eq!(agent.shown(A, Some(facts(1, 5, 80))), []);
            let far = Facts { namespace: 2, ..facts(1, 80, 5) };
            assert_eq!(agent.shown(C, Some(far)), [Do::Prove(C, A)]);
            let mut out = Vec::new();
            agent.pairing.tried(C, (9, 9), true, &mut out);
            assert_eq!(out, []);
            agent.pairing.tried(C, A, leads, &mut out);
            match leads {
                true => assert_eq!(out, [Do::Pair(A, C)]),
                false => assert!(matches!(out[..], [Do::Refuse(C, _), Do::Refuse(A, _)])),
            }
            assert!(agent.is_empty());
        }
        // The socket is of another namespace than its program.
        let mut agent = Agent::default();
        agent.ask(A, 5, 80);
        agent.ask(C, 80, 5);
        agent.shown(A, Some(facts(1, 5, 80)));
        let other = Facts { namespace: 3, ..facts(1, 80, 5) };
        assert!(matches!(agent.shown(C, Some(other))[..], [Do::Refuse(..), Do::Refuse(..)]));
        // Users that may share memory in one namespace.
        let mut agent = Agent::default();
        agent.ask(A, 5, 80);
        assert!(matches!(agent.ask((2, FAR), 80, 5)[..], [Do::Refuse(..)]));
    }

    #[test]
    fn pairing__a_path_is_tried_for_a_moment_only() {
        let mut agent = Agent::default();
        agent.ask(A, 5, 80);
        agent.ask(C, 80, 5);
        agent.shown(A, Some(facts(1, 5, 80)));
        agent.shown(C, Some(Facts { namespace: 2, ..facts(1, 80, 5) }));
        let mut out = Vec::new();
        agent.pairing.on_time(HELD_NS + 1, &mut out);
        assert!(matches!(out[..], [Do::Refuse(..), Do::Refuse(..)]), "{out:?}");
        agent.pairing.tried(C, A, true, &mut out);
        assert!(out.len() == 2 && agent.is_empty());
    }

    #[test]
    fn pairing__users_differ_only_where_they_may() {
        let mut agent = Agent::default();
        agent.ask(A, 5, 80);
        let other = (200, 1);
        assert!(matches!(agent.ask(other, 80, 5)[..], [Do::Refuse(end, _)] if end == other));
        assert_eq!(agent.ask(B, 80, 5), [Do::Call(A), Do::Call(B)]);
    }

    #[test]
    fn pairing__a_socket_is_held_for_a_moment_only() {
        let mut agent = Agent::both_called();
        agent.shown(A, Some(facts(1, 5, 80)));
        let mut out = Vec::new();
        agent.pairing.on_time(HELD_NS, &mut out);
        assert_eq!(out, []);
        agent.pairing.on_time(HELD_NS + 1, &mut out);
        assert!(matches!(out[..], [Do::Refuse(A, _), Do::Refuse(B, _)]), "{out:?}");
        assert!(agent.is_empty());
    }

    #[test]
    fn pairing__an_end_that_goes_takes_its_call_along() {
        let mut agent = Agent::both_called();
        let mut out = Vec::new();
        agent.pairing.gone(A.0, &mut out);
        assert!(matches!(out[..], [Do::Refuse(B, _)]));
        assert!(agent.is_empty());
        // The end shows its socket after that: the socket is not held.
        assert!(matches!(agent.shown(A, Some(facts(1, 5, 80)))[..], [Do::Refuse(A, _)]));
    }

    #[test]
    fn pairing__asks_are_bounded_for_a_user() {
        let mut agent = Agent::default();
        for port in 0..ASKS_OF_USER as u64 {
            assert_eq!(agent.ask((1, port), port as u16, 80), []);
        }
        // The ask that has waited longest makes room for a new one, whose other end comes then.
        let new = (1, 1 << 40);
        assert_eq!(agent.ask(new, 9999, 80), [Do::Refuse((1, 0), TOO_MANY)]);
        assert_eq!(agent.ask(B, 80, 9999), [Do::Call(new), Do::Call(B)]);
        let mut out = Vec::new();
        agent.pairing.on_time(ASK_NS + 1, &mut out);
        assert_eq!(out.len(), ASKS_OF_USER + 1);
        assert!(agent.is_empty());
    }
}

//! Messages of programs to names, from agent to agent: cut into parts, sent again until the other
//! agent says what became of them, delivered once.
//!
//! The receiving agent answers each part by those that it has, and the last by the outcome, which
//! it remembers, so that a part that comes again delivers nothing twice. Each part says which
//! messages its sender still waits for: outcomes of earlier ones are forgotten, and parts of them
//! dropped. An agent that has to remember too many takes no further message of that sender, which
//! gets [`Outcome::Overload`]. Like `weft-names` this does no I/O and reads no clock.

use crate::local::MAIL_MAX;
use crate::share;
use crate::tree::{TreeMail, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use weft_core::Instant;
use weft_names::share::has_share;
use weft_names::wire::{Reader, WireError, Writer};
use weft_names::{HostId, Life, Owner};
use weft_sys::user::payer;

/// Longest part.
const PART: usize = 1300;
/// Most parts: those of the longest message, with the hosts to which it is passed on.
const PARTS: usize = 64;
/// Time after which parts go again, at first; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// The longest such time.
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// Time after which a message comes back, if the other agent is silent.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time of a message over a tree, of which the other agent says that it waits for others.
const WHOLE: Duration = Duration::from_secs(120);
/// Messages under way; one user has at most half of what others leave.
const OUT_MAX: usize = 1024;
/// Messages of which parts have come, or whose outcome is not known; one agent has at most half of
/// what others leave, and one user at most half of what the others of its agent leave.
const IN_MAX: usize = 1024;
/// Time for which parts of a message are kept.
const KEPT: Duration = Duration::from_secs(15);
/// Outcomes that are remembered; those of one agent take at most half of what others leave.
const OUTCOMES_MAX: usize = 16_384;
/// Time after which nobody asks for an outcome any more.
const ASKED: Duration = Duration::from_secs(130);
/// Time between two looks for outcomes that nobody asks for.
const SWEEP: Duration = Duration::from_secs(1);

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The owner of the name has it.
    Delivered = 1,
    /// The owner, or its claim, is gone.
    Vanished = 2,
    /// The owner does not read, or the agent has too many messages.
    Overload = 3,
    /// The host is lost, or its agent is silent.
    Silent = 4,
    /// The owner did not ask for messages when it claimed the name.
    Deaf = 5,
}

impl Outcome {
    pub(crate) fn of(number: u8) -> Option<Outcome> {
        use Outcome::{Deaf, Delivered, Overload, Silent, Vanished};
        [Delivered, Vanished, Overload, Silent, Deaf].into_iter().find(|o| *o as u8 == number)
    }

    /// Returns the reason for people.
    pub fn text(self) -> &'static str {
        match self {
            Outcome::Delivered => "delivered",
            Outcome::Vanished => "the owner of the name ended before it had the message",
            Outcome::Overload => "the owner of the name does not read its messages",
            Outcome::Silent => "the host of the name's owner does not answer",
            Outcome::Deaf => {
                "its owner takes no messages: it claims the name without (`weft names claim \
                 --messages`, `Spec::messages`)"
            }
        }
    }
}

/// The receiver of a message: a claim of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The agent of the host.
    pub agent: SocketAddr,
    /// The life of that agent.
    pub life: Life,
    /// Number of the claim; [`PASS_ON`] and [`ENDS`] are the agent itself.
    pub claim: u64,
}

/// In the place of a claim: the agent has to pass the message on.
pub const PASS_ON: u64 = 0;
/// In the place of a claim: the message has the ends of earlier ones ([`crate::taken`]).
pub const ENDS: u64 = u64::MAX;

/// Types of the messages.
mod kind {
    pub const PART: u8 = 1;
    pub const STATE: u8 = 2;
}

struct Outgoing {
    to: Receiver,
    from: Owner,
    payload: Vec<u8>,
    /// A bit for each part that has come.
    have: u64,
    tries: u32,
    next: Instant,
    end: Instant,
    /// The delivery ends at this time, whatever the other agent says.
    last: Instant,
}

struct Incoming {
    user: u32,
    parts: Vec<Option<Vec<u8>>>,
    since: Instant,
}

/// The head of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartHead {
    parts: u8,
    part: u8,
    id: u64,
    claim: u64,
    life: Life,
    from: Owner,
    /// The number before the sender's first one, drawn when it started.
    first: u64,
    /// The least number of a message to this agent that the sender waits for.
    floor: u64,
}

/// Outcomes of messages of one agent.
#[derive(Default)]
struct Remembered {
    first: u64,
    floor: u64,
    outcomes: BTreeMap<u64, (Verdict, Instant)>,
}

/// The end of a message whose receiver is silent.
const SILENT: Verdict = Verdict { outcome: Outcome::Silent, host: HostId(0) };

/// A message that came whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its number at the agent that sent it.
    pub id: u64,
    /// The parts in which it came.
    pub parts: u8,
    /// The claim that it is for, or [`PASS_ON`], or [`ENDS`].
    pub claim: u64,
    /// The life in which the claim is numbered.
    pub life: Life,
    /// The sender.
    pub from: Owner,
    /// The message.
    pub payload: Vec<u8>,
}

/// The messages of an agent.
pub struct Post {
    first: u64,
    next: u64,
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<(SocketAddr, u64), Incoming>,
    done: BTreeMap<SocketAddr, Remembered>,
    /// Outcomes in all of these.
    remembered: usize,
    swept: Instant,
    /// Messages that are whole, and whose outcome is not known yet, with their users.
    pending: BTreeMap<(SocketAddr, u64), u32>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    outcomes: VecDeque<(u64, Verdict)>,
    /// Messages begun.
    pub begun: u64,
    /// Messages that were malformed.
    pub malformed: u64,
}

fn parts_of(len: usize) -> usize {
    len.div_ceil(PART).max(1)
}

impl Post {
    /// Makes it without messages. `first` is drawn, so that an agent that starts again does not use
    /// numbers of before.
    pub fn new(first: u64) -> Post {
        // Numbers never wrap.
        let first = first >> 1;
        Post {
            first,
            next: first,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            done: BTreeMap::new(),
            remembered: 0,
            swept: Instant(0),
            pending: BTreeMap::new(),
            out: VecDeque::new(),
            outcomes: VecDeque::new(),
            begun: 0,
            malformed: 0,
        }
    }

    /// Sends a message to a claim of another host. Returns its number; `None`: too many are under
    /// way, or it is too long.
    pub fn send(
        &mut self,
        now: Instant,
        to: Receiver,
        from: Owner,
        payload: Vec<u8>,
    ) -> Option<u64> {
        match payload.len() > MAIL_MAX {
            true => None,
            false => self.begin(now, to, from, payload),
        }
    }

    /// Sends a message to an agent that passes it on.
    pub fn pass_on(
        &mut self,
        now: Instant,
        to: Receiver,
        from: Owner,
        mail: TreeMail,
    ) -> Option<u64> {
        self.begin(now, to, from, mail.encode())
    }

    /// Sends a message that an agent makes itself. Such messages may be longer by a head.
    pub fn begin(
        &mut self,
        now: Instant,
        to: Receiver,
        from: Owner,
        payload: Vec<u8>,
    ) -> Option<u64> {
        let own = share::count(from.user, self.outgoing.values().map(|m| m.from.user));
        let is_admitted = share::admits(from.user, own, self.outgoing.len(), OUT_MAX);
        if !is_admitted || payload.len() > PARTS * PART {
            return None;
        }
        self.begun += 1;
        self.next += 1;
        let id = self.next;
        let (end, last) = (now + TIMEOUT, now + WHOLE);
        let message = Outgoing { to, from, payload, have: 0, tries: 0, next: now, end, last };
        self.outgoing.insert(id, message);
        self.transmit(now, id);
        Some(id)
    }

    /// Sends the parts that have not come.
    fn transmit(&mut self, now: Instant, id: u64) {
        let Some(agent) = self.outgoing.get(&id).map(|m| m.to.agent) else { return };
        let (first, mut to_agent) = (self.first, self.outgoing.iter());
        let floor = to_agent.find(|(_, m)| m.to.agent == agent).map_or(id, |(id, _)| *id);
        let Some(m) = self.outgoing.get_mut(&id) else { return };
        m.next = now + (RETRY_AFTER * 2u32.pow(m.tries.min(8))).min(AGAIN_MAX);
        m.tries += 1;
        let parts = parts_of(m.payload.len());
        // Where all have come, the last one asks for the outcome.
        let is_whole = m.have.count_ones() as usize == parts;
        let is_sent = |part: usize| m.have & 1 << part == 0 || is_whole && part + 1 == parts;
        for part in (0..parts).filter(|part| is_sent(*part)) {
            let end = ((part + 1) * PART).min(m.payload.len());
            let mut to = Writer::default();
            to.bytes(&[kind::PART, parts as u8, part as u8, 0]);
            to.value(&id);
            to.value(&m.to.claim);
            to.value(&m.to.life);
            to.value(&m.from.user);
            to.value(&m.from.process);
            to.value(&m.from.serial);
            to.value(&first);
            to.value(&floor);
            to.bytes(&m.payload[part * PART..end]);
            self.out.push_back((m.to.agent, to.0));
        }
    }

    /// Takes a message of another agent. Returns a message that is whole: [`Post::answer`]
    /// says what became of it, at once or after [`Post::hold`].
    pub fn receive(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Option<Letter> {
        let taken = match bytes.first() {
            Some(&kind::PART) => self.on_part(now, from, bytes),
            Some(&kind::STATE) => self.on_state(now, from, bytes).map(|()| None),
            _ => Err(WireError::Type { found: 0 }),
        };
        self.malformed += u64::from(taken.is_err());
        taken.unwrap_or_default()
    }

    fn on_part(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<Option<Letter>, WireError> {
        let mut rest = Reader(bytes);
        let [_, parts, part, pad] = *rest.bytes(4)? else { return Err(WireError::Short) };
        let head = PartHead {
            parts,
            part,
            id: rest.value()?,
            claim: rest.value()?,
            life: rest.value()?,
            from: Owner { user: rest.value()?, process: rest.value()?, serial: rest.value()? },
            first: rest.value()?,
            floor: rest.value()?,
        };
        let is_last = part.checked_add(1) == Some(parts);
        let is_whole = is_last && rest.0.len() <= PART || rest.0.len() == PART;
        if pad != 0 || part >= parts || usize::from(parts) > PARTS || !is_whole {
            return Err(WireError::Value { name: "part" });
        }
        if head.floor > head.id || head.first >= head.id {
            return Err(WireError::Value { name: "floor" });
        }
        let Some(known) = self.advance(now, from, &head) else { return Ok(None) };
        if let Some((verdict, _)) = known.outcomes.get(&head.id) {
            let Verdict { outcome, host } = *verdict;
            self.state(from, head.id, outcome as u8, host.0);
            return Ok(None);
        }
        let has_place = has_share(known.outcomes.len(), self.remembered, OUTCOMES_MAX);
        let key = (from, head.id);
        if self.pending.contains_key(&key) {
            self.state(from, head.id, 0, u64::MAX >> (64 - u32::from(parts)));
            return Ok(None);
        }
        self.incoming.retain(|_, m| now.since(m.since) < KEPT);
        let is_full = self.is_full(from, head.from.user);
        if !self.incoming.contains_key(&key) && (is_full || !has_place) {
            self.state(from, head.id, Outcome::Overload as u8, 0);
            return Ok(None);
        }
        let user = head.from.user;
        let fresh = || Incoming { user, parts: vec![None; parts.into()], since: now };
        let message = self.incoming.entry(key).or_insert_with(fresh);
        if message.parts.len() != usize::from(parts) {
            return Err(WireError::Value { name: "parts" });
        }
        message.parts[usize::from(part)] = Some(rest.0.to_vec());
        let came = message.parts.iter().enumerate().filter(|(_, p)| p.is_some());
        let have = came.fold(0u64, |sum, (at, _)| sum | 1 << at);
        if have.count_ones() as usize != message.parts.len() {
            self.state(from, head.id, 0, have);
            return Ok(None);
        }
        let Some(message) = self.incoming.remove(&key) else { return Ok(None) };
        let payload = message.parts.into_iter().flatten().flatten().collect();
        let PartHead { claim, life, from: owner, .. } = head;
        self.pending.insert(key, user);
        Ok(Some(Letter { id: head.id, parts, claim, life, from: owner, payload }))
    }

    /// True if no further message of a user is taken from an agent.
    fn is_full(&self, from: SocketAddr, user: u32) -> bool {
        let parts = self.incoming.iter().map(|((of, _), message)| (*of, message.user));
        let all = parts.chain(self.pending.iter().map(|((of, _), user)| (*of, *user)));
        let (mut of_all, mut of_agent, mut of_user) = (0, 0, 0);
        for (agent, sender) in all {
            of_all += 1;
            of_agent += usize::from(agent == from);
            of_user += usize::from(agent == from && payer(sender) == payer(user));
        }
        !has_share(of_agent, of_all, IN_MAX) || !has_share(of_user, of_agent, IN_MAX / 2)
    }

    /// Forgets the outcomes of messages that their sender has ended, and returns the others.
    /// `None`: the message itself is one of them.
    fn advance(
        &mut self,
        now: Instant,
        from: SocketAddr,
        head: &PartHead,
    ) -> Option<&mut Remembered> {
        self.sweep(now);
        let known = self.done.entry(from).or_default();
        let before = known.outcomes.len();
        if known.first != head.first {
            // The agent has started again.
            *known = Remembered { first: head.first, ..Remembered::default() };
        }
        if head.floor > known.floor {
            known.floor = head.floor;
            known.outcomes = known.outcomes.split_off(&head.floor);
        }
        self.remembered -= before - known.outcomes.len();
        (head.id >= known.floor).then_some(known)
    }

    /// Forgets outcomes that nobody asks for any more: of agents that send nothing further.
    fn sweep(&mut self, now: Instant) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let mut left = 0;
        for known in self.done.values_mut() {
            known.outcomes.retain(|_, (_, at)| now.since(*at) < ASKED);
            left += known.outcomes.len();
        }
        self.remembered = left;
    }

    /// Tells an agent that the outcome of its message comes later.
    pub fn hold(&mut self, to: SocketAddr, letter: &Letter) {
        self.state(to, letter.id, 0, u64::MAX >> (64 - u32::from(letter.parts)));
    }

    /// Answers a message of another agent.
    pub fn answer(&mut self, now: Instant, to: SocketAddr, id: u64, verdict: Verdict) {
        self.pending.remove(&(to, id));
        if let Some(known) = self.done.get_mut(&to).filter(|known| id >= known.floor) {
            let before = known.outcomes.insert(id, (verdict, now));
            self.remembered += usize::from(before.is_none());
        }
        self.state(to, id, verdict.outcome as u8, verdict.host.0);
    }

    /// Tells a sender what has come of its message.
    fn state(&mut self, to: SocketAddr, id: u64, outcome: u8, have: u64) {
        let mut bytes = Writer::default();
        bytes.bytes(&[kind::STATE, outcome, 0, 0]);
        bytes.value(&id);
        bytes.value(&have);
        self.out.push_back((to, bytes.0));
    }

    fn on_state(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<(), WireError> {
        let mut rest = Reader(bytes);
        let [_, outcome, 0, 0] = *rest.bytes(4)? else { return Err(WireError::Reserved) };
        let (id, have): (u64, u64) = (rest.value()?, rest.value()?);
        if !rest.0.is_empty() {
            return Err(WireError::Long);
        }
        let Some(m) = self.outgoing.get_mut(&id).filter(|m| m.to.agent == from) else {
            return Ok(());
        };
        match Outcome::of(outcome) {
            Some(outcome) => self.finish(id, Verdict { outcome, host: HostId(have) }),
            None => {
                m.have |= have;
                if m.to.claim == 0 {
                    // The message is there, and waits for others.
                    m.end = (now + TIMEOUT).min(m.last);
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, id: u64, verdict: Verdict) {
        if self.outgoing.remove(&id).is_some() {
            self.outcomes.push_back((id, verdict));
        }
    }

    /// Returns messages to a host that is gone.
    pub fn host_gone(&mut self, agent: SocketAddr) {
        let to = self.outgoing.iter().filter(|(_, m)| m.to.agent == agent);
        let ids: Vec<u64> = to.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.finish(id, SILENT));
        // Nobody asks for these any more. Outcomes are remembered: the host may return.
        self.pending.retain(|(from, _), _| *from != agent);
    }

    /// Sends again what is due, and gives up what nobody answers.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = self.outgoing.iter().filter(|(_, m)| m.next <= now);
        let due: Vec<(u64, bool)> = due.map(|(id, m)| (*id, m.end <= now)).collect();
        for (id, is_over) in due {
            match is_over {
                true => self.finish(id, SILENT),
                false => self.transmit(now, id),
            }
        }
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.outgoing.values().map(|m| m.next).min()
    }

    /// Takes a message to another agent.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// Takes the outcome of a message that was sent.
    pub fn poll_outcome(&mut self) -> Option<(u64, Verdict)> {
        self.outcomes.pop_front()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_link::rng::Rng;

    const MS: u64 = 1_000_000;

    fn agent(n: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, n], 7117))
    }

    /// Sends messages of these lengths through a network that loses and doubles. Returns those that
    /// were delivered, and the outcomes.
    fn run(lens: &[usize], seed: u64, loss: u64) -> (Vec<usize>, Vec<Outcome>) {
        let (mut posts, mut rng) = ([Post::new(1), Post::new(9)], Rng::new(seed));
        let (mut now, mut got, mut outcomes) = (Instant(0), Vec::new(), Vec::new());
        let life = Life { incarnation: 1, nonce: 2 };
        for len in lens {
            let payload = (0..*len).map(|at| at as u8).collect();
            let to = Receiver { agent: agent(1), life, claim: 3 };
            posts[0].send(now, to, Owner::default(), payload).unwrap();
        }
        while outcomes.len() < lens.len() {
            now = Instant(now.0 + MS);
            for side in 0..2 {
                posts[side].handle_timeout(now);
                let out: Vec<_> = std::iter::from_fn(|| posts[side].poll_transmit()).collect();
                for (_, bytes) in out {
                    let copies = if rng.below(100) < loss { 0 } else { 1 + rng.below(2) };
                    for _ in 0..copies {
                        let from = agent(side as u8);
                        let Some(letter) = posts[1 - side].receive(now, from, &bytes) else {
                            continue;
                        };
                        assert_eq!((letter.claim, letter.life), (3, life));
                        let bytes = &letter.payload;
                        assert!(bytes.iter().enumerate().all(|(at, b)| *b == at as u8));
                        got.push(bytes.len());
                        let (outcome, host) = (Outcome::Delivered, HostId(0));
                        posts[1 - side].answer(now, from, letter.id, Verdict { outcome, host });
                    }
                }
            }
            outcomes.extend(std::iter::from_fn(|| posts[0].poll_outcome()).map(|(_, v)| v.outcome));
        }
        got.sort();
        (got, outcomes)
    }

    #[test]
    fn send__each_message_is_delivered_once_over_a_bad_network() {
        let lens = [0, 1, PART, PART + 1, MAIL_MAX];
        for seed in 0..20 {
            let (got, outcomes) = run(&lens, seed, 30);
            assert_eq!(got, lens, "seed {seed}");
            assert!(outcomes.iter().all(|o| *o == Outcome::Delivered));
        }
    }

    #[test]
    fn send__comes_back_without_an_answer_or_if_the_host_is_gone() {
        let to = Receiver { agent: agent(1), life: Life::default(), claim: 3 };
        let mut post = Post::new(1);
        let send = |post: &mut Post, at| post.send(at, to, Owner::default(), vec![1]).unwrap();
        let id = send(&mut post, Instant(0));
        post.host_gone(agent(1));
        assert_eq!(post.poll_outcome(), Some((id, SILENT)));
        let id = send(&mut post, Instant(0));
        while let Some(at) = post.next_timeout() {
            post.handle_timeout(at);
        }
        assert_eq!(post.poll_outcome(), Some((id, SILENT)));
    }

    /// Returns what an agent says of a message.
    fn state(id: u64, outcome: u8, have: u64) -> Vec<u8> {
        let mut bytes = Writer::default();
        bytes.bytes(&[kind::STATE, outcome, 0, 0]);
        bytes.value(&id);
        bytes.value(&have);
        bytes.0
    }

    #[test]
    fn send__comes_back_from_an_agent_that_says_for_ever_that_others_are_to_answer() {
        let mut post = Post::new(1);
        let (life, claim) = (Life::default(), 0);
        let to = Receiver { agent: agent(1), life, claim };
        let id = post.begin(Instant(0), to, Owner::default(), vec![1]).unwrap();
        while let Some(at) = post.next_timeout() {
            assert!(at <= Instant(0) + WHOLE + AGAIN_MAX, "it goes on at {at:?}");
            post.handle_timeout(at);
            post.receive(at, agent(1), &state(id, 0, 1));
        }
        assert_eq!(post.poll_outcome(), Some((id, SILENT)));
    }

    /// Hands all that a side has to send to the other one, which delivers what is whole. Returns
    /// how many messages were delivered.
    fn deliver(now: Instant, posts: &mut [Post; 2]) -> usize {
        let mut delivered = 0;
        for side in [0, 1] {
            while let Some((_, bytes)) = posts[side].poll_transmit() {
                let from = agent(side as u8);
                if let Some(letter) = posts[1 - side].receive(now, from, &bytes) {
                    delivered += 1;
                    let verdict = Verdict { outcome: Outcome::Delivered, host: HostId(0) };
                    posts[1 - side].answer(now, from, letter.id, verdict);
                }
            }
        }
        delivered
    }

    #[test]
    fn receive__a_burst_makes_no_message_come_twice_and_outcomes_are_forgotten_with_their_use() {
        let to = Receiver { agent: agent(1), life: Life::default(), claim: 3 };
        let (mut posts, now) = ([Post::new(1), Post::new(9)], Instant(MS));
        // The answer to this one is lost, so its part comes again after all others.
        let first = posts[0].send(now, to, Owner::default(), vec![1]).unwrap();
        let (_, part) = posts[0].poll_transmit().unwrap();
        let letter = posts[1].receive(now, agent(0), &part).unwrap();
        let verdict = Verdict { outcome: Outcome::Delivered, host: HostId(0) };
        posts[1].answer(now, agent(0), letter.id, verdict);
        posts[1].out.clear();
        let (mut delivered, mut refused) = (0, 0);
        for n in 0..2 * OUTCOMES_MAX {
            posts[0].send(now, to, Owner::default(), vec![2]).unwrap();
            delivered += deliver(now, &mut posts);
            while let Some((_, verdict)) = posts[0].poll_outcome() {
                refused += usize::from(verdict.outcome == Outcome::Overload);
            }
            assert_eq!(delivered + refused, n + 1);
        }
        assert!(refused > 0 && posts[1].remembered <= OUTCOMES_MAX / 2, "{refused}");
        assert!(posts[1].receive(now, agent(0), &part).is_none(), "it came twice");
        deliver(now, &mut posts);
        assert_eq!(posts[0].poll_outcome(), Some((first, verdict)));
        // With its end known, one part frees all, and a later copy is of no use.
        for _ in 0..10 * OUTCOMES_MAX {
            posts[0].send(now, to, Owner::default(), vec![2]).unwrap();
            assert_eq!(deliver(now, &mut posts), 1);
            assert!(posts[1].remembered <= 1);
        }
        assert!(posts[1].receive(now, agent(0), &part).is_none(), "it came twice");
        // An agent that starts again numbers its messages anew.
        posts[0] = Post::new(4);
        posts[0].send(now, to, Owner::default(), vec![3]).unwrap();
        assert_eq!(deliver(now, &mut posts), 1);
    }

    #[test]
    fn receive__outcomes_for_one_agent_leave_room_for_others_and_end_with_time() {
        let to = Receiver { agent: agent(1), life: Life::default(), claim: 3 };
        let (mut post, mut now) = (Post::new(1), Instant(MS));
        let verdict = Verdict { outcome: Outcome::Delivered, host: HostId(0) };
        // Agents that never say that they know an outcome.
        let send = |post: &mut Post, now, from: u8, id: u64| {
            let mut sender = Post::new(2 * id);
            sender.send(now, to, Owner::default(), vec![1]).unwrap();
            let (_, mut part) = sender.poll_transmit().unwrap();
            part[52..60].fill(0);
            part[60..68].fill(0);
            let letter = post.receive(now, agent(from), &part);
            letter.map(|letter| post.answer(now, agent(from), letter.id, verdict)).is_some()
        };
        let most = OUTCOMES_MAX as u64;
        let greedy = (1..most).filter(|id| send(&mut post, now, 7, *id)).count();
        assert!(greedy == OUTCOMES_MAX / 2 && send(&mut post, now, 8, 1), "{greedy}");
        assert!(!send(&mut post, now, 7, most));
        now = now + ASKED;
        assert!(send(&mut post, now, 7, most) && post.remembered == 1);
    }

    #[test]
    fn receive__hostile_bytes_are_refused_or_bounded() {
        let to = Receiver { agent: agent(1), life: Life::default(), claim: 3 };
        let (mut post, mut rng) = (Post::new(1), Rng::new(1));
        let mut genuine = vec![state(5, 1, 0), state(5, 0, 1)];
        post.send(Instant(MS), to, Owner::default(), vec![1; 2 * PART]).unwrap();
        genuine.extend(std::iter::from_fn(|| post.poll_transmit()).map(|(_, bytes)| bytes));
        for n in 0..20_000u64 {
            let mut bytes = genuine[n as usize % genuine.len()].clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len().min(72) as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            let cut = (rng.below(8) / 7 * rng.below(100)) as usize;
            bytes.truncate(bytes.len().saturating_sub(cut));
            let (now, from) = (Instant(MS * n), agent(rng.below(9) as u8));
            if let Some(letter) = post.receive(now, from, &bytes) {
                assert!(letter.payload.len() <= PARTS * PART);
                let verdict = Verdict { outcome: Outcome::Delivered, host: HostId(0) };
                post.answer(now, from, letter.id, verdict);
            }
            assert!(post.incoming.len() <= IN_MAX && post.pending.is_empty());
            let remembered = post.done.values().map(|known| known.outcomes.len()).sum::<usize>();
            assert!(remembered <= OUTCOMES_MAX && remembered == post.remembered);
        }
        assert!(post.malformed > 1000, "{}", post.malformed);
    }

    #[test]
    fn send__one_user_and_one_agent_leave_room_for_others() {
        let mut post = Post::new(1);
        let to = Receiver { agent: agent(1), life: Life::default(), claim: 3 };
        let send = |post: &mut Post, user| {
            let from = Owner { user, ..Owner::default() };
            post.send(Instant(0), to, from, vec![1]).is_some()
        };
        // An eighth is kept for root and the user of this process.
        let greedy = (0..2 * OUT_MAX).filter(|_| send(&mut post, 20_001)).count();
        assert!(greedy == OUT_MAX / 16 * 7 && send(&mut post, 20_002), "{greedy}");
        // First parts of messages of two, the rest of which never comes.
        let mut sender = Post::new(1);
        sender.send(Instant(0), to, Owner::default(), vec![1; 2 * PART]).unwrap();
        let (_, first) = sender.poll_transmit().unwrap();
        let mut part = |from: SocketAddr, user: u32, id: u64| {
            let mut bytes = first.clone();
            bytes[4..12].copy_from_slice(&id.to_le_bytes());
            // Behind the claim and the life.
            bytes[36..40].copy_from_slice(&user.to_le_bytes());
            post.out.clear();
            assert!(post.receive(Instant(0), from, &bytes).is_none());
            post.out.back().is_some_and(|(_, state)| state[1] == 0)
        };
        let mut ids = 0..;
        let mut many =
            |from, user| ids.by_ref().take(2 * IN_MAX).filter(|id| part(from, user, *id)).count();
        assert_eq!(many(agent(2), 1000), IN_MAX / 4);
        assert_eq!(many(agent(2), 1001), IN_MAX / 8, "another user of that agent");
        assert!(many(agent(3), 1000) > IN_MAX / 8, "a user of another agent");
    }
}

#![allow(non_snake_case)]

use super::*;
use crate::mail::{Post, Receiver, ENDS};
use crate::tree::Verdict;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weft_core::Instant;
use weft_link::rng::Rng;
use weft_names::{Life, Owner};

const MS: u64 = 1_000_000;
const CLAIM: u64 = 3;
const PROGRAM: u64 = 9;

fn agent(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 7117))
}

fn host(n: u8) -> HostId {
    HostId(u64::from(n) + 1)
}

/// A program on the first host that sends to one on the second, which takes messages until it ends.
struct World {
    now: Instant,
    rng: Rng,
    posts: [Post; 2],
    open: Open,
    unread: Unread,
    /// The connection of the owner: requests by which messages were sent.
    given: VecDeque<u64>,
    taken: Vec<u64>,
    is_there: bool,
    request_of: BTreeMap<u64, u64>,
    /// Requests whose message is in the connection of its owner.
    sent: BTreeSet<u64>,
    returned: Vec<u64>,
    refused: Vec<u64>,
    ends: BTreeMap<u64, Vec<End>>,
    most_unread: usize,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            now: Instant(MS),
            rng: Rng::new(seed),
            posts: [Post::new(100), Post::new(7)],
            open: Open::default(),
            unread: Unread::default(),
            given: VecDeque::new(),
            taken: Vec::new(),
            is_there: true,
            request_of: BTreeMap::new(),
            sent: BTreeSet::new(),
            returned: Vec::new(),
            refused: Vec::new(),
            ends: BTreeMap::new(),
            most_unread: 0,
        }
    }

    fn life() -> Life {
        Life { incarnation: 1, nonce: 1 }
    }

    fn send(&mut self, request: u64) -> bool {
        let to = Receiver { agent: agent(1), life: World::life(), claim: CLAIM };
        if !self.open.has_room(1) {
            return false;
        }
        let payload = request.to_le_bytes().to_vec();
        let Some(number) = self.posts[0].send(self.now, to, Owner::default(), payload) else {
            return false;
        };
        self.open.begin(1, request, host(1), Mark { is_tree: false, number });
        self.request_of.insert(number, request);
        true
    }

    /// The owner takes messages.
    fn take(&mut self, count: usize) {
        let count = count.min(self.given.len());
        self.taken.extend(self.given.drain(..count));
        self.unread.took(PROGRAM, count as u32);
    }

    fn end_owner(&mut self) {
        self.is_there = false;
        self.given.clear();
        self.unread.ended(PROGRAM);
    }

    fn tell_ends(&mut self) {
        let mut ends: Vec<End> = Vec::new();
        while let Some((to, end)) = self.unread.poll_end() {
            assert_eq!(to, host(0));
            ends.push(end);
        }
        for part in ends.chunks(ENDS_MAX) {
            let to = Receiver { agent: agent(0), life: World::life(), claim: ENDS };
            let payload = End::encode(part);
            let number = self.posts[1].begin(self.now, to, Owner::default(), payload).unwrap();
            self.ends.insert(number, part.to_vec());
        }
    }

    fn on_letter(&mut self, at: usize, letter: &crate::mail::Letter) {
        let outcome = match letter.claim {
            ENDS => {
                for end in End::parse(&letter.payload).unwrap() {
                    if let Some((program, request)) = self.open.on_end(host(1), end) {
                        assert_eq!((program, end.outcome), (1, Outcome::Vanished));
                        self.returned.push(request);
                    }
                }
                Outcome::Delivered
            }
            _ if !self.is_there => Outcome::Vanished,
            _ if !self.unread.has_room(PROGRAM, 0) => Outcome::Overload,
            _ => {
                let request = u64::from_le_bytes(letter.payload[..].try_into().unwrap());
                self.given.push_back(request);
                self.most_unread = self.most_unread.max(self.given.len());
                let mark = Mark { is_tree: false, number: letter.id };
                self.unread.give(PROGRAM, (host(0), 0), mark, letter.payload.len());
                Outcome::Delivered
            }
        };
        let verdict = Verdict { outcome, host: HostId(0) };
        self.posts[at].answer(self.now, agent(1 - at as u8), letter.id, verdict);
    }

    /// Carries all datagrams, of which some are lost and some doubled, for a millisecond.
    fn step(&mut self, loss: u64) {
        self.now = Instant(self.now.0 + MS);
        self.tell_ends();
        for side in 0..2 {
            self.posts[side].handle_timeout(self.now);
            let out: Vec<_> = std::iter::from_fn(|| self.posts[side].poll_transmit()).collect();
            for (_, bytes) in out {
                let copies = if self.rng.below(100) < loss { 0 } else { 1 + self.rng.below(2) };
                for _ in 0..copies {
                    let (now, from) = (self.now, agent(side as u8));
                    if let Some(letter) = self.posts[1 - side].receive(now, from, &bytes) {
                        self.on_letter(1 - side, &letter);
                    }
                }
            }
        }
        while let Some((number, verdict)) = self.posts[0].poll_outcome() {
            let request = self.request_of.remove(&number).unwrap();
            match verdict.outcome {
                Outcome::Delivered => drop(self.sent.insert(request)),
                _ => {
                    self.open.forget(request);
                    self.refused.push(request);
                }
            }
        }
        while let Some((number, verdict)) = self.posts[1].poll_outcome() {
            assert_eq!(verdict.outcome, Outcome::Delivered);
            self.ends.remove(&number);
        }
    }
}

#[test]
fn open__each_message_is_taken_or_comes_back_with_its_owner_once_under_loss() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        let mut next = 0;
        for round in 0..120 {
            for _ in 0..world.rng.below(20) {
                next += u64::from(world.send(next));
            }
            let takes = world.rng.below(12) as usize;
            world.take(takes);
            if round == 100 {
                world.end_owner();
            }
            world.step(30);
        }
        while !world.open.requests.is_empty() || !world.request_of.is_empty() {
            world.step(30);
        }
        assert!(world.most_unread <= UNREAD_MAX && next > 500, "seed {seed}: {next}");
        let mut all = [&world.taken[..], &world.returned, &world.refused].concat();
        all.sort();
        assert_eq!(all, (0..next).collect::<Vec<u64>>(), "seed {seed}");
        assert!(!world.returned.is_empty(), "seed {seed}: it ended with messages unread");
        assert!(world.open.of_mark.is_empty() && world.open.of_program.is_empty());
    }
}

#[test]
fn open__a_program_with_too_many_messages_unread_sends_no_further_one() {
    let mut world = World::new(1);
    let mut next = 0;
    while world.send(next) {
        next += 1;
        world.step(0);
    }
    assert_eq!(next, OPEN_MAX as u64);
    assert!(world.open.has_room(2), "another program sends");
    world.take(10);
    (0..3).for_each(|_| world.step(0));
    assert!((0..10).all(|n| world.send(next + n)) && !world.send(next + 10));
}

#[test]
fn open__a_lost_host_returns_what_its_programs_did_not_take() {
    let mut world = World::new(1);
    (0..5).for_each(|n| assert!(world.send(n)));
    world.step(0);
    world.take(2);
    (0..3).for_each(|_| world.step(0));
    let returned = world.open.host_gone(host(1));
    assert_eq!(returned, [(1, 2), (1, 3), (1, 4)]);
    assert!(world.open.host_gone(host(1)).is_empty());
}

#[test]
fn unread__a_message_to_all_ends_when_the_last_owner_of_the_host_has_taken_it() {
    let (mark, mut unread) = (Mark { is_tree: true, number: 5 }, Unread::default());
    let outcome = |outcome| Some((host(0), End { mark, outcome }));
    unread.given_to_all(host(0), mark);
    assert_eq!(unread.poll_end(), outcome(Outcome::Delivered), "nobody was given it");
    (1..=2).for_each(|program| unread.give(program, (host(0), 0), mark, 1));
    unread.given_to_all(host(0), mark);
    unread.ended(1);
    assert_eq!(unread.poll_end(), None);
    unread.took(2, 1);
    assert_eq!(unread.poll_end(), outcome(Outcome::Vanished));
    assert!(unread.trees.is_empty() && unread.poll_end().is_none());
}

#[test]
fn parse__what_are_no_ends_is_refused() {
    let end = |number, outcome| End { mark: Mark { is_tree: number == 2, number }, outcome };
    let ends = [end(1, Outcome::Delivered), end(2, Outcome::Vanished)];
    let bytes = End::encode(&ends);
    assert_eq!(End::parse(&bytes).unwrap(), ends);
    (0..bytes.len()).filter(|cut| *cut != 16).for_each(|cut| {
        assert!(End::parse(&bytes[..cut]).is_err(), "{cut}");
    });
    for (at, value) in [(0, 2), (1, 0), (1, 9), (2, 1)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        assert!(End::parse(&wrong).is_err(), "{at}");
    }
    assert!(End::parse(&bytes.repeat(ENDS_MAX)).is_err());
}

/// Gives a program messages of a user as long as there is room; returns how many.
fn fill(unread: &mut Unread, user: u32, len: usize) -> usize {
    let mark = |number| Mark { is_tree: false, number };
    let has_room = |unread: &Unread| unread.has_room(PROGRAM, user);
    let give = |unread: &mut Unread, n| unread.give(PROGRAM, (host(0), user), mark(n), len);
    (0..)
        .take_while(|n| {
            has_room(unread) && {
                give(unread, *n);
                true
            }
        })
        .count()
}

#[test]
fn has_room__a_user_who_sends_all_that_goes_leaves_room_for_others() {
    // Many messages, and long ones.
    for len in [1, UNREAD_BYTES / 16] {
        let mut unread = Unread::default();
        // An eighth is kept for root and the user of this process.
        let most = UNREAD_MAX.min(UNREAD_BYTES / len) / 8 * 7;
        let first = fill(&mut unread, 20_001, len);
        let second = fill(&mut unread, 20_002, len);
        assert!(first == most / 2 && second > 0 && second <= first / 2 + 1, "{first} {second}");
        assert_eq!(fill(&mut unread, 20_001, len), 0);
        assert!(unread.has_room(PROGRAM + 1, 20_001), "of another program");
        // Messages that were taken leave room again.
        unread.took(PROGRAM, (first + second) as u32);
        assert_eq!(fill(&mut unread, 20_002, len), most / 2);
    }
}

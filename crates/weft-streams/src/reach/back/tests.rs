//! A giver and a lender whose messages are lost, doubled and reordered, and the TCP connection
//! between their ends: its bytes come once and in order, or both ends learn that some are lost.
#![allow(non_snake_case)]

use super::*;
use crate::testing::{byte, Random};
use std::collections::VecDeque;

const STEP: u64 = 5_000_000;
/// Bytes that the receiving kernel holds, and the sending one: a send waits for room there, and its
/// process lends no socket meanwhile.
const QUEUE: usize = 5000;
const ROOM: usize = 8000;

struct World {
    now: u64,
    random: Random,
    /// Chances in 100 that a message is lost, doubled and overtaken.
    faults: [u64; 3],
    /// Messages, and whether the giver's agent gets them.
    wire: VecDeque<(bool, BackContent)>,
    giver: Option<Giver>,
    lender: Option<Lender>,
    /// The time at which the other end lends its socket.
    lends: Option<u64>,
    is_lent: bool,
    /// Bytes by TCP that are on their way, and that have arrived.
    on_way: VecDeque<u8>,
    arrived: VecDeque<u8>,
    before: usize,
    ring: Vec<u8>,
    taken: Vec<u8>,
    /// Bytes that the other end sends before it lends its socket, most of them in a step.
    to_send: VecDeque<u8>,
    most: u64,
    after: usize,
    is_given: bool,
    failed: Option<bool>,
    is_put: bool,
    is_freed: bool,
    is_reset: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let mut fault = || if random.next(2) == 0 { 0 } else { random.next(50) };
        let faults = [fault(), fault(), fault()];
        let before = [0, random.next(3000)][random.next(2) as usize] as usize;
        let ring = 1 + random.next(3000) as usize;
        let after = [0, random.next(60_000)][random.next(2) as usize] as usize;
        let stream = |from: usize, n: usize| (from..from + n).map(|at| byte(at as u64));
        let most = [20, 3000][random.next(2) as usize];
        let lends = (random.next(8) > 0).then(|| random.next(3 * PATIENCE / 2));
        World {
            now: 0,
            random,
            faults,
            wire: VecDeque::new(),
            giver: Some(Giver::new(0, 9)),
            lender: None,
            lends,
            is_lent: false,
            on_way: stream(0, before).collect(),
            arrived: VecDeque::new(),
            before,
            ring: stream(before, ring).collect(),
            taken: Vec::new(),
            to_send: stream(before + ring, after).collect(),
            most,
            after,
            is_given: false,
            failed: None,
            is_put: false,
            is_freed: false,
            is_reset: false,
        }
    }

    /// The bytes that the other end has sent.
    fn all(&self) -> usize {
        self.before + self.ring.len() + self.after - self.to_send.len()
    }

    fn chance(&mut self, fault: usize) -> bool {
        self.random.next(100) < self.faults[fault]
    }

    fn tell(&mut self, to_giver: bool, what: BackContent) {
        let copies = if self.chance(0) { 0 } else { 1 + usize::from(self.chance(1)) };
        for _ in 0..copies {
            self.wire.push_back((to_giver, what.clone()));
            let n = self.wire.len();
            if self.chance(2) {
                let at = self.random.next(n as u64) as usize;
                self.wire.swap(at, n - 1);
            }
        }
    }

    fn give(&mut self, steps: Vec<GiverStep>) {
        for step in steps {
            match step {
                GiverStep::Tell(what) => self.tell(false, what),
                GiverStep::Take { is_all } => self.take(is_all),
                GiverStep::Given => self.is_given = true,
                GiverStep::Failed { is_lost } => {
                    self.failed = Some(is_lost);
                    self.is_reset |= is_lost;
                }
            }
        }
    }

    fn take(&mut self, is_all: bool) {
        let mut out = Vec::new();
        let Some(giver) = &mut self.giver else { return };
        if !self.taken.is_empty() || self.arrived.len() > self.before {
            giver.took(self.now, self.arrived.len());
            self.taken.extend(self.arrived.drain(..));
        }
        if is_all {
            assert!(self.on_way.is_empty(), "some were on their way");
            let (before, after) = self.taken.split_at(self.before.min(self.taken.len()));
            let all = [before, &self.ring, after].concat();
            giver.gathered(self.now, all, &mut out);
        }
        self.give(out);
    }

    fn lend(&mut self, steps: Vec<LenderStep>) {
        for step in steps {
            match step {
                LenderStep::Ring
                    if self.lends.is_some_and(|at| at <= self.now) && self.on_way.len() < ROOM =>
                {
                    self.is_lent = true;
                    let mut out = Vec::new();
                    if let Some(lender) = &mut self.lender {
                        lender.lent(self.now, true, &mut out);
                    }
                    self.lend(out);
                }
                LenderStep::Ring => {}
                LenderStep::SayLeft => {
                    let left = self.on_way.len() as u64;
                    self.tell(true, BackContent::Lent(left));
                }
                LenderStep::Tell(what) => self.tell(true, what),
                LenderStep::Put(bytes) => {
                    assert!(!self.is_put && self.is_lent && self.on_way.is_empty());
                    self.is_put = true;
                    self.on_way.extend(bytes);
                    self.is_freed = true;
                }
                LenderStep::Free => self.is_freed = true,
                LenderStep::Reset => (self.is_freed, self.is_reset) = (true, true),
            }
        }
    }

    fn hear(&mut self, to_giver: bool, what: &BackContent) {
        if to_giver {
            let mut out = Vec::new();
            let Some(giver) = &mut self.giver else { return };
            giver.hear(self.now, what, &mut out);
            return self.give(out);
        }
        let mut out = Vec::new();
        if matches!(what, BackContent::Lend { of: 9 }) && self.lender.is_none() && !self.is_freed {
            self.lender = Some(Lender::new(self.now));
        }
        let Some(lender) = &mut self.lender else { return };
        lender.hear(self.now, what, &mut out);
        self.lend(out);
    }

    fn step(&mut self) {
        self.now += STEP;
        if !self.is_lent {
            // The other program goes on sending meanwhile.
            let room = ROOM.saturating_sub(self.on_way.len()) as u64;
            let n = self.random.next(self.most).min(self.to_send.len() as u64).min(room) as usize;
            self.on_way.extend(self.to_send.drain(..n));
        }
        let n = (self.random.next(2000) as usize).min(self.on_way.len());
        let n = n.min(QUEUE - self.arrived.len().min(QUEUE));
        self.arrived.extend(self.on_way.drain(..n));
        for _ in 0..self.random.next(8) {
            if let Some((to_giver, what)) = self.wire.pop_front() {
                self.hear(to_giver, &what);
            }
        }
        let mut out = Vec::new();
        if let Some(giver) = &mut self.giver {
            giver.on_time(self.now, &mut out);
        }
        self.give(out);
        let mut out = Vec::new();
        if let Some(lender) = &mut self.lender {
            lender.on_time(self.now, &mut out);
        }
        self.lend(out);
    }

    /// The bytes that a program reads in the end.
    fn read(&mut self) -> Vec<u8> {
        self.arrived.extend(self.on_way.drain(..));
        self.arrived.drain(..).collect()
    }
}

/// Runs until nothing more is done; an agent may end at a step. Returns true if the bytes came.
fn run(seed: u64, dies: Option<(bool, u64)>) -> bool {
    let mut world = World::new(seed);
    if dies.is_some() {
        world.lends = Some(0);
    }
    let is_over = |world: &World| {
        let now = world.now;
        world.giver.as_ref().is_none_or(|giver| giver.is_over(now))
            && world.lender.as_ref().is_none_or(|lender| lender.is_over(now))
            && (world.wire.is_empty() || world.lender.is_none())
    };
    let mut steps = 0;
    while steps < 10 || !is_over(&world) {
        world.step();
        steps += 1;
        match dies {
            Some((true, at)) if at == steps => world.giver = None,
            Some((false, at)) if at == steps => {
                world.lender = None;
                // Its end does not lend the socket again.
                world.is_freed = true;
            }
            _ => {}
        }
        assert!(steps < 100_000, "it does not end");
    }
    if world.is_lent && world.lender.is_some() {
        assert!(world.is_freed, "the socket is kept");
    }
    let has_taken = !world.taken.is_empty();
    if world.is_given {
        let dies_after = dies.is_some_and(|(is_giver, _)| !is_giver);
        assert!(world.is_put && (!world.is_reset || dies_after));
    }
    if world.is_put && !world.is_reset {
        let right: Vec<u8> = (0..world.all() as u64).map(byte).collect();
        assert!(world.read() == right, "wrong bytes");
    } else if !world.is_reset {
        // Nothing was taken, or nobody is left who could say so: an agent died on each side.
        assert!(!has_taken || dies.is_some_and(|(is_giver, _)| is_giver && !world.is_lent));
        assert!(world.failed == Some(false) || dies.is_some_and(|(is_giver, _)| is_giver));
    }
    world.is_given
}

fn each(seeds: std::ops::Range<u64>, dies: impl Fn(u64) -> Option<(bool, u64)>) -> usize {
    let came = |seed: &u64| {
        let (seed, dies) = (*seed, dies(*seed));
        match std::panic::catch_unwind(|| run(seed, dies)) {
            Ok(came) => came,
            Err(_) => panic!("seed {seed}"),
        }
    };
    seeds.filter(came).count()
}

#[test]
fn back__bytes_come_in_order_whatever_the_network() {
    let came = each(0..300, |_| None);
    // One end in eight does not lend its socket, and one in four does so too late.
    assert!(came > 120, "{came} of 300");
}

#[test]
fn back__an_agent_that_ends_leaves_no_gap() {
    let came = each(0..300, |seed| Some((seed % 2 == 0, 1 + seed / 4)));
    assert!((20..300).contains(&came), "{came} of 300");
}

/// A giver that has taken bytes and hears nothing more says that they are lost, and one that has
/// taken none does not.
#[test]
fn giver__says_if_bytes_are_lost() {
    for has_taken in [true, false] {
        let (mut giver, mut out) = (Giver::new(0, 1), Vec::new());
        giver.hear(1, &BackContent::Lent(5), &mut out);
        assert_eq!(out, [GiverStep::Take { is_all: false }]);
        giver.took(1, usize::from(has_taken));
        out.clear();
        giver.on_time(1 + PATIENCE, &mut out);
        let what = BackContent::Over { is_lost: has_taken };
        assert_eq!(out, [GiverStep::Tell(what.clone()), GiverStep::Failed { is_lost: has_taken }]);
        // The other agent may not have heard it.
        out.clear();
        giver.hear(2 + PATIENCE, &BackContent::Lent(0), &mut out);
        assert_eq!(out, [GiverStep::Tell(what)]);
    }
}

/// Pieces of a hostile agent are no panic, and no memory beyond the bound.
#[test]
fn lender__takes_no_pieces_that_cannot_be() {
    let (mut lender, mut out) = (Lender::new(0), Vec::new());
    lender.lent(0, true, &mut out);
    for (at, total) in [(0, 0), (0, 4), (1, 9), (u32::MAX, u32::MAX), (0, u32::MAX)] {
        lender.hear(0, &BackContent::Piece { at, total, bytes: vec![0; 5] }, &mut out);
        assert!(lender.have.is_empty(), "{at} of {total}");
    }
    assert!(!out.iter().any(|step| matches!(step, LenderStep::Put(_))));
}

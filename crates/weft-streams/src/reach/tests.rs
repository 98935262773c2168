//! Two agents whose messages are lost, doubled and reordered, and a network between two ends.
#![allow(non_snake_case)]

use super::message::NUMBER;
use super::*;
use std::collections::VecDeque;

const ENDS: [End; 2] = [(7, 70), (9, 90)];
const STEP: u64 = 5_000_000;

fn agent(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + side as u8], 7447))
}

fn names(side: usize) -> Names {
    let places = [Place::v4([10, 0, 0, 1], 5), Place::v4([10, 0, 0, 2], 80)];
    Names { local: places[side], remote: places[1 - side] }
}

struct Two {
    now: u64,
    agents: [Reach; 2],
    wire: VecDeque<(usize, Between)>,
    /// The number that each end awaits.
    awaited: [Option<Number>; 2],
    joined: [Option<([Number; 2], bool)>; 2],
    random: u64,
    loss: u64,
    leads: bool,
    /// A process has the memory of each end that has gone.
    is_held: bool,
}

impl Two {
    fn new(seed: u64) -> Two {
        Two {
            now: 1,
            agents: Default::default(),
            wire: VecDeque::new(),
            awaited: [None; 2],
            joined: [None; 2],
            random: seed,
            loss: seed % 50,
            leads: true,
            is_held: false,
        }
    }

    fn chance(&mut self, of_100: u64) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % 100 < of_100
    }

    fn seeks(&mut self, side: usize, user: u32) {
        let random = (side as u64 + 1, [side as u8 + 1; NUMBER]);
        let (mut out, agents) = (Vec::new(), vec![agent(1 - side)]);
        let end = (ENDS[side], user);
        self.agents[side].seeks(self.now, end, names(side), agents, random, &mut out);
        self.act(side, out);
    }

    fn act(&mut self, side: usize, todo: Vec<HostStep>) {
        for what in todo {
            let mut out = Vec::new();
            match what {
                HostStep::Tell(to, message) => {
                    assert_eq!(to, agent(1 - side));
                    for _ in 0..1 + usize::from(self.chance(20)) {
                        if !self.chance(self.loss) {
                            self.wire.push_back((1 - side, message));
                        }
                    }
                }
                HostStep::Call(end) => self.agents[side].shown(self.now, end, 100, &mut out),
                HostStep::Send { number, awaited, .. } => {
                    self.awaited[side] = Some(awaited);
                    let is_it = self.awaited[1 - side] == Some(number);
                    if is_it && self.leads && !self.chance(self.loss) {
                        let mut out = Vec::new();
                        self.agents[1 - side].has_come(self.now, ENDS[1 - side], &mut out);
                        self.act(1 - side, out);
                    }
                }
                HostStep::Join { numbers, is_first, .. } => {
                    self.joined[side] = Some((numbers, is_first));
                }
                HostStep::Check(end) if self.is_held => assert_eq!(end, ENDS[side]),
                HostStep::Check(end) => self.agents[side].is_over(end, &mut out),
                HostStep::Drop(_) | HostStep::State(..) | HostStep::Stopped(..) => {}
            }
            self.act(side, out);
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += STEP;
            for side in 0..2 {
                let mut out = Vec::new();
                self.agents[side].on_time(self.now, &mut out);
                self.act(side, out);
            }
            for _ in 0..self.wire.len() {
                let n = self.wire.len();
                if n > 1 && self.chance(30) {
                    self.wire.swap(0, n - 1);
                }
                let Some((to, message)) = self.wire.pop_front() else { break };
                let mut out = Vec::new();
                self.agents[to].hear(self.now, agent(1 - to), &message, &mut out);
                self.act(to, out);
            }
        }
    }
}

#[test]
fn reach__both_ends_are_joined_in_spite_of_losses() {
    let mut both = 0;
    for seed in 0..300 {
        let mut two = Two::new(seed);
        two.seeks(0, 1000);
        two.run((seed % 30) as usize);
        two.seeks(1, 1000);
        two.run(200);
        if let [Some(one), Some(other)] = two.joined {
            assert!(one.0 == other.0 && one.1 != other.1, "seed {seed}");
            both += 1;
        }
        // One end alone stays by TCP; that is rare.
        two.run(10_000);
        assert!(two.agents.iter().all(Reach::is_idle), "seed {seed}");
    }
    assert!(both > 280, "{both} of 300");
}

#[test]
fn reach__not_without_a_path_and_not_another_user() {
    for (users, leads) in [([1, 2], true), ([1, 1], false)] {
        let mut two = Two::new(0);
        two.leads = leads;
        two.seeks(0, users[0]);
        two.seeks(1, users[1]);
        two.run(10_000);
        assert_eq!(two.joined, [None; 2]);
        assert!(two.agents.iter().all(|one| one.is_idle() && one.by_id.is_empty()));
    }
}

#[test]
fn reach__the_statement_of_an_end_outlives_it_for_a_while() {
    let mut two = Two::new(0);
    two.loss = 0;
    (0..2).for_each(|side| two.seeks(side, 1));
    two.run(20);
    assert!(two.joined.iter().all(Option::is_some));
    let mut out = Vec::new();
    two.agents[0].gone(two.now, ENDS[0], &mut out);
    two.agents[1].asks(ENDS[1], 3, &mut out);
    assert_eq!(out, [HostStep::Tell(agent(0), Between::Ask { of: 1, phase: 3 })]);
    let mut told = Vec::new();
    let ask = Between::Ask { of: 1, phase: 3 };
    // An agent that does not have the other end learns nothing.
    two.agents[0].hear(two.now, SocketAddr::from(([10, 0, 0, 9], 7447)), &ask, &mut told);
    assert_eq!(told, []);
    two.agents[0].hear(two.now, agent(1), &ask, &mut told);
    assert_eq!(told, [HostStep::State(ENDS[0], agent(1), 2)]);
    // A child of the program that has gone uses the connection.
    two.is_held = true;
    two.run(3 * (KEPT / STEP) as usize);
    two.agents[0].hear(two.now, agent(1), &ask, &mut told);
    assert_eq!(told, vec![HostStep::State(ENDS[0], agent(1), 2); 2]);
    two.is_held = false;
    two.run((KEPT / STEP) as usize + 2);
    assert_eq!((two.agents[0].joined(), two.agents[1].joined()), (0, 1));
}

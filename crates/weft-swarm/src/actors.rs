//! Objects that messages drive, under faults: each message has its turn once, those between two
//! objects that stay keep their order, and an object is at one rank. A death ends all runs.

use crate::cluster::{Cluster, Ends};
use crate::Report;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use weft_models::actors::balance::{Costs, Strategy};
use weft_models::actors::{Actor, ActorCause, ActorError, Actors, Array, Turn};
use weft_models::net::{Live, Net};
use weft_sim::{Env, Rng};

/// Objects of an array.
const OBJECTS: usize = 20;
/// Runs of each rank.
const RUNS: u64 = 6;

/// A message: its number, which no other has, and what it makes. One to all objects has a turn at
/// each.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    number: u64,
    /// The sender, and the number of this message among those to the same object.
    from: Option<(u32, u64)>,
    /// True if all objects get it, which then contribute to a reduction.
    to_all: bool,
    /// Messages that may follow.
    depth: u32,
    priority: i32,
}

/// The turns of objects of all ranks.
#[derive(Default)]
struct Log {
    /// Turns of each message at each object.
    turns: BTreeMap<(u64, u32), u32>,
    /// Messages that were sent: to an object, or to all.
    sent: BTreeSet<(u64, Option<u32>)>,
    /// Violations of the order between two objects.
    disordered: Vec<String>,
}

/// The values that the objects of a rank share.
struct Shared {
    log: Rc<RefCell<Log>>,
    /// True if objects move by themselves: then messages that follow them have no order.
    roams: bool,
}

/// An object that sends random messages to others.
#[derive(Debug, Serialize, Deserialize)]
struct Walker {
    /// The state of a generator of random numbers.
    random: u64,
    /// Messages that were sent to each object, and that came from each, by priority.
    sent: BTreeMap<(u32, i32), u64>,
    got: BTreeMap<(u32, i32), u64>,
    turns: u64,
}

impl Walker {
    fn new(seed: u64, index: usize) -> Walker {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index as u64) << 32 | 1;
        Walker { random, sent: BTreeMap::new(), got: BTreeMap::new(), turns: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        // The generator xorshift64 of Marsaglia (2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % bound
    }

    fn send(&mut self, depth: u32, turn: &mut Turn<'_, Walker>) {
        let to = self.below(OBJECTS as u64) as usize;
        let priority = [0, 0, 0, -1, 2][self.below(5) as usize];
        let me = turn.index().x() as u32;
        let count = self.sent.entry((to as u32, priority)).or_default();
        *count += 1;
        let number = u64::from(me) << 40 | self.turns << 8 | self.below(256);
        let number = number ^ self.sent.values().sum::<u64>() << 16;
        let from = Some((me, self.sent[&(to as u32, priority)]));
        turn.shared().log.borrow_mut().sent.insert((number, Some(to as u32)));
        turn.send_at(priority, to, Message { number, from, to_all: false, depth, priority });
    }
}

impl Actor for Walker {
    type Message = Message;
    type Value = u64;
    type Shared = Shared;

    fn receive(&mut self, message: Message, turn: &mut Turn<'_, Walker>) {
        let me = turn.index().x() as u32;
        self.turns += 1;
        {
            let mut log = turn.shared().log.borrow_mut();
            *log.turns.entry((message.number, me)).or_default() += 1;
            if let Some((from, count)) = message.from {
                let got = self.got.entry((from, message.priority)).or_default();
                *got += 1;
                if *got != count && !turn.shared().roams {
                    let text = format!("{me} has {got} of {from}, and message {count} came");
                    log.disordered.push(text);
                }
            }
        }
        turn.compute(Duration::from_micros(self.below(50)));
        if message.depth > 0 {
            for _ in 0..self.below(3) {
                self.send(message.depth - 1, turn);
            }
            if turn.shared().roams && self.below(8) == 0 {
                turn.move_to(self.below(turn.ranks() as u64) as usize);
            }
        }
        if message.to_all {
            turn.contribute(1);
        }
    }

    fn combine(all: &mut u64, other: u64) {
        *all += other;
    }
}

/// A run's beginning at a rank: messages to random objects, and from one rank one to all.
fn begin(
    array: &Array<Live, Walker>,
    (rank, run): (usize, u64),
    log: &RefCell<Log>,
    rng: &mut Rng,
) {
    for count in 0..3 {
        let to = rng.below(OBJECTS as u64) as u32;
        let number = 1 << 63 | (rank as u64) << 32 | run << 8 | count;
        log.borrow_mut().sent.insert((number, Some(to)));
        let message = Message { number, from: None, to_all: false, depth: 5, priority: 0 };
        array.send(to as usize, message).expect("it exists");
    }
    if rank == 0 {
        let number = 3 << 62 | run;
        log.borrow_mut().sent.insert((number, None));
        let message = Message { number, from: None, to_all: true, depth: 2, priority: 0 };
        array.broadcast(&message).expect("it has bytes");
    }
}

/// Checks a run that ended well: each message had its turns.
fn check_turns(log: &Log, seed: u64) {
    for &(number, to) in &log.sent {
        let all = to.map_or(0..OBJECTS as u32, |to| to..to + 1);
        for object in all {
            let turns = log.turns.get(&(number, object)).copied();
            assert_eq!(turns, Some(1), "seed {seed}: message {number:x} at object {object}");
        }
    }
}

/// The end of a rank's runs.
struct Ended {
    actors: Actors<Live>,
    array: Array<Live, Walker>,
    error: Option<ActorError>,
}

/// Runs and balances until an error.
async fn runs(env: Env, net: Live, log: Rc<RefCell<Log>>, good: Rc<Cell<u64>>, seed: u64) -> Ended {
    let actors = Actors::open(&net);
    let roams = !seed.is_multiple_of(3);
    let shared = Shared { log: Rc::clone(&log), roams };
    let array = actors.array_with(1, OBJECTS, shared, |index| Walker::new(seed, index.x()));
    actors.measure(true);
    let mut rng = env.rng();
    let mut error = None;
    for run in 0..RUNS {
        begin(&array, (net.rank(), run), &log, &mut rng);
        error = actors.run().await.err();
        if error.is_some() {
            break;
        }
        good.set(good.get() + 1);
        assert_eq!(array.result(), Some(OBJECTS as u64), "seed {seed}, run {run}");
        let strategies =
            [Strategy::Greedy, Strategy::Rotate, Strategy::RefineComm(Costs::default())];
        error = actors.balance(&strategies[(seed + run) as usize % 3]).await.err();
        if error.is_some() {
            break;
        }
    }
    Ended { actors, array, error }
}

/// Runs objects that send messages and move on all ranks, until a rank fails.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    let seed = cluster.config.seed;
    let (log, good) = (Rc::new(RefCell::new(Log::default())), Rc::new(Cell::new(0)));
    let (errors, whole) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let places = Rc::new(RefCell::new(BTreeMap::<usize, u32>::new()));
    let faults = Rc::new(cluster.clone());
    let all = (Rc::clone(&log), Rc::clone(&good), Rc::clone(&errors), Rc::clone(&whole));
    let found = Rc::clone(&places);
    let outcome = cluster.run_to(ends, "actors", move |env, net| {
        let (log, good, errors, whole) = all.clone();
        let (found, faults) = (Rc::clone(&found), Rc::clone(&faults));
        async move {
            let ended = runs(env, net.clone(), log, good, seed).await;
            match &ended.error {
                None => {
                    whole.set(whole.get() + 1);
                    let mut found = found.borrow_mut();
                    ended.array.each(|index, _| *found.entry(index.x()).or_default() += 1);
                }
                Some(ActorError { cause: ActorCause::Failed(failure), .. }) => {
                    let may_fail = ends == Ends::AtOnce || faults.may_lose(failure.rank);
                    assert!(may_fail, "seed {seed}: no fault concerns rank {}", failure.rank);
                    errors.set(errors.get() + 1);
                }
                Some(error) => panic!("seed {seed}: {error}"),
            }
            (ended.actors, ended.array)
        }
    });
    let log = log.borrow();
    assert!(log.turns.values().all(|&turns| turns == 1), "seed {seed}: a message had two turns");
    assert!(log.disordered.is_empty(), "seed {seed}: {:?}", log.disordered);
    if whole.get() == u64::from(cluster.config.hosts) {
        check_turns(&log, seed);
        let places = places.borrow();
        assert!(places.len() == OBJECTS && places.values().all(|&ranks| ranks == 1), "{places:?}");
    }
    Report { operations: good.get(), errors: errors.get(), outcome }
}

//! Objects under faults: every history is sequentially consistent, every operation is done once,
//! and replicas stay equal.

use crate::history::{Event, History, Past};
use crate::swarm::{enough, seeds, Cluster, MS};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use weft_models::net::{Live, Net};
use weft_models::objects::{Object, ObjectCause, Objects, Placement, Read, Shared, CLASS_MAX};
use weft_models::order::{Options, OrderError, Style, View};
use weft_sim::{Env, SimConfig};

thread_local! {
    /// The values that each object had on any rank, also on one that died: the longest histories of
    /// which none is the beginning of another.
    static WRITES: RefCell<BTreeMap<u64, Vec<Vec<u64>>>> = RefCell::default();
}

/// A value, and all values that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Register {
    number: u64,
    values: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Op {
    Read,
    Write(u64),
    /// Writes a value and returns the one before, once it had so many.
    SwapAfter(usize, u64),
    /// Reads once it had so many values.
    ReadAfter(usize),
}

impl Object for Register {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::ReadAfter(count) if self.values.len() < *count => Read::Wait,
            Op::Read | Op::ReadAfter(_) => Read::Value(self.last()),
            _ => Read::Write,
        }
    }

    fn guard(&self, op: &Op) -> bool {
        !matches!(op, Op::SwapAfter(count, _) if self.values.len() < *count)
    }

    fn apply(&mut self, op: Op) -> u64 {
        let before = self.last();
        let (Op::Write(value) | Op::SwapAfter(_, value)) = op else { panic!("{op:?} is a read") };
        self.values.push(value);
        WRITES.with_borrow_mut(|all| {
            let known = all.entry(self.number).or_default();
            if !known.iter().any(|values| values.starts_with(&self.values)) {
                known.retain(|values| !self.values.starts_with(values));
                known.push(self.values.clone());
            }
        });
        before
    }
}

impl Register {
    fn last(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }
}

/// Checks a history, with the states that survivors have at the end.
fn check(history: &History, states: &[Register], lost: Vec<usize>, seed: u64) {
    let histories = WRITES.with_borrow(Clone::clone);
    let known = |(object, mut all): (u64, Vec<Vec<u64>>)| {
        let state = states.iter().find(|state| state.number == object);
        if let Some(state) = state.filter(|_| !lost.is_empty()) {
            // The history that the survivors know.
            return (object, state.values.clone());
        }
        if all.len() > 1 && !lost.is_empty() {
            // It is lost with a rank, and others that are cut off know more of it, or less.
            history.borrow_mut().values_mut().for_each(|of| of.retain(|e| e.object != object));
            return (object, Vec::new());
        }
        assert!(all.len() < 2, "seed {seed}: replicas of object {object} differ: {all:?}");
        (object, all.pop().unwrap_or_default())
    };
    let writes = histories.into_iter().map(known).collect();
    let live = states.iter().map(|state| state.number).collect();
    Past { writes, live, lost, seed }.explains(history);
}

/// Does random operations on all objects, also some that wait for a first write.
async fn user(
    waits: bool,

    env: Env,
    objects: Objects<Live>,
    all: Vec<Shared<Live, Register>>,
    history: History,
) -> Result<(), ObjectCause> {
    let (me, mut rng) = (env.host as usize, env.rng());
    let mut number = 0;
    for step in 0..40 {
        env.note(format!("step {step}; {} {}", objects.describe(), objects.group().describe()));
        let at = rng.below(all.len() as u64) as usize;
        let (object, shared) = (at as u64, &all[at]);
        number += 1;
        let value = (me as u64 + 1) << 32 | number;
        let note = |read, wrote, posted| {
            let event = Event { object, read, wrote, posted };
            history.borrow_mut().entry(me).or_default().push(event);
        };
        let event = |read, wrote| note(read, wrote, false);
        match rng.below(8) {
            0 | 1 => {
                shared.call(Op::Write(value)).await.map_err(|error| error.cause)?;
                event(None, Some(value));
            }
            2 => {
                let op = Op::SwapAfter(if waits { rng.below(2) as usize } else { 0 }, value);
                let old = shared.call(op).await.map_err(|error| error.cause)?;
                event(Some(old), Some(value));
            }
            3 => {
                // Several follow each other, without waiting where the object stays.
                for more in 0..=rng.below(4) {
                    let value = value | more << 16;
                    shared.post(&Op::Write(value)).map_err(|error| error.cause)?;
                    note(None, Some(value), true);
                }
            }
            4 => {
                let read =
                    shared.call(Op::ReadAfter(waits.into())).await.map_err(|error| error.cause)?;
                event(Some(read), None);
            }
            _ => {
                let read = shared.call(Op::Read).await.map_err(|error| error.cause)?;
                event(Some(read), None);
            }
        }
        if rng.below(3) == 0 {
            env.sleep(rng.below(MS)).await;
        }
    }
    objects.flush().await.map_err(ObjectCause::Group)
}

/// Opens an object of each placement.
async fn open_all(objects: &Objects<Live>) -> Result<Vec<Shared<Live, Register>>, ObjectCause> {
    let class = objects.class::<Register>(1);
    let ranks = objects.net().size();
    let mut all = Vec::new();
    for number in 0..6 {
        let placement = match number % 3 {
            0 => Placement::Replicated,
            1 => Placement::At(number as usize % ranks),
            _ => Placement::Adaptive,
        };
        let state = || Register { number: number.into(), values: Vec::new() };
        all.push(class.open(number, placement, state).await.map_err(|error| error.cause)?);
    }
    // So that nobody waits for a first write for ever.
    let first = |at: usize| 1 << 40 | at as u64;
    if objects.net().rank() == 0 {
        for (at, shared) in all.iter().enumerate() {
            let written = shared.call(Op::Write(first(at))).await;
            written.map_err(|error| error.cause)?;
        }
    }
    Ok(all)
}

fn options(seed: u64) -> Options {
    let style = [Style::Ticket, Style::Sequencer, Style::Broadcast][seed as usize % 3];
    Options { style, window: 64 }
}

#[test]
fn objects__histories_are_sequentially_consistent_under_loss() {
    let (mut moved, mut events) = (0, 0);
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 2..6, None);
        WRITES.take();
        let history = History::default();
        let places = Rc::new(Cell::new(0));
        let (all_events, all_places) = (Rc::clone(&history), Rc::clone(&places));
        cluster.run("objects", move |env, net| {
            let (history, places) = (Rc::clone(&all_events), Rc::clone(&all_places));
            async move {
                let objects = Objects::with_options(&net, options(seed));
                let all = open_all(&objects).await.expect("no rank fails");
                let done = user(true, env.clone(), objects.clone(), all.clone(), history).await;
                done.expect("no rank fails");
                env.sleep(500 * MS).await;
                places.set(places.get() + all.iter().filter(|o| o.at().is_some()).count());
                (objects, all)
            }
        });
        check(&history, &[], Vec::new(), seed);
        moved += places.get();
        events += history.borrow().values().map(Vec::len).sum::<usize>();
    }
    enough(events > 1_000 && moved > 0, || format!("{events} operations, {moved}"));
}

#[test]
fn objects__survivors_go_on_and_lost_objects_are_named() {
    let (mut lost, mut whole) = (0, 0);
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 3..6, Some(0..6));
        WRITES.take();
        let history = History::default();
        let (ends, states) = (Rc::<RefCell<Vec<_>>>::default(), Rc::<RefCell<Vec<_>>>::default());
        let (events, all_ends, all_states) =
            (Rc::clone(&history), Rc::clone(&ends), Rc::clone(&states));
        let dies = cluster.dies.map(|host| host as usize);
        cluster.run("objects die", move |env, net| {
            let (history, ends, states) =
                (Rc::clone(&events), Rc::clone(&all_ends), Rc::clone(&all_states));
            async move {
                let objects = Objects::with_options(&net, options(seed));
                let end = match open_all(&objects).await {
                    Ok(all) => {
                        let end =
                            user(false, env.clone(), objects.clone(), all.clone(), history).await;
                        env.sleep(1_500 * MS).await;
                        if !matches!(end, Err(ObjectCause::Group(_))) {
                            let equal = all.iter();
                            let look = |shared: &Shared<Live, Register>| shared.peek(Clone::clone);
                            states.borrow_mut().push(equal.map(look).collect::<Vec<_>>());
                        }
                        end
                    }
                    Err(cause) => Err(cause),
                };
                ends.borrow_mut().push(end);
                objects
            }
        });
        for end in ends.borrow().iter() {
            match end {
                Ok(()) => whole += 1,
                Err(ObjectCause::Lost { rank }) => {
                    assert_eq!(Some(*rank), dies, "seed {seed}");
                    lost += 1;
                }
                Err(ObjectCause::Call(error)) => {
                    assert_eq!(Some(error.rank), dies, "seed {seed}: {error}");
                    lost += 1;
                }
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
        }
        let states: Vec<Register> = states.take().into_iter().flatten().flatten().collect();
        for one in &states {
            let same = states.iter().filter(|other| other.number == one.number);
            same.for_each(|other| assert_eq!(one, other, "seed {seed}"));
        }
        check(&history, &states, Vec::from_iter(dies), seed);
    }
    enough(lost > 1 && whole > 30, || format!("{lost} lost an object, {whole} did not"));
}

/// A rank at the end of a run: its view, the end of its operations, and the states that it has.
struct Last {
    rank: usize,
    view: Option<View>,
    end: Result<(), ObjectCause>,
    states: Vec<Register>,
}

/// Does operations on objects, and looks at all states when the faults are over.
async fn use_cut_off(env: Env, objects: &Objects<Live>, history: History) -> Last {
    let (mut all, rank) = (Vec::new(), objects.net().rank());
    let mut end = open_all(objects).await.map(|objects| all = objects);
    if end.is_ok() {
        end = user(false, env.clone(), objects.clone(), all.clone(), history).await;
    }
    // The faults are over then, and have been noticed by those that wait.
    objects.group().expect(true);
    env.sleep(4_000 * MS).await;
    let group = objects.group();
    let view = if group.ended().is_some() { None } else { group.view() };
    for shared in all.iter().filter(|_| view.is_none()) {
        let late = shared.call(Op::Read).await.unwrap_err();
        assert!(matches!(late.cause, ObjectCause::Group(_)), "{late}");
    }
    let states = all.iter().filter_map(|shared| shared.peek(Clone::clone)).collect();
    Last { rank, view, end, states }
}

/// Checks that an error names ranks that a fault concerns.
fn judge(end: &Result<(), ObjectCause>, me: usize, cluster: &Cluster) {
    let is_right = match end {
        Ok(()) => true,
        Err(ObjectCause::Lost { rank }) => cluster.may_lose(*rank),
        Err(ObjectCause::Call(error)) => cluster.may_lose(error.rank) || cluster.may_lose(me),
        Err(ObjectCause::Group(OrderError::Excluded { .. })) => cluster.may_lose(me),
        Err(ObjectCause::Group(OrderError::NoQuorum { missing })) => {
            missing.iter().all(|&rank| cluster.may_lose(rank))
        }
        Err(_) => false,
    };
    assert!(is_right, "seed {}: rank {me}: {end:?}", cluster.config.seed);
}

#[test]
fn objects__histories_stay_consistent_where_ranks_are_cut_off() {
    let (mut cut_off, mut went_on) = (0, 0);
    // In the last seeds ranks whose part in the group has ended wait for each other; ranks that are
    // excluded, and do not know it, call others; and a result of such a rank comes late.
    let known = [1010, 1259, 1444, 2039, 3143, 3874, 4127];
    for seed in seeds(0..200).chain(known) {
        let cluster = Cluster::rough(seed, 2..6);
        WRITES.take();
        let (history, ends) = (History::default(), Rc::<RefCell<Vec<Last>>>::default());
        let (events, all) = (Rc::clone(&history), Rc::clone(&ends));
        cluster.run("objects cut off", move |env, net| {
            let (history, all) = (Rc::clone(&events), Rc::clone(&all));
            async move {
                let objects = Objects::with_options(&net, options(seed));
                let last = use_cut_off(env, &objects, history).await;
                all.borrow_mut().push(last);
                objects
            }
        });
        let ends = ends.take();
        ends.iter().for_each(|last| judge(&last.end, last.rank, &cluster));
        let newest = ends.iter().filter_map(|last| last.view.clone()).max_by_key(|v| v.number);
        let Some(newest) = newest else { continue };
        let is_whole = |last: &Last| {
            let number = last.view.as_ref().map(|view| view.number);
            number == Some(newest.number) && newest.members.contains(&last.rank)
        };
        let (whole, others): (Vec<Last>, Vec<Last>) = ends.into_iter().partition(is_whole);
        (went_on, cut_off) = (went_on + whole.len(), cut_off + others.len());
        let is_known = |rank: &usize| whole.iter().any(|last| last.rank == *rank);
        let lost = (0..cluster.config.hosts as usize).filter(|rank| !is_known(rank)).collect();
        let states: Vec<Register> = whole.into_iter().flat_map(|last| last.states).collect();
        for one in &states {
            let same = states.iter().filter(|other| other.number == one.number);
            same.for_each(|other| assert_eq!(one, other, "seed {seed}"));
        }
        check(&history, &states, lost, seed);
    }
    enough(cut_off > 10 && went_on > 40, || format!("{cut_off} were cut off, {went_on} went on"));
}

/// A bounded queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Queue {
    jobs: VecDeque<u64>,
    most: usize,
}

#[derive(Serialize, Deserialize)]
enum QueueOp {
    Put(u64),
    Take,
    Break,
}

impl Object for Queue {
    type Op = QueueOp;
    type Reply = u64;

    fn guard(&self, op: &QueueOp) -> bool {
        match op {
            QueueOp::Put(_) => self.jobs.len() < self.most,
            QueueOp::Take => !self.jobs.is_empty(),
            QueueOp::Break => true,
        }
    }

    fn apply(&mut self, op: QueueOp) -> u64 {
        match op {
            QueueOp::Put(job) => self.jobs.push_back(job),
            QueueOp::Take => return self.jobs.pop_front().expect("the guard holds"),
            QueueOp::Break => panic!("out of order"),
        }
        0
    }
}

#[test]
fn guard__a_bounded_queue_hands_out_each_job_once_wherever_it_is() {
    const JOBS: u64 = 24;
    for seed in seeds(0..12) {
        let cluster = Cluster::of_seed(seed, 4..5, None);
        let placement =
            [Placement::Replicated, Placement::At(2), Placement::Adaptive][seed as usize % 3];
        let taken = Rc::<RefCell<Vec<u64>>>::default();
        let all = Rc::clone(&taken);
        cluster.run("objects queue", move |_, net| {
            let taken = Rc::clone(&all);
            async move {
                let objects = Objects::with_options(&net, options(seed));
                let class = objects.class::<Queue>(7);
                let make = || Queue { most: 3, ..Queue::default() };
                let queue = class.open(0, placement, make).await.unwrap();
                for number in 0..JOBS {
                    if net.rank() < 2 {
                        let job = net.rank() as u64 * JOBS + number;
                        queue.call(QueueOp::Put(job)).await.unwrap();
                    } else {
                        let job = queue.call(QueueOp::Take).await.unwrap();
                        taken.borrow_mut().push(job);
                    }
                }
                (objects, queue)
            }
        });
        let mut taken = taken.take();
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..2 * JOBS), "seed {seed}");
    }
}

#[test]
fn post__those_to_an_object_at_another_rank_do_not_wait_for_each_other() {
    const POSTS: u64 = 48;
    let cluster = Cluster { config: SimConfig::new(2, 3), dies: None };
    cluster.run("objects posts", move |_, net| async move {
        let objects = Objects::open(&net);
        let shared = open_all(&objects).await.unwrap().remove(1);
        assert_eq!(shared.at(), Some(1), "the object that stays at rank 1");
        if net.rank() == 0 {
            let start = net.now();
            shared.call(Op::Write(0)).await.unwrap();
            let one = net.now().since(start);
            let start = net.now();
            for value in 1..=POSTS {
                shared.post(&Op::Write(value)).unwrap();
            }
            let last = shared.call(Op::Read).await.unwrap();
            let all = net.now().since(start);
            assert_eq!(last, POSTS, "a call comes after all posts");
            assert!(all < one * (POSTS / 4) as u32, "{all:?} for {POSTS}, one takes {one:?}");
        }
        let values = || shared.peek(|register| register.values.clone());
        while net.rank() == 1 && values().is_some_and(|values| values.len() < POSTS as usize + 2) {
            net.sleep(std::time::Duration::from_millis(1)).await;
        }
        if net.rank() == 1 {
            let values = values().unwrap().into_iter().skip(1);
            assert!(values.eq(0..=POSTS), "in the order of the posts");
        }
        (objects, shared)
    });
}

#[test]
fn objects__made_at_run_time_given_up_broken_and_of_other_versions() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    let passed = Rc::new(Cell::new(None));
    cluster.run("objects more", move |env, net| {
        let passed = Rc::clone(&passed);
        async move {
            let objects = Objects::open(&net);
            if net.rank() == 2 {
                // Messages about objects of this class wait until it is known.
                env.sleep(5 * MS).await;
            }
            let class = objects.class::<Queue>(7);
            let state = Queue { most: 2, ..Queue::default() };
            if net.rank() == 0 {
                let made = class.create(Placement::Replicated, &state).await.unwrap();
                made.call(QueueOp::Put(5)).await.unwrap();
                passed.set(Some(made.id()));
            }
            while passed.get().is_none() {
                env.sleep(MS).await;
            }
            let queue = class.get(passed.get().unwrap()).await.unwrap();
            assert_eq!(queue.peek(|queue| queue.jobs.clone()), Some(VecDeque::from([5])));
            env.sleep(20 * MS).await;
            // An operation that is given up takes nothing.
            if net.rank() == 1 {
                assert_eq!(queue.call(QueueOp::Take).await, Ok(5));
                let mut waits = Box::pin(queue.call(QueueOp::Take));
                let first = std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending())
                });
                assert!(first.await);
                env.sleep(5 * MS).await;
                let waits_for = objects.describe();
                assert!(
                    waits_for.contains("do not hold for operations of ranks [1]"),
                    "{waits_for}"
                );
                drop(waits);
                env.sleep(5 * MS).await;
                queue.call(QueueOp::Put(6)).await.unwrap();
                assert_eq!(queue.peek(|queue| queue.jobs.len()), Some(1));
                let broken = queue.call(QueueOp::Break).await.unwrap_err();
                assert_eq!(broken.cause, ObjectCause::Broken("out of order".to_string()));
                assert!(broken.to_string().contains("out of order"), "{broken}");
            }
            env.sleep(50 * MS).await;
            let after = queue.call(QueueOp::Put(1)).await.unwrap_err();
            assert_eq!(after.cause, ObjectCause::Broken("out of order".to_string()));
            (objects, queue)
        }
    });
}

#[test]
fn class__the_greatest_numbers_have_objects_of_their_own() {
    let cluster = Cluster { config: SimConfig::new(2, 1), dies: None };
    cluster.run("objects classes", |env, net| async move {
        let objects = Objects::open(&net);
        let mut made = Vec::new();
        for number in [0, CLASS_MAX] {
            let class = objects.class::<Queue>(number);
            let open = class.open(u32::MAX, Placement::Replicated, Queue::default);
            made.push(open.await.unwrap());
        }
        assert_ne!(made[0].id(), made[1].id());
        let beyond = || objects.class::<Queue>(CLASS_MAX + 1);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond));
        assert!(refused.is_err());
        env.sleep(50 * MS).await;
        (objects, made)
    });
}

#[test]
fn class__registered_after_too_many_messages_is_refused_and_others_go_on() {
    let cluster = Cluster { config: SimConfig::new(2, 1), dies: None };
    let passed = Rc::new(Cell::new(None));
    cluster.run("objects late", move |env, net| {
        let passed = Rc::clone(&passed);
        async move {
            let objects = Objects::open(&net);
            let other = objects.class::<Queue>(8);
            let mut here = None;
            if net.rank() == 0 {
                let class = objects.class::<Queue>(7);
                // More than 16 MiB of states.
                let jobs = VecDeque::from(vec![u64::MAX; 400_000]);
                let state = Queue { most: 2, jobs };
                for _ in 0..5 {
                    here = Some(class.create(Placement::Replicated, &state).await.unwrap());
                }
                let there = class.create(Placement::At(1), &Queue::default()).await.unwrap();
                passed.set(here.as_ref().map(Shared::id));
                let refused = there.call(QueueOp::Put(1)).await.unwrap_err();
                assert!(refused.to_string().contains("has not registered"), "{refused}");
            }
            while passed.get().is_none() {
                env.sleep(MS).await;
            }
            if net.rank() == 1 {
                env.sleep(100 * MS).await;
                let class = objects.class::<Queue>(7);
                let late = class.get(passed.get().unwrap()).await.err().unwrap();
                assert_eq!(late.cause, ObjectCause::Late { class: 7 });
                assert!(late.to_string().contains("class 7 too late"), "{late}");
                let made = class.create(Placement::Replicated, &Queue::default()).await;
                assert_eq!(made.err().unwrap().cause, ObjectCause::Late { class: 7 });
            }
            let made = other.open(0, Placement::Replicated, Queue::default).await.unwrap();
            env.sleep(50 * MS).await;
            (objects, here, made)
        }
    });
}

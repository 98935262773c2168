//! Objects under faults: every history is sequentially consistent, every operation is done once,
//! and replicas stay equal.

use crate::swarm::{enough, seeds, Cluster, MS};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use weft_models::net::{Live, Net};
use weft_models::objects::{Object, ObjectCause, Objects, Placement, Shared, CLASS_MAX};
use weft_models::order::View;
use weft_sim::{Fault, SimConfig};
use weft_swarm::cluster::Ends;
use weft_swarm::history::History;
use weft_swarm::objects::{check, forget, open_all, options, run, user, Op, Register, Uses};

#[test]
fn objects__histories_are_sequentially_consistent_under_loss() {
    let (mut moved, mut events) = (0, 0);
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 2..6, None);
        forget();
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
        forget();
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

#[test]
fn objects__histories_stay_consistent_where_ranks_are_cut_off() {
    let (mut operations, mut errors) = (0, 0);
    // In the last seeds ranks whose part in the group has ended wait for each other; ranks that are
    // excluded, and do not know it, call others; and a result of such a rank comes late.
    let known = [1010, 1259, 1444, 2039, 3143, 3874, 4127];
    for seed in seeds(0..200).chain(known) {
        let report = run(&Cluster::rough(seed, 2..6), Uses::Any, Ends::Together);
        (operations, errors) = (operations + report.operations, errors + report.errors);
    }
    enough(operations > 1_000 && errors > 10, || format!("{operations} operations, {errors}"));
}

/// Ranks take adaptive objects while members die or are cut off, also the one that takes it.
#[test]
fn objects__that_move_stay_consistent_while_members_die() {
    let (mut operations, mut errors) = (0, 0);
    for seed in seeds(0..100) {
        let report = run(&Cluster::rough(seed, 3..6), Uses::Moves, Ends::Together);
        (operations, errors) = (operations + report.operations, errors + report.errors);
    }
    enough(operations > 1_000 && errors > 10, || format!("{operations} operations, {errors}"));
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

/// A rank that waits for its guard dies. The others may let the operation go on until they have a
/// view without that rank: then all of them do it. Later it is done nowhere.
#[test]
fn guard__of_a_rank_that_died_is_done_before_the_next_view_on_all_ranks_or_never() {
    const DEATH: u64 = 20 * MS;
    let (mut done, mut dropped) = (0, 0);
    for seed in seeds(0..120) {
        let death = Fault::Death { host: 1, at: DEATH, visible: seed.is_multiple_of(2) };
        let cluster = Cluster { config: SimConfig::new(3, seed).fault(death), dies: Some(1) };
        let lefts = Rc::<RefCell<Vec<usize>>>::default();
        let (all, late) = (Rc::clone(&lefts), Rc::new(Cell::new(false)));
        let is_late = Rc::clone(&late);
        cluster.run("objects guard of the dead", move |env, net| {
            let (lefts, late) = (Rc::clone(&all), Rc::clone(&is_late));
            async move {
                let objects = Objects::with_options(&net, options(seed));
                let class = objects.class::<Queue>(7);
                let make = || Queue { most: 3, ..Queue::default() };
                let queue = class.open(0, Placement::Replicated, make).await.unwrap();
                let is_without = |view: &View| !view.members.contains(&1);
                if net.rank() == 1 {
                    _ = queue.call(QueueOp::Take).await;
                } else if net.rank() == 0 {
                    let now = net.now().0;
                    env.sleep(DEATH + env.rng().below(3 * MS) - now).await;
                    late.set(objects.group().view().is_some_and(|view| is_without(&view)));
                    queue.call(QueueOp::Put(5)).await.unwrap();
                }
                objects.group().view_when(is_without).await.unwrap();
                // Rank 2 may have the view before the message.
                env.sleep(100 * MS).await;
                let left = queue.peek(|queue| queue.jobs.len());
                lefts.borrow_mut().push(left.expect("it is on every rank"));
                (objects, queue)
            }
        });
        let lefts = lefts.take();
        assert!(lefts.len() == 2 && lefts[0] == lefts[1], "seed {seed}: {lefts:?}");
        assert!(!late.get() || lefts[0] == 1, "seed {seed}: done after the view");
        done += 1 - lefts[0];
        dropped += lefts[0];
    }
    enough(done > 5 && dropped > 5, || format!("{done} were done, {dropped} were not"));
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

#[test]
fn delete__ends_operations_that_wait_and_refuses_later_ones_on_all_ranks() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("objects deleted", |env, net| async move {
        let (objects, me) = (Objects::open(&net), net.rank());
        let class = objects.class::<Queue>(7);
        for (number, placement) in
            [Placement::Replicated, Placement::At(2), Placement::Adaptive].into_iter().enumerate()
        {
            let open =
                || class.open(number as u32, placement, || Queue { most: 1, ..Queue::default() });
            let queue = open().await.unwrap();
            let other = queue.clone();
            // Rank 0 waits for a job that nobody puts, also at the object's own rank.
            if me == 1 {
                env.sleep(20 * MS).await;
                queue.clone().delete().await.unwrap();
            } else {
                let waits = queue.call(QueueOp::Take).await.unwrap_err();
                assert_eq!(waits.cause, ObjectCause::NoObject, "{placement:?}");
            }
            env.sleep(20 * MS).await;
            let late = other.call(QueueOp::Put(1)).await.unwrap_err();
            assert_eq!(late.cause, ObjectCause::NoObject, "{placement:?}");
            assert_eq!(other.peek(|queue| queue.jobs.len()), None, "its memory is free");
            assert!(late.to_string().contains("deleted, or never made"), "{late}");
            assert_eq!(other.clone().delete().await.unwrap_err().cause, ObjectCause::NoObject);
            assert_eq!(open().await.err().unwrap().cause, ObjectCause::NoObject);
            let id = other.id();
            assert_eq!(class.get(id).await.err().unwrap().cause, ObjectCause::NoObject);
        }
        // One that was made at run time, by its identity.
        if me == 0 {
            let made = class.create(Placement::Replicated, &Queue::default()).await.unwrap();
            let id = made.id();
            made.delete().await.unwrap();
            assert_eq!(class.get(id).await.err().unwrap().cause, ObjectCause::NoObject);
        }
        env.sleep(50 * MS).await;
        objects
    });
}

//! Programs that use objects and regions in unusual ways: operations that are given up, ranks that
//! leave early, reads that panic, regions without items.

use crate::swarm::{Cluster, MS};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use weft_models::net::Net;
use weft_models::objects::{Object, ObjectCause, ObjectId, Objects, Placement, Read};
use weft_models::regions::{RegionCause, RegionId, Regions};
use weft_sim::{Fault, SimConfig};

/// Jobs that are taken, and a look at one that panics if there is none so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stack(Vec<u64>);

#[derive(Serialize, Deserialize)]
enum Op {
    Push(u64),
    Pop,
    Look(usize),
}

impl Object for Stack {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Look(at) => Read::Value(self.0[*at]),
            _ => Read::Write,
        }
    }

    fn guard(&self, op: &Op) -> bool {
        !matches!(op, Op::Pop) || !self.0.is_empty()
    }

    fn apply(&mut self, op: Op) -> u64 {
        match op {
            Op::Push(job) => self.0.push(job),
            Op::Pop => return self.0.pop().expect("the guard holds"),
            Op::Look(_) => {}
        }
        self.0.len() as u64
    }
}

/// Polls a future once; it is not done.
async fn begin<F: Future>(mut work: Pin<&mut F>) {
    let waits = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await;
    assert!(waits);
}

#[test]
fn call__given_up_at_the_rank_that_has_the_object_takes_nothing() {
    for placement in [Placement::At(0), Placement::At(1), Placement::Replicated] {
        let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
        cluster.run("objects given up", move |env, net| async move {
            let objects = Objects::open(&net);
            let class = objects.class::<Stack>(1);
            let stack = class.open(0, placement, Stack::default).await.unwrap();
            if net.rank() == 1 {
                for _ in 0..3 {
                    let mut waits = Box::pin(stack.call(Op::Pop));
                    begin(waits.as_mut()).await;
                    env.sleep(5 * MS).await;
                    drop(waits);
                    env.sleep(5 * MS).await;
                }
                assert_eq!(stack.call(Op::Push(6)).await, Ok(1), "{placement:?}");
                assert_eq!(stack.call(Op::Push(7)).await, Ok(2), "{placement:?}");
            }
            env.sleep(60 * MS).await;
            assert_eq!(objects.describe(), "", "{placement:?}");
            (objects, stack)
        });
    }
}

#[test]
fn open__the_next_rank_makes_the_object_if_the_lowest_leaves_or_dies_before() {
    let config = || {
        let mut config = SimConfig::new(4, 1);
        for key in ["peer_timeout_ms", "connect_timeout_ms"] {
            config.settings.push((key, "400".to_string()));
        }
        config.settings.push(("keepalive_ms", "20".to_string()));
        config
    };
    let dies = config().fault(Fault::Death { host: 0, at: 10 * MS, visible: true });
    for (config, dies) in [(config(), None), (dies, Some(0))] {
        let cluster = Cluster { config, dies };
        let opened = Rc::new(Cell::new(0));
        let all = Rc::clone(&opened);
        cluster.run("objects opened late", move |env, net| {
            let opened = Rc::clone(&all);
            async move {
                let objects = Objects::open(&net);
                let class = objects.class::<Stack>(1);
                if net.rank() == 0 {
                    env.sleep(20 * MS).await;
                    return None;
                }
                let rank = net.rank() as u64;
                let stack = class.open(0, Placement::Replicated, move || Stack(vec![rank])).await;
                let stack = stack.unwrap();
                assert_eq!(stack.call(Op::Look(0)).await, Ok(1));
                opened.set(opened.get() + 1);
                Some((objects, stack))
            }
        });
        assert_eq!(opened.get(), 3);
    }
}

#[test]
fn read__that_panics_is_an_error_and_leaves_the_object_in_each_place() {
    for placement in [Placement::Replicated, Placement::At(0), Placement::At(1)] {
        let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
        cluster.run("objects read", move |env, net| async move {
            let objects = Objects::open(&net);
            let class = objects.class::<Stack>(1);
            let stack = class.open(0, placement, Stack::default).await.unwrap();
            let error = stack.call(Op::Look(net.rank())).await.unwrap_err();
            let ObjectCause::Panicked(text) = &error.cause else { panic!("{error}") };
            assert!(text.contains("out of bounds"), "{error}");
            env.sleep(20 * MS).await;
            let pushed = stack.call(Op::Push(net.rank() as u64)).await;
            assert!(pushed.is_ok(), "{placement:?}: {pushed:?}");
            env.sleep(20 * MS).await;
            assert!(stack.call(Op::Look(2)).await.is_ok(), "{placement:?}");
            (objects, stack)
        });
    }
}

thread_local! {
    /// Work that operations do besides.
    static BESIDES: RefCell<Vec<Box<dyn Fn()>>> = RefCell::default();
}

/// A sum. Each addition does other work besides.
#[derive(Default, Serialize, Deserialize)]
struct Meddler(u64);

impl Object for Meddler {
    type Op = u64;
    type Reply = u64;

    fn apply(&mut self, by: u64) -> u64 {
        self.0 += by;
        BESIDES.with_borrow(|all| all.iter().for_each(|besides| besides()));
        self.0
    }
}

#[test]
fn apply__objects_made_and_used_inside_an_operation() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    let made = Rc::<RefCell<Vec<ObjectId>>>::default();
    let all = Rc::clone(&made);
    cluster.run("objects inside", move |env, net| {
        let made = Rc::clone(&all);
        async move {
            let objects = Objects::open(&net);
            let stacks = Rc::new(objects.class::<Stack>(1));
            let class = objects.class::<Meddler>(2);
            let meddler = class.open(0, Placement::Replicated, Meddler::default).await.unwrap();
            let other = class.open(1, Placement::Replicated, Meddler::default).await.unwrap();
            if net.rank() == 1 {
                // All hosts of the simulator are in this thread: each replica does this.
                let (net, into) = (net.clone(), Rc::clone(&made));
                let (stacks, other) = (Rc::clone(&stacks), other.clone());
                let count = Cell::new(0);
                let besides = move || {
                    if count.replace(count.get() + 1) > 0 {
                        return;
                    }
                    let (stacks, other) = (Rc::clone(&stacks), other.clone());
                    let into = Rc::clone(&into);
                    net.spawn(async move {
                        let made = stacks.create(Placement::At(2), &Stack(vec![9])).await.unwrap();
                        into.borrow_mut().push(made.id());
                        assert_eq!(other.call(5).await, Ok(5));
                    });
                };
                BESIDES.with_borrow_mut(|all| all.push(Box::new(besides)));
                assert_eq!(meddler.call(1).await, Ok(1));
            }
            env.sleep(50 * MS).await;
            let id = made.borrow()[0];
            let stack = stacks.get(id).await.unwrap();
            assert_eq!(stack.call(Op::Look(0)).await, Ok(9));
            env.sleep(50 * MS).await;
            BESIDES.take();
            (objects, meddler, other, stack)
        }
    });
}

#[test]
fn regions__without_items_mapped_twice_and_of_ranks_that_are_not_there() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("regions unusual", move |_, net| async move {
        let regions = Regions::with_cache(&net, 0);
        let none = regions.create(Vec::<f64>::new()).unwrap();
        let zero = regions.create(vec![[0u8; 0]; 1000]).unwrap();
        let names = regions.gather(&[none.id(), zero.id()]).await.unwrap();
        let from = (net.rank() + 1) % 3 * 2;
        for _ in 0..3 {
            let none = regions.map::<f64>(names[from]).await.unwrap();
            let twice = regions.map_known::<f64>(names[from], 0).unwrap();
            assert!(none.is_empty());
            {
                let mut writes = none.write().await.unwrap();
                writes.fill(1.0);
                // A guard is kept over a barrier, while the region is mapped twice.
                regions.barrier().await.unwrap();
                let mut waits = Box::pin(twice.read());
                begin(waits.as_mut()).await;
            }
            drop(none);
            assert_eq!(twice.read().await.unwrap().len(), 0);
            let zero = regions.map::<[u8; 0]>(names[from + 1]).await.unwrap();
            assert_eq!(zero.write().await.unwrap().len(), 1000);
            zero.flush();
            assert_eq!(zero.read().await.unwrap().len(), 1000);
            regions.barrier().await.unwrap();
        }
        for home in [3, 1 << 20, u32::MAX as usize] {
            let map = regions.map::<f64>(RegionId::new(home, 0)).await;
            let cause = map.err().map(|error| error.cause);
            assert!(matches!(cause, Some(RegionCause::Home(_))), "{home}: {cause:?}");
            let known = regions.map_known::<f64>(RegionId::new(home, 0), 4).unwrap();
            let cause = known.read().await.err().map(|error| error.cause);
            assert!(matches!(cause, Some(RegionCause::Home(_))), "{home}: {cause:?}");
        }
        regions.barrier().await.unwrap();
        (regions, none, zero)
    });
}

#[test]
fn regions__operations_given_up_at_any_time_leave_the_region_usable() {
    for seed in 0..20 {
        let cluster = Cluster::of_seed(seed, 2..5, None);
        let sums = Rc::<RefCell<Vec<(u64, u64)>>>::default();
        let all = Rc::clone(&sums);
        cluster.run("regions given up", move |env, net| {
            let sums = Rc::clone(&all);
            async move {
                let regions = Regions::with_cache(&net, 8);
                let mine = (net.rank() == 0).then(|| regions.create(vec![0u64; 2]).unwrap());
                let name = mine.as_ref().map(|region| region.id());
                let name = regions.broadcast(0, name).await.unwrap();
                let (rng, mut added) = (env.rng(), 0);
                let mut rng = rng;
                for _ in 0..40 {
                    let region = regions.map::<u64>(name).await.unwrap();
                    match rng.below(6) {
                        0 => {
                            let mut waits = Box::pin(region.write());
                            let done = poll_fn(|cx| {
                                Poll::Ready(match waits.as_mut().poll(cx) {
                                    Poll::Ready(guard) => guard.map(|mut g| g[1] += 1).is_ok(),
                                    Poll::Pending => false,
                                })
                            });
                            _ = done.await;
                            env.sleep(rng.below(MS / 4)).await;
                        }
                        1 => {
                            let mut waits = Box::pin(region.read());
                            _ = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending()))
                                .await;
                            env.sleep(rng.below(MS / 4)).await;
                        }
                        2 => region.prefetch_to_write(),
                        3 => region.flush(),
                        _ => {
                            region.write().await.unwrap()[0] += 1;
                            added += 1;
                        }
                    }
                }
                regions.barrier().await.unwrap();
                let region = regions.map::<u64>(name).await.unwrap();
                let sum = region.read().await.unwrap()[0];
                sums.borrow_mut().push((sum, added));
                regions.barrier().await.unwrap();
                (regions, mine)
            }
        });
        let sums = sums.take();
        let added = sums.iter().map(|(_, added)| added).sum::<u64>();
        assert!(sums.iter().all(|(sum, _)| *sum == added), "seed {seed}: {sums:?}");
    }
}

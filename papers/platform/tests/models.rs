//! The models on the simulated clusters of 2004.
#![allow(non_snake_case)]

use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weft_core::group::tree::Tree;
use weft_models::jobs::Jobs;
use weft_models::net::Net;
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::{Options, OrderedGroup};
use weft_models::regions::Regions;
use weft_models::rpc::Rpc;
use weft_models::together::Together;
use weft_platform::choice::Choice;
use weft_platform::hardware::Hardware;
use weft_platform::measure::Setup;
use weft_platform::net::{ClusterNet, Ran};
use weft_platform::system::System;

const ROUNDS: u32 = 8;

fn setup(hw: &Hardware, nodes: usize) -> Setup {
    Setup::new(&Hardware { nodes, ..hw.clone() }, Choice::SDMA, 1)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

#[test]
fn clusters__calls_and_clean_write_misses_take_a_little_more_than_a_round_trip() {
    for hw in [Hardware::ppro(), Hardware::p3()] {
        let round_trip = 2.0 * setup(&hw, 2).logp(16).end_to_end;
        let call = setup(&hw, 2).run(16, |net| async move {
            let (rpc, together) = (Rpc::open(&net), Together::open(&net, 0));
            rpc.serve(1, |request, args| request.answer(args));
            together.barrier().await.unwrap();
            let start = net.now();
            for _ in 0..ROUNDS {
                if net.rank() == 0 {
                    assert_eq!(rpc.call(1, 1, &[7; 16]).await.unwrap(), [7; 16]);
                }
            }
            let time = micros(net.now().since(start)) / f64::from(ROUNDS);
            together.barrier().await.unwrap();
            (time, rpc)
        });
        let call = call.unwrap().results[0].0;
        let miss = setup(&hw, 2).run(16, |net| async move {
            let regions = Regions::open(&net);
            let mut names = Vec::new();
            for _ in 0..ROUNDS {
                let mine = regions.create(vec![0u64; 2]).unwrap();
                names.push(mine.id());
                drop(mine);
            }
            let names = regions.gather(&names).await.unwrap();
            let mut time = 0.0;
            for name in names.iter().filter(|name| name.home() == 1 && net.rank() == 0) {
                let region = regions.map::<u64>(*name).await.unwrap();
                let start = net.now();
                drop(region.write().await.unwrap());
                time += micros(net.now().since(start)) / f64::from(ROUNDS);
            }
            regions.barrier().await.unwrap();
            (time, regions)
        });
        let miss = miss.unwrap().results[0].0;
        let name = hw.name;
        println!("{name}: packet {round_trip:.1}, call {call:.1}, clean write miss {miss:.1}");
        assert!((1.0..1.4).contains(&(call / round_trip)), "{name}: {call} of {round_trip}");
        // The request of a miss is shorter than the packets of the round trip, the answer longer.
        assert!((0.95..1.4).contains(&(miss / round_trip)), "{name}: {miss} of {round_trip}");
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Sum(u64);

#[derive(Serialize, Deserialize)]
enum Op {
    Add(u64),
    Reach(u64),
}

impl Object for Sum {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Add(_) => Read::Write,
            Op::Reach(least) if self.0 < *least => Read::Wait,
            Op::Reach(_) => Read::Value(self.0),
        }
    }

    fn apply(&mut self, op: Op) -> u64 {
        let Op::Add(n) = op else { return self.0 };
        self.0 += n;
        self.0
    }
}

#[test]
fn clusters__all_models_run_on_64_nodes() {
    for hw in [Hardware::ppro(), Hardware::p3()] {
        let ran = setup(&hw, 64).run(16, |net| async move {
            let (me, ranks) = (net.rank() as u64, net.size() as u64);
            let all: Vec<usize> = (0..net.size()).collect();
            let group = OrderedGroup::open(&net, 0, &all, Options::default());
            let sent = group.send(vec![me as u8; 40]);
            let mut order = Vec::new();
            while order.len() < all.len() {
                order.push(group.recv().await.unwrap().from);
            }
            sent.await.unwrap();
            let objects = Objects::open(&net);
            let class = objects.class::<Sum>(1);
            for placement in [Placement::Replicated, Placement::At(5)] {
                let number = u32::from(placement == Placement::Replicated);
                let sum = class.open(number, placement, Sum::default).await.unwrap();
                sum.call(Op::Add(me)).await.unwrap();
                let total = ranks * (ranks - 1) / 2;
                assert_eq!(sum.call(Op::Reach(total)).await.unwrap(), total);
            }
            let jobs = Jobs::open(&net, 0, 64);
            if me == 0 {
                jobs.push(1, &1u64);
            }
            let mut done = 0;
            let owner = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % all.len();
            let ended = jobs.run(|n, next| {
                done += n;
                next.compute(Duration::from_micros(1));
                for m in [2 * n, 2 * n + 1].into_iter().filter(|m| *m < 4_096) {
                    next.push(owner(m), &m);
                }
            });
            ended.await.unwrap();
            let together = Together::open(&net, 0);
            together.barrier().await.unwrap();
            (order, done, (group, objects, jobs, together))
        });
        let ran = ran.unwrap();
        let name = hw.name;
        println!("{name}: {:.0} us, {} events", ran.micros, ran.counts.events);
        let (first, _, _) = &ran.results[0];
        assert!(ran.results.iter().all(|(order, _, _)| order == first), "{name}");
        assert_eq!(ran.results.iter().map(|(_, done, _)| done).sum::<u64>(), 4_096 * 4_095 / 2);
    }
}

#[test]
fn clusters__computing_takes_time_and_a_rank_that_waits_for_ever_is_named() {
    let ran = setup(&Hardware::p3(), 2).run(16, |net| async move {
        let together = Together::open(&net, 0);
        net.compute(Duration::from_millis(2)).await;
        together.barrier().await.unwrap();
        micros(net.now().since(weft_core::Instant(0)))
    });
    let times = ran.unwrap().results;
    assert!(times.iter().all(|time| (2_000.0..2_200.0).contains(time)), "{times:?}");
    let stuck = setup(&Hardware::p3(), 2).run(16, |net| async move {
        if net.rank() == 1 {
            std::future::pending::<()>().await;
        }
    });
    let said = stuck.unwrap_err();
    let wanted = "1 of 2 programs have not ended: node 1 waits for a packet, and none has come";
    assert!(said.ends_with(wanted), "{said}");
}

/// Has node 0 call node 1, which computes for a while. Returns the microseconds that it took each.
fn call(setup: &Setup, computes: Duration) -> Ran<(f64, Rpc<ClusterNet>)> {
    let ran = setup.run(16, |net| async move {
        let (rpc, together) = (Rpc::open(&net), Together::open(&net, 0));
        rpc.serve(1, |request, args| request.answer(args));
        together.barrier().await.unwrap();
        let start = net.now();
        if net.rank() == 0 {
            rpc.call(1, 1, &[7; 16]).await.unwrap();
        } else if !computes.is_zero() {
            net.compute(computes).await;
        }
        let time = micros(net.now().since(start));
        together.barrier().await.unwrap();
        (time, rpc)
    });
    ran.unwrap()
}

#[test]
fn clusters__a_host_that_computes_is_interrupted_once_unless_its_system_polls() {
    for (hw, answer) in [(Hardware::ppro(), 90.0..150.0), (Hardware::p3(), 40.0..70.0)] {
        let time = |system: System, poll_every| {
            let mut setup = setup(&hw, 2);
            (setup.system, setup.poll_every) = (system, poll_every);
            let ran = call(&setup, Duration::from_millis(5));
            let computed = ran.results[1].0;
            assert!((5_000.0..5_300.0).contains(&computed), "{}: {computed}", hw.name);
            (ran.results[0].0, ran.counts.interrupts)
        };
        let (interrupted, count) = time(System::LCI, None);
        assert!(answer.contains(&interrupted), "{}: {interrupted}", hw.name);
        assert!((1..=2).contains(&count), "{}: {count} interrupts", hw.name);
        let (late, none) = time(System::MPI, None);
        assert!(late > 4_900.0 && none == 0, "{}: {late}, {none}", hw.name);
        let (polled, none) = time(System::MPI, Some(100_000_000));
        assert!(polled < 200.0 && none == 0, "{}: {polled}, {none}", hw.name);
    }
}

#[test]
fn clusters__layers_take_their_time_and_threads_more() {
    let hw = Hardware::ppro();
    let time = |system| {
        let mut setup = setup(&hw, 2);
        setup.system = system;
        call(&setup, Duration::ZERO).results[0].0
    };
    let systems = [System::LCI, System::PANDA_ST, System::PANDA_MT, System::ORCA];
    let times = systems.map(time);
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    let threads = times[2] - times[1];
    assert!((0.9..3.0).contains(&threads), "{threads}");
}

#[test]
fn clusters__programs_forward_broadcasts_by_any_tree() {
    for tree in [Tree::Binary, Tree::Binomial] {
        let mut setup = setup(&Hardware::p3(), 9);
        (setup.system, setup.message_tree) = (System::MPI, Some(tree));
        let ran = setup.run(16, |net| async move {
            let all: Vec<usize> = (0..net.size()).collect();
            let group = OrderedGroup::open(&net, 0, &all, Options::default());
            let come = Rc::<RefCell<Vec<Vec<u8>>>>::default();
            let into = Rc::clone(&come);
            group.on_cast(move |(_, bytes)| into.borrow_mut().push(bytes));
            group.view_when(|_| true).await.unwrap();
            let together = Together::open(&net, 0);
            // 5,000 bytes are three packets.
            for (root, length) in [(0, 10), (2, 5_000), (4, 1), (6, 4_096)] {
                together.barrier().await.unwrap();
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + root) as u8).collect();
                if net.rank() == root {
                    group.cast(&bytes).unwrap();
                    come.borrow_mut().push(bytes);
                }
                while come.borrow().len() <= root / 2 {
                    net.sleep(Duration::from_micros(10)).await;
                }
            }
            together.barrier().await.unwrap();
            (come.take(), group)
        });
        let ran = ran.unwrap();
        let (first, _) = &ran.results[0];
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [10, 5_000, 1, 4_096]);
        assert!(ran.results.iter().all(|(sums, _)| sums == first), "{tree}");
        let last = ran.samples.last().unwrap();
        assert!(last.traffic.multicast >= 8 * (1 + 3 + 1 + 3), "{:?}", last.traffic);
    }
}

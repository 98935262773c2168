//! Calls under faults: each is executed at most once, and ends with its answer or with the cause.

use crate::swarm::{enough, seeds, Cluster};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::Net;
use weft_models::rpc::{Cause, Rpc};
use weft_sim::SimConfig;
use weft_swarm::calls::{pattern, run, run_casts, serve, Log, BAD, ECHO, NEVER, NOTE};
use weft_swarm::cluster::Ends;

#[test]
fn rpc__calls_run_at_most_once_and_end_under_faults() {
    let (mut failed, mut total) = (0, 0);
    for seed in seeds(0..100) {
        let report = run(&Cluster::of_seed(seed, 2..6, Some(0..6)), Ends::Together);
        total += report.operations;
        failed += report.outcome.died.len();
    }
    enough(total > 500 && failed > 3, || format!("{total} calls, {failed} deaths"));
}

#[test]
fn rpc__calls_run_at_most_once_and_end_where_ranks_are_cut_off() {
    let run = |seed| run(&Cluster::rough(seed, 2..6), Ends::Together).operations;
    let total: u64 = seeds(0..300).map(run).sum();
    enough(total > 500, || format!("{total} calls"));
}

/// A call of several packets comes, in part or whole, before or after its services are dropped.
#[test]
fn call__of_a_rank_that_drops_its_services_and_lives_on_ends_with_an_error_also_under_loss() {
    for seed in seeds(0..30) {
        let cluster = Cluster::of_seed(seed, 2..3, None);
        cluster.run("rpc services gone", move |env, net| async move {
            let rpc = Rpc::open(&net);
            serve(&rpc, &Log::default(), &Rc::default());
            if net.rank() == 1 {
                while rpc.unanswered() == 0 {
                    env.sleep(10_000).await;
                }
                env.sleep(env.rng().below(200_000)).await;
                return None;
            }
            let args = [&1u64.to_le_bytes()[..], &pattern(1, 100_000)].concat();
            let kept = rpc.call(1, NEVER, &args[..20]);
            let calls: Vec<_> = (0..5).map(|_| rpc.call(1, BAD, &args)).collect();
            assert_eq!(kept.await.unwrap_err().cause, Cause::Unanswered);
            for call in calls {
                let cause = call.await.unwrap_err().cause;
                assert!(matches!(cause, Cause::NoService | Cause::Refused(_)), "{cause:?}");
            }
            let late = rpc.call(1, BAD, &args).await.unwrap_err();
            assert_eq!(late.cause, Cause::NoService, "seed {seed}");
            Some(rpc)
        });
    }
}

#[test]
#[should_panic(expected = "calls under packet handler 256 are open on this rank")]
fn open__a_second_one_beside_the_first_is_refused() {
    Cluster::of_seed(1, 2..3, None).run("rpc twice", |_, net| async move {
        let first = Rpc::open(&net);
        drop(Rpc::with_handler(&net, 300));
        let _second = Rpc::open(&net);
        Some(first)
    });
}

/// A rank gives a call up, opens its calls again, and makes another call: the answer to the first
/// one may still come.
#[test]
fn call__takes_no_answer_to_a_call_before_its_calls_were_opened_again() {
    const METHODS: [(u16, &[u8]); 2] = [(20, b"old"), (21, b"new")];
    for seed in seeds(0..30) {
        Cluster::of_seed(seed, 2..3, None).run("rpc again", move |env, net| async move {
            if net.rank() == 1 {
                let rpc = Rpc::open(&net);
                for (method, text) in METHODS {
                    rpc.serve(method, move |request, _| request.answer(text));
                }
                return Some(rpc);
            }
            for _ in 0..10 {
                let rpc = Rpc::open(&net);
                let mut call = rpc.call(1, 20, b"");
                env.sleep(env.rng().below(50_000)).await;
                let _ = call.take();
                drop((call, rpc));
                let rpc = Rpc::open(&net);
                assert_eq!(rpc.call(1, 21, b"").await.unwrap(), b"new", "seed {seed}");
            }
            None
        });
    }
}

/// Calls of several packets come while their services are dropped and opened again.
#[test]
fn call__ends_whole_or_with_an_error_where_services_are_opened_again() {
    let (mut served, mut total) = (0, 0);
    for seed in seeds(0..10) {
        let count = Rc::new(Cell::new(0));
        let done = Rc::clone(&count);
        Cluster::of_seed(seed, 2..3, None).run("rpc services again", move |env, net| {
            let done = Rc::clone(&done);
            async move {
                if net.rank() == 1 {
                    for _ in 0..30 {
                        let rpc = Rpc::open(&net);
                        rpc.serve(20, |request, args| request.answer(args));
                        env.sleep(env.rng().below(3_000_000)).await;
                        drop(rpc);
                        env.sleep(env.rng().below(300_000)).await;
                    }
                    return None;
                }
                let rpc = Rpc::open(&net);
                for n in 0..30 {
                    let args = pattern(n, 1 + env.rng().below(100_000) as usize);
                    match rpc.call(1, 20, &args).await {
                        Ok(answer) => {
                            assert!(answer == args, "seed {seed}");
                            done.set(done.get() + 1);
                        }
                        Err(error) => assert_eq!(error.cause, Cause::NoService, "seed {seed}"),
                    }
                }
                Some(rpc)
            }
        });
        (served, total) = (served + count.get(), total + 30);
    }
    enough(served > 30 && served < total, || format!("{served} of {total} calls"));
}

#[test]
fn cast__all_arrive_once_also_when_there_is_no_room() {
    const COUNT: u64 = 2_000;
    for seed in seeds(0..3) {
        let cluster = Cluster::of_seed(seed, 3..4, None);
        let log = Log::default();
        let casts = Rc::clone(&log);
        cluster.run("cast", move |_, net| {
            let log = Rc::clone(&casts);
            async move {
                let (rpc, noted) = (Rpc::open(&net), Rc::new(Cell::new(0)));
                serve(&rpc, &log, &noted);
                let to = (net.rank() + 1) % net.size();
                for number in 0..COUNT {
                    let args = [&number.to_le_bytes()[..], &pattern(number, 2_000)].concat();
                    while let Err(error) = rpc.cast(to, NOTE, &args) {
                        assert_eq!(error.cause, Cause::Busy);
                        rpc.room(to).await;
                    }
                }
                rpc.flush().await;
                while noted.get() < COUNT {
                    net.sleep(Duration::from_millis(1)).await;
                }
                rpc
            }
        });
        let log = log.borrow();
        assert!(log.len() as u64 == 3 * COUNT && log.values().all(|&times| times == 1));
    }
}

#[test]
fn cast__ends_where_ranks_are_cut_off_and_none_arrives_twice() {
    seeds(0..40).for_each(|seed| run_casts(&Cluster::rough(seed, 2..5)));
}

#[test]
fn call__deadlines_cancellation_and_errors_name_rank_and_cause() {
    let cluster = Cluster { config: SimConfig::new(2, 1), dies: None };
    cluster.run("rpc errors", |_, net| async move {
        let rpc = Rpc::open(&net);
        serve(&rpc, &Log::default(), &Rc::default());
        let other = 1 - net.rank();
        let within = Duration::from_millis(3);
        let late = rpc.call(other, NEVER, b"").within(within).await.unwrap_err();
        assert_eq!((late.rank, late.cause), (other, Cause::Deadline { after: within }));
        let unknown = rpc.call(other, 99, b"").await.unwrap_err();
        assert_eq!(unknown.cause, Cause::NoService);
        assert!(unknown.to_string().contains(&format!("method 99 of rank {other}")));
        // Requests that nobody waits for any more are seen by the service.
        drop(rpc.call(other, NEVER, b""));
        rpc.serve(10, |_, _| panic!("no luck"));
        rpc.serve(11, |request, _| drop(request));
        net.sleep(Duration::from_millis(3)).await;
        let panicked = rpc.call(other, 10, b"").await.unwrap_err();
        assert_eq!(panicked.cause, Cause::Panicked("no luck".to_string()));
        assert_eq!(rpc.call(other, 11, b"").await.unwrap_err().cause, Cause::Unanswered);
        let method = rpc.method::<(u32, String), String>(12);
        method.serve(|answer, (times, text)| answer.give(&text.repeat(times as usize)));
        net.sleep(Duration::from_millis(3)).await;
        assert_eq!(method.call(other, &(3, "ab".to_string())).await.as_deref(), Ok("ababab"));
        let wrong = rpc.method::<u8, u8>(12).call(other, &1).await.unwrap_err();
        assert!(matches!(wrong.cause, Cause::Refused(_)), "{wrong}");
        assert_eq!(rpc.call(99, ECHO, b"").await.unwrap_err().rank, 99);
        assert_eq!(rpc.unanswered(), 1, "the first was dropped when the second came");
        rpc
    });
}

#[test]
fn rpc__calls_before_the_service_is_there_wait_for_it() {
    let cluster = Cluster { config: SimConfig::new(2, 1), dies: None };
    cluster.run("rpc early", |_, net| async move {
        if net.rank() == 0 {
            net.sleep(Duration::from_millis(20)).await;
        }
        let rpc = Rpc::open(&net);
        serve(&rpc, &Log::default(), &Rc::default());
        if net.rank() == 1 {
            for number in 0..50u64 {
                let args = [&number.to_le_bytes()[..], &pattern(number, 10)].concat();
                assert_eq!(rpc.call(0, ECHO, &args).await, Ok(args));
            }
        }
        rpc
    });
}

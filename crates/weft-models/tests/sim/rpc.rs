//! Calls under faults: each is executed at most once, and ends with its answer or with the cause.

use crate::swarm::{enough, seeds, Cluster, MS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::rpc::{CallError, Cause, Request, Rpc};
use weft_sim::{Env, SimConfig};

const ECHO: u16 = 1;
const LATER: u16 = 2;
const NOTE: u16 = 3;
const RELAY: u16 = 4;
const NEVER: u16 = 5;
const BAD: u16 = 6;

/// Executions of each call: caller, its number.
type Log = Rc<RefCell<BTreeMap<(usize, u64), u32>>>;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(7).wrapping_add(seed)) as u8).collect()
}

fn note(log: &Log, from: usize, args: &[u8]) -> u64 {
    let number = u64::from_le_bytes(args[..8].try_into().unwrap());
    *log.borrow_mut().entry((from, number)).or_default() += 1;
    assert!(args[8..] == pattern(number, args.len() - 8), "call {number} of rank {from}");
    number
}

fn serve(rpc: &Rpc<Live>, log: &Log, noted: &Rc<Cell<u64>>) {
    let echo = Rc::clone(log);
    rpc.serve(ECHO, move |request, args| {
        note(&echo, request.from(), args);
        request.answer(args);
    });
    let later = Rc::clone(log);
    let net = rpc.net().clone();
    rpc.serve(LATER, move |request: Request<Live>, args| {
        let number = note(&later, request.from(), args);
        let (sleep, args) = (net.sleep(Duration::from_micros(number * 37 % 3_000)), args.to_vec());
        net.spawn(async move {
            sleep.await;
            request.answer_parts(&[&args[..4], &args[4..]]);
        });
    });
    let (casts, count) = (Rc::clone(log), Rc::clone(noted));
    rpc.serve(NOTE, move |request, args| {
        assert!(!request.wants_answer());
        note(&casts, request.from(), args);
        count.set(count.get() + 1);
    });
    let relayed = Rc::clone(log);
    rpc.serve(RELAY, move |request: Request<Live>, args| {
        note(&relayed, request.from(), args);
        let rpc = request.rpc().unwrap();
        let net = rpc.net().clone();
        let next = (net.rank() + 1) % net.size();
        let call = rpc.call(next, BAD, args);
        net.spawn(async move {
            match call.await {
                Ok(_) => panic!("it refuses"),
                Err(CallError { cause: Cause::Refused(text), .. }) => {
                    request.answer(text.as_bytes())
                }
                Err(error) => request.refuse(&error.to_string()),
            }
        });
    });
    rpc.serve(BAD, |request, args| request.refuse(&format!("{} bytes", args.len())));
    let kept = RefCell::new(Vec::new());
    rpc.serve(NEVER, move |request, _| {
        let mut kept = kept.borrow_mut();
        kept.retain(|request: &Request<Live>| !request.is_cancelled());
        kept.push(request);
    });
}

/// Makes calls of all kinds to all ranks, several at a time.
async fn caller(env: Env, net: Live, rpc: Rpc<Live>, log: Log, cluster: Rc<Cluster>) {
    let (me, mut rng) = (net.rank(), env.rng());
    let mut number = 0;
    for _ in 0..12 {
        let mut calls = Vec::new();
        for _ in 0..1 + rng.below(6) {
            number += 1;
            let to = rng.below(net.size() as u64) as usize;
            let method = [ECHO, LATER, RELAY][rng.below(3) as usize];
            let long = if rng.below(8) == 0 { 20_000 } else { 100 };
            let body = pattern(number, rng.below(long) as usize);
            let head = u64::to_le_bytes(number);
            let call = rpc.call_parts(to, method, &[&head, &body]);
            calls.push((to, method, number, [&head[..], &body].concat(), call));
        }
        if rng.below(3) == 0 {
            env.sleep(rng.below(5 * MS)).await;
        }
        for (to, method, number, args, call) in calls {
            let executed = |log: &Log| log.borrow().get(&(me, number)).copied().unwrap_or(0);
            match call.await {
                Ok(answer) => {
                    let right = match method {
                        RELAY => format!("{} bytes", args.len()).into_bytes(),
                        _ => args,
                    };
                    assert!(answer == right, "call {number} of rank {me}");
                    assert_eq!(executed(&log), 1);
                }
                Err(error) => {
                    let next = (to + 1) % net.size();
                    let is_relay = method == RELAY && cluster.may_part(to, next);
                    assert!(cluster.may_part(me, to) || is_relay, "rank {me}: {error}");
                    assert!(executed(&log) <= 1);
                }
            }
        }
    }
}

/// Runs callers and services on all ranks; returns the executions, and the ranks that died.
fn run_calls(cluster: Cluster) -> (usize, usize) {
    let (log, cluster) = (Log::default(), Rc::new(cluster));
    let (calls, all) = (Rc::clone(&log), Rc::clone(&cluster));
    let outcome = cluster.run("rpc", move |env, net| {
        let (log, cluster) = (Rc::clone(&calls), Rc::clone(&all));
        async move {
            let rpc = Rpc::open(&net);
            serve(&rpc, &log, &Rc::default());
            caller(env, net, rpc.clone(), log, cluster).await;
            rpc
        }
    });
    let log = log.borrow();
    assert!(log.values().all(|&times| times == 1), "seed {}", cluster.config.seed);
    (log.len(), outcome.died.len())
}

#[test]
fn rpc__calls_run_at_most_once_and_end_under_faults() {
    let (mut failed, mut total) = (0, 0);
    for seed in seeds(0..100) {
        let (calls, died) = run_calls(Cluster::of_seed(seed, 2..6, Some(0..6)));
        (total, failed) = (total + calls, failed + died);
    }
    enough(total > 500 && failed > 3, || format!("{total} calls, {failed} deaths"));
}

#[test]
fn rpc__calls_run_at_most_once_and_end_where_ranks_are_cut_off() {
    let total: usize = seeds(0..300).map(|seed| run_calls(Cluster::rough(seed, 2..6)).0).sum();
    enough(total > 500, || format!("{total} calls"));
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

/// Casts to all others until they have gone out, or the rank fails.
async fn caster(rpc: &Rpc<Live>, cluster: &Cluster) {
    const COUNT: u64 = 400;
    let (me, size) = (rpc.net().rank(), rpc.net().size());
    let mut number = 0u64;
    for to in (0..COUNT as usize).map(|turn| (me + 1 + turn) % size).filter(|&to| to != me) {
        number += 1;
        let args = [&number.to_le_bytes()[..], &pattern(number, 9_000)].concat();
        loop {
            match rpc.cast(to, NOTE, &args).map_err(|error| error.cause) {
                Ok(()) => break,
                Err(Cause::Busy) => rpc.room(to).await,
                Err(cause) => {
                    assert!(cluster.may_part(me, to), "rank {me}: {cause}");
                    break;
                }
            }
        }
    }
    rpc.flush().await;
}

#[test]
fn cast__ends_where_ranks_are_cut_off_and_none_arrives_twice() {
    for seed in seeds(0..40) {
        let cluster = Rc::new(Cluster::rough(seed, 2..5));
        let (log, faults) = (Log::default(), Rc::clone(&cluster));
        let casts = Rc::clone(&log);
        cluster.run("cast cut off", move |_, net| {
            let (log, faults) = (Rc::clone(&casts), Rc::clone(&faults));
            async move {
                let rpc = Rpc::open(&net);
                serve(&rpc, &log, &Rc::default());
                caster(&rpc, &faults).await;
                rpc
            }
        });
        assert!(log.borrow().values().all(|&times| times == 1), "seed {seed}");
    }
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

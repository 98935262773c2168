//! Calls under faults: each is executed at most once, and ends with its answer or with the cause.

use crate::cluster::{Cluster, Ends, MS};
use crate::Report;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::rpc::{CallError, Cause, Request, Rpc};
use weft_sim::Env;

/// The method answers with its arguments.
pub const ECHO: u16 = 1;
/// The method answers with its arguments after a while.
pub const LATER: u16 = 2;
/// The method is cast, and has no answer.
pub const NOTE: u16 = 3;
/// The method calls the next rank, and answers with the text of the refusal.
pub const RELAY: u16 = 4;
/// The method keeps the request.
pub const NEVER: u16 = 5;
/// The method refuses.
pub const BAD: u16 = 6;

/// Executions of each call: caller, its number.
pub type Log = Rc<RefCell<BTreeMap<(usize, u64), u32>>>;

/// Returns the bytes of a call.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(7).wrapping_add(seed)) as u8).collect()
}

fn note(log: &Log, from: usize, args: &[u8]) -> u64 {
    let number = u64::from_le_bytes(args[..8].try_into().unwrap());
    *log.borrow_mut().entry((from, number)).or_default() += 1;
    assert!(args[8..] == pattern(number, args.len() - 8), "call {number} of rank {from}");
    number
}

/// Serves all methods; `noted` counts the casts.
pub fn serve(rpc: &Rpc<Live>, log: &Log, noted: &Rc<Cell<u64>>) {
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

/// The way in which ranks end, once they have made their calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The ranks serve until all have ended.
    Serving,
    /// Some ranks drop their services, and go on without them or leave.
    Dropping,
}

/// Makes calls of all kinds to all ranks, several at a time.
async fn caller(
    env: Env,
    net: Live,
    rpc: Rpc<Live>,
    log: Log,
    (cluster, end): (Rc<Cluster>, End),
) -> u64 {
    let mut failed = 0;
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
                    let may_end = end == End::Dropping;
                    let may_fail = may_end || cluster.may_part(me, to) || is_relay;
                    assert!(may_fail, "rank {me}: {error}");
                    assert!(executed(&log) <= 1);
                    failed += 1;
                }
            }
        }
    }
    failed
}

/// Runs callers and services on all ranks: a call is executed at most once, and one that ends with
/// its answer exactly once. Ranks that end at once drop their services, while others may call them;
/// of those that end together, the ranks of half of the seeds do.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    let (log, cluster) = (Log::default(), Rc::new(cluster.clone()));
    let (calls, all) = (Rc::clone(&log), Rc::clone(&cluster));
    let failed = Rc::new(Cell::new(0));
    let errors = Rc::clone(&failed);
    let end = match ends == Ends::AtOnce || cluster.config.seed.is_multiple_of(2) {
        true => End::Dropping,
        false => End::Serving,
    };
    let outcome = cluster.run_to(ends, "rpc", move |env, net| {
        let (log, cluster, errors) = (Rc::clone(&calls), Rc::clone(&all), Rc::clone(&errors));
        async move {
            let rpc = Rpc::open(&net);
            serve(&rpc, &log, &Rc::default());
            let failed = caller(env, net, rpc.clone(), log, (cluster, end)).await;
            errors.set(errors.get() + failed);
            (end == End::Serving).then_some(rpc)
        }
    });
    let log = log.borrow();
    assert!(log.values().all(|&times| times == 1), "seed {}", cluster.config.seed);
    Report { operations: log.len() as u64, errors: failed.get(), outcome }
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

/// Casts to all others: none arrives twice.
///
/// # Panics
/// A promise does not hold.
pub fn run_casts(cluster: &Cluster) {
    let cluster = Rc::new(cluster.clone());
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
    let seed = cluster.config.seed;
    assert!(log.borrow().values().all(|&times| times == 1), "seed {seed}");
}

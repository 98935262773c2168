//! Runs plans drawn from seeds, checks them, and makes failing ones smaller.

use crate::checker::{Checker, Lane};
use crate::flood;
use crate::plan::{shrink, Active, Collective, Kind, Message, Plan, NEVER, WILD};
use crate::remote;
use crate::runner::Outcome;
use crate::services;
use crate::shared::{me, peer, Part, Shared};
use crate::sim::{Env, Failure, Sim};
use crate::tasks::join_all;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use weft::endpoint::ChoiceError;
use weft::{ActiveMessage, Choices, Op, Operation, Status};
use weft_core::{OpError, PeerId};

/// The results of a plan without failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanReport {
    /// The end of the simulation.
    pub outcome: Outcome,
    /// Messages delivered and checked.
    pub delivered: u64,
    /// Operations that failed because a peer died.
    pub failed: u64,
}

/// Runs one plan.
pub fn run_plan(plan: &Plan) -> Result<PlanReport, Failure> {
    run_traced(plan).map(|(report, _)| report)
}

/// Runs one plan; its packets are kept if its configuration says so.
pub(crate) fn run_traced(plan: &Plan) -> Result<(PlanReport, Trace), Failure> {
    let mut sim = Sim::new(Kind::of(&plan.config).to_string(), plan.config.clone());
    let checker = Checker::shared(plan.config.seed);
    let (mortal, cut_off) = (plan.mortal(), plan.cut_off());
    let shared = Rc::new(Shared {
        plan: plan.clone(),
        checker: Rc::clone(&checker),
        mortal,
        cut_off,
        keys: RefCell::default(),
        counters: RefCell::default(),
        exports: RefCell::default(),
    });
    let program = Rc::clone(&shared);
    sim.spawn_all(move |env| host_program(env, Rc::clone(&program)));
    let run = sim.run();
    let mut books = checker.borrow_mut();
    let verdict = books.verify(&shared.mortal);
    match (run, verdict) {
        (Ok(outcome), Ok(())) => {
            let (delivered, failed) = (books.delivered(), books.failed());
            let trace = sim.network().borrow().trace().clone();
            Ok((PlanReport { outcome, delivered, failed }, trace))
        }
        (Ok(_), Err(violations)) => Err(sim.failure(violations.to_string())),
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(v)) => Err(sim.failure(format!("{}\n{v}", failure.what))),
    }
}

/// Parses seeds as people write them: `A..B`, B not included, or the first `N`.
///
/// # Errors
/// The expected form.
pub fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let parsed = match text.split_once("..") {
        Some((from, to)) => from.parse().and_then(|from| Ok(from..to.parse()?)),
        None => text.parse().map(|count| 0..count),
    };
    match parsed {
        Ok(seeds) if !seeds.is_empty() => Ok(seeds),
        _ => Err("seeds such as 0..1000, or a number of them, are wanted".to_string()),
    }
}

/// Runs the plan of a seed; a failure is shrunk with at most `tries` runs and described with the
/// plan that remains.
pub fn run_seed(seed: u64, kind: Kind, tries: usize) -> Result<PlanReport, Failure> {
    let plan = Plan::of_seed(seed, kind);
    run_plan(&plan).map_err(|failure| explain(&plan, failure, tries))
}

/// Runs the plan of every seed, until the first failure.
pub fn swarm(
    seeds: Range<u64>,
    kind: Kind,
    tries: usize,
    each: &mut dyn FnMut(u64, &PlanReport),
) -> Result<(), Failure> {
    for seed in seeds {
        each(seed, &run_seed(seed, kind, tries)?);
    }
    Ok(())
}

/// Describes a failure with the smallest plan found in `tries` runs that still fails.
pub(crate) fn explain(plan: &Plan, failure: Failure, tries: usize) -> Failure {
    let small = shrink(plan, tries, &mut |p| run_plan(p).is_err());
    let last = run_plan(&small).err().unwrap_or(failure);
    Failure { what: format!("{}\nin {small}", last.what), ..last }
}

async fn host_program(env: Env, shared: Rc<Shared>) {
    choose(&env, &shared);
    let never = post_never(&env, &shared);
    remote::register(&env, &shared);
    let mut parts: Vec<Part> = vec![
        Box::pin(send_all(env.clone(), Rc::clone(&shared))),
        Box::pin(send_actives(env.clone(), Rc::clone(&shared))),
        Box::pin(handle_actives(env.clone(), Rc::clone(&shared))),
        Box::pin(remote::act_all(env.clone(), Rc::clone(&shared))),
    ];
    parts.extend(flood::parts(&env, &shared));
    if shared.plan.config.services {
        parts.extend(services::parts(&env, &shared));
    }
    let mut lanes: BTreeMap<(Option<u32>, u64), Vec<Message>> = BTreeMap::new();
    for m in shared.plan.messages.iter().filter(|m| m.dst == me(&env)) {
        let source = if m.tag & WILD == 0 { Some(m.src) } else { None };
        let tag = if source.is_some() { m.tag } else { WILD };
        lanes.entry((source, tag)).or_default().push(*m);
    }
    for ((source, _), messages) in lanes {
        let (env, shared) = (env.clone(), Rc::clone(&shared));
        match source {
            Some(_) => parts.push(Box::pin(receive_lane(env, shared, messages))),
            None => parts.push(Box::pin(receive_wild(env, shared, messages))),
        }
    }
    join_all(parts).await;
    cancel(&env, &shared, never);
    if env.incarnation > 0 {
        find_strays(&env, &shared);
    }
    if !shared.plan.collectives.is_empty() {
        collectives(env.clone(), Rc::clone(&shared)).await;
    }
    flood::check_room(&env, &shared);
}

/// Makes the plan's choices for single peers. Some come too late: the peer has called already.
fn choose(env: &Env, shared: &Shared) {
    let mine: Vec<_> = shared.plan.choices.iter().filter(|c| c.at == me(env)).collect();
    if mine.is_empty() {
        return;
    }
    let chosen = env.packets().map_err(|e| e.to_string()).and_then(|packets| {
        mine.iter().try_for_each(|c| {
            let (transfer, reliability, mtu) = (c.transfer, c.reliability, c.mtu);
            let choices = Choices { transfer, reliability, mtu, ..packets.endpoint().choices() };
            match packets.endpoint().peer(peer(env, c.peer)).choose(&choices) {
                Ok(()) | Err(ChoiceError::Begun) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    });
    if let Err(error) = chosen {
        shared.checker.borrow_mut().violation(|| format!("host {}: {error}", me(env)));
    }
}

/// Posts receives that nothing will match: from any source, and from a host that lives.
fn post_never(env: &Env, shared: &Shared) -> Vec<Operation> {
    let next = (env.host + 1) % env.hosts;
    let post = |i: u32| {
        let from =
            (i % 2 == 1 && !shared.mortal(next) && !shared.gives_up(env)).then(|| env.peer(next));
        env.endpoint.recv(from, NEVER, u64::from(i), vec![0; 100])
    };
    (0..shared.plan.cancels).map(post).collect()
}

/// Cancels the receives of [`post_never`]; none may have ended, and no message may match them.
fn cancel(env: &Env, shared: &Shared, never: Vec<Operation>) {
    let ended = never.iter().filter(|receive| receive.is_done()).count();
    let found = env.endpoint.probe(None, NEVER, 0xff);
    if ended > 0 || found.is_some() {
        let host = env.host;
        let mut checker = shared.checker.borrow_mut();
        checker.violation(|| format!("host {host}: {ended} receives of nothing ended, {found:?}"));
    }
}

/// Checks that a second incarnation has no message left when all of its own were received.
fn find_strays(env: &Env, shared: &Shared) {
    if let Some(stray) = env.endpoint.probe(None, 0, u64::MAX) {
        let (mut checker, me) = (shared.checker.borrow_mut(), me(env));
        checker.violation(|| format!("host {me}: not meant for this incarnation: {stray:?}"));
    }
}

/// Returns the lane that stands for the active messages from `src` to `dst` in the checks.
fn active_lane(src: u32, dst: u32) -> Lane {
    Lane { src, dst, tag: u64::MAX }
}

/// Number of the handler of active messages.
const HANDLER: u32 = 5;

/// Posts this host's active messages in order.
async fn send_actives(env: Env, shared: Rc<Shared>) {
    for &Active { dst, len, .. } in shared.plan.actives.iter().filter(|a| a.src == me(&env)) {
        let (lane, peer) = (active_lane(me(&env), dst), peer(&env, dst));
        let (index, data) = shared.checker.borrow_mut().send_posted(lane, len);
        let result = loop {
            match env.endpoint.active().send(peer, HANDLER, index as u32, &data) {
                Err(OpError::Busy) => env.sleep(10_000).await,
                other => break other,
            }
        };
        let failure = result.err().map(|e| (e.to_string(), shared.accepts(&env, &e, dst, peer)));
        shared.checker.borrow_mut().send_ended(lane, index, failure);
        env.endpoint.yield_now().await;
    }
}

/// Checks the active messages for this host until all have arrived.
async fn handle_actives(env: Env, shared: Rc<Shared>) {
    let mine = || shared.plan.actives.iter().filter(|a| a.dst == me(&env));
    let left = Rc::new(Cell::new(mine().count()));
    let sources: BTreeMap<PeerId, u32> = mine().map(|a| (peer(&env, a.src), a.src)).collect();
    let waiting: Rc<RefCell<Option<Waker>>> = Rc::default();
    let (host, count, waker) = (me(&env), Rc::clone(&left), Rc::clone(&waiting));
    let checker = Rc::clone(&shared.checker);
    let ticket = checker.borrow_mut().posted(host, format!("{} active messages", left.get()));
    env.endpoint.active().handle(HANDLER, move |_, ActiveMessage { source, argument, data }| {
        let mut checker = checker.borrow_mut();
        let Some(&src) = sources.get(&source) else {
            return checker.violation(|| format!("host {host}: active message from {source}"));
        };
        let lane = active_lane(src, host);
        if u64::from(argument) != checker.next_index(lane) {
            checker.violation(|| format!("{lane}: argument {argument} came out of order"));
        }
        checker.received(lane, data.len(), &data);
        count.set(count.get().saturating_sub(1));
        waker.take().into_iter().for_each(Waker::wake);
    });
    poll_fn(|cx| {
        *waiting.borrow_mut() = Some(cx.waker().clone());
        if left.get() == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    shared.checker.borrow_mut().ended(ticket);
}

/// Posts this host's messages in order, `depth` at a time.
async fn send_all(env: Env, shared: Rc<Shared>) {
    let mine: Vec<_> = shared.plan.messages.iter().filter(|m| m.src == me(&env)).collect();
    for batch in mine.chunks(shared.plan.depth.max(1)) {
        let pause = batch.iter().map(|m| m.pause_ns).max().unwrap_or(0);
        if pause > 0 {
            env.sleep(pause).await;
        }
        join_all(batch.iter().map(|m| send_one(&env, &shared, m))).await;
    }
}

async fn send_one(env: &Env, shared: &Shared, m: &Message) {
    let lane = Lane { src: m.src, dst: m.dst, tag: m.tag };
    let peer = peer(env, m.dst);
    let (index, data) = shared.checker.borrow_mut().send_posted(lane, m.len);
    let what = format!("send {index} of {lane}, {} bytes", m.len);
    let ticket = shared.checker.borrow_mut().posted(me(env), what);
    let (result, _) = match m.sync {
        true => env.endpoint.send_sync(peer, m.tag, data).await,
        false => env.endpoint.send(peer, m.tag, data).await,
    };
    let failure = result.err().map(|e| (e.to_string(), shared.accepts(env, &e, m.dst, peer)));
    let mut checker = shared.checker.borrow_mut();
    checker.send_ended(lane, index, failure);
    checker.ended(ticket);
}

/// Receives into `room` bytes in the manner of `m`; returns no bytes when a matched probe ends in
/// an error.
async fn receive(
    env: &Env,
    m: &Message,
    from: Option<PeerId>,
    (tag, ignore): (u64, u64),
    room: usize,
) -> (Result<Status, OpError>, Vec<u8>) {
    if !m.sized {
        return env.endpoint.recv(from, tag, ignore, vec![0; room]).await;
    }
    match env.endpoint.recv_sized(from, tag, ignore, room).await {
        Ok((status, data)) => (Ok(status), data),
        Err(error) => (Err(error), Vec::new()),
    }
}

/// Receives the messages of one sender and tag.
async fn receive_lane(env: Env, shared: Rc<Shared>, messages: Vec<Message>) {
    for m in messages {
        let lane = Lane { src: m.src, dst: m.dst, tag: m.tag };
        let what = format!("receive of {lane}, {} bytes", m.len);
        let ticket = shared.checker.borrow_mut().posted(me(&env), what);
        let peer = peer(&env, m.src);
        let (result, data) = receive(&env, &m, Some(peer), (m.tag, 0), m.len - m.short).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match result {
            Ok(status) if m.short == 0 => {
                if status.source != Some(peer) || status.tag != m.tag {
                    checker.violation(|| format!("{lane}: completed as {status:?}"));
                }
                checker.received(lane, status.len, &data[..status.len]);
            }
            Ok(_) => checker.violation(|| format!("{lane}: nobody was told of the short buffer")),
            Err(OpError::Truncated { sent }) if m.short > 0 => {
                checker.received(lane, sent as usize, &data);
            }
            Err(e) if shared.accepts(&env, &e, m.src, peer) => return checker.receive_failed(lane),
            Err(e) => return checker.violation(|| format!("{lane}: receive failed: {e}")),
        }
    }
}

/// Receives the messages from any source with any low byte of the tag.
async fn receive_wild(env: Env, shared: Rc<Shared>, messages: Vec<Message>) {
    let room = messages.iter().map(|m| m.len).max().unwrap_or(0);
    let sources: BTreeMap<PeerId, u32> =
        messages.iter().map(|m| (peer(&env, m.src), m.src)).collect();
    for m in &messages {
        let what = format!("receive from anywhere, one of {}", messages.len());
        let ticket = shared.checker.borrow_mut().posted(me(&env), what);
        let (result, data) = receive(&env, m, None, (WILD, 0xff), room).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match result {
            Ok(status) => {
                let Some(&src) = status.source.and_then(|peer| sources.get(&peer)) else {
                    return checker.violation(|| format!("from nobody: {status:?}"));
                };
                let lane = Lane { src, dst: me(&env), tag: status.tag };
                checker.received(lane, status.len, &data[..status.len]);
            }
            Err(e) => {
                let host = env.host;
                return checker.violation(|| format!("host {host}: wild receive failed: {e}"));
            }
        }
    }
}

async fn collectives(env: Env, shared: Rc<Shared>) {
    let world = env.world();
    for (i, c) in shared.plan.collectives.iter().enumerate() {
        let ticket = shared.checker.borrow_mut().posted(env.host, format!("{c:?}"));
        let wrong = collective(&world, i, c).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        if let Some(wrong) = wrong {
            checker.violation(|| format!("host {}: {c:?}: {wrong}", env.host));
        }
    }
}

/// Runs one collective; returns the fault of its result.
async fn collective(world: &weft::Group, index: usize, c: &Collective) -> Option<String> {
    let (rank, size) = (world.rank(), world.size());
    let bytes = |of: usize, len: usize| vec![(index * 31 + of) as u8; len];
    let mine = |len: usize| (0..len).map(|i| (rank + i) as u64).collect();
    let sum = |i: usize| (size * (size - 1) / 2 + size * i) as u64;
    let right = match *c {
        Collective::Barrier => world.barrier().await.map(|()| true),
        Collective::Broadcast { root, len } => {
            let mine = if rank == root { bytes(root, len) } else { Vec::new() };
            world.broadcast(root, mine).await.map(|got| got == bytes(root, len))
        }
        Collective::AllReduce { len } => {
            let got = world.allreduce(mine(len), Op::Sum).await;
            got.map(|got| got.into_iter().eq((0..len).map(sum)))
        }
        Collective::ReduceScatter { len } => {
            let start = |rank: usize| rank * len / size;
            let counts: Vec<_> = (0..size).map(|r| start(r + 1) - start(r)).collect();
            let got = world.reduce_scatter(mine(len), &counts, Op::Sum).await;
            got.map(|got| got.into_iter().eq((start(rank)..start(rank + 1)).map(sum)))
        }
        Collective::AllGather { len } => {
            let got = world.allgather(bytes(rank, len)).await;
            got.map(|all| all.into_iter().eq((0..size).map(|r| bytes(r, len))))
        }
        Collective::BroadcastInto { root, len } => {
            let mine = if rank == root { bytes(root, len) } else { vec![0; len] };
            world.placed().start_broadcast(root, mine).await.map(|got| got == bytes(root, len))
        }
        Collective::AllGatherInto { len } => {
            let counts: Vec<_> = (0..size).map(|r| (r + 1) * len).collect();
            let wanted: Vec<u8> = (0..size).flat_map(|r| bytes(r, (r + 1) * len)).collect();
            let start: usize = counts[..rank].iter().sum();
            let mut all = vec![0; wanted.len()];
            all[start..start + counts[rank]].copy_from_slice(&bytes(rank, counts[rank]));
            world.placed().start_allgather(&counts, all).await.map(|got| got == wanted)
        }
        Collective::AllToAll { len } => {
            let counts: Vec<_> = (0..size).map(|r| (rank + r + 1) * len).collect();
            let part = |from: usize, to: usize| bytes(from * size + to, (from + to + 1) * len);
            let mine = (0..size).flat_map(|to| part(rank, to)).collect();
            let wanted: Vec<u8> = (0..size).flat_map(|from| part(from, rank)).collect();
            world.placed().start_alltoall(&counts, mine, &counts).await.map(|got| got == wanted)
        }
    };
    match right {
        Ok(true) => None,
        Ok(false) => Some("wrong result".into()),
        Err(e) => Some(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn parse_seeds__range_or_count() {
        assert_eq!(parse_seeds("3..7"), Ok(3..7));
        assert_eq!(parse_seeds("25"), Ok(0..25));
        for bad in ["", "0", "7..3", "3..", "..", "-1..4", "x"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn failure__names_the_command_that_runs_the_same_plan() {
        for kind in Kind::ALL {
            let mut plan = Plan::of_seed(1003, kind);
            // No program is that quick.
            plan.config.limit_ns = 1;
            let failure = run_plan(&plan).expect_err("out of time").to_string();
            let replay = format!("seed 1003; replay: weft sim {kind} --seed 1003");
            assert!(failure.ends_with(&replay), "{failure}");
        }
    }

    #[test]
    fn failure__of_a_test_names_the_test() {
        let mut plan = Plan::of_seed(1, Kind::default());
        plan.config.limit_ns = 1;
        let failure = run_plan(&plan).expect_err("out of time").of_test("weft-sim", "networks");
        assert!(failure.replay.starts_with("cargo test -p weft-sim --test networks"));
        assert!(failure.replay.ends_with("failure__of_a_test_names_the_test"), "{failure}");
    }
}

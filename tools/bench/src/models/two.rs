//! Figures of two ranks: the second one serves.

use super::bytes::Bytes;
use super::streams;
use crate::logp::clock_ns;
use crate::own::opened;
use crate::rank::{Outcome, Rank, Task};
use crate::volley::{median_ns, per, warm_up};
use anyhow::Result;
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;
use weft::{Address, Group};
use weft_models::actors::Actors;
use weft_models::net::{Blocking, Live};
use weft_models::objects::{Object, Objects, Placement, Read, Shared};
use weft_models::regions::Regions;
use weft_models::rpc::{threads, Rpc};

/// The method that answers with its arguments.
pub const ECHO: u16 = 1;
/// The method that takes its arguments.
pub const TAKE: u16 = 2;

/// A number; adding nothing to it is the null operation.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct Count(u64);

impl Count {
    /// Returns the number of operations done.
    pub fn done(&self) -> u64 {
        self.0
    }
}

/// Operations; those that change nothing but the count are writes as well.
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Op {
    Null,
    Get,
    Put(Bytes),
}

impl Object for Count {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Get => Read::Value(self.0),
            Op::Null | Op::Put(_) => Read::Write,
        }
    }

    /// Counts the operations, so that their owner knows when it has done all.
    fn apply(&mut self, _: Op) -> u64 {
        self.0 += 1;
        0
    }
}

/// The models of a rank, over its endpoint.
pub struct Models {
    pub net: Live,
    pub rpc: Rpc<Live>,
    /// Calls that were answered.
    pub served: Rc<Cell<u64>>,
    /// Calls whose arguments were taken.
    pub taken: Rc<Cell<u64>>,
    pub remote: Shared<Live, Count>,
    replicated: Shared<Live, Count>,
    pub regions: Regions<Live>,
    pub actors: Actors<Live>,
    /// Arrays of objects that were made.
    pub arrays: Cell<u16>,
    // Its tasks end with it.
    _objects: Objects<Live>,
}

/// Returns the models, which both ranks open at the first use.
pub fn models(rank: &mut Rank) -> Result<Rc<Models>> {
    if let Some(models) = opened::<Option<Rc<Models>>>(rank)? {
        return Ok(Rc::clone(models));
    }
    let (endpoint, _) = rank.weft()?;
    let mine = endpoint.address();
    let theirs = Address::decode(&rank.exchange(&mine.encode())?);
    let theirs = theirs.map_err(|e| anyhow::anyhow!("address: {e}"))?;
    let all = if rank.me == 0 { vec![mine, theirs] } else { vec![theirs, mine] };
    let net = Live::new(&Group::new(endpoint, all, rank.me))?;
    let (rpc, served) = (Rpc::open(&net), Rc::<Cell<u64>>::default());
    let count = Rc::clone(&served);
    rpc.serve(ECHO, move |request, args| {
        request.answer(args);
        count.set(count.get() + 1);
    });
    let taken = Rc::<Cell<u64>>::default();
    let count = Rc::clone(&taken);
    rpc.serve(TAKE, move |request, args| {
        black_box(args);
        request.answer(&[]);
        count.set(count.get() + 1);
    });
    let objects = Objects::open(&net);
    let class = objects.class::<Count>(1);
    let remote = net.block_on(class.open(0, Placement::At(1), Count::default))?;
    let replicated = net.block_on(class.open(1, Placement::Replicated, Count::default))?;
    let regions = Regions::open(&net);
    let _objects = objects;
    let (actors, arrays) = (Actors::open(&net), Cell::default());
    let models =
        Models { net, rpc, served, taken, remote, replicated, regions, actors, arrays, _objects };
    let models = Rc::new(models);
    *opened(rank)? = Some(Rc::clone(&models));
    rank.settle()?;
    Ok(models)
}

/// Measures `one` of the first rank, while the other one serves until `done` is so large.
fn served(
    rank: &mut Rank,
    task: &Task,
    net: &Live,
    done: impl Fn() -> u64,
    mut one: impl FnMut() -> Result<()>,
) -> Result<Outcome> {
    let warm = warm_up(task.iters);
    let last = done() + warm + task.iters;
    rank.sync()?;
    if rank.me == 1 {
        while done() < last {
            net.wait(None);
        }
        return Ok(Outcome::Elsewhere);
    }
    let mut start = Instant::now();
    for i in 0..warm + task.iters {
        if i == warm {
            start = Instant::now();
        }
        one()?;
    }
    Ok(per(start, task.iters))
}

/// A call and its answer, of `size` bytes each.
pub fn call(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let args = vec![1; task.size];
    let one = || {
        let answer = models.rpc.call_blocking(1, ECHO, &args)?;
        anyhow::ensure!(answer.len() == args.len(), "another answer");
        Ok(())
    };
    served(rank, task, &models.net, || models.served.get(), one)
}

/// A call and its answer by a thread that has no endpoint, while this one handles messages.
pub fn thread_call(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let (warm, iters) = (warm_up(task.iters), task.iters);
    let last = models.served.get() + warm + iters;
    rank.sync()?;
    if rank.me == 1 {
        while models.served.get() < last {
            models.net.wait(None);
        }
        return Ok(Outcome::Elsewhere);
    }
    let (desk, caller) = threads::open(&models.rpc)?;
    let args = vec![1; task.size];
    std::thread::scope(|scope| {
        let program = scope.spawn(move || {
            let mut start = Instant::now();
            let call = || caller.call(1, ECHO, &args);
            let calls = (0..warm + iters).try_for_each(|i| {
                if i == warm {
                    start = Instant::now();
                }
                call().map(drop)
            });
            let outcome = per(start, iters);
            caller.close();
            calls.map(|()| outcome)
        });
        desk.run();
        Ok(program.join().map_err(|_| anyhow::anyhow!("the program's thread panicked"))??)
    })
}

/// An operation on an object at the other rank.
pub fn operation(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let done = || models.remote.peek(Count::done).unwrap_or(0);
    let one = || Ok(models.remote.call_blocking(Op::Null).map(drop)?);
    served(rank, task, &models.net, done, one)
}

/// A read of an object that is here.
pub fn read(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    if rank.me == 1 {
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        black_box(models.replicated.call_blocking(black_box(Op::Get))?);
    }
    Ok(per(start, task.iters))
}

/// The begin of a write of a region that only its home has.
pub fn miss(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let region = streams::region(rank, task, &models)?;
    let (clock, mut spans) = (clock_ns(), Vec::new());
    let one = || {
        let start = Instant::now();
        let guard = region.write_blocking()?;
        let span = start.elapsed().as_nanos() as u64;
        drop(guard);
        spans.push(span.saturating_sub(clock));
        // The copy goes back, and is there when this call is answered.
        region.flush();
        models.rpc.call_blocking(1, ECHO, &[])?;
        Ok(())
    };
    served(rank, task, &models.net, || models.served.get(), one)?;
    Ok(if rank.me == 0 { median_ns(spans) } else { Outcome::Elsewhere })
}

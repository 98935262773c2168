//! Streams of two ranks: data go from the first one to the second.

use super::two::{models, Count, Models, Op, ECHO, TAKE};
use crate::rank::{Outcome, Rank, Task};
use crate::volley::{per, warm_up};
use anyhow::{Context, Result};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_models::jobs::Aggregator;
use weft_models::net::{Blocking, Live};
use weft_models::objects::ObjectCause;
use weft_models::order::OrderError;
use weft_models::regions::{Region, RegionId};
use weft_models::rpc::threads::{self, Caller};

/// Jobs in a message.
const PER_MESSAGE: usize = 64;
/// Threads that call.
const CALLERS: u64 = 4;
/// Longest single wait for room.
const STEP: Duration = Duration::from_micros(50);

/// Sends a stream, and takes the time until the other rank has `come` so often as the task says.
fn stream(
    rank: &mut Rank,
    task: &Task,
    models: &Models,
    come: impl Fn() -> u64,
    send: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    let (net, ended) = (&models.net, models.served.get() + 1);
    let last = come() + task.iters;
    rank.sync()?;
    if rank.me == 1 {
        while come() < last {
            net.wait(None);
        }
        // The answer to this call ends the measurement.
        models.rpc.call_blocking(0, ECHO, &[])?;
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    send()?;
    while models.served.get() < ended {
        net.wait(None);
    }
    Ok(per(start, task.iters))
}

/// A job of `size` bytes, of a stream in messages of many.
pub fn job(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let come = Rc::<Cell<u64>>::default();
    let count = Rc::clone(&come);
    let receive = move |_: usize, job: &[u8]| {
        black_box(job);
        count.set(count.get() + 1);
    };
    let jobs = Aggregator::open(&models.net, 0, task.size, PER_MESSAGE, receive);
    let record = vec![1; task.size];
    stream(
        rank,
        task,
        &models,
        || come.get(),
        || {
            for _ in 0..task.iters {
                jobs.push(1, black_box(&record))?;
                if jobs.is_full(1) {
                    models.net.block_on(jobs.room(1));
                }
            }
            Ok(jobs.flush()?)
        },
    )
}

/// A call of `size` bytes of a stream that wants no answers.
pub fn casts(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let (rpc, args) = (&models.rpc, vec![1; task.size]);
    let send = || {
        for _ in 0..task.iters {
            rpc.cast(1, TAKE, &args)?;
            models.net.block_on(rpc.room(1));
        }
        Ok(())
    };
    stream(rank, task, &models, || models.taken.get(), send)
}

/// Calls of one thread of several, which have no endpoint.
fn calls(caller: &Caller, first: u64, count: u64, args: &[u8]) -> Result<()> {
    let mine = (first..count).step_by(CALLERS as usize);
    mine.into_iter().try_for_each(|_| Ok(caller.call(1, TAKE, args).map(drop)?))
}

/// A call of `size` bytes of a stream by four threads, each of which waits for its answers.
pub fn thread_calls(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let args = vec![1; task.size];
    let send = || {
        let (desk, caller) = threads::open(&models.rpc)?;
        std::thread::scope(|scope| {
            let (args, all) = (&args, caller.clone());
            let main = scope.spawn(move || {
                let done = std::thread::scope(|scope| {
                    let call = |first| {
                        let caller = all.clone();
                        scope.spawn(move || calls(&caller, first, task.iters, args))
                    };
                    let threads: Vec<_> = (0..CALLERS).map(call).collect();
                    let ends = threads.into_iter().map(|thread| thread.join());
                    ends.collect::<Vec<_>>()
                });
                caller.close();
                done
            });
            desk.run();
            let ends = main.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            ends.into_iter().try_for_each(|end| match end {
                Ok(done) => done,
                Err(_) => anyhow::bail!("a thread panicked"),
            })
        })
    };
    stream(rank, task, &models, || models.taken.get(), send)
}

/// An operation with `size` bytes of a stream on an object at the other rank.
pub fn operations(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let done = || models.remote.peek(Count::done).unwrap_or(0);
    let op = Op::Put(vec![1; task.size].into());
    stream(rank, task, &models, done, || {
        for _ in 0..task.iters {
            while let Err(error) = models.remote.post(&op) {
                if !matches!(error.cause, ObjectCause::Group(OrderError::Busy)) {
                    return Err(error.into());
                }
                models.net.wait(Some(STEP));
            }
        }
        Ok(())
    })
}

/// Returns a region of `size` bytes whose home is the second rank.
pub fn region(rank: &mut Rank, task: &Task, models: &Models) -> Result<Region<Live, u64>> {
    let region = match rank.me {
        1 => {
            let region = models.regions.create(vec![0; task.size.div_ceil(8)])?;
            rank.tell(&region.id().to_bytes())?;
            region
        }
        _ => {
            let name = rank.receive_note()?;
            let name = name.first_chunk().context("the name of a region")?;
            models.net.block_on(models.regions.map(RegionId::from_bytes(name)))?
        }
    };
    // The home makes progress while the other rank maps the region.
    rank.settle()?;
    Ok(region)
}

/// A read of a region of `size` bytes, of which there is no copy here.
pub fn reads(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let region = region(rank, task, &models)?;
    let (warm, iters) = (warm_up(task.iters), task.iters);
    let ended = models.served.get() + 1;
    rank.sync()?;
    if rank.me == 1 {
        while models.served.get() < ended {
            models.net.wait(None);
        }
        return Ok(Outcome::Elsewhere);
    }
    let mut start = Instant::now();
    for i in 0..warm + iters {
        if i == warm {
            start = Instant::now();
        }
        drop(black_box(region.read_blocking()?));
        region.flush();
    }
    let outcome = per(start, iters);
    models.rpc.call_blocking(1, ECHO, &[])?;
    Ok(outcome)
}

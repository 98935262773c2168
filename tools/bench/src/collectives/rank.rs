//! A rank of `weft bench collectives`: it measures operations of its group, after it has checked
//! the values of each.

use super::Operation;
use anyhow::{bail, ensure, Context, Result};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::process::ExitCode;
use std::time::Instant;
use weft::{Group, Job, Op};

/// Run a rank of `weft bench collectives`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds of one measurement
    seconds: f64,
    /// Operations and their sizes: OPERATION:SIZE
    wanted: Vec<String>,
}

/// Memory of an operation.
struct Case<'a> {
    world: &'a Group,
    operation: Operation,
    numbers: Vec<f32>,
    /// This rank's part of the sum, and the numbers of values of each rank's part.
    part: Vec<f32>,
    counts: Vec<usize>,
    bytes: Vec<u8>,
    others: Vec<u8>,
    /// The bytes of each rank's part.
    lengths: Vec<usize>,
}

impl<'a> Case<'a> {
    fn new(world: &'a Group, operation: Operation, size: usize) -> Case<'a> {
        let ranks = world.size();
        let each = size / 4 / ranks;
        Case {
            world,
            operation,
            numbers: vec![0.0; size / 4],
            part: vec![0.0; each],
            counts: vec![each; ranks],
            bytes: vec![0; size],
            others: vec![0; size],
            lengths: vec![size / ranks; ranks],
        }
    }

    /// Does the operation once.
    fn once(&mut self) -> Result<()> {
        let world = self.world;
        match self.operation {
            Operation::Message => {
                let last = world.size() - 1;
                if world.rank() == 0 {
                    world.send_blocking(last, 1, &self.bytes)?;
                    world.recv_blocking(last, 1, &mut self.bytes)?;
                } else if world.rank() == last {
                    world.recv_blocking(0, 1, &mut self.bytes)?;
                    world.send_blocking(0, 1, &self.bytes)?;
                }
            }
            Operation::Allreduce => {
                world.placed().allreduce(&mut self.numbers, Op::Sum)?;
            }
            Operation::ReduceScatter => {
                let (counts, into) = (&self.counts, &mut self.part);
                world.placed().reduce_scatter(&self.numbers, counts, Op::Sum, into)?;
            }
            Operation::Allgather => {
                world.placed().allgather(&self.lengths, &mut self.bytes)?;
            }
            Operation::Alltoall => {
                let lengths = &self.lengths[..];
                let into = &mut self.others[..];
                world.placed().alltoall((lengths, &self.bytes), (lengths, into))?;
            }
        }
        Ok(())
    }

    /// Returns the seconds of so many operations.
    fn timed(&mut self, count: u64) -> Result<f64> {
        self.world.barrier_blocking()?;
        let start = Instant::now();
        for _ in 0..count {
            self.once()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Returns the seconds of one operation, measured for at least `wanted`.
    fn measure(&mut self, wanted: f64) -> Result<f64> {
        self.timed(2)?;
        let mut count = 1;
        loop {
            // The clock of one rank decides for all.
            let took = self.timed(count)?.to_le_bytes().to_vec();
            let told = self.world.broadcast_blocking(0, took)?;
            let took = f64::from_le_bytes(told.try_into().ok().context("a time")?);
            if took >= wanted {
                let ways = if self.operation == Operation::Message { 2.0 } else { 1.0 };
                return Ok(took / count as f64 / ways);
            }
            let more = (1.2 * wanted / took.max(1e-9)).clamp(2.0, 10.0);
            count = (count as f64 * more) as u64 + 1;
        }
    }
}

/// Binds each rank to a core if there are enough. With more ranks than cores the system places
/// them.
fn pin(world: &Group) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
    if all.count() as usize >= world.size() {
        if let Some(core) = cores.nth(world.rank()) {
            let mut own = CpuSet::new();
            own.set(core);
            // Without a core of its own it is measured where it runs.
            let _ = sched_setaffinity(None, &own);
        }
    }
}

/// Checks that the sum of all ranks is right, before anything is measured.
fn check(world: &Group) -> Result<()> {
    let own = vec![world.rank() as f32 + 1.0; 1 << 16];
    let wanted = (1..=world.size()).sum::<usize>() as f32;
    for len in [2, 700, 1 << 16] {
        let mut sums = own[..len].to_vec();
        world.placed().allreduce(&mut sums, Op::Sum)?;
        ensure!(sums.iter().all(|&sum| sum == wanted), "a sum of {len} values is wrong");
    }
    Ok(())
}

/// Runs the hidden command: rank 0 prints the seconds of each operation.
pub fn rank(args: &Args) -> Result<ExitCode> {
    let job = Job::init()?;
    let world = job.world();
    pin(world);
    check(world)?;
    for wanted in &args.wanted {
        let (name, size) = wanted.split_once(':').context("OPERATION:SIZE")?;
        let Some(operation) = Operation::named(name) else { bail!("no operation {name}") };
        let size = size.parse().context("a size")?;
        let seconds = Case::new(world, operation, size).measure(args.seconds)?;
        if world.rank() == 0 {
            println!("weft-bench {name} {size} {seconds:e}");
        }
    }
    world.barrier_blocking()?;
    Ok(ExitCode::SUCCESS)
}

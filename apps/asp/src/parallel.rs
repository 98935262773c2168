//! The distributed program.

use crate::matrix::Block;
use crate::pipe::{both, Pipe};
use crate::{Arc, Outcome, Params, Summary};
use std::future::Future;
use std::time::Duration;
use weft::{Endpoint, Group, GroupError};
use weft_apps::{owned, owner_of};

/// Tag of the arcs that rank 0 sends out.
const ARCS: u32 = 0x41_00;
/// Tag of the figures gathered at rank 0.
const FIGURES: u32 = 0x41_01;
/// Tag of the kept rows gathered at rank 0.
const ROWS: u32 = 0x41_02;

/// Bytes of an arc in a message.
const ARC_BYTES: usize = 12;
/// Arcs in one message; the last one to a rank has fewer.
const ARCS_PER_MESSAGE: usize = 8 * 1024;
/// Most rows a rank holds that it has received but not used, or made ready but not sent.
pub(crate) const LOOKAHEAD: usize = 16;
/// Cells to compute between two calls that let messages progress: some tens of microseconds.
const CELLS_PER_TURN: usize = 64 * 1024;

/// Computes all distances on all ranks of `world` together; every rank must call it. The graph and
/// the rows to keep are those of rank 0's parameters.
///
/// `progress` is called with the steps done and their number. The outcome is that of
/// [`sequential`](crate::sequential()), on every rank; only rank 0 has [`Outcome::rows`].
///
/// # Errors
/// A rank with which this one communicates failed.
///
/// # Panics
/// On rank 0, when [`Params::check`] refuses the parameters.
pub async fn run(
    world: &Group,
    params: &Params,
    progress: &dyn Fn(u64, u64),
) -> Result<Outcome, GroupError> {
    let plan = Plan::share(world, params).await?;
    let mut block = Block::new(owned(world.rank(), world.size(), plan.nodes), plan.nodes);
    distribute(world, params, &mut block).await?;

    let start = world.endpoint().now();
    let (ready, arrived) = (Pipe::new(LOOKAHEAD), Pipe::new(LOOKAHEAD));
    let mut worker = Worker {
        turns: world.endpoint(),
        block: &mut block,
        nodes: plan.nodes,
        ns_per_cell: params.ns_per_cell,
        ready: &ready,
        arrived: &arrived,
    };
    both(communicate(world, plan.nodes, &ready, &arrived), worker.compute(progress)).await?;
    let elapsed = world.endpoint().now().since(start);

    let (summary, checksum) = gather_figures(world, &block).await?;
    Ok(Outcome {
        nodes: plan.nodes,
        arcs: plan.arcs,
        first_id: plan.first_id,
        ranks: world.size(),
        summary,
        checksum,
        elapsed,
        rows: gather_rows(world, &block, &plan).await?,
    })
}

/// The parameters of rank 0 that every rank must know.
struct Plan {
    nodes: usize,
    arcs: usize,
    first_id: u32,
    /// Indices of the rows to gather, ascending.
    kept: Vec<u32>,
}

impl Plan {
    async fn share(world: &Group, params: &Params) -> Result<Plan, GroupError> {
        let mut message = Vec::new();
        if world.rank() == 0 {
            params.check(world.size()).expect("parameters were checked");
            let graph = &params.graph;
            let numbers = [graph.nodes as u64, graph.arcs.len() as u64, graph.first_id.into()];
            message.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
            let kept = params.kept_rows().expect("parameters were checked");
            message.extend(encode(&kept));
        }
        let message = world.broadcast(0, message).await?;
        let number = |at: usize| read_number(message.get(at..).unwrap_or_default());
        let mut kept = vec![0; message.len().saturating_sub(24) / 4];
        decode(message.get(24..).unwrap_or_default(), &mut kept);
        Ok(Plan {
            nodes: number(0) as usize,
            arcs: number(8) as usize,
            first_id: number(16) as u32,
            kept,
        })
    }
}

/// Sends each rank the arcs that leave its rows. A message that is not full is the last one.
async fn distribute(world: &Group, params: &Params, block: &mut Block) -> Result<(), GroupError> {
    let full = ARCS_PER_MESSAGE * ARC_BYTES;
    if world.rank() != 0 {
        loop {
            let message = world.recv(0, ARCS, full).await?;
            for arc in message.chunks_exact(ARC_BYTES) {
                let mut words = [0; 3];
                decode(arc, &mut words);
                let [from, to, weight] = words;
                block.add(Arc { from, to, weight });
            }
            if message.len() < full {
                return Ok(());
            }
        }
    }
    let mut outgoing = vec![Vec::new(); world.size()];
    for arc in &params.graph.arcs {
        if block.add(*arc) {
            continue;
        }
        let owner = owner_of(arc.from as usize, world.size(), params.graph.nodes);
        outgoing[owner].extend(encode(&[arc.from, arc.to, arc.weight]));
        if outgoing[owner].len() == full {
            world.send(owner, ARCS, std::mem::take(&mut outgoing[owner])).await?;
        }
    }
    for (rank, message) in outgoing.into_iter().enumerate().skip(1) {
        world.send(rank, ARCS, message).await?;
    }
    Ok(())
}

/// Broadcasts the rows in their order, each from its owner: own rows as soon as they are ready,
/// rows of others as they arrive, independently of this rank's computation.
async fn communicate(
    world: &Group,
    nodes: usize,
    ready: &Pipe<Vec<u8>>,
    arrived: &Pipe<Vec<u8>>,
) -> Result<(), GroupError> {
    for k in 0..nodes {
        let owner = owner_of(k, world.size(), nodes);
        if owner == world.rank() {
            world.broadcast(owner, ready.pop().await).await?;
        } else {
            arrived.push(world.broadcast(owner, Vec::new()).await?).await;
        }
    }
    Ok(())
}

/// Progress of messages between pieces of computing.
pub(crate) trait Turns {
    /// Resolves after a round of progress.
    fn turn(&self) -> impl Future<Output = ()>;

    /// Lets the time of a computation pass in a simulation.
    fn pass(&self, time: Duration) -> impl Future<Output = ()>;
}

impl Turns for Endpoint {
    fn turn(&self) -> impl Future<Output = ()> {
        self.yield_now()
    }

    fn pass(&self, time: Duration) -> impl Future<Output = ()> {
        self.sleep(time)
    }
}

/// The computing half of a rank.
pub(crate) struct Worker<'a, T> {
    pub turns: &'a T,
    pub block: &'a mut Block,
    pub nodes: usize,
    pub ns_per_cell: Option<f64>,
    /// Own rows, computed, to be broadcast.
    pub ready: &'a Pipe<Vec<u8>>,
    /// The other ranks' rows.
    pub arrived: &'a Pipe<Vec<u8>>,
}

impl<T: Turns> Worker<'_, T> {
    pub(crate) async fn compute<E>(&mut self, progress: &dyn Fn(u64, u64)) -> Result<(), E> {
        let rows = self.block.rows();
        let mut pivot = vec![0; self.nodes];
        if rows.contains(&0) {
            self.ready.push(encode(self.block.row(0))).await;
        }
        for k in 0..self.nodes {
            if rows.contains(&k) {
                pivot.copy_from_slice(self.block.row(k));
            } else {
                decode(&self.arrived.pop().await, &mut pivot);
            }
            let next = k + 1;
            if rows.contains(&next) {
                // The next pivot first, so that its broadcast overlaps with the rest of this step.
                self.relax(k, &pivot, next, next + 1).await;
                self.ready.push(encode(self.block.row(next))).await;
                self.relax(k, &pivot, rows.start, next).await;
                self.relax(k, &pivot, next + 1, rows.end).await;
            } else {
                self.relax(k, &pivot, rows.start, rows.end).await;
            }
            progress(next as u64, self.nodes as u64);
        }
        Ok(())
    }

    /// Does step `k` for the rows from `start` to before `end`, and lets messages progress in
    /// between.
    async fn relax(&mut self, k: usize, pivot: &[u32], start: usize, end: usize) {
        let step = CELLS_PER_TURN.div_ceil(self.nodes);
        for first in (start..end).step_by(step) {
            self.block.relax(k, pivot, first..end.min(first + step));
            self.turns.turn().await;
        }
        if let Some(ns) = self.ns_per_cell {
            let cells = (end - start) * self.nodes;
            self.turns.pass(Duration::from_nanos((cells as f64 * ns) as u64)).await;
        }
    }
}

/// Returns the summary and the checksum of the whole matrix, on every rank.
async fn gather_figures(world: &Group, block: &Block) -> Result<(Summary, u64), GroupError> {
    let (mut summary, mut digest) = (block.summary(), block.digest());
    let message = |summary: &Summary, digest: u64| {
        let mut bytes = summary.encode();
        bytes.extend(digest.to_le_bytes());
        bytes
    };
    let split = |bytes: &[u8]| {
        let digest = bytes.get(Summary::BYTES..).unwrap_or_default();
        (Summary::decode(bytes), read_number(digest))
    };
    if world.rank() == 0 {
        for rank in 1..world.size() {
            let (theirs, part) = split(&world.recv(rank, FIGURES, Summary::BYTES + 8).await?);
            summary = summary.merge(theirs);
            digest = digest.wrapping_add(part);
        }
    } else {
        world.send(0, FIGURES, message(&summary, digest)).await?;
    }
    Ok(split(&world.broadcast(0, message(&summary, digest)).await?))
}

/// Returns the kept rows at rank 0; none elsewhere.
async fn gather_rows(
    world: &Group,
    block: &Block,
    plan: &Plan,
) -> Result<Vec<(u32, Vec<u32>)>, GroupError> {
    let mut rows = Vec::new();
    for source in plan.kept.iter().copied() {
        let owner = owner_of(source as usize, world.size(), plan.nodes);
        let mine = owner == world.rank();
        if world.rank() == 0 {
            let mut row = vec![0; plan.nodes];
            if mine {
                row.copy_from_slice(block.row(source as usize));
            } else {
                decode(&world.recv(owner, ROWS, plan.nodes * 4).await?, &mut row);
            }
            rows.push((source, row));
        } else if mine {
            world.send(0, ROWS, encode(block.row(source as usize))).await?;
        }
    }
    Ok(rows)
}

pub(crate) fn encode(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn decode(bytes: &[u8], words: &mut [u32]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("chunks of 4 bytes"));
    }
}

/// Returns the first eight bytes as a number; missing ones count as 0.
pub(crate) fn read_number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

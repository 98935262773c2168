//! The distributed program.

use crate::grid::{digest_edges, heated_edge, owned_rows, Block, Colour, Grid, Side};
use crate::{Outcome, Params, Step};
use std::ops::Range;
use std::time::Duration;
use weft::{Group, GroupError, Op};

/// Tag of border rows sent to the rank above, plus the colour.
const TO_ABOVE: u32 = 0x50_00;
/// Tag of border rows sent to the rank below, plus the colour.
const TO_BELOW: u32 = 0x50_02;
/// Tag of the rows gathered at rank 0.
const GATHER: u32 = 0x50_04;

/// Cells to compute between two calls that let messages progress: some tens of microseconds.
const CELLS_PER_TURN: usize = 32 * 1024;
/// Most bytes of matrix in one message of the final gathering.
const GATHER_BYTES: usize = 1 << 20;

struct Worker<'a> {
    world: &'a Group,
    params: &'a Params,
    omega: f64,
    block: Block,
    /// The ranks with the rows above and below.
    above: Option<usize>,
    below: Option<usize>,
}

/// Solves on all ranks of `world` together; every rank must call it with equal parameters.
///
/// `progress` is called after each iteration. The outcome is that of
/// [`sequential`](crate::sequential()), bit for bit, on every rank.
///
/// # Errors
/// A rank with which this one communicates failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run(
    world: &Group,
    params: &Params,
    progress: &dyn Fn(Step),
) -> Result<Outcome, GroupError> {
    params.check().expect("parameters were checked");
    let mut worker = Worker::new(world, params);
    let start = world.endpoint().now();
    let (mut iterations, mut residual, mut converged) = (0, 0.0f64, false);
    while iterations < params.max_iterations && !converged {
        let red = worker.half_sweep(Colour::Red).await?;
        let change = red.max(worker.half_sweep(Colour::Black).await?);
        residual = world.allreduce(vec![change], Op::Max).await?[0];
        converged = residual < params.tolerance;
        iterations += 1;
        progress(Step { iterations, max_iterations: params.max_iterations, residual });
    }
    let elapsed = world.endpoint().now().since(start);
    let checksum = worker.checksum().await?;
    let grid = if params.keep_grid { worker.gather().await? } else { None };
    let end = params.outcome(world.size(), iterations, residual);
    Ok(Outcome { checksum, elapsed, grid, ..end })
}

impl<'a> Worker<'a> {
    fn new(world: &'a Group, params: &'a Params) -> Worker<'a> {
        let (rank, size) = (world.rank(), world.size());
        let rows_of = |rank: usize| owned_rows(rank, size, params.rows);
        let mine = rows_of(rank);
        let has_rows = |rank: &usize| !mine.is_empty() && !rows_of(*rank).is_empty();
        Worker {
            world,
            params,
            omega: params.effective_omega(),
            above: rank.checked_sub(1).filter(has_rows),
            below: Some(rank + 1).filter(|next| *next < size).filter(has_rows),
            block: Block::new(mine.clone(), params.cols),
        }
    }

    /// Relaxes one colour and exchanges its border rows; returns the largest change in this block.
    async fn half_sweep(&mut self, colour: Colour) -> Result<f64, GroupError> {
        let last = self.block.owned();
        if last == 0 {
            return Ok(0.0);
        }
        let (world, tag, bytes) = (self.world, colour as u32, self.block.border_bytes());
        // Posted before computing, so that most rows arrive after their receive.
        let receive =
            |from: Option<usize>, tag| from.map(|rank| world.recv_into(rank, tag, vec![0; bytes]));
        let receives = [receive(self.above, TO_BELOW + tag), receive(self.below, TO_ABOVE + tag)];

        let (borders, inner) = match self.params.late {
            true => ([1..last + 1, 0..0], 0..0),
            false => ([1..2, last.max(2)..last + 1], 2..last),
        };
        let mut change: f64 = 0.0;
        for rows in borders {
            change = change.max(self.compute(colour, rows).await);
        }
        let send = |to: Option<usize>, tag, local| {
            to.map(|rank| world.send(rank, tag, self.block.border(colour, local)))
        };
        let sends = [send(self.above, TO_ABOVE + tag, 1), send(self.below, TO_BELOW + tag, last)];
        change = change.max(self.compute(colour, inner).await);

        for (side, receive) in [Side::Above, Side::Below].into_iter().zip(receives) {
            if let Some(receive) = receive {
                self.block.set_halo(colour, side, &receive.await?);
            }
        }
        for send in sends.into_iter().flatten() {
            send.await?;
        }
        Ok(change)
    }

    /// Relaxes one colour in the given owned rows, and lets messages progress in between.
    async fn compute(&mut self, colour: Colour, locals: Range<usize>) -> f64 {
        if locals.is_empty() {
            return 0.0;
        }
        let endpoint = self.world.endpoint();
        let step = (2 * CELLS_PER_TURN).div_ceil(self.params.cols);
        let mut change: f64 = 0.0;
        for start in locals.clone().step_by(step) {
            let rows = start..locals.end.min(start + step);
            change = change.max(self.block.relax(colour, rows, self.omega));
            endpoint.yield_now().await;
        }
        if let Some(ns) = self.params.ns_per_cell {
            let cells = locals.len() * self.params.cols / 2;
            endpoint.sleep(Duration::from_nanos((cells as f64 * ns) as u64)).await;
        }
        change
    }

    /// Returns the digest of the whole matrix, on every rank.
    async fn checksum(&self) -> Result<u64, GroupError> {
        let mut digest = self.block.digest();
        if self.world.rank() == 0 {
            digest = digest.wrapping_add(digest_edges(self.params.rows, self.params.cols));
        }
        Ok(self.world.allreduce(vec![digest], Op::Sum).await?[0])
    }

    /// Gathers the matrix at rank 0, some rows at a time.
    async fn gather(&self) -> Result<Option<Grid>, GroupError> {
        let (rows, cols) = (self.params.rows, self.params.cols);
        let step = (GATHER_BYTES / 8 / cols).max(1);
        if self.world.rank() != 0 {
            for start in (1..self.block.owned() + 1).step_by(step) {
                let locals = start..(start + step).min(self.block.owned() + 1);
                self.world.send(0, GATHER, self.rows_message(locals)).await?;
            }
            return Ok(None);
        }
        let mut values = vec![0.0; rows * cols];
        for (col, value) in values[..cols].iter_mut().enumerate() {
            *value = heated_edge(col, cols);
        }
        for local in 1..=self.block.owned() {
            self.block.copy_row(local, &mut values[local * cols..][..cols]);
        }
        for rank in 1..self.world.size() {
            let owned = owned_rows(rank, self.world.size(), rows);
            for start in owned.clone().step_by(step) {
                let cells = ((start + step).min(owned.end) - start) * cols;
                let message = self.world.recv(rank, GATHER, cells * 8).await?;
                let part = &mut values[start * cols..][..cells];
                for (value, bytes) in part.iter_mut().zip(message.chunks_exact(8)) {
                    *value = f64::from_le_bytes(bytes.try_into().expect("chunks of 8 bytes"));
                }
            }
        }
        Ok(Some(Grid { rows, cols, values }))
    }

    fn rows_message(&self, locals: Range<usize>) -> Vec<u8> {
        let mut row = vec![0.0f64; self.params.cols];
        let mut message = Vec::with_capacity(locals.len() * row.len() * 8);
        for local in locals {
            self.block.copy_row(local, &mut row);
            message.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        }
        message
    }
}

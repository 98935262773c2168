//! The program over any net: borders go by the calls of `weft-models`, also on the simulated
//! clusters of 2004.

use crate::grid::{digest_edges, owned_rows, Block, Colour, Grid, Side};
use crate::{Outcome, Params, Step};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use weft_models::net::{Net, RankFailure};
use weft_models::rpc::{CallError, Cause, Rpc};
use weft_models::together::Together;

/// Borders that have come, by side and colour, and the future that waits for one.
#[derive(Default)]
struct Come {
    borders: [[VecDeque<Vec<u8>>; 2]; 2],
    waker: Option<Waker>,
}

/// The borders between neighbours.
struct Borders<N: Net> {
    net: N,
    rpc: Rpc<N>,
    come: Rc<RefCell<Come>>,
}

const COLOURS: [Colour; 2] = [Colour::Red, Colour::Black];
const SIDES: [Side; 2] = [Side::Above, Side::Below];

/// The method of a border: the side on which its receiver has it, and its colour.
fn method(side: Side, colour: Colour) -> u16 {
    2 * side as u16 + colour as u16
}

impl<N: Net> Borders<N> {
    fn open(net: &N) -> Borders<N> {
        let (rpc, come) = (Rpc::open(net), Rc::<RefCell<Come>>::default());
        for (side, colour) in SIDES.into_iter().flat_map(|side| COLOURS.map(|c| (side, c))) {
            let come = Rc::clone(&come);
            rpc.serve(method(side, colour), move |_, border| {
                let mut come = come.borrow_mut();
                come.borders[side as usize][colour as usize].push_back(border.to_vec());
                come.waker.take().into_iter().for_each(Waker::wake);
            });
        }
        let waits = Rc::clone(&come);
        net.on_failure(move |_| {
            waits.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
        });
        Borders { net: net.clone(), rpc, come }
    }

    async fn send(
        &self,
        to: usize,
        side: Side,
        colour: Colour,
        border: &[u8],
    ) -> Result<(), RankFailure> {
        self.rpc.room(to).await;
        let sent = self.rpc.cast(to, method(side, colour), border);
        sent.map_err(|error| failure_of(to, error))
    }

    async fn receive(
        &self,
        from: usize,
        side: Side,
        colour: Colour,
    ) -> Result<Vec<u8>, RankFailure> {
        let expects = self.net.expect(from);
        let border = poll_fn(|cx| {
            let mut come = self.come.borrow_mut();
            if let Some(border) = come.borders[side as usize][colour as usize].pop_front() {
                return Poll::Ready(Ok(border));
            }
            if let Some(failure) = self.net.failure(from) {
                return Poll::Ready(Err(failure));
            }
            come.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if expects {
            self.net.unexpect(from);
        }
        border
    }
}

fn failure_of(rank: usize, error: CallError) -> RankFailure {
    match error.cause {
        Cause::Failed(failure) => failure,
        _ => RankFailure { rank, certain: false, why: error.to_string() },
    }
}

/// The exchange of borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Both colours of a row go in each message, as in paper 004, though one has changed.
    pub whole_rows: bool,
    /// Rows at borders are computed and sent before the others, so that their way overlaps with
    /// computing.
    pub early: bool,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange { whole_rows: false, early: true }
    }
}

/// A rank's part.
struct Part<'a, N: Net> {
    net: &'a N,
    params: &'a Params,
    borders: Borders<N>,
    block: Block,
    exchange: Exchange,
    /// The ranks with the rows above and below.
    beside: [Option<usize>; 2],
}

/// Solves on all ranks of a net, as [`run`](crate::run) does in a group; all call this with the
/// same parameters.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run_over<N: Net>(
    net: &N,
    params: &Params,
    exchange: Exchange,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RankFailure> {
    params.check().expect("parameters were checked");
    let (rows, cols, omega) = (params.rows, params.cols, params.effective_omega());
    let (rank, ranks) = (net.rank(), net.size());
    let mine = owned_rows(rank, ranks, rows);
    let has_rows = |of: &usize| !mine.is_empty() && !owned_rows(*of, ranks, rows).is_empty();
    let above = rank.checked_sub(1).filter(has_rows);
    let below = Some(rank + 1).filter(|next| *next < ranks).filter(has_rows);
    // On the simulated clusters results of reductions are broadcast, as in paper 004.
    let together = match params.ns_per_cell {
        Some(_) => Together::with_multicast(net, 0),
        None => Together::open(net, 0),
    };
    let borders = Borders::open(net);
    let block = Block::new(mine.clone(), cols);
    let mut part = Part { net, params, borders, block, exchange, beside: [above, below] };
    together.barrier().await?;
    let time = net.now();
    let (mut iterations, mut residual, mut converged) = (0, 0.0f64, false);
    while iterations < params.max_iterations && !converged {
        let red = part.half_sweep(Colour::Red, omega).await?;
        let change = red.max(part.half_sweep(Colour::Black, omega).await?);
        let largest = |all: Vec<u8>, other: &[u8]| {
            f64::from_bits(word(&all)).max(f64::from_bits(word(other))).to_le_bytes().to_vec()
        };
        let all = together.reduce(change.to_le_bytes().to_vec(), largest).await?;
        residual = f64::from_bits(word(&all));
        converged = residual < params.tolerance;
        iterations += 1;
        progress(Step { iterations, max_iterations: params.max_iterations, residual });
    }
    let elapsed = net.now().since(time);
    let edges = if rank == 0 { digest_edges(rows, cols) } else { 0 };
    let digest = part.block.digest().wrapping_add(edges);
    let sum =
        |all: Vec<u8>, other: &[u8]| word(&all).wrapping_add(word(other)).to_le_bytes().to_vec();
    let checksum = word(&together.reduce(digest.to_le_bytes().to_vec(), sum).await?);
    let grid = if params.keep_grid { part.gather(&together).await? } else { None };
    // A rank stays until all others have what it sent.
    together.barrier().await?;
    let end = params.outcome(ranks, iterations, residual);
    Ok(Outcome { checksum, elapsed, grid, ..end })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

impl<N: Net> Part<'_, N> {
    /// Relaxes one colour and exchanges its border rows; returns the largest change in this block.
    async fn half_sweep(&mut self, colour: Colour, omega: f64) -> Result<f64, RankFailure> {
        let last = self.block.owned();
        if last == 0 {
            return Ok(0.0);
        }
        let mut change = if self.exchange.early {
            let first = self.compute(colour, 1..2, omega).await;
            first.max(self.compute(colour, last.max(2)..last + 1, omega).await)
        } else {
            self.compute(colour, 1..last + 1, omega).await
        };
        // The last row of a rank lies above the rows of the rank below.
        for (to, side, local) in
            [(self.beside[0], Side::Below, 1), (self.beside[1], Side::Above, last)]
        {
            if let Some(to) = to {
                let mut border = self.block.border(colour, local);
                if self.exchange.whole_rows {
                    border.extend(self.block.border(colour.other(), local));
                }
                self.borders.send(to, side, colour, &border).await?;
            }
        }
        if self.exchange.early {
            change = change.max(self.compute(colour, 2..last.max(2), omega).await);
        }
        for (from, side) in self.beside.into_iter().zip(SIDES) {
            if let Some(from) = from {
                // The first cells are those of the colour.
                let border = self.borders.receive(from, side, colour).await?;
                self.block.set_halo(colour, side, &border);
            }
        }
        Ok(change)
    }

    async fn compute(&mut self, colour: Colour, locals: Range<usize>, omega: f64) -> f64 {
        let change = self.block.relax(colour, locals.clone(), omega);
        if let Some(ns) = self.params.ns_per_cell {
            let cells = locals.len() * self.params.cols / 2;
            self.net.compute(Duration::from_nanos((cells as f64 * ns) as u64)).await;
        }
        self.net.yield_now().await;
        change
    }

    /// Gathers the matrix at rank 0, row by row.
    async fn gather(&self, together: &Together<N>) -> Result<Option<Grid>, RankFailure> {
        let (rows, cols) = (self.params.rows, self.params.cols);
        let mut values = vec![0.0; rows * cols];
        let edge = Block::new(1..2, cols);
        edge.copy_row(0, &mut values[..cols]);
        for owner in 0..self.net.size() {
            for (local, row) in (1..).zip(owned_rows(owner, self.net.size(), rows)) {
                let place = &mut values[row * cols..][..cols];
                let own = owner == self.net.rank();
                if own {
                    self.block.copy_row(local, place);
                }
                let sent: &[f64] = if own { place } else { &[] };
                let bytes = sent.iter().flat_map(|value| value.to_le_bytes()).collect();
                let bytes = together.broadcast(owner, bytes).await?;
                if self.net.rank() == 0 {
                    let place = &mut values[row * cols..][..cols];
                    let cells = place.iter_mut().zip(bytes.as_chunks::<8>().0);
                    cells.for_each(|(value, bytes)| *value = f64::from_le_bytes(*bytes));
                }
            }
        }
        Ok((self.net.rank() == 0).then_some(Grid { rows, cols, values }))
    }
}

//! The solver by objects that messages drive: blocks of rows, several at each rank, which move
//! between ranks.

mod block;
mod sum;

use crate::balance::Division;
use crate::mesh::{Carrier, Mesh};
use crate::params::Params;
use crate::part::{at_rest, Equation, Fields, Part};
use crate::solve::WORTH;
use crate::{End, Maps, Outcome, RowCost, Solution, Step, Stuck};
use block::{Block, Shared};
use std::rc::Rc;
use sum::{Iterated, Message, RowSum, Stop, Sum};
use weft_apps::digest;
use weft_models::actors::balance::Strategy;
use weft_models::actors::{ActorError, Actors, Array};
use weft_models::net::Net;

/// The objects of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objects {
    /// Blocks of rows for each rank.
    pub per_rank: usize,
    /// The rule by which blocks move between ranks after each iteration, if they do.
    pub strategy: Option<Strategy>,
}

/// Solves on all ranks of a net by blocks of rows, which are objects; every rank must call it with
/// equal parameters. Blocks move between ranks by [`Objects::strategy`], and rows between blocks
/// where [`Params::balance`] wants it.
///
/// `progress` is called after each iteration over the three equations. The outcome is that of
/// [`sequential()`](crate::sequential()), bit for bit, on every rank.
///
/// # Errors
/// A rank failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters for so many blocks.
pub async fn run_objects<N: Net>(
    net: &N,
    params: &Params,
    objects: Objects,
    progress: &dyn Fn(Step),
) -> Result<Outcome, ActorError> {
    let count = objects.per_rank.max(1) * net.size();
    params.check(count).expect("parameters were checked");
    let mesh = Rc::new(Mesh::new(&params.device));
    let actors = Actors::open(net);
    actors.measure(objects.strategy.is_some());
    let division = Division::even(mesh.rows, count);
    let shared =
        || Shared { params: params.clone(), mesh: Rc::clone(&mesh), at_rest: at_rest(&mesh) };
    let first = shared();
    let make = |index: weft_models::actors::Index| Block::new(&first, division.rows(index.x()));
    let blocks = actors.array_with(1, count, shared(), make);
    let conductor = Conductor { net, params, mesh, actors, blocks, division, objects, moved: 0 };
    conductor.run(progress).await
}

/// A rank's program, the same on all ranks.
struct Conductor<'a, N: Net> {
    net: &'a N,
    params: &'a Params,
    mesh: Rc<Mesh>,
    actors: Actors<N>,
    blocks: Array<N, Block>,
    division: Division,
    objects: Objects,
    moved: u64,
}

impl<N: Net> Conductor<'_, N> {
    async fn run(mut self, progress: &dyn Fn(Step)) -> Result<Outcome, ActorError> {
        let start = self.net.now();
        let all = self.params.device.voltages();
        let (mut solutions, mut steps) = (Vec::new(), Vec::new());
        for (at, voltages) in all.iter().enumerate() {
            let first = steps.len();
            let mut tell = |step: Step| {
                let step = Step { solution: at, solutions: all.len(), ..step };
                steps.push(step);
                progress(step);
            };
            let (end, currents) = self.solution(voltages, &mut tell).await?;
            let own: &[Step] = &steps[first..];
            let sweeps = [0, 1, 2].map(|at| own.iter().map(|step| step.sweeps[at]).sum());
            let (iterations, voltages) = (own.len() as u64, voltages.clone());
            let stops = end != End::Converged;
            solutions.push(Solution { voltages, currents, iterations, sweeps, end });
            if stops {
                break;
            }
        }
        let elapsed = self.net.now().since(start);
        let sum = self.all(&Message::Report).await?;
        Ok(Outcome { elapsed, ..self.outcome(sum, solutions, steps) })
    }

    /// Sends a message to all blocks, and returns the sum of their answers.
    async fn all(&self, message: &Message) -> Result<Sum, ActorError> {
        if self.net.rank() == 0 {
            self.blocks.broadcast(message)?;
        }
        self.actors.run().await?;
        Ok(self.blocks.result().unwrap_or_default().sorted())
    }

    async fn solution(
        &mut self,
        voltages: &[f64],
        tell: &mut dyn FnMut(Step),
    ) -> Result<(End, Vec<f64>), ActorError> {
        let most = self.params.max_iterations;
        for iteration in 1..=most {
            let voltages_now = (iteration == 1).then(|| voltages.to_vec());
            let is_last = iteration == most;
            let sum = self.all(&Message::Iterate { voltages: voltages_now, is_last }).await?;
            let Some(iterated) = sum.iterated else { break };
            let Iterated { sweeps, changes, stop, worst } = iterated;
            let changes = changes.map(|change| change * self.mesh.thermal);
            if stop != Stop::Diverged {
                tell(Step { solution: 0, solutions: 1, iteration, sweeps, changes });
            }
            let stuck = || self.stuck(Equation::ALL[usize::from(worst) % 3], &sum);
            let end = match stop {
                Stop::Goes => {
                    self.balance(&sum).await?;
                    continue;
                }
                Stop::Converged => End::Converged,
                Stop::Limit => End::Limit(stuck()),
                Stop::Diverged => End::Diverged(stuck()),
            };
            return Ok((end, self.currents(voltages, &sum.rows)));
        }
        unreachable!("the last iteration ends the solution")
    }

    fn stuck(&self, equation: Equation, sum: &Sum) -> Stuck {
        let change = sum.worst();
        let (row, col) = (change.node / self.mesh.cols, change.node % self.mesh.cols);
        let layer = self.params.device.layer(row).map_or(String::new(), |layer| layer.name.clone());
        Stuck { equation, row, col, layer, change: change.size * self.mesh.thermal }
    }

    /// Returns the current into each contact.
    fn currents(&self, voltages: &[f64], rows: &[RowSum]) -> Vec<f64> {
        if let [one, other] = *voltages {
            if one != other {
                let power = rows.iter().map(|row| row.power).sum::<f64>();
                let current = power * self.mesh.thermal / (one - other);
                return vec![current, -current];
            }
        }
        let of = |contact: usize| rows.iter().filter_map(|row| row.outflows.get(contact)).sum();
        (0..voltages.len()).map(of).collect()
    }

    /// Moves rows between blocks by their recent cost, and blocks between ranks.
    async fn balance(&mut self, sum: &Sum) -> Result<(), ActorError> {
        if self.params.balance {
            let costs: Vec<f64> = sum.rows.iter().map(|row| row.seconds).collect();
            let new = Division::by_cost(&costs, self.division.ranks());
            if self.division.imbalance(&costs) >= WORTH * new.imbalance(&costs) {
                let changes =
                    (0..costs.len()).filter(|row| self.division.owner(*row) != new.owner(*row));
                self.moved += changes.count() as u64;
                if self.net.rank() == 0 {
                    self.blocks.broadcast(&Message::Divide(new.starts()))?;
                }
                self.division = new;
                self.actors.run().await?;
            }
        }
        if let Some(strategy) = &self.objects.strategy {
            self.moved += self.actors.balance(strategy).await?.moved;
        }
        Ok(())
    }

    fn outcome(&self, sum: Sum, solutions: Vec<Solution>, steps: Vec<Step>) -> Outcome {
        let (count, cols) = (self.mesh.rows, self.mesh.cols);
        let mut rows = vec![RowCost::default(); count];
        let mut part = Part::new(Rc::clone(&self.mesh), 0..count);
        let Fields { psi, w: [electrons, holes] } = &mut part.fields;
        for RowSum { row, seconds, work, values, .. } in &sum.rows {
            let at = *row as usize;
            rows[at].work += work;
            rows[at].seconds += seconds;
            for (field, values) in
                [&mut *psi, &mut *electrons, &mut *holes].into_iter().zip(values.chunks_exact(cols))
            {
                field[at * cols..][..cols].copy_from_slice(values);
            }
        }
        let all = (count * cols) as u64;
        let parts =
            (0..).zip([&*psi, &*electrons, &*holes]).map(|(at, field): (u64, &Vec<f64>)| {
                digest(at * all, field.iter().map(|value| value.to_bits()))
            });
        let checksum = parts.fold(0, u64::wrapping_add);
        let ranks = self.net.size();
        let mut sums = vec![0.0; ranks];
        for (row, cost) in rows.iter().enumerate() {
            sums[self.blocks.rank_of(self.division.owner(row)).unwrap_or(0)] += cost.seconds;
        }
        let mean = sums.iter().sum::<f64>() / ranks as f64;
        let largest = sums.into_iter().fold(0.0, f64::max);
        Outcome {
            ranks,
            contacts: self.params.device.contacts.iter().map(|c| c.name.clone()).collect(),
            columns: cols,
            solutions,
            steps,
            imbalance: if mean > 0.0 { largest / mean } else { 1.0 },
            rows,
            moved: self.moved,
            maps: (self.net.rank() == 0).then(|| maps(&part)),
            checksum,
            elapsed: std::time::Duration::ZERO,
        }
    }
}

/// Returns the fields of all nodes.
pub(crate) fn maps<M: std::ops::Deref<Target = Mesh> + Clone>(part: &Part<M>) -> Maps {
    let thermal = part.mesh.thermal;
    let volts = |values: &[f64], sign: f64| -> Vec<f64> {
        values.iter().map(|value| sign * value * thermal).collect()
    };
    let Fields { psi, w } = &part.fields;
    let density = |carrier| (0..psi.len()).map(|at| part.density(carrier, at)).collect();
    Maps {
        potential: volts(psi, 1.0),
        quasi_fermi: [volts(&w[0], -1.0), volts(&w[1], 1.0)],
        densities: Carrier::BOTH.map(density),
    }
}

//! Gummel's iteration: the three equations in turn, each by sweeps, on one rank or many.

use crate::balance::Division;
use crate::mesh::{Carrier, Mesh};
use crate::objects::maps;
use crate::params::{Method, Params};
use crate::part::{Change, Equation, Fields, Nodes, Part, Pass};
use crate::ranks::Ranks;
use crate::relax::{Relax, CHECK};
use crate::team::{RunError, Team, World};
use crate::{End, Outcome, RowCost, Solution, Step, Stuck};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use weft::Group;
use weft_apps::digest;

/// Work between two calls that let messages progress: some tens of microseconds.
const WORK_PER_TURN: u64 = 8 * 1024;
/// The sweep of each [`CHECK`] whose rows are timed.
pub(crate) const TIMED: u64 = CHECK / 2;
/// The part of an equation's change that an iteration leaves to the next one.
pub(crate) const LEFT: f64 = 0.02;
/// A largest change that is rounding.
pub(crate) const ROUNDING: f64 = 2e-14;
/// Rows move if the largest cost of a rank falls at least by this factor.
pub(crate) const WORTH: f64 = 1.05;

/// Solves on one processor, without messages: the reference for [`run`].
///
/// `progress` is called after each iteration over the three equations.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(params: &Params, progress: &dyn Fn(Step)) -> Outcome {
    let mesh = Mesh::new(&params.device);
    let work = pin!(solve(params, &mesh, Team::new(World::Alone, None), progress));
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(outcome)) => outcome,
        Poll::Ready(Err(_)) | Poll::Pending => unreachable!("one rank waits for no other"),
    }
}

/// Solves on ranks that exchange messages without weft, as [`run`] does on those of a group.
///
/// # Errors
/// A rank failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn run_on(
    ranks: &dyn Ranks,
    params: &Params,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RunError> {
    let mesh = Mesh::new(&params.device);
    let work = pin!(solve(params, &mesh, Team::new(World::Ranks(ranks), None), progress));
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("calls of these ranks wait inside"),
    }
}

/// Solves on all ranks of `world` together; every rank must call it with equal parameters.
///
/// `progress` is called after each iteration over the three equations. The outcome is that of
/// [`sequential()`], bit for bit, on every rank.
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
) -> Result<Outcome, RunError> {
    let mesh = Mesh::new(&params.device);
    solve(params, &mesh, Team::new(World::Group(world), params.ns_per_unit), progress).await
}

async fn solve(
    params: &Params,
    mesh: &Mesh,
    team: Team<'_>,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RunError> {
    params.check(team.size()).expect("parameters were checked");
    let mut solver = Solver::new(params, mesh, team);
    let all = params.device.voltages();
    let (mut solutions, mut steps) = (Vec::new(), Vec::new());
    for (at, voltages) in all.iter().enumerate() {
        let first = steps.len();
        solver.part.set_voltages(voltages);
        let mut tell = |step: Step| {
            let step = Step { solution: at, solutions: all.len(), ..step };
            steps.push(step);
            progress(step);
        };
        let end = solver.solution(&mut tell).await?;
        let own = &steps[first..];
        let currents = solver.currents(voltages).await?;
        let sweeps = [0, 1, 2].map(|at| own.iter().map(|step| step.sweeps[at]).sum());
        let iterations = own.len() as u64;
        let stops = end != End::Converged;
        let voltages = voltages.clone();
        solutions.push(Solution { voltages, currents, iterations, sweeps, end });
        if stops {
            break;
        }
    }
    solver.outcome(solutions, steps).await
}

/// Returns true if the changes of the sweep with this number are looked at.
pub(crate) fn looks(number: u64) -> bool {
    number % CHECK == CHECK - 1
}

/// A rank's part of the run.
struct Solver<'a> {
    params: &'a Params,
    mesh: &'a Mesh,
    team: Team<'a>,
    part: Part<&'a Mesh>,
    division: Division,
    relax: [Relax; 3],
    /// The fields before the iteration.
    before: Fields,
    /// Time of the rows since the last look at their division, and before, in s.
    recent: Vec<f64>,
    earlier: Vec<f64>,
    moved: u64,
}

/// The end of an equation's sweeps.
struct Swept {
    sweeps: u64,
    /// The largest change by all sweeps, over all ranks and on this one.
    change: f64,
    own: Change,
}

impl<'a> Solver<'a> {
    fn new(params: &'a Params, mesh: &'a Mesh, team: Team<'a>) -> Solver<'a> {
        let division = Division::even(mesh.rows, team.size());
        let part = Part::new(mesh, division.rows(team.rank()));
        let adapts = params.method == Method::RedBlack;
        Solver {
            params,
            mesh,
            before: part.fields.clone(),
            part,
            division,
            relax: [(); 3].map(|()| Relax::new(adapts)),
            recent: vec![0.0; mesh.rows],
            earlier: vec![0.0; mesh.rows],
            moved: 0,
            team,
        }
    }

    /// Returns the tolerance in units of the thermal voltage.
    fn tolerance(&self) -> f64 {
        self.params.tolerance / self.mesh.thermal
    }

    /// Finds the solution for the voltages of the contacts.
    async fn solution(&mut self, tell: &mut dyn FnMut(Step)) -> Result<End, RunError> {
        let mut worst = (Equation::Potential, Change::NONE);
        for iteration in 1..=self.params.max_iterations {
            self.before.clone_from(&self.part.fields);
            let (mut changes, mut sweeps) = ([0.0; 3], [0; 3]);
            worst.1 = Change::NONE;
            for equation in Equation::ALL {
                let swept = self.equation(equation).await?;
                let at = equation as usize;
                (changes[at], sweeps[at]) = (swept.change, swept.sweeps);
                if !swept.change.is_finite() {
                    self.part.fields.clone_from(&self.before);
                    let stuck = self.stuck(equation, swept.own).await?;
                    return Ok(End::Diverged(stuck));
                }
                if swept.change >= changes[worst.0 as usize] {
                    worst = (equation, swept.own);
                }
            }
            let largest = changes.iter().copied().fold(0.0, f64::max);
            let changes = changes.map(|change| change * self.mesh.thermal);
            tell(Step { solution: 0, solutions: 1, iteration, sweeps, changes });
            if largest <= self.tolerance() {
                return Ok(End::Converged);
            }
            if self.params.balance {
                self.divide().await?;
            }
        }
        Ok(End::Limit(self.stuck(worst.0, worst.1).await?))
    }

    async fn stuck(&self, equation: Equation, own: Change) -> Result<Stuck, RunError> {
        let Change { size, node } = self.team.worst(own).await?;
        let (row, col) = (node / self.mesh.cols, node % self.mesh.cols);
        let layer = self.params.device.layer(row).map_or(String::new(), |layer| layer.name.clone());
        Ok(Stuck { equation, row, col, layer, change: size * self.mesh.thermal })
    }

    /// Solves one equation by sweeps, with the other unknowns fixed.
    async fn equation(&mut self, equation: Equation) -> Result<Swept, RunError> {
        if let Some(carrier) = equation.carrier() {
            self.prepare(carrier).await;
        }
        let at = equation as usize;
        self.relax[at].begin();
        let mut mu = self.relax[at].mu();
        self.part.set_factors(mu);
        let (mut sweeps, mut whole) = (0, 0.0);
        while sweeps < self.params.max_sweeps {
            let change = self.sweep(equation, sweeps).await?;
            sweeps += 1;
            if !looks(sweeps - 1) {
                continue;
            }
            let own = self.part.changed(equation, &self.before);
            let [change, all] = self.team.largest([change.size, own.size]).await?;
            whole = all;
            if !change.is_finite() || !all.is_finite() {
                return Ok(Swept { sweeps, change: f64::INFINITY, own });
            }
            let ratio = self.relax[at].look(change).min(1.0 - 1e-6);
            let rest = change * ratio / (1.0 - ratio);
            if rest <= (LEFT * all).max(0.1 * self.tolerance()) || change <= ROUNDING {
                break;
            }
            if self.relax[at].mu() != mu {
                mu = self.relax[at].mu();
                self.part.set_factors(mu);
            }
        }
        let own = self.part.changed(equation, &self.before);
        if let Some(carrier) = equation.carrier() {
            self.part.apply(carrier);
            let w = &mut self.part.fields.w[carrier as usize];
            self.team.borders(w, self.mesh.cols, &self.part.rows).await?;
        }
        Ok(Swept { sweeps, change: whole, own })
    }

    /// Makes the linear equations of a carrier. Their time is that of the rows by their work.
    async fn prepare(&mut self, carrier: Carrier) {
        let before = self.part.work.clone();
        let start = Instant::now();
        self.part.prepare(carrier);
        let rows = self.part.rows.clone();
        let work = |row: usize| self.part.work[row] - before[row];
        let units: u64 = rows.clone().map(work).sum();
        let each = match self.team.ns_per_unit() {
            Some(ns) => ns * 1e-9,
            None => start.elapsed().as_secs_f64() / units.max(1) as f64,
        };
        rows.for_each(|row| self.recent[row] += work(row) as f64 * each);
        self.team.worked(units).await;
    }

    /// Sweeps once over all points; the sweep has this number in its equation. Returns the largest
    /// change on this rank, if it is looked at.
    async fn sweep(&mut self, equation: Equation, number: u64) -> Result<Change, RunError> {
        let (both, all) = ([Nodes::Colour(0), Nodes::Colour(1)], [Nodes::All]);
        let parts: &[Nodes] = match self.params.method {
            Method::RedBlack => &both,
            Method::Jacobi => &all,
        };
        let mu = self.relax[equation as usize].mu();
        let (looks, timed) = (looks(number), number % CHECK == TIMED);
        let mut largest = Change::NONE;
        for nodes in parts {
            let pass = Pass { equation, nodes: *nodes, mu, looks, timed };
            let change = self.part_sweep(pass).await?;
            largest = largest.or(change.size, change.node);
        }
        Ok(largest)
    }

    /// Sweeps over nodes. Border rows come first, so that they travel while the others are
    /// computed.
    async fn part_sweep(&mut self, pass: Pass) -> Result<Change, RunError> {
        let (rows, cols) = (self.part.rows.clone(), self.mesh.cols);
        let inner = (rows.start + 1).min(rows.end)..(rows.end - 1).max(rows.start + 1);
        let mut largest = self.compute(pass, rows.start..inner.start).await;
        let last = self.compute(pass, inner.end..rows.end).await;
        largest = largest.or(last.size, last.node);
        let field = match pass.nodes {
            Nodes::All => &self.part.new,
            Nodes::Colour(_) => &*self.part.unknowns(pass.equation),
        };
        let borders = self.team.begin_borders(field, cols, &rows)?;
        let others = self.compute(pass, inner).await;
        largest = largest.or(others.size, others.node);
        if pass.nodes == Nodes::All {
            self.part.take_new(pass.equation);
        }
        let field = self.part.unknowns(pass.equation);
        self.team.end_borders(borders, field, cols).await?;
        Ok(largest)
    }

    /// Sweeps over nodes in some rows, and lets messages progress in between.
    async fn compute(&mut self, pass: Pass, rows: Range<usize>) -> Change {
        let (mut largest, mut units) = (Change::NONE, 0);
        for row in rows {
            let (before, start) = (self.part.work[row], pass.timed.then(Instant::now));
            let change = self.part.sweep(pass, row);
            largest = largest.or(change.size, change.node);
            let work = self.part.work[row] - before;
            self.recent[row] += match (self.team.ns_per_unit(), start) {
                (Some(ns), _) => work as f64 * ns * 1e-9,
                (None, Some(start)) => start.elapsed().as_secs_f64() * CHECK as f64,
                (None, None) => 0.0,
            };
            units += work;
            if units > WORK_PER_TURN {
                self.team.worked(std::mem::take(&mut units)).await;
            }
        }
        if self.team.ns_per_unit().is_some() {
            self.team.worked(units).await;
        }
        largest
    }

    /// Divides the rows by their recent cost, if that is worth the way.
    async fn divide(&mut self) -> Result<(), RunError> {
        let size = self.team.size();
        if size == 1 {
            return Ok(());
        }
        let costs = self.team.sum(self.recent.clone()).await?;
        for (recent, earlier) in self.recent.iter_mut().zip(&mut self.earlier) {
            *earlier += std::mem::take(recent);
        }
        let new = Division::by_cost(&costs, size);
        if self.division.imbalance(&costs) < WORTH * new.imbalance(&costs) {
            return Ok(());
        }
        let Fields { psi, w: [electrons, holes] } = &mut self.part.fields;
        let (cols, both) = (self.mesh.cols, (&self.division, &new));
        self.moved += self.team.move_rows([psi, electrons, holes], cols, both).await?;
        self.division = new;
        self.part.rows = self.division.rows(self.team.rank());
        let rows = self.part.rows.clone();
        let Fields { psi, w: [electrons, holes] } = &mut self.part.fields;
        for field in [psi, electrons, holes] {
            self.team.borders(field, cols, &rows).await?;
        }
        Ok(())
    }

    /// Returns the current into each contact, in A per cm of depth. With two contacts at different
    /// voltages it comes from the power, which is far more exact.
    async fn currents(&self, voltages: &[f64]) -> Result<Vec<f64>, RunError> {
        if let [one, other] = *voltages {
            if one != other {
                let mut powers = vec![0.0; self.mesh.rows];
                self.part.rows.clone().for_each(|row| powers[row] = self.part.power(row));
                let powers = self.team.sum(powers).await?;
                let current = powers.iter().sum::<f64>() * self.mesh.thermal / (one - other);
                return Ok(vec![current, -current]);
            }
        }
        let mut all = vec![0.0; voltages.len()];
        for node in self.part.rows.start * self.mesh.cols..self.part.rows.end * self.mesh.cols {
            if let Some(contact) = self.mesh.contacts[node] {
                all[usize::from(contact)] += self.part.outflow(node);
            }
        }
        self.team.sum(all).await
    }

    async fn outcome(
        mut self,
        solutions: Vec<Solution>,
        steps: Vec<Step>,
    ) -> Result<Outcome, RunError> {
        let elapsed = self.team.elapsed();
        let nodes = self.part.rows.start * self.mesh.cols..self.part.rows.end * self.mesh.cols;
        let all = (self.mesh.rows * self.mesh.cols) as u64;
        let Fields { psi, w: [electrons, holes] } = &mut self.part.fields;
        let parts = (0..).zip([&*psi, &*electrons, &*holes]).map(|(at, field)| {
            let bits = field[nodes.clone()].iter().map(|value| value.to_bits());
            digest(at * all + nodes.start as u64, bits)
        });
        let checksum = parts.fold(0, u64::wrapping_add);
        let checksum = self.team.sum_whole(vec![checksum]).await?[0];
        self.team.gather([psi, electrons, holes], self.mesh.cols, &self.division).await?;
        let own = self.recent.iter().zip(&self.earlier).map(|(new, old)| new + old).collect();
        let seconds = self.team.sum(own).await?;
        let work = self.team.sum_whole(self.part.work.clone()).await?;
        let cost = |(work, seconds): (&u64, &f64)| RowCost { work: *work, seconds: *seconds };
        Ok(Outcome {
            ranks: self.team.size(),
            contacts: self.params.device.contacts.iter().map(|c| c.name.clone()).collect(),
            columns: self.mesh.cols,
            solutions,
            steps,
            imbalance: self.division.imbalance(&seconds),
            rows: work.iter().zip(&seconds).map(cost).collect(),
            moved: self.moved,
            maps: (self.team.rank() == 0).then(|| maps(&self.part)),
            checksum,
            elapsed,
        })
    }
}

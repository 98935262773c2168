//! Drift and diffusion of electrons and holes in two dimensions (DD): the semiconductor simulation
//! of paper 000.
//!
//! Poisson's equation and the continuity of both carriers are solved in turn (Gummel's iteration),
//! and each of them by sweeps over a rectangular grid in which every point solves its own equation:
//! the nonlinear iteration of Jacobi that Korman and Mayergoyz (Journal of Applied Physics 68,
//! 1990) have shown to converge from any start. No system of equations is solved. Fluxes are those
//! of Scharfetter and Gummel. Layers may follow Fermi's statistics, whose integrals make their rows
//! cost many times as much as others: the reason why the paper balances load.
//!
//! Rows are divided among ranks. After each sweep neighbours exchange border rows, and from time to
//! time all ranks agree on the largest change. The largest of several numbers does not depend on
//! their order, and no other sum enters the iteration, so every division of rows gives the bits of
//! [`sequential()`]; rows can move between ranks at any time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod balance;
mod currents;
mod device;
mod fermi;
mod mesh;
mod objects;
mod output;
mod params;
mod parse;
mod part;
mod ranks;
mod relax;
mod solve;
mod team;

pub use balance::Division;
pub use device::{
    Band, Contact, Device, DeviceError, Edge, Filled, Layer, Material, Patch, Sweep, BOLTZMANN,
    CHARGE, VACUUM,
};
pub use fermi::{fermi, inverse, Integral};
pub use objects::{run_objects, Objects};
pub use output::{pixels, report, write_curve, write_rows, write_steps, write_summary, write_vtk};
pub use params::{bytes_needed, Method, Params, ParamsError};
pub use parse::ParseError;
pub use part::Equation;
pub use ranks::{Ranks, RanksError, Sockets};
pub use solve::{run, run_on, sequential};
pub use team::RunError;

use std::time::Duration;

/// The description of a p-n diode.
pub const DIODE: &str = include_str!("../devices/diode.dev");

/// The description of a stack like that of a laser, with a degenerate layer.
pub const LASER: &str = include_str!("../devices/laser.dev");

/// Progress of a run after an iteration over the three equations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The solution's number, from 0.
    pub solution: usize,
    /// Number of solutions.
    pub solutions: usize,
    /// Iterations done for this solution.
    pub iteration: u64,
    /// Sweeps of the three equations in this iteration.
    pub sweeps: [u64; 3],
    /// The largest changes in this iteration: of the potential in V, and of the logarithms of both
    /// densities, in the same unit.
    pub changes: [f64; 3],
}

impl Step {
    /// Returns the largest of the changes, in V.
    pub fn change(&self) -> f64 {
        self.changes.iter().copied().fold(0.0, f64::max)
    }
}

/// The place where an iteration has not come to rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// The equation.
    pub equation: Equation,
    /// The row, from 0.
    pub row: usize,
    /// The column, from 0.
    pub col: usize,
    /// The name of the layer.
    pub layer: String,
    /// The change in the last iteration, in V; infinite where it is no number.
    pub change: f64,
}

/// The reasons why a solution ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The changes fell below the tolerance.
    Converged,
    /// The iterations ran out; the fields are those of the last one.
    Limit(Stuck),
    /// A value is no number; the fields are those before the iteration in which that happened.
    Diverged(Stuck),
}

impl End {
    /// Returns its name in files: `converged`, `limit` or `diverged`.
    pub fn name(&self) -> &'static str {
        match self {
            End::Converged => "converged",
            End::Limit(_) => "limit",
            End::Diverged(_) => "diverged",
        }
    }

    /// Returns the place where it stays; `None` if it converged.
    pub fn stuck(&self) -> Option<&Stuck> {
        match self {
            End::Converged => None,
            End::Limit(stuck) | End::Diverged(stuck) => Some(stuck),
        }
    }
}

/// A solution.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The voltage of each contact, in V.
    pub voltages: Vec<f64>,
    /// The current into each contact, in A per cm of depth.
    pub currents: Vec<f64>,
    /// Iterations over the three equations.
    pub iterations: u64,
    /// Sweeps of the three equations.
    pub sweeps: [u64; 3],
    /// The reason why it ended.
    pub end: End,
}

/// The cost of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowCost {
    /// Work: exponentials, and points of linear equations.
    pub work: u64,
    /// Time, in s: sampled, or counted in a simulation.
    pub seconds: f64,
}

/// The fields of a solution, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Maps {
    /// The potential, in V.
    pub potential: Vec<f64>,
    /// The quasi-Fermi potentials of electrons and holes, in V.
    pub quasi_fermi: [Vec<f64>; 2],
    /// The densities of electrons and holes, per cm3.
    pub densities: [Vec<f64>; 2],
}

/// The result of a run. Equal on every rank, except for [`Outcome::maps`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// The names of the contacts.
    pub contacts: Vec<String>,
    /// Columns of the grid.
    pub columns: usize,
    /// The solutions, up to the first that did not converge.
    pub solutions: Vec<Solution>,
    /// All iterations.
    pub steps: Vec<Step>,
    /// The cost of each row.
    pub rows: Vec<RowCost>,
    /// The largest cost of a rank by the mean, for the division at the end.
    pub imbalance: f64,
    /// Rows that moved between ranks.
    pub moved: u64,
    /// The fields of the last solution: on rank 0.
    pub maps: Option<Maps>,
    /// Exact hash of the last potentials of every node, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the run; virtual time in the simulator.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns the end of the last solution.
    pub fn end(&self) -> &End {
        self.solutions.last().map_or(&End::Converged, |solution| &solution.end)
    }

    /// Returns true if both runs computed the same solutions in the same sweeps, bit for bit.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let bits = |o: &Outcome| -> Vec<u64> {
            o.solutions.iter().flat_map(|s| s.currents.iter().map(|i| i.to_bits())).collect()
        };
        self.checksum == other.checksum
            && self.steps == other.steps
            && bits(self) == bits(other)
            && self.end() == other.end()
    }
}

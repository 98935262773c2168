//! Gravitation of many bodies (Barnes), by the method of Barnes and Hut.
//!
//! In each step an oct-tree is built of all bodies, each body is pulled by the tree, where a far
//! cell counts as one mass at its centre, and all bodies advance. In paper 004, section 7, this is
//! an application of small remote reads: bodies and nodes of the tree are shared, and each
//! processor walks the tree for its own bodies.
//!
//! The parts of a step are usable alone: [`Tree::new`] builds the tree, [`Tree::pull`] gives the
//! acceleration of one body, [`advance()`] moves one. The tree depends on the bodies alone, not on
//! the order in which they are put in: a cell is divided where it has more bodies than a leaf may,
//! bodies of a leaf stand in the order of their numbers, and sums are over children in the order of
//! octants. Sums over the pulls on a body have a fixed order too. So every division of the bodies
//! gives the bits of [`sequential()`], on every machine: no function is used that may round
//! differently elsewhere.
//!
//! The paper leaves these open, and the benchmark Barnes of Splash decides them: bodies are two
//! clusters by Plummer's model. There are four time steps of 0.025; the softening is 0.05. A cell
//! is opened if its side, over the distance of its centre, is above 1.0. A leaf has at most ten
//! bodies. Masses are at their centre, without quadrupoles. Two choices are our own. A node that
//! contains the body is always opened, as it must not pull itself. The root is the smallest cube
//! around the middle of all bodies.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod advance;
mod bodies;
mod output;
mod parallel;
mod params;
mod picture;
mod plummer;
mod pull;
mod sequential;
mod tree;
mod walk;

pub use advance::{advance, correct, energy, Energy};
pub use bodies::{read_bodies, Body};
pub use output::{report, write_bodies, write_energy};
pub use parallel::run;
pub use params::{bytes_needed, Gravity, Params, ParamsError};
pub use picture::{count, View};
pub use plummer::{two_clusters, SEED};
pub use pull::Pull;
pub use sequential::{sequential, PIECE};
pub use tree::{Node, Tree};
pub use walk::{run_walk, Walk};
pub use weft_apps::Failure;

use std::time::Duration;

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Steps done.
    pub steps: u64,
    /// All steps.
    pub of: u64,
    /// Bodies of the step in progress whose pull is computed.
    pub pulled: usize,
    /// The bodies, before the first step and after each: what a frame of a film shows. `None`
    /// within a step.
    pub bodies: Option<&'a [Body]>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The bodies after the last step.
    pub bodies: Vec<Body>,
    /// The energy at the beginning of each step.
    pub energies: Vec<Energy>,
    /// The length of a step.
    pub time_step: f64,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Pulls of bodies and cells on bodies, in all steps.
    pub interactions: u64,
    /// Exact hash of the bodies, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the steps.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns true if both runs computed the same bodies, bit for bit.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.bodies.len(), o.energies.len(), o.interactions, o.checksum);
        key(self) == key(other)
    }

    /// Returns the largest change of the whole energy since the first step, as a part of it.
    pub fn drift(&self) -> f64 {
        let Some(first) = self.energies.first().map(Energy::whole) else { return 0.0 };
        let changes = self.energies.iter().map(|energy| ((energy.whole() - first) / first).abs());
        changes.fold(0.0, f64::max)
    }
}

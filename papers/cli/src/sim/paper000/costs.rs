//! The cost of rows, from the solver itself.

use anyhow::Result;
use std::time::{Duration, Instant};
use weft_dd::{sequential, Device, Method, Params, LASER};

/// Rows of each of the three layers, so that one of 111 parts has some eight. The columns have 26
/// nodes with 78 potentials: a message of the paper's 624 bytes.
const ROWS_OF_LAYER: usize = 300;
const COLUMNS: usize = 25;
/// Iterations of the solver, and sweeps of each equation in one.
const ITERATIONS: u64 = 12;
pub const SWEEPS: u64 = 8;

/// The cost of a step of each row.
pub struct Costs {
    /// Exponentials, and points of linear equations.
    pub units: Vec<f64>,
    /// The time of one on this machine, in ns.
    pub here_ns: f64,
}

/// Returns the example of a laser on a finer grid.
fn device() -> Result<Device> {
    let rows = format!("rows {ROWS_OF_LAYER}");
    let grade = |of: f64| format!("grade {:.5}", of.powf(24.0 / ROWS_OF_LAYER as f64));
    let text = LASER
        .replace("rows 24", &rows)
        .replace("columns 12", &format!("columns {COLUMNS}"))
        .replace("grade 0.9", &grade(0.9))
        .replace("grade 1.11", &grade(1.11))
        .replace("sweep anode from 0 to 1.4 step 0.1", "sweep anode from 0.5 to 0.5 step 0.1");
    Ok(Device::read(&mut text.as_bytes())?)
}

/// Runs some iterations of the nonlinear Jacobi of the paper, and counts the work of each row.
pub fn measure() -> Result<Costs> {
    let params = Params {
        method: Method::Jacobi,
        max_iterations: ITERATIONS,
        max_sweeps: SWEEPS,
        tolerance: 1e-12,
        ..Params::new(device()?)
    };
    let start = Instant::now();
    let outcome = sequential(&params, &|_| {});
    let time = start.elapsed();
    let work: u64 = outcome.rows.iter().map(|row| row.work).sum();
    let units = outcome.rows.iter().map(|row| row.work as f64 / ITERATIONS as f64).collect();
    Ok(Costs { units, here_ns: time.as_secs_f64() * 1e9 / work.max(1) as f64 })
}

impl Costs {
    /// Returns the time of a step of each row.
    pub fn times(&self, ns_per_unit: f64) -> Vec<Duration> {
        let time = |units: &f64| Duration::from_nanos((units * ns_per_unit) as u64);
        self.units.iter().map(time).collect()
    }

    /// Returns the greatest cost of a row by the mean.
    pub fn steepness(&self) -> f64 {
        let mean = self.units.iter().sum::<f64>() / self.units.len() as f64;
        self.units.iter().copied().fold(0.0, f64::max) / mean
    }
}

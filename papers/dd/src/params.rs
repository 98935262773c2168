//! The parameters of a run, and their checks.

use crate::device::{Device, DeviceError};
use std::fmt;

/// The order in which the points of the grid get their new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Each point from the values before the sweep, as in paper 000 and its reference 41.
    Jacobi,
    /// The points of the chessboard's colours in turn, over-relaxed by a factor that is found on
    /// the way.
    RedBlack,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Params {
    /// The device.
    pub device: Device,
    /// The order of points.
    pub method: Method,
    /// A solution is found when one iteration over the three equations changes no potential by
    /// more, in V, and no density by more relative to the thermal voltage.
    pub tolerance: f64,
    /// Most iterations over the three equations for a voltage.
    pub max_iterations: u64,
    /// Most sweeps of an equation in an iteration.
    pub max_sweeps: u64,
    /// Rows move between ranks by their measured cost.
    pub balance: bool,
    /// The time of an exponential in a simulation, in nanoseconds: rows then cost what is counted.
    pub ns_per_unit: Option<f64>,
}

/// The faults of parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamsError {
    /// A fault of the device.
    Device(DeviceError),
    /// The tolerance is not above 0.
    Tolerance(f64),
    /// There are fewer rows than ranks.
    Rows {
        /// Rows of the grid.
        rows: usize,
        /// Ranks.
        ranks: usize,
    },
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Device(error) => error.fmt(f),
            ParamsError::Tolerance(value) => write!(f, "tolerance {value} is not a number above 0"),
            ParamsError::Rows { rows, ranks } => {
                write!(f, "the grid has {rows} rows, which are too few for {ranks} ranks")
            }
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Returns the usual parameters for a device.
    pub fn new(device: Device) -> Params {
        Params {
            device,
            method: Method::RedBlack,
            tolerance: 1e-9,
            max_iterations: 300,
            max_sweeps: 200_000,
            balance: true,
            ns_per_unit: None,
        }
    }

    /// Checks the parameters for so many ranks.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, ranks: usize) -> Result<(), ParamsError> {
        self.device.check().map_err(ParamsError::Device)?;
        if self.tolerance.is_nan() || self.tolerance <= 0.0 {
            return Err(ParamsError::Tolerance(self.tolerance));
        }
        match self.device.rows() {
            rows if rows < ranks => Err(ParamsError::Rows { rows, ranks }),
            _ => Ok(()),
        }
    }
}

/// Returns the bytes that a rank needs for a grid.
pub fn bytes_needed(rows: usize, cols: usize) -> u128 {
    // Fields twice, new values, changes, levels, points of linear equations, doping and contacts.
    rows as u128 * cols as u128 * (6 * 8 + 3 * 8 + 40 + 8 + 4)
}

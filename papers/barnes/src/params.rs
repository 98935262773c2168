//! Parameters of a run and their checks.

use crate::plummer::{two_clusters, SEED};
use crate::Body;
use std::fmt;

/// The accuracy of gravitation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gravity {
    /// A cell counts as one mass if its side, over the distance of its centre, is at most this. 0:
    /// every body counts.
    pub opening: f64,
    /// The distance within which gravitation is softened: squares of distances grow by its square.
    pub softening: f64,
    /// The most bodies of a leaf of the tree.
    pub leaf: usize,
}

impl Default for Gravity {
    /// The values of the Splash benchmark.
    fn default() -> Gravity {
        Gravity { opening: 1.0, softening: 0.05, leaf: 10 }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The bodies. Default: 16,384 as in paper 004, those of the Splash benchmark.
    pub bodies: Vec<Body>,
    /// The accuracy of gravitation.
    pub gravity: Gravity,
    /// The length of a step.
    pub time_step: f64,
    /// The number of steps, at least 1. Default 4, as in the Splash benchmark.
    pub steps: u64,
}

impl Default for Params {
    fn default() -> Params {
        let bodies = two_clusters(16_384, SEED);
        Params { bodies, gravity: Gravity::default(), time_step: 0.025, steps: 4 }
    }
}

/// Bytes of a body in a run: two copies of it, its pull, its records in regions of both parities,
/// and its part of the tree. More than the 353 of one rank and the 437 of four that were measured.
const EACH: u128 = 600;

/// Returns the bytes that a run with so many bodies takes on a rank: each has all of them.
pub fn bytes_needed(bodies: usize) -> u128 {
    bodies as u128 * EACH
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamsError {
    /// No body.
    Empty,
    /// 2^32 bodies or more.
    TooMany(usize),
    /// A mass that is not above 0, or a number that is not finite, in this body, from 0.
    Body(usize),
    /// No step, so no energy is computed.
    Steps,
    /// A leaf must hold a body.
    Leaf,
    /// The opening, the softening or the length of a step is negative or not a number; its name.
    Number(&'static str, f64),
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Empty => write!(f, "there is no body"),
            ParamsError::TooMany(count) => write!(f, "{count} bodies are 2^32 or more"),
            ParamsError::Body(at) => write!(
                f,
                "body {} has a mass that is not above 0, or a number that is not finite",
                at + 1
            ),
            ParamsError::Steps => write!(f, "0 steps: at least one is needed"),
            ParamsError::Leaf => write!(f, "a leaf of the tree holds a body at least"),
            ParamsError::Number(name, value) => {
                write!(f, "{name} {value} is not a number from 0 up")
            }
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Refuses parameters that are invalid. [`sequential`](crate::sequential()) calls it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), ParamsError> {
        if self.bodies.is_empty() {
            return Err(ParamsError::Empty);
        }
        if u32::try_from(self.bodies.len()).is_err() {
            return Err(ParamsError::TooMany(self.bodies.len()));
        }
        let is_valid = |body: &Body| {
            let numbers = body.position.iter().chain(&body.velocity);
            body.mass > 0.0 && body.mass.is_finite() && numbers.into_iter().all(|n| n.is_finite())
        };
        if let Some(at) = self.bodies.iter().position(|body| !is_valid(body)) {
            return Err(ParamsError::Body(at));
        }
        if self.steps == 0 {
            return Err(ParamsError::Steps);
        }
        if self.gravity.leaf == 0 {
            return Err(ParamsError::Leaf);
        }
        let numbers = [
            ("opening", self.gravity.opening),
            ("softening", self.gravity.softening),
            ("step", self.time_step),
        ];
        match numbers.into_iter().find(|(_, value)| !(*value >= 0.0 && value.is_finite())) {
            Some((name, value)) => Err(ParamsError::Number(name, value)),
            None => Ok(()),
        }
    }
}

//! Motion and energy.

use crate::{Body, Pull};

/// The energy of all bodies at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// The time.
    pub time: f64,
    /// The energy of motion.
    pub kinetic: f64,
    /// The energy of gravitation, negative.
    pub potential: f64,
}

impl Energy {
    /// Returns the sum of both.
    pub fn whole(&self) -> f64 {
        self.kinetic + self.potential
    }
}

/// Replaces the velocity that [`advance`] foretold with the acceleration of before by that with the
/// mean of before and now: place and velocity are then of one time. Not before the first step.
pub fn correct(body: &mut Body, before: &Pull, now: &Pull, time_step: f64) {
    let half = time_step / 2.0;
    for axis in 0..3 {
        body.velocity[axis] += (now.acceleration[axis] - before.acceleration[axis]) * half;
    }
}

/// Moves a body by a step: the leapfrog method, whose velocity is half a step ahead of the place
/// while the place moves.
pub fn advance(body: &mut Body, pull: &Pull, time_step: f64) {
    let half = time_step / 2.0;
    for axis in 0..3 {
        let change = pull.acceleration[axis] * half;
        let ahead = body.velocity[axis] + change;
        body.position[axis] += ahead * time_step;
        body.velocity[axis] = ahead + change;
    }
}

/// Returns the energy of all bodies, summed in the order of their numbers. `pulls` has their pulls,
/// in the same order, and velocities are of the time of the places.
pub fn energy(bodies: &[Body], pulls: &[Pull], time: f64) -> Energy {
    let (mut kinetic, mut potential) = (0.0, 0.0);
    for (body, pull) in bodies.iter().zip(pulls) {
        let [u, v, w] = body.velocity;
        kinetic += 0.5 * body.mass * (u * u + v * v + w * w);
        // Each pair is counted from both sides.
        potential += 0.5 * body.mass * pull.potential;
    }
    Energy { time, kinetic, potential }
}

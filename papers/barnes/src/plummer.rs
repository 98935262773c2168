//! The bodies of the benchmark Barnes of Splash.

use crate::Body;
use std::f64::consts::{PI, SQRT_2};

/// The seed of [`two_clusters`] in the Splash benchmark.
pub const SEED: u32 = 123;

/// The linear congruential generator of 31 bits of the benchmark.
struct Random(u32);

impl Random {
    const MASK: u32 = 0x7fff_ffff;

    /// Returns a number from `low` up to, not including, `high`.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = f64::from(self.0) / 2_147_483_648.0;
        self.0 = self.0.wrapping_mul(1_103_515_245).wrapping_add(12_345) & Random::MASK;
        low + (high - low) * unit
    }

    /// Returns a vector of a length in a random direction.
    fn direction(&mut self, length: f64) -> [f64; 3] {
        loop {
            let vector: [f64; 3] = std::array::from_fn(|_| self.between(-1.0, 1.0));
            let squared: f64 = vector.iter().map(|x| x * x).sum();
            if squared <= 1.0 && squared > 0.0 {
                return vector.map(|x| x * (length / squared.sqrt()));
            }
        }
    }

    /// Returns the distance of a body from the centre of a cluster, at most 9: by Plummer's model
    /// the mass inside it is uniform.
    fn distance(&mut self) -> f64 {
        loop {
            let root = cube_root(self.between(0.0, 0.999));
            let distance = 1.0 / (1.0 / (root * root) - 1.0).sqrt();
            if distance <= 9.0 {
                return distance;
            }
        }
    }

    /// Returns a speed, as a part of the one with which a body escapes, by von Neumann's rejection.
    fn speed(&mut self) -> f64 {
        loop {
            let (x, y) = (self.between(0.0, 1.0), self.between(0.0, 0.1));
            let rest = 1.0 - x * x;
            if y <= x * x * (rest * rest * rest * rest.sqrt()) {
                return x;
            }
        }
    }
}

/// Returns the cube root of a number from 0 up, by Newton's method: the library's may round
/// differently on other machines.
fn cube_root(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    // A third of the exponent, nearly.
    let mut root = f64::from_bits(x.to_bits() / 3 + (0x2a9f_7893 << 32));
    for _ in 0..6 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

/// Makes the bodies of the Splash benchmark: half of them, of equal masses that sum to 1, by
/// Plummer's model; the other half the same, shifted by 4 in each direction, with the same
/// velocities. The middle of all is at rest in the origin.
pub fn two_clusters(count: usize, seed: u32) -> Vec<Body> {
    let mut random = Random(seed & Random::MASK);
    let scale = 9.0 * PI / 16.0;
    let mass = 1.0 / count.max(1) as f64;
    let mut bodies: Vec<Body> = (0..count.div_ceil(2))
        .map(|_| {
            let distance = random.distance();
            let position = random.direction(scale * distance);
            let escape = SQRT_2 / (1.0 + distance * distance).sqrt().sqrt();
            let velocity = random.speed() * escape * (1.0 / scale).sqrt();
            Body { mass, position, velocity: random.direction(velocity) }
        })
        .collect();
    for at in 0..count / 2 {
        let body = bodies[at];
        bodies.push(Body { position: body.position.map(|x| x + 4.0), ..body });
    }
    let mean = |of: fn(&Body) -> [f64; 3], axis: usize| {
        bodies.iter().map(|body| of(body)[axis]).sum::<f64>() * mass
    };
    let place: [f64; 3] = std::array::from_fn(|axis| mean(|body| body.position, axis));
    let motion: [f64; 3] = std::array::from_fn(|axis| mean(|body| body.velocity, axis));
    for body in &mut bodies {
        for axis in 0..3 {
            body.position[axis] -= place[axis];
            body.velocity[axis] -= motion[axis];
        }
    }
    bodies
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cube_root__cubes_back() {
        for x in [1e-12, 5.7e-8, 0.001, 0.3, 0.999, 1.0, 27.0, 1e9] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-15, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }
}

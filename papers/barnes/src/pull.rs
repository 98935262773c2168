//! The pull of the tree on a body.

use crate::{Gravity, Tree};

/// Pulls that are gathered and then computed side by side.
const BATCH: usize = 64;
/// Sums that proceed side by side. Their number decides the bits of a sum, so it is fixed.
const LANES: usize = 4;

/// The pull of all others on a body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pull {
    /// The acceleration.
    pub acceleration: [f64; 3],
    /// The potential, negative.
    pub potential: f64,
    /// Bodies and cells that were added up: the cost, by which work is divided.
    pub interactions: u32,
}

/// Masses that pull, with their place from the body.
struct Batch {
    x: [f64; BATCH],
    y: [f64; BATCH],
    z: [f64; BATCH],
    mass: [f64; BATCH],
    len: usize,
    /// Sums of acceleration and potential.
    sums: [[f64; LANES]; 4],
    softening: f64,
    interactions: u32,
}

impl Batch {
    fn new(softening: f64) -> Batch {
        let none = [0.0; BATCH];
        let sums = [[0.0; LANES]; 4];
        Batch { x: none, y: none, z: none, mass: none, len: 0, sums, softening, interactions: 0 }
    }

    #[inline]
    fn push(&mut self, mass: f64, [x, y, z]: [f64; 3]) {
        let at = self.len;
        (self.x[at], self.y[at], self.z[at], self.mass[at]) = (x, y, z, mass);
        self.len += 1;
        if self.len == BATCH {
            self.add();
        }
    }

    /// Adds up the masses gathered, in lanes by their place in the batch.
    fn add(&mut self) {
        // No mass fills the last lanes.
        self.mass[self.len..self.len.next_multiple_of(LANES)].fill(0.0);
        let softening = self.softening * self.softening;
        let [ax, ay, az, potential] = &mut self.sums;
        for at in (0..self.len).step_by(LANES) {
            let lanes = |values: &[f64; BATCH]| -> [f64; LANES] {
                values[at..at + LANES].try_into().expect("a batch is whole lanes")
            };
            let (x, y, z) = (lanes(&self.x), lanes(&self.y), lanes(&self.z));
            let mass = lanes(&self.mass);
            for lane in 0..LANES {
                let (x, y, z) = (x[lane], y[lane], z[lane]);
                let squared = x * x + y * y + z * z + softening;
                // Bodies at one place do not pull each other if nothing softens them.
                let inverse = if squared > 0.0 { 1.0 / squared.sqrt() } else { 0.0 };
                let depth = mass[lane] * inverse;
                let factor = depth * inverse * inverse;
                ax[lane] += factor * x;
                ay[lane] += factor * y;
                az[lane] += factor * z;
                potential[lane] -= depth;
            }
        }
        self.interactions += self.len as u32;
        self.len = 0;
    }

    fn finish(mut self) -> Pull {
        self.add();
        let [x, y, z, potential] = self.sums.map(|[a, b, c, d]| (a + c) + (b + d));
        Pull { acceleration: [x, y, z], potential, interactions: self.interactions }
    }
}

impl Tree {
    /// Returns the pull of all others on the body at a place in [`Tree::order`].
    ///
    /// # Panics
    /// There is no such place.
    pub fn pull(&self, place: usize, gravity: &Gravity) -> Pull {
        let [_, x, y, z] = self.places()[place];
        let opening = gravity.opening * gravity.opening;
        let mut batch = Batch::new(gravity.softening);
        let nodes = self.nodes();
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            let [cx, cy, cz] = node.centre;
            let from = [cx - x, cy - y, cz - z];
            let squared = from[0] * from[0] + from[1] * from[1] + from[2] * from[2];
            let contains = (place as u32).wrapping_sub(node.first) < node.count;
            if !contains && opening * squared >= node.side_squared {
                batch.push(node.mass, from);
                at = node.skip as usize;
                continue;
            }
            at += 1;
            if at == node.skip as usize {
                let first = node.first as usize;
                let bodies = &self.places()[first..first + node.count as usize];
                for (other, [mass, ox, oy, oz]) in bodies.iter().enumerate() {
                    if first + other != place {
                        batch.push(*mass, [ox - x, oy - y, oz - z]);
                    }
                }
            }
        }
        batch.finish()
    }
}

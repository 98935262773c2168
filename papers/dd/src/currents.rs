//! The currents of the contacts.

use crate::device::CHARGE;
use crate::mesh::{Carrier, Mesh};
use crate::part::{bernoulli, Part};
use std::ops::Deref;

impl<M: Deref<Target = Mesh> + Clone> Part<M> {
    /// Returns the current from a node to a neighbour with which it has these couplings of
    /// electrons and holes, in A per cm of depth.
    fn current(&self, node: usize, to: usize, couplings: [f64; 2]) -> f64 {
        let cols = self.mesh.cols;
        let inflow = |carrier: Carrier| {
            let w = &self.fields.w[carrier as usize];
            let level = |node: usize| {
                let band = &self.mesh.strips[node / cols].bands[carrier as usize];
                let level = carrier.sign() * self.fields.psi[node] + band.edge;
                level + band.log_scale(level + w[node]).0
            };
            let share = bernoulli(level(node) - level(to)) * (w[to] - w[node]).exp_m1();
            couplings[carrier as usize] * self.density(carrier, node) * share
        };
        CHARGE * (inflow(Carrier::Electron) - inflow(Carrier::Hole))
    }

    /// Returns the couplings of electrons and of holes to the neighbours.
    fn both_couplings(&self, row: usize, col: usize) -> [[f64; 2]; 4] {
        let [electrons, holes] = Carrier::BOTH
            .map(|kind| self.mesh.couplings(row, col, |strip| strip.diffusion[kind as usize]));
        [0, 1, 2, 3].map(|side| [electrons[side], holes[side]])
    }

    /// Returns the current that a node gives to its neighbours outside its contact.
    pub fn outflow(&self, node: usize) -> f64 {
        let (mesh, cols) = (&*self.mesh, self.mesh.cols);
        let (row, col) = (node / cols, node % cols);
        let all = self.both_couplings(row, col).into_iter().zip(mesh.neighbours(row, col));
        let outside = all.filter(|(_, to)| mesh.contacts[*to] != mesh.contacts[node]);
        outside.map(|(couplings, to)| self.current(node, to, couplings)).sum()
    }

    /// Returns the mean of both quasi-Fermi potentials of a node, weighed by the densities, in
    /// units of the thermal voltage.
    fn level(&self, node: usize) -> f64 {
        let [electrons, holes] = Carrier::BOTH.map(|carrier| self.density(carrier, node));
        let w = &self.fields.w;
        (holes * w[1][node] - electrons * w[0][node]) / (holes + electrons)
    }

    /// Returns the power of the currents from the nodes of a row to those behind and below them, in
    /// thermal voltages times A per cm.
    ///
    /// All currents together take the power that the contacts give: with two contacts, their
    /// voltage times their current. Any potential that has the voltages of the contacts would do,
    /// since as much current leaves a node as comes to it. This one is nearly even where there are
    /// many carriers, so errors of the currents there, which are differences of large numbers, do
    /// not count.
    pub fn power(&self, row: usize) -> f64 {
        let (mesh, cols) = (&*self.mesh, self.mesh.cols);
        let of_node = |col: usize| {
            let node = row * cols + col;
            let (couplings, around) = (self.both_couplings(row, col), mesh.neighbours(row, col));
            let sides = [1, 3].into_iter().filter(|side| around[*side] != node);
            let power = sides.map(|side| {
                let to = around[side];
                (self.level(node) - self.level(to)) * self.current(node, to, couplings[side])
            });
            power.sum::<f64>()
        };
        (0..cols).map(of_node).sum()
    }
}

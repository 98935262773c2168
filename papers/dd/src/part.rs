//! The rows of one owner: the fields, and the sweeps of the three equations over them.

use crate::mesh::{Carrier, Mesh};
use crate::relax::factor;
use std::ops::{Deref, Range};

/// The potential and the quasi-Fermi potentials of all nodes, row by row, in units of the thermal
/// voltage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fields {
    pub psi: Vec<f64>,
    /// Of electrons, with the sign changed; of holes. The densities grow with both.
    pub w: [Vec<f64>; 2],
}

/// An equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equation {
    /// Poisson's equation, for the potential.
    Potential,
    /// The continuity of electrons.
    Electrons,
    /// The continuity of holes.
    Holes,
}

impl Equation {
    /// All, in the order in which they are solved.
    pub const ALL: [Equation; 3] = [Equation::Potential, Equation::Electrons, Equation::Holes];

    /// Returns the carrier of a continuity equation.
    pub(crate) fn carrier(self) -> Option<Carrier> {
        match self {
            Equation::Potential => None,
            Equation::Electrons => Some(Carrier::Electron),
            Equation::Holes => Some(Carrier::Hole),
        }
    }

    /// Returns its name: `potential`, `electrons` or `holes`.
    pub fn name(self) -> &'static str {
        match self {
            Equation::Potential => "potential",
            Equation::Electrons => "electrons",
            Equation::Holes => "holes",
        }
    }
}

/// The nodes of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// All, each from the values before the sweep.
    All,
    /// The points of one colour of the chessboard, in place.
    Colour(usize),
}

/// A sweep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub equation: Equation,
    pub nodes: Nodes,
    /// The largest eigenvalue of Jacobi's iteration, from which each point takes its factor.
    pub mu: f64,
    /// True if the changes of linear equations are compared.
    pub looks: bool,
    /// True if the rows are timed.
    pub timed: bool,
}

/// A change, and the node that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub size: f64,
    pub node: usize,
}

impl Change {
    pub const NONE: Change = Change { size: 0.0, node: 0 };

    /// Returns the larger of two changes; one that is no number is the largest of all.
    pub fn or(self, size: f64, node: usize) -> Change {
        let size = if size.is_nan() { f64::INFINITY } else { size };
        match size > self.size {
            true => Change { size, node },
            false => self,
        }
    }
}

/// A point of a linear equation, divided by its diagonal: `z = sum of at[k] z[k] + side`.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: [f64; 4],
    side: f64,
    /// The factor of over-relaxation.
    omega: f64,
}

/// The rows of one owner. All fields have the size of the whole grid, and are right in the owned
/// rows and in one row on each side.
pub(crate) struct Part<M> {
    pub mesh: M,
    pub rows: Range<usize>,
    pub fields: Fields,
    /// Relative changes of densities: the unknowns of a continuity equation.
    pub z: Vec<f64>,
    /// The new values of a sweep of all nodes.
    pub new: Vec<f64>,
    points: Vec<Point>,
    /// The logarithm of the density without the quasi-Fermi potential.
    levels: Vec<f64>,
    /// Work done in each row, in exponentials; a point of a linear equation counts as one.
    pub work: Vec<u64>,
}

/// Returns x / (e^x - 1), the function of Bernoulli.
pub(crate) fn bernoulli(x: f64) -> f64 {
    match x == 0.0 {
        true => 1.0,
        false => x / x.exp_m1(),
    }
}

/// Returns twice the geometric mean of the parts that two opposite neighbours have; at an edge
/// there is only one, as if its mirror image were the other.
fn opposite(one: f64, other: f64, is_edge: bool) -> f64 {
    match is_edge {
        true => one + other,
        false => 2.0 * (one * other).sqrt(),
    }
}

/// The part by which the local factor of over-relaxation is bolder than safe: rounding is amplified
/// from 1.3 on.
const BOLD: f64 = 1.05;
/// Most steps of Newton's method at a point of Poisson's equation.
const STEPS: usize = 30;
/// The longest step there.
const LONGEST: f64 = 2.0;
/// A step below this leaves an error of its square.
const SHORT: f64 = 1e-3;

/// Returns the potential of all nodes without voltage, where none has a charge.
pub(crate) fn at_rest(mesh: &Mesh) -> Vec<f64> {
    let mut psi = Vec::with_capacity(mesh.rows * mesh.cols);
    for row in 0..mesh.rows {
        let mut last = (f64::NAN, 0.0);
        for doping in &mesh.doping[row * mesh.cols..][..mesh.cols] {
            if last.0 != *doping {
                last = (*doping, mesh.neutral(row, *doping));
            }
            psi.push(last.1);
        }
    }
    psi
}

impl<M: Deref<Target = Mesh> + Clone> Part<M> {
    pub fn new(mesh: M, rows: Range<usize>) -> Part<M> {
        let psi = at_rest(&mesh);
        Part::with_potential(mesh, rows, psi)
    }

    /// Returns rows with a potential of all nodes.
    pub fn with_potential(mesh: M, rows: Range<usize>, psi: Vec<f64>) -> Part<M> {
        let (nodes, count) = (mesh.rows * mesh.cols, mesh.rows);
        Part {
            mesh,
            rows,
            fields: Fields { psi, w: [vec![0.0; nodes], vec![0.0; nodes]] },
            z: vec![0.0; nodes],
            new: vec![0.0; nodes],
            points: vec![Point::default(); nodes],
            levels: vec![0.0; nodes],
            work: vec![0; count],
        }
    }

    /// Puts the contacts at voltages, in V.
    pub fn set_voltages(&mut self, voltages: &[f64]) {
        let mesh = self.mesh.clone();
        for (node, contact) in mesh.contacts.iter().enumerate() {
            if let Some(contact) = contact {
                let level = voltages[usize::from(*contact)] / mesh.thermal;
                let neutral = mesh.neutral(node / mesh.cols, mesh.doping[node]);
                self.fields.psi[node] = neutral + level;
                (self.fields.w[0][node], self.fields.w[1][node]) = (-level, level);
            }
        }
    }

    /// Returns the unknowns of an equation.
    pub fn unknowns(&mut self, equation: Equation) -> &mut Vec<f64> {
        match equation {
            Equation::Potential => &mut self.fields.psi,
            Equation::Electrons | Equation::Holes => &mut self.z,
        }
    }

    /// Returns the density of a carrier and its derivative by the potential's part, with the work.
    fn fill(&self, carrier: Carrier, row: usize, node: usize, psi: f64) -> crate::device::Filled {
        let band = &self.mesh.strips[row].bands[carrier as usize];
        band.fill(carrier.sign() * psi + self.fields.w[carrier as usize][node] + band.edge)
    }

    /// Returns the density of a carrier at a node, per cm3.
    pub fn density(&self, carrier: Carrier, node: usize) -> f64 {
        self.fill(carrier, node / self.mesh.cols, node, self.fields.psi[node]).density
    }

    /// Solves the equation of one point of Poisson's equation by Newton's method:
    /// `a psi + c (n(psi) - p(psi) - N) = sum of a_j psi_j`. Returns the potential, the
    /// neighbours' share of the diagonal, and the work.
    fn potential_at(&self, row: usize, col: usize) -> (f64, f64, u64) {
        let mesh = &*self.mesh;
        let node = row * mesh.cols + col;
        let around = mesh.neighbours(row, col);
        let coupling = mesh.couplings(row, col, |strip| strip.permittivity);
        let psis = &self.fields.psi;
        let (mut flow, mut diagonal) = (0.0, 0.0);
        for (a, at) in coupling.iter().zip(around) {
            flow += a * psis[at];
            diagonal += a;
        }
        let c = mesh.kappa * mesh.widths[col] * mesh.strips[row].height;
        let (mut psi, mut share, mut work) = (psis[node], 1.0, 0);
        for _ in 0..STEPS {
            let electrons = self.fill(Carrier::Electron, row, node, psi);
            let holes = self.fill(Carrier::Hole, row, node, psi);
            work += electrons.work + holes.work;
            let charge = holes.density - electrons.density + mesh.doping[node];
            let step = (flow - diagonal * psi + c * charge)
                / (diagonal + c * (electrons.slope + holes.slope));
            psi += step.clamp(-LONGEST, LONGEST);
            share = diagonal / (diagonal + c * (electrons.slope + holes.slope));
            if step.is_nan() || step.abs() <= SHORT {
                break;
            }
        }
        (psi, share, work)
    }

    /// Makes the linear equations of a carrier, from the fields of the owned rows and the rows
    /// beside them. The unknowns begin at 0.
    pub fn prepare(&mut self, carrier: Carrier) {
        let (mesh, cols) = (self.mesh.clone(), self.mesh.cols);
        let with_borders = self.rows.start.saturating_sub(1)..(self.rows.end + 1).min(mesh.rows);
        for row in with_borders.clone() {
            let band = &mesh.strips[row].bands[carrier as usize];
            for node in row * cols..(row + 1) * cols {
                let level = carrier.sign() * self.fields.psi[node] + band.edge;
                let (scale, work) = band.log_scale(level + self.fields.w[carrier as usize][node]);
                self.levels[node] = level + scale;
                self.z[node] = 0.0;
                if self.rows.contains(&row) {
                    self.work[row] += work;
                }
            }
        }
        for row in self.rows.clone() {
            for col in 0..cols {
                let node = row * cols + col;
                self.points[node] = match mesh.contacts[node] {
                    Some(_) => Point::default(),
                    None => self.point(carrier, row, col),
                };
            }
        }
    }

    /// Makes the equation of a point. `A_j` of the flux from each neighbour, `A_j (e_j (1 + z_j) -
    /// (1 + z))` with `e_j = exp(w_j - w)`, is taken relative to the density of the point.
    fn point(&mut self, carrier: Carrier, row: usize, col: usize) -> Point {
        let mesh = self.mesh.clone();
        let node = row * mesh.cols + col;
        let w = &self.fields.w[carrier as usize];
        let coupling = mesh.couplings(row, col, |strip| strip.diffusion[carrier as usize]);
        let (mut diagonal, mut side, mut at) = (0.0, 0.0, [0.0; 4]);
        for ((coupling, neighbour), at) in
            coupling.into_iter().zip(mesh.neighbours(row, col)).zip(&mut at)
        {
            let a = coupling * bernoulli(self.levels[node] - self.levels[neighbour]);
            let e = (w[neighbour] - w[node]).exp_m1();
            *at = a * (1.0 + e);
            side += a * e;
            diagonal += a;
        }
        let (rate, work) = self.recombination(carrier, row, node);
        let volume = mesh.widths[col] * mesh.strips[row].height;
        let excess = -(-(self.fields.w[0][node] + self.fields.w[1][node])).exp_m1();
        self.work[row] += 8 + work;
        diagonal += volume * rate;
        side -= volume * rate * excess;
        Point { at: at.map(|a| a / diagonal), side: side / diagonal, omega: 1.0 }
    }

    /// Gives each point of a linear equation its factor of over-relaxation, for a largest
    /// eigenvalue of Jacobi's iteration. Where carriers drift one way, one of two opposite
    /// neighbours counts little and the factor is near 1; more would amplify rounding (Botta
    /// and Veldman, Journal of Computational Physics 48, 1982).
    pub fn set_factors(&mut self, mu: f64) {
        let mesh = self.mesh.clone();
        for row in self.rows.clone() {
            for col in 0..mesh.cols {
                let point = &mut self.points[row * mesh.cols + col];
                let [above, below, before, behind] = point.at;
                let down = opposite(above, below, row == 0 || row + 1 == mesh.rows);
                let across = opposite(before, behind, col == 0 || col + 1 == mesh.cols);
                point.omega = factor(mu * (BOLD * (down + across)).min(1.0));
            }
        }
    }

    /// Returns the density of the other carrier by the denominator of the rate of Shockley, Read
    /// and Hall, with traps in the middle of the gap: `R = n p (1 - exp(-w_n - w_p)) / (tau_p (n +
    /// n_i) + tau_n (p + n_i))`.
    fn recombination(&self, carrier: Carrier, row: usize, node: usize) -> (f64, u64) {
        let strip = &self.mesh.strips[row];
        let psi = self.fields.psi[node];
        let own = self.fill(carrier, row, node, psi);
        let other = self.fill(carrier.other(), row, node, psi);
        let (of_own, of_other) =
            (strip.lifetime[carrier.other() as usize], strip.lifetime[carrier as usize]);
        let below =
            of_own * (own.density + strip.intrinsic) + of_other * (other.density + strip.intrinsic);
        (other.density / below, own.work + other.work)
    }

    /// Sweeps over nodes of an owned row. Returns the largest change; of a linear equation only if
    /// the pass looks.
    pub fn sweep(&mut self, pass: Pass, row: usize) -> Change {
        match pass.equation {
            Equation::Potential => self.sweep_potential(pass, row),
            Equation::Electrons | Equation::Holes => self.sweep_linear(pass, row),
        }
    }

    fn sweep_potential(&mut self, pass: Pass, row: usize) -> Change {
        let Pass { nodes, mu, .. } = pass;
        let cols = self.mesh.cols;
        let (first, step) = columns(nodes, row);
        let (mut largest, mut done) = (Change::NONE, 0);
        for col in (first..cols).step_by(step) {
            let node = row * cols + col;
            let old = self.fields.psi[node];
            if self.mesh.contacts[node].is_some() {
                self.new[node] = old;
                continue;
            }
            let (exact, share, work) = self.potential_at(row, col);
            done += work;
            // Over-relaxation suits what is nearly linear.
            let far = (exact - old).abs() > 1.0;
            let new = if far { exact } else { old + factor(mu * share) * (exact - old) };
            match nodes {
                Nodes::All => self.new[node] = new,
                Nodes::Colour(_) => self.fields.psi[node] = new,
            }
            largest = largest.or((new - old).abs(), node);
        }
        self.work[row] += done;
        largest
    }

    fn sweep_linear(&mut self, pass: Pass, row: usize) -> Change {
        let Pass { nodes, looks, .. } = pass;
        let cols = self.mesh.cols;
        let (first, step) = columns(nodes, row);
        let mut largest = Change::NONE;
        for col in (first..cols).step_by(step) {
            let node = row * cols + col;
            let Point { at, side, omega } = self.points[node];
            let around = self.mesh.neighbours(row, col);
            let old = self.z[node];
            let exact = side
                + (at[0] * self.z[around[0]] + at[1] * self.z[around[1]])
                + (at[2] * self.z[around[2]] + at[3] * self.z[around[3]]);
            let new = old + omega * (exact - old);
            match nodes {
                Nodes::All => self.new[node] = new,
                Nodes::Colour(_) => self.z[node] = new,
            }
            if looks {
                largest = largest.or((new - old).abs() / (1.0 + new).max(0.01), node);
            }
        }
        self.work[row] += cols.div_ceil(step) as u64;
        largest
    }

    /// Takes the new values of a sweep of all nodes.
    pub fn take_new(&mut self, equation: Equation) {
        let all = self.rows.start * self.mesh.cols..self.rows.end * self.mesh.cols;
        let new = std::mem::take(&mut self.new);
        self.unknowns(equation)[all.clone()].copy_from_slice(&new[all]);
        self.new = new;
    }

    /// Returns the largest change of an equation in the owned rows since `before`.
    pub fn changed(&self, equation: Equation, before: &Fields) -> Change {
        let all = self.rows.start * self.mesh.cols..self.rows.end * self.mesh.cols;
        all.fold(Change::NONE, |largest, node| {
            let size = match equation {
                Equation::Potential => (self.fields.psi[node] - before.psi[node]).abs(),
                _ => self.z[node].abs() / (1.0 + self.z[node]).max(0.01),
            };
            largest.or(size, node)
        })
    }

    /// Adds the changes of a carrier's densities to its quasi-Fermi potential.
    pub fn apply(&mut self, carrier: Carrier) {
        let all = self.rows.start * self.mesh.cols..self.rows.end * self.mesh.cols;
        for node in all {
            // An iteration that is not at its end may leave a density below 0.
            self.fields.w[carrier as usize][node] += self.z[node].max(-0.99).ln_1p();
        }
    }
}

/// Returns the first column of a sweep in a row, and the distance between two.
fn columns(nodes: Nodes, row: usize) -> (usize, usize) {
    match nodes {
        Nodes::All => (0, 1),
        Nodes::Colour(colour) => ((row + colour) % 2, 2),
    }
}

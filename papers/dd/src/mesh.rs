//! The figures of the grid that every iteration needs. Potentials are in units of the thermal
//! voltage, lengths in cm, densities per cm3.

use crate::device::{Band, Device, CHARGE, VACUUM};

/// A kind of carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Electrons.
    Electron,
    /// Holes.
    Hole,
}

impl Carrier {
    /// Both.
    pub const BOTH: [Carrier; 2] = [Carrier::Electron, Carrier::Hole];

    /// Returns the sign with which the potential raises the density: 1 for electrons, -1 for holes.
    pub fn sign(self) -> f64 {
        match self {
            Carrier::Electron => 1.0,
            Carrier::Hole => -1.0,
        }
    }

    /// Returns the other kind.
    pub fn other(self) -> Carrier {
        match self {
            Carrier::Electron => Carrier::Hole,
            Carrier::Hole => Carrier::Electron,
        }
    }
}

/// The figures of a row, which has one material.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    /// The statistics of electrons and holes.
    pub bands: [Band; 2],
    /// Relative permittivity.
    pub permittivity: f64,
    /// Diffusion constants of electrons and holes, in cm2/s.
    pub diffusion: [f64; 2],
    /// Lifetimes of electrons and holes, in s.
    pub lifetime: [f64; 2],
    /// The intrinsic density, by Boltzmann's statistics.
    pub intrinsic: f64,
    /// Half of the distances to the rows above and below, together.
    pub height: f64,
    /// One by the distance to the row below; 0 for the last row.
    pub below: f64,
}

/// The figures of the grid.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    pub rows: usize,
    pub cols: usize,
    /// The thermal voltage, in V.
    pub thermal: f64,
    /// Charge by permittivity of the vacuum and thermal voltage, in cm.
    pub kappa: f64,
    pub strips: Vec<Strip>,
    /// Half of the distances to the columns on both sides, together.
    pub widths: Vec<f64>,
    /// One by the distance to the next column; 0 for the last one.
    pub beside: Vec<f64>,
    /// Donors less acceptors of each node, row by row.
    pub doping: Vec<f64>,
    /// The contact of each node, row by row.
    pub contacts: Vec<Option<u16>>,
}

/// Returns half of the distances to both neighbours, and one by that to the next one.
fn boxes(places: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let gap = |at: usize| places.get(at + 1).map_or(0.0, |next| next - places[at]);
    let half = |at: usize| (gap(at) + at.checked_sub(1).map_or(0.0, gap)) / 2.0;
    let one_by = |at: usize| if gap(at) > 0.0 { 1.0 / gap(at) } else { 0.0 };
    ((0..places.len()).map(half).collect(), (0..places.len()).map(one_by).collect())
}

impl Mesh {
    pub fn new(device: &Device) -> Mesh {
        let (rows, cols, thermal) = (device.rows(), device.cols(), device.thermal());
        let (heights, below) = boxes(&device.y);
        let (widths, beside) = boxes(&device.x);
        let strips = (0..rows).map(|row| strip(device, row, heights[row], below[row])).collect();
        let nodes = || (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        Mesh {
            rows,
            cols,
            thermal,
            kappa: CHARGE / (VACUUM * thermal),
            strips,
            widths,
            beside,
            doping: nodes().map(|(row, col)| device.doping(row, col)).collect(),
            contacts: nodes()
                .map(|(row, col)| device.contact(row, col).map(|contact| contact as u16))
                .collect(),
        }
    }

    /// Returns the potential at which the node has no charge, without voltage.
    pub fn neutral(&self, row: usize, doping: f64) -> f64 {
        let [electrons, holes] = self.strips[row].bands;
        let charge = |psi: f64| {
            holes.fill(holes.edge - psi).density - electrons.fill(psi + electrons.edge).density
                + doping
        };
        // The charge falls with the potential.
        let (mut low, mut high) = (-300.0, 300.0);
        for _ in 0..70 {
            let middle = (low + high) / 2.0;
            if charge(middle) > 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low + high) / 2.0
    }

    /// Returns the coupling of a node to its neighbours above, below, before and behind it: length
    /// of the common side by distance, times the mean of a figure of the rows.
    pub fn couplings(&self, row: usize, col: usize, of: impl Fn(&Strip) -> f64) -> [f64; 4] {
        let here = &self.strips[row];
        let figure = of(here);
        let width = self.widths[col];
        let above = match row.checked_sub(1).and_then(|above| self.strips.get(above)) {
            Some(above) => width * above.below * 0.5 * (figure + of(above)),
            None => 0.0,
        };
        let below = match self.strips.get(row + 1) {
            Some(below) => width * here.below * 0.5 * (figure + of(below)),
            None => 0.0,
        };
        let before = col.checked_sub(1).map_or(0.0, |before| self.beside[before]);
        let across = here.height * figure;
        [above, below, across * before, across * self.beside[col]]
    }

    /// Returns the neighbours of a node above, below, before and behind it; the node itself where
    /// there is none.
    pub fn neighbours(&self, row: usize, col: usize) -> [usize; 4] {
        let at = row * self.cols + col;
        [
            if row > 0 { at - self.cols } else { at },
            if row + 1 < self.rows { at + self.cols } else { at },
            if col > 0 { at - 1 } else { at },
            if col + 1 < self.cols { at + 1 } else { at },
        ]
    }
}

fn strip(device: &Device, row: usize, height: f64, below: f64) -> Strip {
    let thermal = device.thermal();
    let layer = device.layer(row).expect("layers have all rows");
    let material = &device.materials[layer.material];
    // The level 0 is the middle of the first layer's band gap, weighed by the densities of states.
    let first = &device.materials[device.layers[0].material];
    let middle = |m: &crate::Material| {
        -m.affinity - m.gap / 2.0 - 0.5 * thermal * (m.states[1] / m.states[0]).ln()
    };
    let zero = middle(first);
    let edges = [
        (zero + material.affinity) / thermal,
        (-zero - material.affinity - material.gap) / thermal,
    ];
    let band = |kind: usize| Band {
        states: material.states[kind],
        edge: edges[kind],
        degenerate: layer.degenerate,
    };
    let product = material.states[0] * material.states[1];
    Strip {
        bands: [band(0), band(1)],
        permittivity: material.permittivity,
        diffusion: material.mobility.map(|mobility| mobility * thermal),
        lifetime: material.lifetime,
        intrinsic: product.sqrt() * (-material.gap / (2.0 * thermal)).exp(),
        height,
        below,
    }
}

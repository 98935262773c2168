//! A device: its grid, the material and doping of each node, its contacts and their voltages.

use crate::fermi::{fermi, inverse};
use std::fmt;

/// Charge of the electron, in C.
pub const CHARGE: f64 = 1.602176634e-19;
/// Boltzmann's constant, in J/K.
pub const BOLTZMANN: f64 = 1.380649e-23;
/// Permittivity of the vacuum, in F/cm.
pub const VACUUM: f64 = 8.8541878128e-14;

/// A semiconductor.
#[derive(Clone, Debug, PartialEq)]
pub struct Material {
    /// Its name.
    pub name: String,
    /// Relative permittivity.
    pub permittivity: f64,
    /// Band gap, in eV.
    pub gap: f64,
    /// Electron affinity, in eV.
    pub affinity: f64,
    /// Effective densities of states of conduction and valence band, per cm3.
    pub states: [f64; 2],
    /// Mobilities of electrons and holes, in cm2/(V s).
    pub mobility: [f64; 2],
    /// Lifetimes of electrons and holes, in s.
    pub lifetime: [f64; 2],
}

/// A layer: rows of one material.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// The material's place in [`Device::materials`].
    pub material: usize,
    /// Donors less acceptors, per cm3.
    pub doping: f64,
    /// True if its carriers follow Fermi's statistics, and not Boltzmann's.
    pub degenerate: bool,
    /// Its rows.
    pub rows: std::ops::Range<usize>,
}

/// A rectangle with a doping of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Its ends across, in cm.
    pub x: (f64, f64),
    /// Its ends down, in cm.
    pub y: (f64, f64),
    /// Donors less acceptors, per cm3.
    pub doping: f64,
}

/// The edges that a contact may be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The first row.
    Top,
    /// The last row.
    Bottom,
}

/// An ohmic contact at an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Contact {
    /// Its name.
    pub name: String,
    /// The edge.
    pub edge: Edge,
    /// Its ends, in cm.
    pub x: (f64, f64),
    /// Its voltage where it is not swept, in V.
    pub bias: f64,
}

/// The voltages that a contact goes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The contact's place in [`Device::contacts`].
    pub contact: usize,
    /// The first and the last voltage, in V.
    pub ends: (f64, f64),
    /// The distance between two, in V.
    pub step: f64,
}

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its temperature, in K.
    pub temperature: f64,
    /// Its materials.
    pub materials: Vec<Material>,
    /// Its layers, from the top; together they have all rows.
    pub layers: Vec<Layer>,
    /// Rectangles with other doping; the last one that has a node counts.
    pub patches: Vec<Patch>,
    /// Its contacts.
    pub contacts: Vec<Contact>,
    /// The voltages; `None`: one solution.
    pub sweep: Option<Sweep>,
    /// Places of the columns, in cm.
    pub x: Vec<f64>,
    /// Places of the rows, in cm, from the top.
    pub y: Vec<f64>,
}

/// The faults of a whole device.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceError {
    /// There are fewer than two rows or columns.
    Grid,
    /// The places of rows or columns do not grow.
    Order,
    /// There is no contact.
    NoContact,
    /// The contact has no node.
    Nowhere(String),
    /// Two contacts share a node.
    Overlap(String, String),
    /// A number is not finite; its name.
    NotFinite(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Grid => write!(f, "the grid needs at least two rows and two columns"),
            DeviceError::Order => write!(f, "two rows or two columns are at the same place"),
            DeviceError::NoContact => write!(
                f,
                "the device has no contact, so nothing fixes its potential: a line \
                 `contact NAME top` or `contact NAME bottom` makes one"
            ),
            DeviceError::Nowhere(name) => write!(f, "contact {name} has no node of the grid"),
            DeviceError::Overlap(one, other) => {
                write!(f, "contacts {one} and {other} share a node of the grid")
            }
            DeviceError::NotFinite(what) => write!(f, "{what} is not a finite number"),
        }
    }
}

impl std::error::Error for DeviceError {}

impl Device {
    /// Returns the thermal voltage, in V.
    pub fn thermal(&self) -> f64 {
        BOLTZMANN * self.temperature / CHARGE
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.y.len()
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.x.len()
    }

    /// Returns the layer of a row.
    pub fn layer(&self, row: usize) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.rows.contains(&row))
    }

    /// Returns the doping of a node, donors less acceptors, per cm3.
    pub fn doping(&self, row: usize, col: usize) -> f64 {
        let (x, y) = (self.x[col], self.y[row]);
        let has = |p: &&Patch| within(p.x, x) && within(p.y, y);
        let patch = self.patches.iter().rev().find(has).map(|patch| patch.doping);
        patch.or(self.layer(row).map(|layer| layer.doping)).unwrap_or(0.0)
    }

    /// Returns the contact of a node.
    pub fn contact(&self, row: usize, col: usize) -> Option<usize> {
        let has = |c: &Contact| {
            let edge = match c.edge {
                Edge::Top => row == 0,
                Edge::Bottom => row + 1 == self.rows(),
            };
            edge && within(c.x, self.x[col])
        };
        self.contacts.iter().position(has)
    }

    /// Returns the voltages of all contacts for each solution, in V. A sweep begins at the voltage
    /// of its start.
    pub fn voltages(&self) -> Vec<Vec<f64>> {
        let fixed: Vec<f64> = self.contacts.iter().map(|contact| contact.bias).collect();
        let Some(Sweep { contact, ends: (from, to), step }) = self.sweep else {
            return vec![fixed];
        };
        let steps = ((to - from) / step).abs().round() as usize;
        let at = |k: usize| {
            let mut all = fixed.clone();
            all[contact] = from + (to - from) * k as f64 / steps.max(1) as f64;
            all
        };
        (0..=steps).map(at).collect()
    }

    /// Checks the device.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), DeviceError> {
        if self.rows() < 2 || self.cols() < 2 {
            return Err(DeviceError::Grid);
        }
        self.numbers()?;
        let grows = |all: &[f64]| all.windows(2).all(|pair| pair[0] < pair[1]);
        if !grows(&self.x) || !grows(&self.y) {
            return Err(DeviceError::Order);
        }
        if self.contacts.is_empty() {
            return Err(DeviceError::NoContact);
        }
        for (at, contact) in self.contacts.iter().enumerate() {
            let row = if contact.edge == Edge::Top { 0 } else { self.rows() - 1 };
            let on = |col: &usize| within(contact.x, self.x[*col]);
            let mut nodes = (0..self.cols()).filter(on).peekable();
            if nodes.peek().is_none() {
                return Err(DeviceError::Nowhere(contact.name.clone()));
            }
            let first = nodes.find_map(|col| self.contact(row, col).filter(|first| *first != at));
            if let Some(first) = first {
                let first = self.contacts[first].name.clone();
                return Err(DeviceError::Overlap(first, contact.name.clone()));
            }
        }
        Ok(())
    }

    fn numbers(&self) -> Result<(), DeviceError> {
        let places =
            self.x.iter().chain(&self.y).map(|place| ("a place of the grid".into(), *place));
        let layers =
            self.layers.iter().map(|l| (format!("the doping of layer {}", l.name), l.doping));
        let patches = self.patches.iter().map(|patch| ("the doping of a box".into(), patch.doping));
        let biases = self.contacts.iter().map(|c| (format!("the voltage of {}", c.name), c.bias));
        let heat = [("the temperature".to_string(), self.temperature)];
        let mut all = places.chain(layers).chain(patches).chain(biases).chain(heat);
        match all.find(|(_, value): &(String, f64)| !value.is_finite()) {
            Some((what, _)) => Err(DeviceError::NotFinite(what)),
            None => Ok(()),
        }
    }
}

/// Returns true if a place lies between two ends, rounding apart.
fn within((from, to): (f64, f64), place: f64) -> bool {
    let slack = 1e-9 * (to - from).abs().max(1e-12);
    (from - slack..=to + slack).contains(&place)
}

/// The statistics of one kind of carrier at a node. Energies are in units of the thermal energy.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// Effective density of states, per cm3.
    pub states: f64,
    /// The edge of the band: `eta = s psi + w + edge`, with the sign `s` of the carrier and its
    /// quasi-Fermi potential `w`.
    pub edge: f64,
    /// True if the carriers follow Fermi's statistics.
    pub degenerate: bool,
}

/// The density of carriers at a node, in units of the density of states.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// The density, per cm3.
    pub density: f64,
    /// Its derivative by `eta`.
    pub slope: f64,
    /// Exponentials computed.
    pub work: u64,
}

impl Band {
    /// Returns the density of carriers.
    pub fn fill(&self, eta: f64) -> Filled {
        if self.degenerate {
            let f = fermi(eta);
            let (density, slope) = (self.states * f.value, self.states * f.slope);
            return Filled { density, slope, work: f.work };
        }
        let density = self.states * eta.exp();
        Filled { density, slope: density, work: 1 }
    }

    /// Returns the logarithm of the density of states and of the factor by which the density is
    /// below Boltzmann's, and the exponentials computed.
    pub fn log_scale(&self, eta: f64) -> (f64, u64) {
        let log = self.states.ln();
        match self.degenerate {
            true => {
                let f = fermi(eta);
                (log + f.value.ln() - eta, f.work)
            }
            false => (log, 0),
        }
    }

    /// Returns the argument for a density.
    pub fn eta(&self, density: f64) -> f64 {
        match self.degenerate {
            true => inverse(density / self.states),
            false => (density / self.states).ln(),
        }
    }
}

//! The factor of over-relaxation, found while an equation is solved.
//!
//! With the factor `omega` below the best one, the changes of successive sweeps have the ratio of
//! the largest eigenvalue `r`, and `mu^2 = (r + omega - 1)^2 / (omega^2 r)` is the square of that
//! of Jacobi's iteration (Hageman and Young, Applied Iterative Methods, 1981, chapter 9). The best
//! factor is `2 / (1 + sqrt(1 - mu^2))`. The ratio comes from below, so the factor grows to the
//! best.

use serde::{Deserialize, Serialize};

/// Sweeps between two looks at the largest change.
pub(crate) const CHECK: u64 = 8;

/// The largest factor.
const MOST: f64 = 1.985;

/// The growth of the distance from the largest factor, 2, with each right-hand side.
const FORGOTTEN: f64 = 1.1;
/// Looks with one factor before it grows.
const STEADY: u32 = 2;
/// Looks without a smaller change after which the factor is too large: it amplifies rounding.
const IDLE: u32 = 40;
/// The growth of changes after which it is too large.
const GROWN: f64 = 100.0;

/// Returns the best factor for a largest eigenvalue of Jacobi's iteration.
pub(crate) fn factor(mu: f64) -> f64 {
    2.0 / (1.0 + (1.0 - mu * mu).sqrt())
}

/// The largest eigenvalue of Jacobi's iteration for an equation, as far as it is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Relax {
    /// The best factor for it.
    omega: f64,
    /// True if it is to be found; false: it stays at 0.
    adapts: bool,
    /// The largest change at the last look, and the ratio of two successive changes there.
    change: f64,
    ratio: f64,
    /// The largest change with which the equation, or another factor, began.
    first: f64,
    /// Looks since the factor was changed.
    looks: u32,
    /// The least change since the equation began, and the looks without a smaller one.
    least: f64,
    idle: u32,
}

impl Relax {
    pub fn new(adapts: bool) -> Relax {
        Relax {
            omega: 1.0,
            adapts,
            change: 0.0,
            ratio: 0.0,
            first: 0.0,
            looks: 0,
            least: f64::INFINITY,
            idle: 0,
        }
    }

    /// Returns the eigenvalue.
    pub fn mu(&self) -> f64 {
        (1.0 - (2.0 / self.omega - 1.0).powi(2)).max(0.0).sqrt()
    }

    /// Begins with another right-hand side. The factor falls a little, in case that it is too
    /// large: then the ratio says nothing.
    pub fn begin(&mut self) {
        (self.looks, self.first) = (0, 0.0);
        (self.least, self.idle) = (f64::INFINITY, 0);
        if self.adapts {
            self.omega = (2.0 - (2.0 - self.omega) * FORGOTTEN).max(1.0);
        }
    }

    /// Takes the largest change of the last sweep. Returns the ratio by which successive changes
    /// shrink, as far as it is known.
    pub fn look(&mut self, change: f64) -> f64 {
        let ratio = match self.looks {
            0 => 0.0,
            _ => (change / self.change).powf(1.0 / CHECK as f64),
        };
        let (before, looks) = (self.ratio, self.looks);
        (self.change, self.ratio, self.looks) = (change, ratio, looks + 1);
        if looks == 0 {
            self.first = self.first.max(change);
        }
        if change < 0.9 * self.least {
            (self.least, self.idle) = (change, 0);
        } else {
            self.idle += 1;
        }
        if self.adapts && (change > GROWN * self.first || self.idle >= IDLE) {
            (self.least, self.idle) = (change, 0);
            self.use_factor(1.0 + (self.omega - 1.0) * 0.7, change);
        } else if self.adapts && looks >= STEADY && ratio < 1.0 {
            let steady = (ratio - before).abs() < 0.3 * (1.0 - ratio);
            let mu = (ratio + self.omega - 1.0) / (self.omega * ratio.sqrt());
            if steady && ratio > self.omega - 1.0 && mu < 1.0 {
                let best = 2.0 / (1.0 + (1.0 - mu * mu).sqrt());
                let most = (2.0 - (2.0 - self.omega) / 2.0).min(MOST);
                if best > self.omega + 0.1 * (2.0 - self.omega) {
                    self.use_factor(best.min(most), change);
                }
            }
        }
        match looks {
            0 => 1.0,
            _ => ratio.max(self.omega - 1.0),
        }
    }

    /// Goes on with another factor. The changes grow for some sweeps after that.
    fn use_factor(&mut self, omega: f64, change: f64) {
        (self.omega, self.looks, self.first) = (omega, 0, change);
    }
}

//! The curves of Figures 5, 6 and 15.

use super::cluster::{Carrier, HOSTS};
use super::programs::{run, Case, Version};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Processes, or objects, of the points of Figures 5 and 6, and of Figure 15.
pub const RANKS: [usize; 17] = [1, 4, 8, 12, 18, 24, 30, 37, 44, 50, 55, 62, 68, 74, 86, 98, 111];
pub const FEW: [usize; 7] = [1, 4, 8, 12, 16, 20, 23];

/// The places of curves in the paper.
pub const FIGURES: [&str; 3] = ["5", "6", "15"];

/// A curve: figure, name, speed-ups by ranks.
pub struct Curve {
    pub figure: &'static str,
    pub name: String,
    pub points: BTreeMap<usize, f64>,
}

impl Curve {
    /// Returns the speed-up on so many ranks.
    pub fn at(&self, ranks: usize) -> f64 {
        self.points.get(&ranks).copied().unwrap_or(f64::NAN)
    }

    /// Returns the speed-ups on more ranks than there are hosts.
    pub fn beyond(&self) -> Vec<f64> {
        self.points.range(HOSTS + 1..).map(|(_, speed)| *speed).collect()
    }

    /// Returns the sum of the bends beyond the last host, by the greatest speed-up: how rough the
    /// curve is.
    pub fn roughness(&self) -> f64 {
        let beyond: Vec<f64> = self.points.range(HOSTS..).map(|(_, speed)| *speed).collect();
        let bends = beyond.windows(3).map(|at| (at[0] - 2.0 * at[1] + at[2]).abs());
        bends.sum::<f64>() / beyond.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
    }
}

/// The settings of all runs.
pub struct Study {
    pub times: Rc<Vec<Duration>>,
    pub steps: u32,
    pub every: u32,
    pub seed: u64,
}

impl Study {
    fn case(&self, version: Version, by_cost: bool, carrier: Carrier, parts: usize) -> Case {
        let Study { steps, every, seed, .. } = *self;
        Case { version, parts, by_cost, carrier, seed, steps, every }
    }

    /// Returns the number of runs for some figures.
    pub fn runs(figures: &[&str]) -> usize {
        let of = |figure: &&str| match *figure {
            "15" => 4 * FEW.len(),
            _ => Version::ALL.len() * RANKS.len(),
        };
        figures.iter().map(of).sum()
    }

    /// Returns the time of a step without messages, in s.
    pub fn alone(&self) -> f64 {
        self.times.iter().sum::<Duration>().as_secs_f64()
    }

    /// Runs a curve.
    fn curve(
        &self,
        figure: &'static str,
        (version, by_cost, carrier): (Version, bool, Carrier),
        tell: &dyn Fn(String),
    ) -> Result<Curve, String> {
        let (mut name, ranks) = match figure {
            "15" => (format!("{carrier:?}").to_lowercase(), &FEW[..]),
            _ => (version.name().to_string(), &RANKS[..]),
        };
        if by_cost {
            name += ", rows by cost";
        }
        let mut points = BTreeMap::new();
        for &ranks in ranks {
            tell(format!("figure {figure}: {name}, {ranks} ranks"));
            let time = run(&self.case(version, by_cost, carrier, ranks), &self.times)?;
            points.insert(ranks, self.alone() / time);
        }
        Ok(Curve { figure, name, points })
    }

    /// Runs the curves of some figures.
    ///
    /// # Errors
    /// A simulation failed.
    pub fn curves(&self, figures: &[&str], tell: &dyn Fn(String)) -> Result<Vec<Curve>, String> {
        let mut all = Vec::new();
        for (figure, by_cost) in [("5", false), ("6", true)] {
            if figures.contains(&figure) {
                for version in Version::ALL {
                    all.push(self.curve(figure, (version, by_cost, Carrier::Tcp), tell)?);
                }
            }
        }
        if figures.contains(&"15") {
            for carrier in [Carrier::Tcp, Carrier::Tipc] {
                for by_cost in [false, true] {
                    all.push(self.curve("15", (Version::Messages, by_cost, carrier), tell)?);
                }
            }
        }
        Ok(all)
    }
}

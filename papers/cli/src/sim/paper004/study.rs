//! Runs of cases, side by side, each once.

use super::cases::{run, Case, Measured};
use crate::app::Progress;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// The figures of all cases that were run.
pub struct Study {
    seed: u64,
    known: BTreeMap<String, Measured>,
}

impl Study {
    pub fn new(seed: u64) -> Study {
        Study { seed, known: BTreeMap::new() }
    }

    /// Runs those cases that were not run yet, on all processors of this machine, with a progress
    /// bar.
    pub fn run(&mut self, cases: &[Case]) -> Result<(), String> {
        let mut wanted: BTreeMap<String, Case> =
            cases.iter().map(|case| (case.key(), *case)).collect();
        wanted.retain(|key, _| !self.known.contains_key(key));
        let wanted: Vec<(String, Case)> = wanted.into_iter().collect();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let bar = Progress::told("weft sim: simulated runs");
        if !wanted.is_empty() {
            bar.at(0, wanted.len() as u64);
        }
        let bar = Mutex::new(bar);
        let work = || {
            while let Some((key, case)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = run(case, self.seed).map(|figures| (key.clone(), figures));
                let mut done = done.lock().expect("no run panics");
                done.push(result);
                bar.lock().expect("no run panics").at(done.len() as u64, wanted.len() as u64);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            (1..threads.min(wanted.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        for result in done.into_inner().expect("no run panics") {
            let (key, figures) = result?;
            self.known.insert(key, figures);
        }
        Ok(())
    }

    /// Returns the figures of a case.
    ///
    /// # Panics
    /// The case was not run.
    pub fn of(&self, case: &Case) -> Measured {
        self.known[&case.key()]
    }

    /// Returns the time of a case over that of another one, which does the same work.
    pub fn slowdown(&self, case: &Case, than: &Case) -> f64 {
        self.of(than).efficiency / self.of(case).efficiency
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::cases::App;
    use super::super::costs::PLATFORMS;
    use super::*;
    use weft_platform::choice::Choice;

    #[test]
    fn run__each_case_once_with_figures_of_a_part() {
        let mut study = Study::new(1);
        let at = PLATFORMS.iter().position(|name| *name == "p3").unwrap();
        let usual = Case::usual(App::SOR, at);
        let pio = usual.with(Choice::PIO);
        study.run(&[usual, pio, usual]).unwrap();
        assert_eq!(study.known.len(), 2);
        let of = study.of(&usual);
        assert!((0.5..1.0).contains(&of.efficiency), "{of:?}");
        assert!(of.packets[0] > 1000.0 && of.bytes[0] > of.bytes[1], "{of:?}");
        let slowdown = study.slowdown(&pio, &usual);
        assert!((1.0..1.3).contains(&slowdown), "{slowdown}");
        study.run(&[usual]).unwrap();
    }
}

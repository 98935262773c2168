//! Simulations on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// Simulations of which each has a number.
pub struct Runs<T> {
    /// The number of the first one, and the one behind the last.
    pub numbers: std::ops::Range<u64>,
    /// Threads.
    pub jobs: usize,
    /// True if a failure does not end the others.
    pub keep_going: bool,
    /// Runs the simulation of a number.
    pub run: T,
}

impl<A: Send, B: Send, T: Fn(u64) -> Result<A, B> + Sync> Runs<T> {
    /// Runs one simulation after the other on each thread, until none is left or one has failed;
    /// calls `each` with the number and the result of each as they come.
    pub fn all(&self, mut each: impl FnMut(u64, Result<A, B>)) {
        let (next, stop) = (AtomicU64::new(self.numbers.start), AtomicBool::new(false));
        let work = |to: mpsc::Sender<_>| {
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.numbers.end {
                    return;
                }
                let result = (self.run)(number);
                if result.is_err() && !self.keep_going {
                    stop.store(true, Ordering::Relaxed);
                }
                if to.send((number, result)).is_err() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let (to, done) = mpsc::channel();
            for _ in 0..self.jobs {
                let to = to.clone();
                scope.spawn(|| work(to));
            }
            drop(to);
            done.into_iter().for_each(|(number, result)| each(number, result));
        });
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn all__each_number_runs_once_and_a_failure_ends_them() {
        let run = |number| if number == 7 { Err(number) } else { Ok(number) };
        let ended = |keep_going, jobs| {
            let mut all = Vec::new();
            let runs = Runs { numbers: 3..40, jobs, keep_going, run };
            runs.all(|number, _| all.push(number));
            all.sort_unstable();
            all
        };
        assert!(ended(true, 4).into_iter().eq(3..40));
        assert!(ended(false, 1).into_iter().eq(3..8));
    }
}

//! Times of the applications' computing on each cluster, from the paper's times on one processor.
//!
//! Where the data of one processor do not fit its cache and those of one of 64 do (ASP, LEQ, QR),
//! a value takes as many cycles as PPro's time shows, less a cache line's latency (236 ns, section
//! 7) for each line that it reads. The processors of both clusters are of one family, so these
//! cycles are the same on P3, where lines take the rest of its time. In all other applications a
//! value takes as long on 64 processors as on one.

use super::cases::App;

/// Places of the clusters in tables.
pub const PLATFORMS: [&str; 2] = ["ppro", "p3"];

/// Nanoseconds of a cycle (Table I).
const CYCLE: [f64; 2] = [5.0, 1.0];
/// Nanoseconds of a cache line from memory on PPro (section 7).
const LINE: f64 = 236.0;
/// Values of the paper's Puzzle run. It does not say which position it solved, and Multigame's
/// positions a second are not stated. So many make the difference between Puzzle-4 and Puzzle-64
/// on PPro what their messages cost.
const PUZZLE_POSITIONS: f64 = 54e6;
/// Iterations of SOR, which the paper does not state. On one processor it "completely thrashes its
/// cache", and is twice as fast on P3, whose memory is: so many make the latency of all lines, read
/// in each half sweep, its whole time on both clusters.
const SOR_ITERATIONS: f64 = 100.0;
/// Steps of Barnes, which the paper does not state: those of Orca's program, to time 0.25. A node
/// gets 13,900 packets a second on PPro then, with the four steps of Splash 8,400; the paper says
/// about 10,000.
pub const BARNES_STEPS: f64 = 11.0;

impl App {
    /// The paper's seconds on one processor, on PPro and P3 (Table VII).
    pub fn alone(self) -> [f64; 2] {
        match self {
            App::Asp => [63.3, 17.8],
            App::Awari => [452.4, 85.8],
            App::Barnes => [80.5, 15.5],
            App::Leq => [643.1, 212.5],
            App::Puzzle4 | App::Puzzle64 => [209.0, 39.4],
            App::Qr => [58.7, 14.8],
            App::Radix => [4.6, 1.0],
            App::Sor { .. } => [27.9, 13.7],
        }
    }

    /// The paper's efficiencies on 64 processors (Table VII).
    pub fn efficiencies(self) -> [f64; 2] {
        match self {
            App::Asp => [1.39, 2.52],
            App::Awari => [0.44, 0.25],
            App::Barnes => [0.25, 0.14],
            App::Leq => [0.44, 0.64],
            App::Puzzle4 => [0.65, 0.68],
            App::Puzzle64 => [0.77, 0.79],
            App::Qr => [0.74, 0.73],
            App::Radix => [0.19, 0.13],
            App::Sor { .. } => [0.64, 1.05],
        }
    }

    /// Returns the values of the paper's run, if they follow from its input: cells, products,
    /// reflected values, positions, relaxed cells.
    fn values(self) -> f64 {
        match self {
            App::Asp => 1024f64.powi(3),
            App::Leq => 6_906.0 * 1e6,
            App::Qr => (0..1024).map(|step| ((1023 - step) * (1024 - step)) as f64).sum(),
            App::Puzzle4 | App::Puzzle64 => PUZZLE_POSITIONS,
            App::Sor { .. } => SOR_ITERATIONS * 1534.0 * 1536.0,
            App::Awari | App::Barnes | App::Radix => 1.0,
        }
    }

    /// Returns the cache lines that a value takes on one processor and not on one of 64.
    fn lines(self) -> f64 {
        match self {
            App::Asp => 4.0 / 32.0,
            App::Leq | App::Qr => 8.0 / 32.0,
            _ => 0.0,
        }
    }

    /// Returns the seconds of a value, or of the whole run, on one processor.
    pub fn alone_each(self, platform: usize) -> f64 {
        self.alone()[platform] / self.values()
    }

    /// Returns the nanoseconds of a value, or of the whole run, on one of 64 processors.
    pub fn ns(self, platform: usize) -> f64 {
        let alone = |platform| self.alone_each(platform) * 1e9;
        if self.lines() == 0.0 {
            return alone(platform);
        }
        let cycles = (alone(0) - self.lines() * LINE) / CYCLE[0];
        cycles * CYCLE[platform]
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn ns__is_less_in_the_cache_and_never_more_than_on_one_processor() {
        for app in App::ALL {
            for platform in [0, 1] {
                let (each, alone) = (app.ns(platform), app.alone_each(platform) * 1e9);
                assert!(each > 0.0 && each <= alone, "{app:?}: {each} of {alone} ns");
                assert_eq!(each < alone, app.lines() > 0.0, "{app:?}");
            }
        }
    }
}

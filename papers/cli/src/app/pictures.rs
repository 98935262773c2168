//! Pictures of the results of applications.

use std::cell::RefCell;
use weft_app::pictures::{short, RANGES};
use weft_plot::{Bin, Chart, Curve, HeatMap, Histogram, Picture, Point, Spacing};

/// Most points of a curve.
const POINTS: usize = 1000;

/// Returns one of each so many items, so that at most `most` are left; the last one is among them.
fn thin<T: Copy>(items: &[T], most: usize) -> Vec<T> {
    let each = items.len().div_ceil(most).max(1);
    let mut left: Vec<T> = items.iter().rev().step_by(each).copied().collect();
    left.reverse();
    left
}

/// Draws one curve over steps, by powers of ten.
fn curve(title: String, unit: String, steps: &'static str, curve: Curve) -> Option<Picture> {
    let chart = Chart {
        title,
        unit,
        sizes: steps,
        size: |step| step.to_string(),
        spacing: Spacing::Even,
        number: &|value| format!("{value:.0e}"),
        by_powers: true,
        curves: vec![Curve { radius: 0.0, ..curve }],
    };
    chart.picture()
}

/// The changes of an iteration, which its progress tells.
#[derive(Default)]
pub struct Changes(RefCell<Vec<Point>>);

impl Changes {
    /// Adds the change of an iteration.
    pub fn add(&self, iteration: u64, change: f64) {
        let size = usize::try_from(iteration).unwrap_or(usize::MAX);
        let mut points = self.0.borrow_mut();
        points.push(Point { size, value: change, spread: (change, change) });
        if points.len() > 4 * POINTS {
            *points = thin(&points, POINTS);
        }
    }

    /// Draws the changes; `None` if there was none above 0.
    pub fn picture(&self, equations: usize) -> Option<Picture> {
        let points = thin(&self.0.borrow(), POINTS);
        let title = format!("LEQ: convergence of {equations} equations");
        let unit = "change of all unknowns together".into();
        curve(title, unit, "iteration", Curve::new("change", 0, points))
    }
}

/// The diagonal of R.
pub fn diagonal(outcome: &weft_qr::Outcome) -> Option<Picture> {
    let factors = &outcome.factors;
    let diagonal = factors.diagonal();
    let point = |(size, value): (usize, &f64)| {
        let value = value.abs();
        Point { size, value, spread: (value, value) }
    };
    let points: Vec<Point> = (1..).zip(&diagonal).map(point).collect();
    let title = format!("QR: the diagonal of R, {} x {}", factors.rows(), factors.cols());
    let unit = format!("size of the element; {} independent columns", factors.rank());
    curve(title, unit, "step k", Curve::new("|R(k,k)|", 0, thin(&points, POINTS)))
}

/// The sorted keys of Radix in ranges of equal width.
pub fn keys(outcome: &weft_radix::Outcome) -> Option<Picture> {
    let bin = |(from, _, keys): &(u64, u64, usize)| Bin {
        name: short(*from as f64),
        value: *keys as f64,
        kind: 0,
    };
    let all = weft_radix::key_ranges(outcome, RANGES as u32);
    let histogram = Histogram {
        title: format!("Radix sort: {} keys", outcome.keys.len()),
        unit: "keys in each range".into(),
        ranges: "least key of the range",
        kinds: &[],
        bins: all.iter().map(bin).collect(),
        by_powers: false,
        number: &short,
    };
    histogram.picture()
}

/// The positions that Puzzle searched, by the length of solutions.
pub fn searched(outcome: &weft_puzzle::Outcome) -> Option<Picture> {
    let bin = |one: &weft_puzzle::Iteration| Bin {
        name: one.threshold.to_string(),
        value: one.nodes as f64,
        kind: usize::from(one.solutions > 0),
    };
    let histogram = Histogram {
        title: format!("15-puzzle: the shortest solution has {} moves", outcome.length()),
        unit: "positions searched in each iteration".into(),
        ranges: "most moves of the iteration",
        kinds: &["no solution", "solved"],
        bins: outcome.iterations.iter().map(bin).collect(),
        by_powers: true,
        number: &short,
    };
    histogram.picture()
}

/// The scores of Awari's positions with so many stones.
pub fn scores(database: &weft_awari::Database, stones: u8) -> Option<Picture> {
    let counts = database.histogram(stones)?;
    let bin = |(score, count): (i16, &u64)| Bin {
        name: score.to_string(),
        value: *count as f64,
        kind: (score.signum() + 1) as usize,
    };
    let all = counts.iter().sum::<u64>();
    let histogram = Histogram {
        title: format!("Awari: scores of the {all} positions with {stones} stones"),
        unit: "positions of each score".into(),
        ranges: "score of the player to move",
        kinds: &["losses", "draws", "wins"],
        bins: (-i16::from(stones)..).zip(&counts).map(bin).collect(),
        by_powers: false,
        number: &short,
    };
    histogram.picture()
}

/// Frames of Barnes' film: bodies in squares of a view.
pub struct Frames {
    view: weft_barnes::View,
    cells: usize,
    /// The brightest value, the same in all frames.
    most: f64,
}

impl Frames {
    /// Frames with so many squares a side, as bright as these bodies need.
    pub fn new(bodies: &[weft_barnes::Body], cells: usize) -> Frames {
        let view = weft_barnes::View::of(bodies);
        let most = weft_barnes::count(bodies, &view, cells).into_iter().max().unwrap_or(0);
        Frames { view, cells, most: f64::from(most.max(1)).ln_1p() }
    }

    /// Draws the frame after so many steps.
    pub fn picture(&self, bodies: &[weft_barnes::Body], steps: u64) -> Option<Picture> {
        let counts = weft_barnes::count(bodies, &self.view, self.cells);
        let values: Vec<f64> = counts.into_iter().map(|n| f64::from(n).ln_1p()).collect();
        let weft_barnes::View { middle, side } = self.view;
        let end = |axis: usize, sign: f64| format!("{:.2}", middle[axis] + sign * side / 2.0);
        let map = HeatMap {
            title: format!("Barnes: {} bodies after {steps} steps", bodies.len()),
            unit: "bodies in each square, logarithmic".into(),
            axes: ("x", "y"),
            ends: ([end(0, -1.0), end(0, 1.0)], [end(1, 1.0), end(1, -1.0)]),
            columns: self.cells,
            values: &values,
            range: Some((0.0, self.most)),
            number: &|value| format!("{:.1}", value.exp_m1()),
        };
        map.picture()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn short__has_three_digits() {
        let all = [0.0, 0.5, 42.0, 999.6, 1234.0, 6_870_115.0, 2e9].map(short);
        assert_eq!(all, ["0", "0.5", "42", "1k", "1.23k", "6.87M", "2G"]);
    }

    #[test]
    fn thin__keeps_the_last_and_at_most_as_many() {
        let all: Vec<usize> = (0..2500).collect();
        let left = thin(&all, 1000);
        assert!(left.len() <= 1000 && left.last() == Some(&2499) && left.is_sorted());
        assert_eq!(thin(&all[..3], 1000), [0, 1, 2]);
        assert!(thin::<usize>(&[], 10).is_empty());
    }

    #[test]
    fn changes__of_a_long_run_are_few_and_end_with_the_last() {
        let changes = Changes::default();
        (1..=100_000).for_each(|at| changes.add(at, 1.0 / at as f64));
        assert!(changes.0.borrow().len() <= 4 * POINTS);
        let svg = changes.picture(10).unwrap().svg("");
        assert!(svg.contains(">change<") && svg.contains(">100000<"));
        assert!(Changes::default().picture(1).is_none());
    }

    #[test]
    fn frames__have_the_bodies_of_both_clusters() {
        let bodies = weft_barnes::two_clusters(2000, weft_barnes::SEED);
        let svg = Frames::new(&bodies, 48).picture(&bodies, 3).unwrap().svg("");
        assert!(svg.contains("2000 bodies after 3 steps") && svg.contains("<image"));
    }
}

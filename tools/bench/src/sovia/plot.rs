//! Figures 5 to 10 of paper 002 with the figures of this study: a curve for each subject over the
//! message size in bytes.

use crate::pair::Sample;
use crate::table::human;
use weft_plot::{line, text, title, Anchor, Colour, Picture, Shape};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 680.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 440.0;
/// Smallest distance of two names at the right edge.
const STEP: f64 = 17.0;

const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [110, 110, 110];
const GRID: Colour = [228, 228, 228];
const COLOURS: [Colour; 8] = [
    [90, 90, 90],
    [31, 119, 180],
    [214, 39, 40],
    [255, 127, 14],
    [44, 140, 44],
    [142, 36, 170],
    [140, 109, 49],
    [0, 160, 190],
];

/// A curve: its name, and a figure for each size.
pub type Curve = (&'static str, Vec<(usize, Sample)>);

/// A figure of the paper.
pub struct Figure {
    /// Its number there.
    pub number: u32,
    /// The words above it.
    pub what: &'static str,
    /// The unit, and the better direction.
    pub unit: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// True if the axis of the figures has powers of ten; false: it begins at 0.
    pub by_powers: bool,
}

struct Axes {
    sizes: Vec<usize>,
    low: f64,
    high: f64,
    by_powers: bool,
}

impl Axes {
    /// `None`: there is nothing to draw.
    fn of(figure: &Figure) -> Option<Axes> {
        let points = || figure.curves.iter().flat_map(|(_, points)| points);
        let mut sizes: Vec<usize> = points().map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let medians = || points().map(|(_, sample)| sample.median).filter(|v| v.is_finite());
        let high = medians().reduce(f64::max)?;
        let by_powers = figure.by_powers;
        let (low, high) = match by_powers {
            true => (medians().filter(|&v| v > 0.0).reduce(f64::min)? / 1.3, high * 1.3),
            false => (0.0, (high * 1.1).max(1e-9)),
        };
        (high > low).then_some(Axes { sizes, low, high, by_powers })
    }

    fn x(&self, size: usize) -> f64 {
        let log = |n: usize| (n.max(1) as f64).ln();
        match (self.sizes.first(), self.sizes.last()) {
            (Some(&a), Some(&b)) if b > a => {
                LEFT + (log(size) - log(a)) / (log(b) - log(a)) * (RIGHT - LEFT)
            }
            _ => (LEFT + RIGHT) / 2.0,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.by_powers {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    /// The values that have a line and a number.
    fn marks(&self) -> Vec<f64> {
        let tens = |of: f64| 10f64.powf(of.log10().floor());
        if self.by_powers {
            let first = tens(self.low);
            let all = (0..8)
                .flat_map(|power| [1.0, 2.0, 5.0].map(|step| first * step * 10f64.powi(power)));
            return all.filter(|v| (self.low..=self.high).contains(v)).collect();
        }
        let step = tens(self.high) / 2.0;
        (0..).map(|i| step * f64::from(i)).take_while(|v| *v <= self.high).collect()
    }
}

/// Returns a figure as a picture; `None` if nothing was measured for it.
pub fn picture(figure: &Figure) -> Option<Picture> {
    let axes = Axes::of(figure)?;
    let mut shapes = vec![
        title((LEFT, 26.0), format!("Figure {}: {}", figure.number, figure.what), BLACK),
        text((LEFT, 46.0), figure.unit.as_str(), Anchor::Start, GREY),
        text(((LEFT + RIGHT) / 2.0, BOTTOM + 42.0), "bytes of a message", Anchor::Middle, GREY),
    ];
    for value in axes.marks() {
        let y = axes.y(value);
        shapes.push(line(vec![(LEFT, y), (RIGHT, y)], GRID));
        // Steps have one digit; their products with powers of ten may not be exact.
        let number = format!("{}", (value * 1e6).round() / 1e6);
        shapes.push(text((LEFT - 8.0, y + 4.0), number, Anchor::End, GREY));
    }
    for &size in &axes.sizes {
        let at = (axes.x(size), BOTTOM + 20.0);
        shapes.push(text(at, human(size), Anchor::Middle, GREY));
    }
    shapes.push(line(vec![(LEFT, BOTTOM), (RIGHT, BOTTOM)], GREY));
    for ((_, points), &colour) in figure.curves.iter().zip(COLOURS.iter().cycle()) {
        curve(&axes, points, colour, &mut shapes);
    }
    names(&axes, &figure.curves, &mut shapes);
    Some(Picture { width: WIDTH, height: HEIGHT, shapes })
}

/// Draws a curve with the spread of its repetitions.
fn curve(axes: &Axes, points: &[(usize, Sample)], colour: Colour, shapes: &mut Vec<Shape>) {
    for (size, sample) in points {
        let x = axes.x(*size);
        shapes.push(line(vec![(x, axes.y(sample.min)), (x, axes.y(sample.max))], colour));
        let at = (x, axes.y(sample.median));
        shapes.push(Shape::Dot { at, radius: 3.0, colour });
    }
    let points = points.iter().map(|(size, s)| (axes.x(*size), axes.y(s.median))).collect();
    shapes.push(Shape::Line { points, colour, width: 2.0, dashed: false });
}

/// Draws the name of each curve beside its end; names that would overlap are moved apart.
fn names(axes: &Axes, curves: &[Curve], shapes: &mut Vec<Shape>) {
    let mut ends: Vec<(f64, f64, &str, Colour)> = Vec::new();
    for ((name, points), &colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let end = points.last().map(|(_, sample)| axes.y(sample.median));
        ends.extend(end.map(|y| (y, y, *name, colour)));
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    for at in 1..ends.len() {
        ends[at].0 = ends[at].0.max(ends[at - 1].0 + STEP);
    }
    let mut limit = BOTTOM + STEP;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(limit);
        limit = end.0 - STEP;
    }
    for (y, from, name, colour) in ends {
        shapes.push(line(vec![(RIGHT + 4.0, from), (RIGHT + 20.0, y)], colour));
        shapes.push(text((RIGHT + 25.0, y + 4.5), name, Anchor::Start, colour));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn figure(by_powers: bool, values: &[f64]) -> Figure {
        let sample = |median: f64| Sample { median, min: median, max: median };
        let points = values.iter().enumerate().map(|(i, v)| (4 << i, sample(*v))).collect();
        let (what, unit) = ("latency", "us".to_string());
        Figure { number: 5, what, unit, curves: vec![("TCP", points)], by_powers }
    }

    #[test]
    fn picture__has_the_curve_its_name_and_round_numbers() {
        for (by_powers, want) in [(true, [">20<", ">50<"]), (false, [">0<", ">50<"])] {
            let svg = picture(&figure(by_powers, &[9.0, 20.0, 80.0])).unwrap().svg("");
            let words = [">Figure 5: latency<", ">TCP<", ">16<", want[0], want[1]];
            assert!(words.into_iter().all(|word| svg.contains(word)), "{svg}");
            assert_eq!(svg.matches("<circle").count(), 3);
        }
    }

    #[test]
    fn picture__of_nothing_is_none() {
        assert!(picture(&figure(true, &[])).is_none());
        assert!(picture(&figure(true, &[0.0])).is_none());
        assert!(picture(&Figure { curves: vec![], ..figure(false, &[]) }).is_none());
    }
}

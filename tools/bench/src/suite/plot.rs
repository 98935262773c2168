//! Plots of the suite: a curve for each channel, with its spread, over the message size in bytes.

use super::measure::{Measure, Results};
use super::plan::{carriers, Carrier, Family, Situation};
use weft_plot::{line as line_of, text, title, Anchor, Colour, Picture, Shape};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 745.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 462.0;
/// Smallest distance of two names at the right edge.
const STEP: f64 = 17.0;

const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [110, 110, 110];
const GRID: Colour = [228, 228, 228];
const FAINT: Colour = [243, 243, 243];

/// Colours of the channels: warm ones for weft, cool ones for the kernel.
pub const COLOURS: [Colour; 18] = [
    [60, 60, 60],
    [214, 39, 40],
    [255, 127, 14],
    [216, 27, 130],
    [142, 36, 170],
    [150, 10, 20],
    [31, 119, 180],
    [0, 160, 190],
    [44, 140, 44],
    [127, 127, 127],
    [110, 170, 220],
    [110, 190, 110],
    [140, 109, 49],
    [150, 150, 30],
    [0, 90, 80],
    [235, 170, 30],
    [165, 95, 60],
    [200, 60, 200],
];

/// Returns a thin straight line between two points.
fn rule(a: (f64, f64), b: (f64, f64), colour: Colour) -> Shape {
    line_of(vec![a, b], colour)
}

/// Formats a size, such as 4K.
pub fn show_size(size: usize) -> String {
    match size {
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// Formats a number with three digits.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats a figure with its unit.
pub fn show(measure: Measure, value: f64) -> String {
    let units: &[(f64, &str)] = match measure {
        Measure::Latency => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        _ => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
    };
    let fits = units.iter().find(|(scale, _)| value >= *scale).or(units.last());
    let (scale, unit) = fits.copied().unwrap_or((1.0, ""));
    let unit = match measure {
        Measure::Efficiency => unit.replace("/s", "/cpu s"),
        _ => unit.into(),
    };
    format!("{} {unit}", digits(value / scale))
}

/// Formats a round figure on an axis.
fn show_round(measure: Measure, value: f64) -> String {
    let text = show(measure, value * 1.000001);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

struct Axes {
    sizes: Vec<usize>,
    low: f64,
    high: f64,
}

impl Axes {
    fn x(&self, size: usize) -> f64 {
        let log = |n: usize| (n.max(1) as f64).ln();
        let (first, last) = match (self.sizes.first(), self.sizes.last()) {
            (Some(&a), Some(&b)) if b > a => (log(a), log(b)),
            _ => return (LEFT + RIGHT) / 2.0,
        };
        LEFT + (log(size) - first) / (last - first) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln());
        BOTTOM - share * (BOTTOM - TOP)
    }
}

/// The figures of a channel: size, then smallest, median and largest.
type Line = Vec<(usize, [f64; 3])>;

fn line(results: &Results, s: Situation, m: Measure, carrier: &Carrier) -> Line {
    let mine = results
        .points
        .iter()
        .filter(|p| p.situation == s && p.measure == m && p.carrier.name == carrier.name);
    let all = mine.map(|p| (p.size, [p.sample.min, p.sample.median, p.sample.max]));
    all.filter(|(_, values)| values.iter().all(|v| v.is_finite() && *v > 0.0)).collect()
}

/// Returns a plot; `None` if there are no figures.
pub fn plot(results: &Results, situation: Situation, measure: Measure) -> Option<Picture> {
    let carriers: Vec<&Carrier> = carriers(situation).iter().collect();
    let lines: Vec<(&Carrier, Line)> = carriers
        .into_iter()
        .map(|carrier| (carrier, line(results, situation, measure, carrier)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let values = lines.iter().flat_map(|(_, points)| points.iter());
    let medians: Vec<f64> = values.clone().map(|(_, v)| v[1]).collect();
    let low = medians.iter().copied().reduce(f64::min)?;
    let high = medians.iter().copied().reduce(f64::max)?;
    let mut sizes: Vec<usize> = values.map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let axes = Axes { sizes, low: low / 1.5, high: high * 1.5 };
    let mut shapes = frame(&axes, situation, measure);
    // Weft's curves come last, so that they are on top.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&at| lines[at].0.family == Family::Weft);
    for at in order {
        draw(&axes, lines[at].0, &lines[at].1, &mut shapes);
    }
    names(&axes, &lines, &mut shapes);
    Some(Picture { width: WIDTH, height: HEIGHT, shapes })
}

fn frame(axes: &Axes, situation: Situation, measure: Measure) -> Vec<Shape> {
    let (what, hint) = match measure {
        Measure::Latency => ("One-way time", "lower is better"),
        Measure::Throughput => ("Throughput of a stream", "higher is better"),
        Measure::Efficiency => {
            ("Bytes for each second of processor time, both sides", "higher is better")
        }
    };
    let mut shapes = vec![
        title((LEFT, 26.0), what, BLACK),
        text((LEFT, 46.0), format!("{}; {hint}", situation.title()), Anchor::Start, GREY),
        text(((LEFT + RIGHT) / 2.0, BOTTOM + 44.0), "bytes of a message", Anchor::Middle, GREY),
    ];
    let mut decade = 10f64.powf(axes.low.log10().floor());
    let few = (BOTTOM - TOP) / (axes.high / axes.low).log10() > 90.0;
    while decade <= axes.high {
        for step in 1..10 {
            let value = decade * f64::from(step);
            if value < axes.low || value > axes.high {
                continue;
            }
            let y = axes.y(value);
            let named = step == 1 || (few && (step == 2 || step == 5));
            let colour = if named { GRID } else { FAINT };
            shapes.push(rule((LEFT, y), (RIGHT, y), colour));
            if named {
                let at = (LEFT - 8.0, y + 4.0);
                shapes.push(text(at, show_round(measure, value), Anchor::End, GREY));
            }
        }
        decade *= 10.0;
    }
    for &size in &axes.sizes {
        let x = axes.x(size);
        shapes.push(rule((x, TOP), (x, BOTTOM), FAINT));
        shapes.push(text((x, BOTTOM + 20.0), show_size(size), Anchor::Middle, GREY));
    }
    shapes.push(rule((LEFT, BOTTOM), (RIGHT, BOTTOM), GREY));
    shapes
}

fn draw(axes: &Axes, carrier: &Carrier, points: &[(usize, [f64; 3])], shapes: &mut Vec<Shape>) {
    let colour = COLOURS[carrier.colour % COLOURS.len()];
    let (width, radius) = match carrier.family {
        Family::Weft => (3.0, 4.0),
        Family::Kernel => (1.6, 2.6),
        Family::Floor => (1.6, 0.0),
    };
    let inside = |value: f64| axes.y(value.clamp(axes.low, axes.high));
    for (size, [min, _, max]) in points {
        // The spread of the repetitions.
        let x = axes.x(*size);
        shapes.push(rule((x, inside(*min)), (x, inside(*max)), colour));
    }
    let path: Vec<(f64, f64)> =
        points.iter().map(|(size, v)| (axes.x(*size), axes.y(v[1]))).collect();
    for &at in path.iter().filter(|_| radius > 0.0) {
        shapes.push(Shape::Dot { at, radius, colour });
    }
    let dashed = carrier.family == Family::Floor;
    shapes.push(Shape::Line { points: path, colour, width, dashed });
}

/// Draws the name of each curve beside its end; names that would overlap are moved apart.
fn names(axes: &Axes, lines: &[(&Carrier, Line)], shapes: &mut Vec<Shape>) {
    let end =
        |points: &[(usize, [f64; 3])]| points.last().map(|(size, v)| (axes.x(*size), axes.y(v[1])));
    let mut ends: Vec<(f64, (f64, f64), &Carrier)> = lines
        .iter()
        .filter_map(|(carrier, points)| end(points).map(|at| (at.1, at, *carrier)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    for at in 1..ends.len() {
        ends[at].0 = ends[at].0.max(ends[at - 1].0 + STEP);
    }
    // Names moved below the bottom are moved up again, each as little as needed.
    let mut limit = BOTTOM + STEP;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(limit);
        limit = end.0 - STEP;
    }
    for (y, from, carrier) in ends {
        let colour = COLOURS[carrier.colour % COLOURS.len()];
        let to = (RIGHT + 22.0, y);
        shapes.push(rule((from.0 + 4.0, from.1), to, colour));
        shapes.push(text((to.0 + 5.0, y + 4.5), carrier.name, Anchor::Start, colour));
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn show__has_three_digits_and_the_unit_that_fits() {
        assert_eq!(show(Measure::Latency, 2.345e-6), "2.35 µs");
        assert_eq!(show(Measure::Latency, 0.0), "0.00 ns");
        assert_eq!(show(Measure::Throughput, 5.1e9), "5.10 GB/s");
        assert_eq!(show(Measure::Efficiency, 123.4e6), "123 MB/cpu s");
        assert_eq!(show_round(Measure::Latency, 1e-5), "10 µs");
        assert_eq!(show_size(1 << 20), "1M");
        assert_eq!(show_size(1500), "1500");
    }

    #[test]
    fn plot__of_nothing_is_none() {
        let nothing = Results::default();
        assert!(plot(&nothing, Situation::ALL[0], Measure::Latency).is_none());
    }
}

//! Plots of the suite: a curve for each channel, with its spread, over the message size in bytes.

use super::measure::{Measure, Results};
use super::plan::{carriers, Carrier, Family, Situation};
use crate::table::human;
use weft_plot::{Chart, Colour, Curve, Mark, Picture, Point, Spacing};

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

/// The figures of a channel.
fn points(results: &Results, s: Situation, m: Measure, carrier: &Carrier) -> Vec<Point> {
    let mine = results
        .points
        .iter()
        .filter(|p| p.situation == s && p.measure == m && p.carrier.name == carrier.name);
    let of = |p: &super::measure::Point| {
        let spread = (p.sample.min, p.sample.max);
        Point { size: p.size, value: p.sample.median, spread }
    };
    let is_good = |p: &Point| {
        [p.spread.0, p.value, p.spread.1].iter().all(|value| value.is_finite() && *value > 0.0)
    };
    mine.map(of).filter(is_good).collect()
}

/// Returns the curve of a channel.
fn curve(carrier: &Carrier, points: Vec<Point>) -> Curve {
    let (width, radius) = match carrier.family {
        Family::Weft => (3.0, 4.0),
        Family::Kernel => (1.6, 2.6),
        Family::Floor => (1.6, 0.0),
    };
    let colour = COLOURS[carrier.colour % COLOURS.len()];
    // Marks tell apart channels whose colours are alike to some people.
    let mark = Mark::ALL[carrier.colour % Mark::ALL.len()];
    let dashed = carrier.family == Family::Floor;
    Curve { name: carrier.name.into(), colour, width, radius, mark, dashed, points }
}

/// Returns a plot; `None` if there are no figures.
pub fn plot(results: &Results, situation: Situation, measure: Measure) -> Option<Picture> {
    let (what, hint) = match measure {
        Measure::Latency => ("One-way time", "lower is better"),
        Measure::Throughput => ("Throughput of a stream", "higher is better"),
        Measure::Efficiency => {
            ("Bytes for each second of processor time, both sides", "higher is better")
        }
    };
    // Weft's curves come last, so that they are on top.
    let mut carriers: Vec<&Carrier> = carriers(situation).iter().collect();
    carriers.sort_by_key(|carrier| carrier.family == Family::Weft);
    let curves = carriers.into_iter().filter_map(|carrier| {
        let points = points(results, situation, measure, carrier);
        (!points.is_empty()).then(|| curve(carrier, points))
    });
    let number = |value| show_round(measure, value);
    let chart = Chart {
        title: what.into(),
        unit: format!("{}; {hint}", situation.title()),
        sizes: "bytes of a message",
        size: human,
        spacing: Spacing::Powers,
        number: &number,
        by_powers: true,
        curves: curves.collect(),
    };
    chart.picture()
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
    }

    #[test]
    fn plot__of_nothing_is_none() {
        let nothing = Results::default();
        assert!(plot(&nothing, Situation::ALL[0], Measure::Latency).is_none());
    }
}

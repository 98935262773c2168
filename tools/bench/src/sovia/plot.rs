//! Figures 5 to 10 of paper 002 with the figures of this study: a curve for each subject over the
//! message size in bytes.

use crate::pair::Sample;
use crate::table::human;
use weft_plot::{plain, Chart, Curve as Drawn, Picture, Point, Spacing};

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

/// Returns a figure as a picture; `None` if nothing was measured for it.
pub fn picture(figure: &Figure) -> Option<Picture> {
    let point = |&(size, sample): &(usize, Sample)| {
        let Sample { median, min, max } = sample;
        Point { size, value: median, spread: (min, max) }
    };
    let curve = |(at, (name, points)): (usize, &Curve)| {
        Drawn::new(*name, at, points.iter().map(point).collect())
    };
    let chart = Chart {
        title: format!("Figure {}: {}", figure.number, figure.what),
        unit: figure.unit.clone(),
        sizes: "bytes of a message",
        size: human,
        spacing: Spacing::Powers,
        number: &plain,
        by_powers: figure.by_powers,
        curves: figure.curves.iter().enumerate().map(curve).collect(),
    };
    chart.picture()
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

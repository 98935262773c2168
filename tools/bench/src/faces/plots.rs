//! Plots of the lines of a table that differ by the size of the message: time one way, and the rate
//! that follows from it, beside floor and peer.

use crate::suite::plot::show_size;
use crate::target::Check;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use weft_plot::{line, text, title, Anchor, Colour, Picture, Shape};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 650.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 404.0;
const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [110, 110, 110];
const GRID: Colour = [228, 228, 228];
const COLOURS: [Colour; 8] = [
    [214, 39, 40],
    [31, 119, 180],
    [60, 60, 60],
    [44, 140, 44],
    [255, 127, 14],
    [142, 36, 170],
    [0, 160, 190],
    [140, 109, 49],
];
/// Least distance of two names at the right edge.
const STEP: f64 = 15.0;

/// A curve: its name, and figures by size.
pub type Curve = (String, Vec<(usize, f64)>);

/// Returns the curves of the lines of one name in microseconds: ours, and those beside it.
fn curves(checks: &[Check], what: &str) -> Vec<Curve> {
    let mut all: BTreeMap<String, Vec<(usize, f64)>> = BTreeMap::new();
    let of = |check: &&Check| check.table.what == what && check.table.unit == "us";
    for check in checks.iter().filter(of) {
        for row in &check.table.rows {
            let mut add = |name: &str, value: f64| {
                all.entry(name.to_string()).or_default().push((row.size, value));
            };
            add("weft", row.ours.median);
            for other in row.floors.iter().chain(&row.peers) {
                other.sample.into_iter().for_each(|sample| add(other.name, sample.median));
            }
        }
    }
    all.into_iter().collect()
}

struct Axes {
    sizes: Vec<usize>,
    low: f64,
    high: f64,
}

impl Axes {
    fn of(curves: &[Curve]) -> Option<Axes> {
        let points = || curves.iter().flat_map(|(_, points)| points.iter());
        let mut sizes: Vec<usize> = points().map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let low = points().map(|(_, value)| *value).reduce(f64::min)?;
        let high = points().map(|(_, value)| *value).reduce(f64::max)?;
        let is_plot = sizes.len() > 1 && low > 0.0;
        is_plot.then_some(Axes { sizes, low: low / 1.4, high: high * 1.4 })
    }

    fn x(&self, size: usize) -> f64 {
        let at = self.sizes.iter().position(|&of| of == size).unwrap_or(0);
        LEFT + (RIGHT - LEFT) * at as f64 / (self.sizes.len() - 1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        BOTTOM - share * (BOTTOM - TOP)
    }
}

/// Draws curves over sizes, both axes logarithmic.
pub fn picture(heading: &str, unit: &str, curves: &[Curve]) -> Option<Picture> {
    let axes = Axes::of(curves)?;
    let mut shapes = vec![
        title((LEFT, 24.0), heading, BLACK),
        text((LEFT, 44.0), unit, Anchor::Start, GREY),
        text(((LEFT + RIGHT) / 2.0, BOTTOM + 40.0), "bytes of a message", Anchor::Middle, GREY),
    ];
    for power in axes.low.log10().floor() as i32..=axes.high.log10().ceil() as i32 {
        for step in [1.0, 2.0, 5.0] {
            let value = step * 10f64.powi(power);
            if (axes.low..=axes.high).contains(&value) {
                let y = axes.y(value);
                shapes.push(line(vec![(LEFT, y), (RIGHT, y)], GRID));
                let at = (LEFT - 6.0, y + 4.0);
                shapes.push(text(at, format!("{value}"), Anchor::End, GREY));
            }
        }
    }
    for &size in &axes.sizes {
        let at = (axes.x(size), BOTTOM + 18.0);
        shapes.push(text(at, show_size(size), Anchor::Middle, GREY));
    }
    shapes.push(line(vec![(LEFT, BOTTOM), (RIGHT, BOTTOM)], GREY));
    let mut names: Vec<(f64, &str, Colour)> = Vec::new();
    for ((name, points), &colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let path: Vec<(f64, f64)> =
            points.iter().map(|&(size, value)| (axes.x(size), axes.y(value))).collect();
        shapes.extend(path.iter().map(|&at| Shape::Dot { at, radius: 3.2, colour }));
        names.extend(path.last().map(|at| (at.1, name.as_str(), colour)));
        let width = if name.starts_with("weft") { 2.6 } else { 1.5 };
        shapes.push(Shape::Line { points: path, colour, width, dashed: false });
    }
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut y = TOP - STEP;
    for (at, name, colour) in names {
        y = at.max(y + STEP);
        shapes.push(text((RIGHT + 12.0, y + 4.0), name, Anchor::Start, colour));
    }
    Some(Picture { width: WIDTH, height: HEIGHT, shapes })
}

/// Writes the plots of a table into a folder; returns their names.
///
/// # Errors
/// The folder cannot be written.
pub fn write(folder: &Path, table: &str, checks: &[Check]) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let mut lines: Vec<&str> = checks.iter().map(|check| check.table.what).collect();
    lines.dedup();
    let mut names = Vec::new();
    for what in lines {
        let times = curves(checks, what);
        let rate = |(name, points): &Curve| {
            let rates = points.iter().map(|&(size, us)| (size, size as f64 / us));
            (name.clone(), rates.collect())
        };
        let rates: Vec<Curve> = times.iter().map(rate).collect();
        for (kind, unit, curves) in
            [("time", "microseconds; lower is better", times), ("rate", "MB/s", rates)]
        {
            let Some(picture) = picture(&format!("{table}: {what}"), unit, &curves) else {
                continue;
            };
            let plain =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
            let name: String = format!("{table}-{what}-{kind}").chars().map(plain).collect();
            for (end, bytes) in [("svg", picture.svg(what).into_bytes()), ("png", picture.png()?)] {
                let path = folder.join(format!("{name}.{end}"));
                std::fs::write(&path, bytes).with_context(|| format!("{}", path.display()))?;
            }
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn picture__has_a_curve_for_each_name_and_none_for_one_size() {
        let curve = |name: &str, points: &[(usize, f64)]| (name.to_string(), points.to_vec());
        let two = [curve("weft", &[(16, 1.0), (4096, 9.0)]), curve("tcp", &[(16, 4.0)])];
        let svg = picture("a plot", "us", &two).unwrap().svg("a plot");
        assert!(svg.contains(">weft<") && svg.contains(">tcp<") && svg.contains(">4K<"), "{svg}");
        assert!(picture("a plot", "us", &[curve("weft", &[(16, 1.0)])]).is_none());
        assert!(picture("a plot", "us", &[]).is_none());
    }
}

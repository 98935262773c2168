//! Plots of the lines of a table that differ by the size of the message: time one way, and the rate
//! that follows from it, or shares of a core, beside floor and peer.

use crate::pair::Sample;
use crate::table::human;
use crate::target::Check;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use weft_plot::{plain, Chart, Curve, Picture, Point, Spacing};

/// The figures of a curve, by name, and within a curve by size.
type Figures = BTreeMap<String, Vec<(usize, Sample)>>;

/// Lines of one table that are drawn together: the name of their plot, and the beginning of their
/// names, whose rest is the name of the curve.
pub type Group = (&'static str, &'static str);

/// Returns the figures of lines in a unit whose names begin with a text: ours, by the rest of the
/// name or as "weft", and those beside them.
fn figures(checks: &[&Check], unit: &str, begin: &str) -> Figures {
    let mut all = Figures::new();
    for check in checks.iter().filter(|check| check.table.unit == unit) {
        let Some(rest) = check.table.what.strip_prefix(begin) else { continue };
        for row in &check.table.rows {
            let mut add = |name: &str, sample| {
                let curve = all.entry(name.to_string()).or_default();
                // Lines of a group may have the same figures beside them.
                if !curve.iter().any(|(size, _)| *size == row.size) {
                    curve.push((row.size, sample));
                }
            };
            let rest = rest.trim_start_matches(", ");
            add(if rest.is_empty() { "weft" } else { rest }, row.ours);
            for other in row.floors.iter().chain(&row.peers) {
                other.sample.into_iter().for_each(|sample| add(other.name, sample));
            }
        }
    }
    all
}

/// The kind of a plot: its name, and the words below its title.
type Kind = (&'static str, &'static str);

const TIME: Kind = ("time", "microseconds; lower is better");
const RATE: Kind = ("rate", "MB/s");
const SHARE: Kind = ("share", "per cent of one core; lower is better");

/// Names that stand in several plots. Each has the colour of its place here in all of them.
const KNOWN: [&str; 4] = ["weft", "tcp", "endpoint", "via"];

/// Returns the place of each name among the colours: those that stand in several plots have the
/// first ones, the others follow by name.
fn places(figures: &Figures) -> BTreeMap<&str, usize> {
    let mut others = KNOWN.len()..;
    let place = |name: &String| {
        let known = KNOWN.iter().position(|one| one == name);
        known.or_else(|| others.next()).unwrap_or(0)
    };
    figures.keys().map(String::as_str).zip(figures.keys().map(place)).collect()
}

/// Draws the curves of figures. `None` for a single size.
fn picture(heading: &str, kind: Kind, figures: &Figures) -> Option<Picture> {
    let mut sizes: Vec<usize> = figures.values().flatten().map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return None;
    }
    let point = |&(size, sample): &(usize, Sample)| {
        let of = sample.map(|of| if kind == RATE { size as f64 / of } else { of });
        Point { size, value: of.median, spread: (of.min, of.max) }
    };
    let places = places(figures);
    let curve = |(name, points): (&String, &Vec<(usize, Sample)>)| {
        let curve = Curve::new(name, places[name.as_str()], points.iter().map(point).collect());
        Curve { width: if name == "weft" { 3.0 } else { 1.6 }, ..curve }
    };
    // Ours is the last one by name, so that it is on top.
    let curves = figures.iter().map(curve);
    let chart = Chart {
        title: heading.into(),
        unit: kind.1.into(),
        sizes: "bytes of a message",
        size: human,
        spacing: Spacing::Powers,
        number: &plain,
        by_powers: kind != SHARE,
        curves: curves.collect(),
    };
    chart.picture()
}

/// Writes the plots of lines whose names begin with a text; adds their names.
fn write_of(
    folder: &Path,
    checks: &[&Check],
    (heading, begin): (&str, &str),
    names: &mut Vec<String>,
) -> Result<()> {
    let (times, shares) = (figures(checks, "us", begin), figures(checks, "%", begin));
    for (kind, figures) in [(TIME, &times), (RATE, &times), (SHARE, &shares)] {
        let Some(picture) = picture(heading, kind, figures) else { continue };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = format!("{heading}-{}", kind.0).chars().map(plain).collect();
        for (end, bytes) in [("svg", picture.svg(heading).into_bytes()), ("png", picture.png()?)] {
            let path = folder.join(format!("{name}.{end}"));
            std::fs::write(&path, bytes).with_context(|| format!("{}", path.display()))?;
        }
        names.push(name);
    }
    Ok(())
}

/// Writes the plots of a table into a folder: one of each line, and of each group of lines; returns
/// their names.
///
/// # Errors
/// The folder cannot be written.
pub fn write(
    folder: &Path,
    table: &str,
    checks: &[Check],
    groups: &[Group],
) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let is_grouped = |what: &str| groups.iter().any(|(_, begin)| what.starts_with(begin));
    let mut lines: Vec<&str> = checks.iter().map(|check| check.table.what).collect();
    lines.retain(|what| !is_grouped(what));
    lines.dedup();
    let mut names = Vec::new();
    for what in lines {
        // Of this line alone, not of others whose names begin in the same way.
        let of: Vec<&Check> = checks.iter().filter(|check| check.table.what == what).collect();
        write_of(folder, &of, (&format!("{table}: {what}"), what), &mut names)?;
    }
    let all: Vec<&Check> = checks.iter().collect();
    for (name, begin) in groups {
        write_of(folder, &all, (&format!("{table}: {name}"), begin), &mut names)?;
    }
    Ok(names)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn places__a_peer_has_one_colour_in_all_plots() {
        let figures = |names: &[&str]| -> Figures {
            names.iter().map(|name| (name.to_string(), Vec::new())).collect()
        };
        let plots = [
            figures(&["weft", "tcp"]),
            figures(&["weft", "tcp", "endpoint"]),
            figures(&["a copy", "no copy", "tcp"]),
        ];
        for plot in &plots {
            let places = places(plot);
            assert_eq!(places["tcp"], 1, "{places:?}");
            let mut all: Vec<usize> = places.values().copied().collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), plot.len(), "{places:?}");
        }
    }

    #[test]
    fn picture__has_a_curve_for_each_name_and_none_for_one_size() {
        let sample = |median| Sample { median, min: median, max: median };
        let figures = |all: &[(&str, &[(usize, f64)])]| -> Figures {
            let points = |of: &[(usize, f64)]| of.iter().map(|(n, v)| (*n, sample(*v))).collect();
            all.iter().map(|(name, of)| (name.to_string(), points(of))).collect()
        };
        let draw = |all: &[(&str, &[(usize, f64)])]| picture("a plot", TIME, &figures(all));
        let two = draw(&[("weft", &[(16, 1.0), (4096, 9.0)]), ("tcp", &[(16, 4.0)])]).unwrap();
        let svg = two.svg("a plot");
        assert!(svg.contains(">weft<") && svg.contains(">tcp<") && svg.contains(">4K<"), "{svg}");
        assert!(draw(&[("weft", &[(16, 1.0)])]).is_none());
        assert!(draw(&[]).is_none());
    }
}

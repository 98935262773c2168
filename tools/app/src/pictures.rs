//! Pictures of the results of applications.

use weft_plot::{plain, Bin, HeatMap, Histogram, Picture};

/// Most ranges of a histogram.
pub const RANGES: usize = 48;

/// Formats a number with the marks of powers of thousand, and with three digits.
pub fn short(value: f64) -> String {
    let digit = 10f64.powi(value.abs().max(1.0).log10().floor() as i32 - 2);
    let value = (value / digit).round() * digit;
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{}{name}", plain(value / unit)),
        None => plain(value),
    }
}

/// The plate of SOR.
pub fn plate(grid: &weft_sor::Grid, iterations: u64) -> Option<Picture> {
    let map = HeatMap {
        title: format!("SOR: the plate after {iterations} iterations"),
        unit: "temperature, degrees".into(),
        axes: ("column", "row"),
        ends: (["1".into(), grid.cols.to_string()], ["1".into(), grid.rows.to_string()]),
        columns: grid.cols,
        values: &grid.values,
        range: None,
        number: &plain,
    };
    map.picture()
}

/// Distances of paths from some sources, in ranges of equal width.
pub fn distances(outcome: &weft_asp::Outcome, sources: usize) -> Option<Picture> {
    let all = outcome.rows.iter().flat_map(|(source, row)| {
        let others = row.iter().zip(0u32..).filter(move |(_, to)| to != source);
        others.map(|(distance, _)| *distance).filter(|d| *d != weft_asp::UNREACHABLE)
    });
    let all: Vec<u32> = all.collect();
    let width = (u64::from(*all.iter().max()?) + 1).div_ceil(RANGES as u64);
    let mut counts = vec![0u64; RANGES];
    all.iter().for_each(|distance| counts[(u64::from(*distance) / width) as usize] += 1);
    counts.truncate(counts.iter().rposition(|count| *count > 0)? + 1);
    let bin = |(at, count): (u64, &u64)| Bin {
        name: (at * width).to_string(),
        value: *count as f64,
        kind: 0,
    };
    let ranges = match width {
        1 => "distance".to_string(),
        _ => format!("distance, in ranges of {width}"),
    };
    let histogram = Histogram {
        title: format!("ASP: shortest paths of {} nodes", outcome.nodes),
        unit: format!("pairs of nodes, from {sources} sources"),
        ranges: &ranges,
        kinds: &[],
        bins: (0..).zip(&counts).map(bin).collect(),
        by_powers: false,
        number: &short,
    };
    histogram.picture()
}

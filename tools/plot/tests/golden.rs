//! Pictures as they have been looked at: a change of their form shows as a change of these files.
//! `WEFT_GOLDEN=write cargo test -p weft-plot --test golden` writes them anew, with a PNG of each
//! below the temporary folder to look at.
#![allow(non_snake_case)]

use std::path::Path;
use weft_plot::{
    plain, Bar, Bars, Bin, Chart, Curve, HeatMap, Histogram, Panel, Picture, Point, Spacing,
};

fn point(size: usize, value: f64) -> Point {
    Point { size, value, spread: (value * 0.8, value * 1.3) }
}

/// Nine curves, one more than there are colours, and a line to compare with.
fn chart() -> Option<Picture> {
    let curve = |place: usize| {
        let points = (0..5).map(|at| point(64 << at, (place + 1 + at) as f64)).collect();
        Curve::new(format!("curve {}", place + 1), place, points)
    };
    let even = (0..5).map(|at| Point { spread: (1.0, 1.0), ..point(64 << at, 3.0) }).collect();
    let all = std::iter::once(Curve::reference("a reference", even)).chain((0..9).map(curve));
    let chart = Chart {
        title: "Nine curves".into(),
        unit: "microseconds; lower is better".into(),
        sizes: "bytes of a message",
        size: |size| size.to_string(),
        spacing: Spacing::Powers,
        number: &plain,
        by_powers: true,
        curves: all.collect(),
    };
    chart.picture()
}

fn bars() -> Option<Picture> {
    let bar = |value: f64| Some(Bar { value, spread: (value * 0.7, value * 1.6) });
    let group = |at: usize| {
        let all = (0..8).map(|kind| bar(1.0 + ((kind + at) % 5) as f64));
        (format!("group {at}"), all.collect())
    };
    let bars = Bars {
        title: "Bars of eight kinds".into(),
        unit: "times the base".into(),
        names: (1..=8).map(|kind| format!("kind {kind}")).collect(),
        mark: Some(1.0),
        panels: vec![Panel { title: "2 ranks".into(), groups: (1..=4).map(group).collect() }],
    };
    bars.picture()
}

fn histogram() -> Option<Picture> {
    let bin = |at: i32| Bin {
        name: at.to_string(),
        value: 900.0 - f64::from(at * at),
        kind: (at.signum() + 1) as usize,
    };
    let histogram = Histogram {
        title: "Scores of positions".into(),
        unit: "positions of each score".into(),
        ranges: "score of the player to move",
        kinds: &["losses", "draws", "wins"],
        bins: (-24..=24).map(bin).collect(),
        by_powers: false,
        number: &plain,
    };
    histogram.picture()
}

fn heatmap() -> Option<Picture> {
    let value = |at: usize| (at % 12 + at / 12 * 3) as f64;
    let values: Vec<f64> = (0..12 * 8).map(value).collect();
    let map = HeatMap {
        title: "A heated plate".into(),
        unit: "temperature, degrees".into(),
        axes: ("column", "row"),
        ends: (["1".into(), "12".into()], ["1".into(), "8".into()]),
        columns: 12,
        values: &values,
        range: None,
        number: &plain,
    };
    map.picture()
}

#[test]
fn pictures__are_as_they_were_looked_at() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let all = [("chart", chart()), ("bars", bars()), ("histogram", histogram())];
    for (name, picture) in all.into_iter().chain([("heatmap", heatmap())]) {
        let picture = picture.unwrap_or_else(|| panic!("no picture {name}"));
        let (svg, path) = (picture.svg(name), folder.join(format!("{name}.svg")));
        if std::env::var_os("WEFT_GOLDEN").is_some_and(|what| what == "write") {
            std::fs::write(&path, &svg).unwrap();
            let png = std::env::temp_dir().join(format!("weft-golden-{name}.png"));
            std::fs::write(&png, picture.png().unwrap()).unwrap();
            println!("{}", png.display());
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert!(svg == golden, "{name}.svg differs: look at it, then write it anew");
    }
}

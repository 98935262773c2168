//! Plot of the growth of a cluster's figures with the number of hosts.

use weft_plot::{plain, Chart, Curve, Picture, Point, Spacing};
use weft_sim::names::ClusterReport;

/// A figure of a run: its name and its value.
type Series = (&'static str, fn(&ClusterReport) -> f64);

/// The figures that are drawn.
const SERIES: [Series; 4] = [
    ("messages/s, idle", |r| r.idle_per_s),
    ("bytes to watch", |r| r.watching_bytes as f64),
    ("messages, heal", |r| r.heal_messages),
    ("bytes of tables", |r| r.table_bytes as f64),
];

fn point(size: usize, value: f64) -> Point {
    Point { size, value, spread: (value, value) }
}

/// Draws every figure of runs of several sizes, as a multiple of that of the first one, with the
/// root of the size and the size itself beside them. `None`: there are less than two sizes.
pub fn plot(runs: &[(usize, ClusterReport)]) -> Option<Picture> {
    let (first, last) = (runs.first()?, runs.last()?);
    if last.0 <= first.0 {
        return None;
    }
    let times = |hosts: usize| hosts as f64 / first.0 as f64;
    let reference = [("hosts", 1.0), ("root of hosts", 0.5)].map(|(name, power)| {
        let at = |(hosts, _): &(usize, _)| point(*hosts, times(*hosts).powf(power));
        Curve::reference(name, runs.iter().map(at).collect())
    });
    let curve = |(place, (name, of)): (usize, Series)| {
        let at = |(hosts, run): &(usize, ClusterReport)| point(*hosts, of(run) / of(&first.1));
        Curve::new(name, place, runs.iter().map(at).collect())
    };
    let curves = reference.into_iter().chain(SERIES.into_iter().enumerate().map(curve));
    let chart = Chart {
        title: "A cluster through a partition of half".into(),
        unit: format!("each figure of a host, by that with {} hosts", first.0),
        sizes: "hosts",
        size: |hosts| hosts.to_string(),
        spacing: Spacing::Powers,
        number: &plain,
        by_powers: true,
        curves: curves.collect(),
    };
    chart.picture()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_plot::Shape;

    #[test]
    fn plot__takes_two_sizes_and_stays_inside() {
        let run = |hosts: usize, times: f64| {
            let (watching_bytes, table_bytes) = (100 * hosts, 1000 * hosts * hosts);
            let (idle_per_s, heal_messages) = (times, 10.0 * times);
            let report = ClusterReport {
                idle_per_s,
                heal_messages,
                watching_bytes,
                table_bytes,
                ..ClusterReport::default()
            };
            (hosts, report)
        };
        assert!(plot(&[run(16, 1.0)]).is_none());
        let picture = plot(&[run(16, 1.0), run(1000, 50.0)]).unwrap();
        for shape in &picture.shapes {
            if let Shape::Dot { at: (x, y), .. } = shape {
                let inside = (0.0..picture.width).contains(x) && (0.0..picture.height).contains(y);
                assert!(inside, "{x} {y}");
            }
        }
        assert!(picture.svg("growth").contains("root of hosts"));
    }
}

//! Plot of the growth of a cluster's figures with the number of hosts.

use weft_plot::{line, text, title, Anchor, Colour, Picture, Shape};
use weft_sim::names::ClusterReport;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 150.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 500.0;

const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [110, 110, 110];
const GRID: Colour = [218, 218, 218];

/// A figure of a run: its name, its value and its colour.
type Series = (&'static str, fn(&ClusterReport) -> f64, Colour);

/// The figures that are drawn.
const SERIES: [Series; 4] = [
    ("messages/s, idle", |r| r.idle_per_s, [31, 119, 180]),
    ("bytes to watch", |r| r.watching_bytes as f64, [44, 160, 44]),
    ("messages, heal", |r| r.heal_messages, [214, 39, 40]),
    ("bytes of tables", |r| r.table_bytes as f64, [142, 36, 170]),
];

/// Returns the place of a value between two others on a scale of logarithms, 0 to 1.
fn share(value: f64, (from, to): (f64, f64)) -> f64 {
    (value.max(from * 1e-9) / from).ln() / (to / from).ln()
}

/// Draws every figure of runs of several sizes, as a multiple of that of the first one, with the
/// root of the size and the size itself beside them. `None`: there are less than two sizes.
pub fn plot(runs: &[(usize, ClusterReport)]) -> Option<Picture> {
    let (first, last) = (runs.first()?, runs.last()?);
    if last.0 <= first.0 {
        return None;
    }
    let sizes = (first.0 as f64, last.0 as f64);
    let most = SERIES.iter().flat_map(|(_, of, _)| runs.iter().map(|r| of(&r.1) / of(&first.1)));
    let scale = (0.5, most.fold(sizes.1 / sizes.0, f64::max) * 1.3);
    let x = |hosts: f64| LEFT + share(hosts, sizes) * (RIGHT - LEFT);
    let y = |times: f64| BOTTOM - share(times, scale) * (BOTTOM - TOP);
    let mut shapes = vec![
        title((LEFT, 28.0), "A cluster through a partition of half", BLACK),
        text(
            (LEFT, 50.0),
            format!("each figure of a host, by that with {} hosts", first.0),
            Anchor::Start,
            GREY,
        ),
    ];
    for times in [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0] {
        if times <= scale.1 {
            shapes.push(line(vec![(LEFT, y(times)), (RIGHT, y(times))], GRID));
            shapes.push(text((LEFT - 8.0, y(times) + 4.0), format!("{times}"), Anchor::End, GREY));
        }
    }
    for (hosts, _) in runs {
        let at = x(*hosts as f64);
        shapes.push(line(vec![(at, TOP), (at, BOTTOM)], GRID));
        shapes.push(text((at, BOTTOM + 20.0), hosts.to_string(), Anchor::Middle, GREY));
    }
    shapes.push(text(((LEFT + RIGHT) / 2.0, BOTTOM + 44.0), "hosts", Anchor::Middle, GREY));
    let ratio = sizes.1 / sizes.0;
    for (name, times) in [("hosts", ratio), ("root of hosts", ratio.sqrt())] {
        let points = vec![(LEFT, y(1.0)), (RIGHT, y(times))];
        shapes.push(Shape::Line { points, colour: GREY, width: 1.0, dashed: true });
        shapes.push(text((RIGHT + 8.0, y(times) - 6.0), name, Anchor::Start, GREY));
    }
    for (at, (name, of, colour)) in SERIES.into_iter().enumerate() {
        let place = |(hosts, report): &(usize, ClusterReport)| {
            (x(*hosts as f64), y(of(report) / of(&first.1)))
        };
        let points: Vec<(f64, f64)> = runs.iter().map(place).collect();
        shapes.extend(points.iter().map(|&at| Shape::Dot { at, radius: 4.0, colour }));
        shapes.push(Shape::Line { points, colour, width: 2.0, dashed: false });
        let key = LEFT + 6.0 + 165.0 * at as f64;
        shapes.push(Shape::Dot { at: (key, 72.0), radius: 4.0, colour });
        shapes.push(text((key + 10.0, 76.0), name, Anchor::Start, GREY));
    }
    Some(Picture { width: WIDTH, height: HEIGHT, shapes })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
                assert!((0.0..WIDTH).contains(x) && (0.0..HEIGHT).contains(y), "{x} {y}");
            }
        }
        assert!(picture.svg("growth").contains("root of hosts"));
    }
}

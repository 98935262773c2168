//! Plots: the ratio simulated / paper for every number, in the paper's order; and the values of a
//! table or figure of applications.

use super::systems::Row;
use weft_plot::{line, text, title, Anchor, Colour, Picture, Shape};
use weft_sim::platform::compare::Comparison;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 452.0;
/// The axis ends at this factor and its inverse; points beyond are drawn at the end.
const FACTOR: f64 = 2.5;

const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [110, 110, 110];
const GRID: Colour = [218, 218, 218];
const PPRO: Colour = [214, 39, 40];
const P3: Colour = [31, 119, 180];
const BOTH: Colour = [142, 36, 170];
const CALIBRATED: Colour = [170, 170, 170];

fn y(ratio: f64) -> f64 {
    let share = ratio.clamp(1.0 / FACTOR, FACTOR).ln() / FACTOR.ln();
    (TOP + BOTTOM) / 2.0 - share * (BOTTOM - TOP) / 2.0
}

fn dashes(points: Vec<(f64, f64)>, colour: Colour) -> Shape {
    Shape::Line { points, colour, width: 1.0, dashed: true }
}

fn colour(row: &Comparison) -> Colour {
    match row.number.platform {
        _ if row.number.calibrated => CALIBRATED,
        "ppro" => PPRO,
        "p3" => P3,
        _ => BOTH,
    }
}

fn frame() -> Vec<Shape> {
    let mut shapes = vec![title((LEFT, 26.0), "Simulated over paper, every number", BLACK)];
    let names = [
        ("calibrated", CALIBRATED),
        ("ppro, predicted", PPRO),
        ("p3, predicted", P3),
        ("both", BOTH),
    ];
    for (i, (name, colour)) in names.into_iter().enumerate() {
        let x = LEFT + 6.0 + 150.0 * i as f64;
        shapes.push(Shape::Dot { at: (x, 48.0), radius: 4.0, colour });
        shapes.push(text((x + 10.0, 52.0), name, Anchor::Start, GREY));
    }
    let marks = [(0.5, "0.5"), (0.75, "0.75"), (0.9, "0.9"), (1.0, "1"), (1.1, "1.1")];
    for (ratio, name) in marks.into_iter().chain([(1.25, "1.25"), (2.0, "2")]) {
        let points = vec![(LEFT, y(ratio)), (RIGHT, y(ratio))];
        shapes.push(if ratio == 1.0 { line(points, GREY) } else { dashes(points, GRID) });
        shapes.push(text((LEFT - 8.0, y(ratio) + 4.0), name, Anchor::End, GREY));
    }
    shapes
}

/// Draws a dot for every row, with the tables side by side.
pub fn plot(rows: &[Comparison]) -> Picture {
    let mut shapes = frame();
    let step = (RIGHT - LEFT) / rows.len().max(1) as f64;
    let x = |i: usize| LEFT + step * (i as f64 + 0.5);
    let mut from = 0;
    for (i, row) in rows.iter().enumerate() {
        let next = rows.get(i + 1).map(|row| row.number.table);
        if next != Some(row.number.table) {
            let middle = (x(from) + x(i)) / 2.0;
            shapes.push(text((middle, BOTTOM + 22.0), row.number.table, Anchor::Middle, GREY));
            let edge = x(i) + step / 2.0;
            shapes.push(line(vec![(edge, TOP), (edge, BOTTOM)], GRID));
            from = i + 1;
        }
        let at = (x(i), y(row.simulated / row.number.paper));
        shapes.push(Shape::Dot { at, radius: 3.6, colour: colour(row) });
    }
    let what = "table or figure of the paper";
    shapes.push(text(((LEFT + RIGHT) / 2.0, BOTTOM + 46.0), what, Anchor::Middle, GREY));
    Picture { width: WIDTH, height: HEIGHT, shapes }
}

/// Width of the names of rows, and height of a row.
const NAMES: f64 = 320.0;
const ROW: f64 = 18.0;

/// Draws the values of a table or figure: a line of dots for each row, on both clusters, with the
/// paper's where it states them.
pub fn bars(table: &str, rows: &[Row]) -> Picture {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !names.contains(&(row.row.as_str(), row.unit)) {
            names.push((row.row.as_str(), row.unit));
        }
    }
    // Each unit has its own scale, from 0.
    let most = |unit: &str| {
        let values = rows.iter().filter(|row| row.unit == unit);
        values.flat_map(|row| [row.simulated, row.paper.unwrap_or(0.0)]).fold(1e-9, f64::max)
    };
    let x = |unit: &str, value: f64| NAMES + value / most(unit) * (RIGHT - 60.0 - NAMES);
    let heading = match table {
        "VII" => "Table VII: efficiency on 64 nodes".to_string(),
        "11" => "Figure 11: traffic that comes to a node".to_string(),
        _ => format!("Figure {table}: time over that with l-sdma"),
    };
    let mut shapes = vec![title((16.0, 26.0), heading, BLACK)];
    let marks = [("ppro", PPRO), ("p3", P3), ("paper", GREY)];
    for (at, (name, colour)) in marks.into_iter().enumerate() {
        let x = NAMES + 100.0 * at as f64;
        shapes.push(Shape::Dot { at: (x, 48.0), radius: 4.0, colour });
        shapes.push(text((x + 10.0, 52.0), name, Anchor::Start, GREY));
    }
    for (at, (name, unit)) in names.iter().enumerate() {
        let y = 80.0 + ROW * at as f64;
        shapes.push(text((NAMES - 10.0, y + 4.0), *name, Anchor::End, BLACK));
        shapes.push(dashes(vec![(NAMES, y), (RIGHT - 60.0, y)], GRID));
        if *unit == "times" {
            shapes.push(line(vec![(x(unit, 1.0), y - 9.0), (x(unit, 1.0), y + 9.0)], GREY));
        }
        let of = rows.iter().filter(|row| (row.row.as_str(), row.unit) == (*name, *unit));
        for row in of {
            let colour = if row.platform == "ppro" { PPRO } else { P3 };
            if let Some(paper) = row.paper {
                shapes.push(Shape::Dot { at: (x(unit, paper), y), radius: 6.0, colour: GREY });
                shapes.push(Shape::Dot { at: (x(unit, paper), y), radius: 2.0, colour });
            }
            shapes.push(Shape::Dot { at: (x(unit, row.simulated), y), radius: 4.0, colour });
        }
        let end = format!("{:.3} {unit}", most(unit));
        shapes.push(text((RIGHT - 54.0, y + 4.0), end, Anchor::Start, GREY));
    }
    let height = 100.0 + ROW * names.len() as f64;
    Picture { width: WIDTH + 60.0, height, shapes }
}

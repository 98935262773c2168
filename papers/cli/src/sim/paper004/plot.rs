//! Plots: the ratio simulated / paper for every number, in the paper's order; and the values of a
//! table or figure of applications.

use super::systems::Row;
use super::Line;
use weft_plot::{
    line, text, title, Anchor, Colour, Picture, Scale, Shape, BLACK, COLOURS, GREY, GRID,
};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 530.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 452.0;
/// The axis ends at this factor and its inverse; points beyond are drawn at the end.
const FACTOR: f64 = 2.5;

const PPRO: Colour = COLOURS[0];
const P3: Colour = COLOURS[1];
const BOTH: Colour = COLOURS[2];
const CALIBRATED: Colour = [170, 170, 170];

fn y(ratio: f64) -> f64 {
    let scale = Scale::by_powers((1.0 / FACTOR, FACTOR), (BOTTOM, TOP));
    scale.map_or(BOTTOM, |scale| scale.at(ratio))
}

fn dashes(points: Vec<(f64, f64)>, colour: Colour) -> Shape {
    Shape::Line { points, colour, width: 1.0, dashed: true }
}

fn colour(row: &Line<'_>) -> Colour {
    match row.platform {
        _ if row.calibrated => CALIBRATED,
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

/// Width of a letter of a table's name, and least distance of two names.
const LETTER: f64 = 8.0;
const APART: f64 = 8.0;

/// Returns the heights of names in the middle of their tables: a name that would touch the one
/// before stands lower.
fn heights(names: &[(&str, f64)]) -> Vec<f64> {
    let mut ends = [f64::MIN; 2];
    let height = |&(name, middle): &(&str, f64)| {
        let half = name.len() as f64 * LETTER / 2.0;
        let low = usize::from(middle - half < ends[0] + APART);
        ends[low] = middle + half;
        BOTTOM + 22.0 + 16.0 * low as f64
    };
    names.iter().map(height).collect()
}

/// Draws a dot for every row that the paper has, with the tables side by side.
pub fn plot(rows: &[Line<'_>]) -> Picture {
    let mut tables: Vec<&str> = Vec::new();
    for row in rows {
        if !tables.contains(&row.table) {
            tables.push(row.table);
        }
    }
    let of = |table| rows.iter().filter(move |row| row.table == table && row.paper.is_some());
    let count = tables.iter().map(|&table| of(table).count()).sum::<usize>();
    let step = (RIGHT - LEFT) / count.max(1) as f64;
    let (mut shapes, mut dots, mut names, mut x) = (frame(), Vec::new(), Vec::new(), LEFT);
    for table in tables {
        let from = x;
        for row in of(table) {
            let at = (x + step / 2.0, y(1.0 + row.error.unwrap_or(0.0)));
            dots.push(Shape::Dot { at, radius: 3.6, colour: colour(row) });
            x += step;
        }
        names.push((table, (from + x) / 2.0));
        shapes.push(line(vec![(x, TOP), (x, BOTTOM)], GRID));
    }
    shapes.append(&mut dots);
    for (&(table, middle), height) in names.iter().zip(heights(&names)) {
        shapes.push(text((middle, height), table, Anchor::Middle, GREY));
    }
    let what = "table or figure of the paper";
    shapes.push(text(((LEFT + RIGHT) / 2.0, BOTTOM + 62.0), what, Anchor::Middle, GREY));
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

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn heights__names_of_narrow_tables_do_not_touch() {
        let names = [("VI", 735.0), ("fig6", 757.0), ("fig7", 776.0), ("fig9", 830.0)];
        let rows = [0.0, 1.0, 0.0, 0.0].map(|row| BOTTOM + 22.0 + 16.0 * row);
        assert_eq!(heights(&names), rows);
    }
}

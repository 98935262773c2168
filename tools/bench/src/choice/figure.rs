//! The grid as a picture: a column for each link, a row for each figure.

use super::super::LinkName;
use super::cell::{Cell, Figure};
use super::report::digits;
use weft::choices::Tree;
use weft_plot::{plain, text, title, Anchor, Colour, Picture, Scale, Shape, BLACK, COLOURS, GREY};

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 1060.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 1164.0;
const TOP: f64 = 104.0;
/// Height of a row's panels, and of the gap between two rows.
const PANEL: f64 = 178.0;
const GAP: f64 = 60.0;
/// Width of the gap between two columns.
const AISLE: f64 = 16.0;

const PAPER: Colour = [249, 249, 249];
const WHITE: Colour = [255, 255, 255];
const TRANSFERS: [(&str, Colour); 3] =
    [("copy", COLOURS[1]), ("gather", COLOURS[3]), ("rcpy", COLOURS[0])];
const PLACES: [(&str, Colour); 3] =
    [("host", [90, 90, 110]), ("agent", COLOURS[2]), ("kernel", COLOURS[5])];

fn line(points: Vec<(f64, f64)>, colour: Colour, width: f64, dashed: bool) -> Shape {
    Shape::Line { points, colour, width, dashed }
}

fn colour_of(name: &str, all: &[(&str, Colour)]) -> Colour {
    all.iter().find(|(n, _)| *n == name).map_or(BLACK, |c| c.1)
}

/// A row: its title, and a logarithmic axis that all its panels share.
struct Row {
    top: f64,
    scale: Scale,
}

impl Row {
    fn new(number: usize, values: impl Iterator<Item = f64>) -> Option<Row> {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let top = TOP + number as f64 * (PANEL + GAP);
        let scale = Scale::by_powers((low * 0.8, high * 1.8), (top + PANEL, top))?;
        Some(Row { top, scale })
    }

    fn y(&self, value: f64) -> f64 {
        self.scale.at(value)
    }

    /// Draws lines at round values, with numbers at the left.
    fn axis(&self, title: &str, shapes: &mut Vec<Shape>) {
        shapes.push(text((LEFT - 56.0, self.top - 26.0), title, Anchor::Start, BLACK));
        shapes.extend(self.scale.grid((LEFT, RIGHT), &plain));
    }
}

/// Position of a panel.
#[derive(Clone, Copy)]
struct Panel {
    left: f64,
    right: f64,
}

impl Panel {
    fn x(&self, at: usize, of: usize) -> f64 {
        self.left + (self.right - self.left) * (at as f64 + 0.5) / of.max(1) as f64
    }
}

fn categories(panel: Panel, row: &Row, names: &[String], shapes: &mut Vec<Shape>) {
    for (at, name) in names.iter().enumerate() {
        let below = (panel.x(at, names.len()), row.top + PANEL + 16.0);
        shapes.push(text(below, name.as_str(), Anchor::Middle, GREY));
    }
}

/// Draws a figure with its spread; hollow where ranks compute.
fn dot(x: f64, row: &Row, cell: &Cell, colour: Colour, hollow: bool, shapes: &mut Vec<Shape>) {
    let Some(s) = cell.value else { return };
    let y = row.y(s.median);
    let (low, high) = (row.y(s.min), row.y(s.max));
    if low - high > 0.5 {
        shapes.push(line(vec![(x, low), (x, high)], colour, 1.4, false));
    }
    shapes.push(Shape::Dot { at: (x, y), radius: 4.2, colour });
    if hollow {
        shapes.push(Shape::Dot { at: (x, y), radius: 2.4, colour: WHITE });
    }
}

/// Draws the median of the floors beside the figures.
fn floor(panel: Panel, row: &Row, cells: &[&Cell], shapes: &mut Vec<Shape>) {
    let mut all: Vec<f64> = cells.iter().filter_map(|c| c.floor).collect();
    all.sort_by(f64::total_cmp);
    if let Some(&value) = all.get(all.len() / 2) {
        let y = row.y(value);
        let points = vec![(panel.left + 3.0, y), (panel.right - 3.0, y)];
        shapes.push(line(points, BLACK, 1.2, true));
    }
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    names.for_each(|name| {
        if !out.contains(&name) {
            out.push(name);
        }
    });
    out
}

fn half_trips(panel: Panel, row: &Row, cells: &[&Cell], shapes: &mut Vec<Shape>) {
    let names = distinct(cells.iter().map(|c| c.reliability().to_string()));
    floor(panel, row, cells, shapes);
    for cell in cells {
        let at = names.iter().position(|n| n == cell.reliability()).unwrap_or(0);
        let name = cell.choices.transfer.name();
        let aside = TRANSFERS.iter().position(|t| t.0 == name).map_or(0.0, |i| i as f64 - 1.0);
        let x = panel.x(at, names.len()) + 14.0 * aside;
        dot(x, row, cell, colour_of(name, &TRANSFERS), false, shapes);
    }
    categories(panel, row, &names, shapes);
}

fn rates(panel: Panel, row: &Row, cells: &[&Cell], shapes: &mut Vec<Shape>) {
    let names = distinct(cells.iter().map(|c| c.mtu()));
    floor(panel, row, cells, shapes);
    for reliability in distinct(cells.iter().map(|c| c.reliability().to_string())) {
        for (transfer, colour) in TRANSFERS {
            let mine = cells.iter().filter(|c| {
                c.choices.transfer.name() == transfer && c.reliability() == reliability
            });
            let place = |c: &&&Cell| {
                let at = names.iter().position(|n| *n == c.mtu())?;
                Some((panel.x(at, names.len()), row.y(c.value?.median)))
            };
            let points: Vec<(f64, f64)> = mine.filter_map(|c| place(&c)).collect();
            let (width, dashed, radius) = match reliability.as_str() {
                "none" => (1.0, false, 1.8),
                "gbn" => (1.6, true, 2.4),
                _ => (2.2, false, 3.4),
            };
            let dots = points.iter().map(|&at| Shape::Dot { at, radius, colour });
            shapes.extend(dots);
            shapes.push(line(points, colour, width, dashed));
        }
    }
    categories(panel, row, &names, shapes);
}

fn multicasts(panel: Panel, row: &Row, cells: &[&Cell], shapes: &mut Vec<Shape>) {
    let names: Vec<String> = Tree::ALL.iter().map(|t| t.name().to_string()).collect();
    for cell in cells {
        let at = Tree::ALL.iter().position(|t| *t == cell.choices.tree).unwrap_or(0);
        let aside = if cell.by == "agent" { 7.0 } else { -7.0 };
        let compute = cell.figure == Figure::Multicast(true);
        let x = panel.x(at, names.len()) + aside;
        dot(x, row, cell, colour_of(cell.by, &PLACES), compute, shapes);
    }
    categories(panel, row, &names, shapes);
}

fn fetch_adds(panel: Panel, row: &Row, cells: &[&Cell], shapes: &mut Vec<Shape>) {
    let names = ["polls".to_string(), "computes".to_string()];
    floor(panel, row, cells, shapes);
    for cell in cells {
        let compute = cell.figure == Figure::FetchAdd(true);
        let aside = PLACES.iter().position(|p| p.0 == cell.by).map_or(0.0, |i| i as f64 - 1.0);
        let x = panel.x(usize::from(compute), 2) + 26.0 * aside;
        dot(x, row, cell, colour_of(cell.by, &PLACES), compute, shapes);
        if let Some(s) = cell.value {
            let at = (x, row.y(s.max.max(s.median)) - 7.0);
            shapes.push(text(at, digits(s.median), Anchor::Middle, GREY));
        }
    }
    categories(panel, row, &names, shapes);
}

/// Selects the figures of a row.
type Wanted = fn(Figure) -> bool;
/// Draws the figures of a link into its panel.
type Draw = fn(Panel, &Row, &[&Cell], &mut Vec<Shape>);

fn legend(shapes: &mut Vec<Shape>) {
    let what =
        "The choices: transfer, reliability, maximum transfer unit, multicast, fetch-and-add";
    shapes.push(title((LEFT - 56.0, 26.0), what, BLACK));
    let mut x = LEFT - 50.0;
    let mut entry = |name: &str, shape: &dyn Fn(f64) -> Vec<Shape>, shapes: &mut Vec<Shape>| {
        shapes.extend(shape(x));
        shapes.push(text((x + 13.0, 54.0), name, Anchor::Start, BLACK));
        x += 30.0 + 6.6 * name.len() as f64;
    };
    for (name, colour) in TRANSFERS.iter().chain(&PLACES).copied() {
        let mark = |x| vec![Shape::Dot { at: (x, 50.0), radius: 5.0, colour }];
        entry(name, &mark, shapes);
    }
    let ring = |x| {
        let dot = |radius, colour| Shape::Dot { at: (x, 50.0), radius, colour };
        vec![dot(5.0, GREY), dot(3.0, WHITE)]
    };
    entry("ranks compute", &ring, shapes);
    let stroke = |width, dashed| {
        move |x: f64| vec![line(vec![(x - 9.0, 50.0), (x + 9.0, 50.0)], GREY, width, dashed)]
    };
    entry("selective, agent", &stroke(2.4, false), shapes);
    entry("gbn", &stroke(1.6, true), shapes);
    entry("none", &stroke(1.0, false), shapes);
    let dashes = |x: f64| vec![line(vec![(x - 9.0, 50.0), (x + 9.0, 50.0)], BLACK, 1.2, true)];
    entry("floor", &dashes, shapes);
}

/// The picture.
pub fn figure(cells: &[Cell]) -> Picture {
    let mut links: Vec<LinkName> = Vec::new();
    for cell in cells {
        if !links.contains(&cell.link) {
            links.push(cell.link);
        }
    }
    let step = (RIGHT - LEFT + AISLE) / links.len().max(1) as f64;
    let panel = |at: usize| {
        let left = LEFT + step * at as f64;
        Panel { left, right: left + step - AISLE }
    };
    let mut shapes = Vec::new();
    legend(&mut shapes);
    let rows: [(&str, Wanted, Draw); 4] = [
        ("packet of 16 B, one way, us, by reliability", |f| f == Figure::HalfTrip, half_trips),
        ("messages of 256 KiB, GB/s, by maximum transfer unit", |f| f == Figure::Throughput, rates),
        (
            "multicast of 16 B to 4, until the last has it, us, by tree",
            |f| matches!(f, Figure::Multicast(_)),
            multicasts,
        ),
        ("fetch-and-add, us; the owner", |f| matches!(f, Figure::FetchAdd(_)), fetch_adds),
    ];
    for (number, (title, wanted, draw)) in rows.into_iter().enumerate() {
        let mine: Vec<&Cell> = cells.iter().filter(|c| wanted(c.figure)).collect();
        let values = mine.iter().flat_map(|c| {
            let spread = c.value.map(|s| [s.min, s.max]);
            spread.into_iter().flatten().chain(c.floor)
        });
        let Some(row) = Row::new(number, values.filter(|v| *v > 0.0)) else { continue };
        for (at, _) in links.iter().enumerate() {
            let Panel { left, right } = panel(at);
            // The background of a panel is drawn as a line whose width is the panel's height.
            let middle = row.top + PANEL / 2.0;
            shapes.push(line(vec![(left, middle), (right, middle)], PAPER, PANEL, false));
        }
        row.axis(title, &mut shapes);
        for (at, &link) in links.iter().enumerate() {
            let of: Vec<&Cell> = mine.iter().copied().filter(|c| c.link == link).collect();
            let Panel { left, right } = panel(at);
            let above = ((left + right) / 2.0, row.top - 6.0);
            shapes.push(text(above, link.name(), Anchor::Middle, BLACK));
            draw(panel(at), &row, &of, &mut shapes);
        }
    }
    Picture { width: WIDTH, height: HEIGHT, shapes }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::super::pair::Sample;
    use super::*;
    use weft::Choices;

    #[test]
    fn figure__every_value_lies_inside_and_nothing_measured_is_no_error() {
        assert!(!figure(&[]).shapes.is_empty());
        let figures = [
            Figure::HalfTrip,
            Figure::Throughput,
            Figure::Multicast(true),
            Figure::FetchAdd(false),
        ];
        let cell = |figure| Cell {
            link: LinkName::Agent,
            figure,
            by: "agent",
            choices: Choices::default(),
            value: Sample::of(vec![0.5, 3.0, 70.0]),
            floor: Some(0.2),
            why: String::new(),
        };
        for shape in figure(&figures.map(cell)).shapes {
            let points = match shape {
                Shape::Line { points, .. } | Shape::Area { points, .. } => points,
                Shape::Dot { at, .. } | Shape::Text { at, .. } | Shape::Image { at, .. } => {
                    vec![at]
                }
            };
            for (x, y) in points {
                assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{x}, {y}");
            }
        }
    }
}

//! Curves over sizes: two axes with round numbers, and the name of each curve beside its end.

use crate::palette::{BLACK, COLOURS, GREY, GRID};
use crate::{length, line, mark, text, title, Anchor, Colour, Mark, Picture, Shape};

const HEIGHT: f64 = 520.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 735.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 462.0;
/// Room between the plot and the names of curves, and right of them.
const ASIDE: f64 = 27.0;
const MARGIN: f64 = 12.0;
/// Least distance of two names at the right edge.
const STEP: f64 = 17.0;
/// Least length of a power of ten that has more numbers than its own.
const LONG: f64 = 90.0;
/// Least distance of two numbers on a linear scale.
const APART: f64 = 24.0;
/// Factor between a figure at the end of an axis and that end.
const ROOM: f64 = 1.4;

/// The places of values between two places of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    ends: (f64, f64),
    by_powers: bool,
}

impl Scale {
    /// A logarithmic scale from one value to another, at the places `ends`. `None` unless the first
    /// one is positive, and the other one larger.
    pub fn by_powers((low, high): (f64, f64), ends: (f64, f64)) -> Option<Scale> {
        let is_one = low > 0.0 && high > low && high.is_finite();
        is_one.then_some(Scale { low, high, ends, by_powers: true })
    }

    /// A linear scale from 0 to a value, at the places `ends`. `None` unless it is positive.
    pub fn from_zero(high: f64, ends: (f64, f64)) -> Option<Scale> {
        Scale::linear((0.0, high), ends)
    }

    /// A linear scale from one value to another, at the places `ends`. `None` unless the second one
    /// is larger.
    pub fn linear((low, high): (f64, f64), ends: (f64, f64)) -> Option<Scale> {
        let is_one = high > low && (high - low).is_finite();
        is_one.then_some(Scale { low, high, ends, by_powers: false })
    }

    /// Returns the place of a value; one outside is moved to the end.
    pub fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.by_powers {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Returns the round values of the scale: 1, 2 and 5 of each power of ten, or multiples of one
    /// of those that have room beside each other; and for each if there is room for its number.
    pub fn marks(&self) -> Vec<(f64, bool)> {
        let power = |of: f64| of.log10().floor() as i32;
        if !self.by_powers {
            let span = self.high - self.low;
            let least = span * APART / (self.ends.1 - self.ends.0).abs().max(1.0);
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * 10f64.powi(power(least)));
            let step = steps.into_iter().find(|&step| step >= least).unwrap_or(least);
            let first = (self.low / step - 1e-9).ceil();
            let all = (0..).map(|i| step * (first + f64::from(i)));
            let end = self.high + span * 1e-9;
            return all.take_while(|v| *v <= end).map(|v| (v, true)).collect();
        }
        let length = (self.ends.1 - self.ends.0).abs() / (self.high / self.low).log10();
        let all = (power(self.low)..=power(self.high)).flat_map(|power| {
            let has_number = move |step| step == 1.0 || length > LONG;
            [1.0, 2.0, 5.0].map(move |step| (step * 10f64.powi(power), has_number(step)))
        });
        all.filter(|(v, _)| (self.low..=self.high).contains(v)).collect()
    }

    /// Draws a line at each round value of a vertical scale, from one place to another, and their
    /// numbers to the left.
    pub fn grid(&self, (left, right): (f64, f64), number: &dyn Fn(f64) -> String) -> Vec<Shape> {
        let mut shapes = Vec::new();
        for (value, has_number) in self.marks() {
            let y = self.at(value);
            shapes.push(line(vec![(left, y), (right, y)], GRID));
            if has_number {
                shapes.push(text((left - 8.0, y + 4.0), number(value), Anchor::End, GREY));
            }
        }
        shapes
    }
}

/// Formats a round value without its rounding errors.
pub fn plain(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A figure of a curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The size.
    pub size: usize,
    /// The figure.
    pub value: f64,
    /// The least and the largest one of its repetitions.
    pub spread: (f64, f64),
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// The width of its line.
    pub width: f64,
    /// The radius of its dots; 0 for none.
    pub radius: f64,
    /// The form of its dots.
    pub mark: Mark,
    /// True if it has gaps.
    pub dashed: bool,
    /// Its figures, by size.
    pub points: Vec<Point>,
}

impl Curve {
    /// A curve of the usual width, in the colour and with the marks of its place among others. The
    /// curves of a second round of colours have gaps.
    pub fn new(name: impl Into<String>, place: usize, points: Vec<Point>) -> Curve {
        let colour = COLOURS[place % COLOURS.len()];
        let (mark, dashed) = (Mark::ALL[place % Mark::ALL.len()], place >= COLOURS.len());
        Curve { name: name.into(), colour, width: 2.0, radius: 3.2, mark, dashed, points }
    }

    /// A line without dots, with gaps, that others are compared with.
    pub fn reference(name: impl Into<String>, points: Vec<Point>) -> Curve {
        let curve = Curve::new(name, 0, points);
        Curve { colour: GREY, width: 1.4, radius: 0.0, dashed: true, ..curve }
    }
}

/// The scale of the sizes of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Logarithmic, with a number at each size.
    Powers,
    /// Linear from 0, with round numbers.
    Even,
}

/// Curves over sizes.
pub struct Chart<'a> {
    /// The title.
    pub title: String,
    /// The words below it, such as the unit.
    pub unit: String,
    /// The words below the sizes.
    pub sizes: &'static str,
    /// The text of a size.
    pub size: fn(usize) -> String,
    /// Their scale.
    pub spacing: Spacing,
    /// The text of a round figure.
    pub number: &'a dyn Fn(f64) -> String,
    /// True if figures have a logarithmic scale; else it begins at 0.
    pub by_powers: bool,
    /// The curves, the lowest first.
    pub curves: Vec<Curve>,
}

/// The scales of a chart.
struct Axes {
    /// Sizes that have a number.
    sizes: Vec<usize>,
    x: Option<Scale>,
    y: Scale,
}

/// Returns what the least and the largest of figures and their spreads are, or `None` without one.
fn bounds(points: &mut dyn Iterator<Item = &Point>, by_powers: bool) -> Option<(f64, f64)> {
    let all = points.flat_map(|point| [point.spread.0, point.value, point.spread.1]);
    let good = all.filter(|value| value.is_finite() && (!by_powers || *value > 0.0));
    good.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

impl Axes {
    fn of(chart: &Chart<'_>) -> Option<Axes> {
        let points = || chart.curves.iter().flat_map(|curve| &curve.points);
        let mut sizes: Vec<usize> = points().map(|point| point.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let (low, high) = bounds(&mut points(), chart.by_powers)?;
        let y = match chart.by_powers {
            true => Scale::by_powers((low / ROOM, high * ROOM), (BOTTOM, TOP))?,
            false => Scale::from_zero((high * 1.1).max(1e-9), (BOTTOM, TOP))?,
        };
        let size = |of: Option<&usize>| of.map_or(0.0, |&size| size.max(1) as f64);
        let (first, last) = (size(sizes.first()), size(sizes.last()));
        if chart.spacing == Spacing::Even {
            let x = Scale::from_zero(last, (LEFT, RIGHT));
            // Numbers of a horizontal scale need more room than those of a vertical one.
            let marks = Scale::from_zero(last, (0.0, (RIGHT - LEFT) / 3.0)).map(|x| x.marks());
            let marks = marks.unwrap_or_default();
            sizes = marks.into_iter().map(|mark| mark.0.round() as usize).collect();
            sizes.dedup();
            return Some(Axes { sizes, x, y });
        }
        Some(Axes { sizes, x: Scale::by_powers((first, last), (LEFT, RIGHT)), y })
    }

    /// The place of a size; the middle if there is only one.
    fn x(&self, size: usize) -> f64 {
        let middle = (LEFT + RIGHT) / 2.0;
        self.x.map_or(middle, |x| x.at(if x.by_powers { size.max(1) } else { size } as f64))
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(point.size), self.y.at(point.value))
    }

    /// Draws the numbers of sizes; one that would touch the one before is left out.
    fn sizes(&self, size: fn(usize) -> String, shapes: &mut Vec<Shape>) {
        let mut free = f64::MIN;
        for &at in &self.sizes {
            let (x, number) = (self.x(at), size(at));
            let half = length(&number) / 2.0;
            if x - half > free {
                free = x + half + 6.0;
                shapes.push(text((x, BOTTOM + 20.0), number, Anchor::Middle, GREY));
            }
        }
    }
}

impl Chart<'_> {
    /// Draws the chart. `None` if there is no figure, or on a logarithmic scale none above 0.
    pub fn picture(&self) -> Option<Picture> {
        let axes = Axes::of(self)?;
        let middle = (LEFT + RIGHT) / 2.0;
        let mut shapes = vec![
            title((LEFT, 26.0), self.title.as_str(), BLACK),
            text((LEFT, 46.0), self.unit.as_str(), Anchor::Start, GREY),
            text((middle, BOTTOM + 44.0), self.sizes, Anchor::Middle, GREY),
        ];
        shapes.extend(axes.y.grid((LEFT, RIGHT), self.number));
        axes.sizes(self.size, &mut shapes);
        shapes.push(line(vec![(LEFT, BOTTOM), (RIGHT, BOTTOM)], GREY));
        self.curves.iter().for_each(|curve| draw(&axes, curve, &mut shapes));
        names(&axes, &self.curves, &mut shapes);
        let longest = self.curves.iter().map(|curve| length(&curve.name)).fold(0.0, f64::max);
        let heading = LEFT + length(&self.title) * 1.45;
        let width = (RIGHT + ASIDE + longest).max(heading).max(LEFT + length(&self.unit));
        Some(Picture { width: (width + MARGIN).ceil(), height: HEIGHT, shapes })
    }
}

/// Draws a rectangle that rises from one height to another around a place, with half its width.
pub(crate) fn rise((x, half): (f64, f64), (from, to): (f64, f64), colour: Colour) -> Shape {
    let points = vec![(x - half, from), (x - half, to), (x + half, to), (x + half, from)];
    Shape::Area { points, colour }
}

/// Draws a curve with the spread of its repetitions.
fn draw(axes: &Axes, curve: &Curve, shapes: &mut Vec<Shape>) {
    let &Curve { colour, width, radius, dashed, .. } = curve;
    for point in &curve.points {
        let (x, (least, most)) = (axes.x(point.size), point.spread);
        if least < most {
            shapes.push(line(vec![(x, axes.y.at(least)), (x, axes.y.at(most))], colour));
        }
    }
    let points: Vec<(f64, f64)> = curve.points.iter().map(|point| axes.place(point)).collect();
    let dots = points.iter().filter(|_| radius > 0.0);
    shapes.extend(dots.map(|&at| mark(curve.mark, at, radius, colour)));
    shapes.push(Shape::Line { points, colour, width, dashed });
}

/// Draws the name of each curve beside its end; names that would overlap are moved apart.
fn names(axes: &Axes, curves: &[Curve], shapes: &mut Vec<Shape>) {
    let of = |curve: &Curve| curve.points.last().map(|point| axes.place(point));
    let all = curves.iter().filter_map(|curve| Some((of(curve)?, curve)));
    let mut ends: Vec<(f64, (f64, f64), &Curve)> = all.map(|(at, c)| (at.1, at, c)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    for at in 1..ends.len() {
        ends[at].0 = ends[at].0.max(ends[at - 1].0 + STEP);
    }
    // Names moved below the bottom are moved up again, each as little as needed.
    let mut limit = BOTTOM + STEP;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(limit);
        limit = end.0 - STEP;
    }
    for (y, from, Curve { name, colour, .. }) in ends {
        let to = (RIGHT + ASIDE - 5.0, y);
        shapes.push(line(vec![(from.0 + 4.0, from.1), to], *colour));
        shapes.push(text((to.0 + 5.0, y + 4.5), name.as_str(), Anchor::Start, *colour));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn chart(by_powers: bool, curves: &[(&str, &[f64])]) -> Chart<'static> {
        let point = |(at, &value): (usize, &f64)| {
            let spread = (value * 0.9, value * 1.1);
            Point { size: 4 << at, value, spread }
        };
        let curve = |(place, (name, values)): (usize, &(&str, &[f64]))| {
            Curve::new(*name, place, values.iter().enumerate().map(point).collect())
        };
        Chart {
            title: "a chart".into(),
            unit: "us".into(),
            sizes: "bytes",
            size: |size| format!("{size} B"),
            spacing: Spacing::Powers,
            number: &plain,
            by_powers,
            curves: curves.iter().enumerate().map(curve).collect(),
        }
    }

    #[test]
    fn picture__has_the_curves_their_names_and_round_numbers() {
        for (by_powers, want) in [(true, [">20<", ">50<"]), (false, [">0<", ">50<"])] {
            let chart = chart(by_powers, &[("TCP", &[9.0, 20.0, 80.0]), ("weft", &[8.0])]);
            let svg = chart.picture().unwrap().svg("");
            let words = [">a chart<", ">TCP<", ">weft<", ">16 B<", want[0], want[1]];
            assert!(words.into_iter().all(|word| svg.contains(word)), "{svg}");
            assert_eq!(svg.matches("<circle").count(), 3, "the second curve has squares");
        }
    }

    #[test]
    fn picture__spreads_and_names_stay_inside() {
        let name = "a name that needs much more room than the names of most curves";
        for by_powers in [true, false] {
            let picture = chart(by_powers, &[(name, &[9.0, 20.0, 80.0])]).picture().unwrap();
            for shape in &picture.shapes {
                match shape {
                    Shape::Line { points, .. } => {
                        assert!(points.iter().all(|p| (TOP..=BOTTOM).contains(&p.1)), "{points:?}");
                    }
                    Shape::Text { at, text, .. } if text == name => {
                        assert!(at.0 + length(text) < picture.width);
                    }
                    _ => {}
                }
            }
            let tops = picture.shapes.iter().filter_map(|shape| match shape {
                Shape::Line { points, .. } if points[0].0 == points[1].0 => Some(points[1].1),
                _ => None,
            });
            // The longest spread ends below the top: it is whole.
            assert!(tops.reduce(f64::min).unwrap() > TOP + 5.0);
        }
    }

    #[test]
    fn picture__even_sizes_have_few_round_numbers() {
        let point = |size| Point { size, value: 1.0, spread: (1.0, 1.0) };
        let curves = vec![Curve::new("change", 0, (1..=1500).map(point).collect())];
        let even = Chart { spacing: Spacing::Even, curves, ..chart(true, &[]) };
        let svg = even.picture().unwrap().svg("");
        assert!(svg.contains(">1400 B<") && !svg.contains(">1401 B<"), "{svg}");
    }

    #[test]
    fn picture__of_nothing_is_none() {
        assert!(chart(true, &[]).picture().is_none());
        assert!(chart(false, &[]).picture().is_none());
        assert!(chart(true, &[("no figure", &[])]).picture().is_none());
        assert!(chart(true, &[("none above 0", &[0.0])]).picture().is_none());
        assert!(chart(true, &[("one size", &[1.0])]).picture().is_some());
    }

    #[test]
    fn names__of_curves_that_end_together_do_not_overlap() {
        let curves: Vec<(&str, &[f64])> = vec![("a", &[1.0, 2.0]); 20];
        let picture = chart(true, &curves).picture().unwrap();
        let mut heights: Vec<f64> = Vec::new();
        for shape in picture.shapes {
            match shape {
                Shape::Text { at, text, .. } if text == "a" => heights.push(at.1),
                _ => {}
            }
        }
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 20);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > STEP - 0.1), "{heights:?}");
        assert!(heights[19] < HEIGHT && heights[0] > 0.0, "{heights:?}");
    }

    #[test]
    fn marks__few_numbers_where_powers_are_short() {
        let numbers = |high: f64, length: f64| {
            let scale = Scale::by_powers((1.0, high), (length, 0.0)).unwrap();
            let marks = scale.marks();
            assert!((scale.at(1.0), scale.at(high)) == (length, 0.0) && scale.at(0.0) == length);
            marks.into_iter().filter(|mark| mark.1).map(|mark| mark.0).collect::<Vec<f64>>()
        };
        assert_eq!(numbers(20.0, 400.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(numbers(2e6, 400.0), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        let linear = |high: f64| {
            let marks = Scale::from_zero(high, (150.0, 0.0)).unwrap().marks();
            marks.into_iter().map(|mark| plain(mark.0)).collect::<Vec<String>>()
        };
        assert_eq!(linear(93e3), ["0", "20000", "40000", "60000", "80000"]);
        assert_eq!(linear(1.2), ["0", "0.2", "0.4", "0.6", "0.8", "1", "1.2"]);
        assert!(Scale::by_powers((0.0, 1.0), (0.0, 1.0)).is_none());
        assert!(Scale::from_zero(0.0, (0.0, 1.0)).is_none());
        let below = Scale::linear((-3.0, 3.0), (0.0, 100.0)).unwrap();
        let marks: Vec<f64> = below.marks().into_iter().map(|mark| mark.0).collect();
        assert_eq!(marks, [-2.0, 0.0, 2.0]);
    }
}

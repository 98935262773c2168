//! A matrix as a picture, with a scale of its colours.

use crate::chart::Scale;
use crate::palette::{heat, BLACK, GREY};
use crate::{length, line, text, title, Anchor, Colour, Picture, Shape};

/// A larger matrix is averaged down to at most this many pixels a side.
const MOST: usize = 1024;
/// Length of the longer side of the matrix in the picture.
const SIDE: f64 = 520.0;
/// Least length of the shorter side.
const LEAST: f64 = 24.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 64.0;
/// Room for the words below the matrix.
const BELOW: f64 = 58.0;
/// Distance of the scale from the matrix, and its width and least height.
const ASIDE: f64 = 28.0;
const BAR: f64 = 22.0;
const TALL: f64 = 160.0;
/// Pixels of the scale.
const STEPS: usize = 128;

/// A matrix whose values are colours. The first row is at the top.
pub struct HeatMap<'a> {
    /// The title.
    pub title: String,
    /// The words below it, such as the unit of the values.
    pub unit: String,
    /// The names of the directions: across, and down.
    pub axes: (&'a str, &'a str),
    /// The texts at both ends of each direction: left and right, top and bottom.
    pub ends: ([String; 2], [String; 2]),
    /// Number of columns.
    pub columns: usize,
    /// The values, row by row. Those that are no number have the colour of the least one.
    pub values: &'a [f64],
    /// The least and the largest value of the scale; `None`: those of the matrix.
    pub range: Option<(f64, f64)>,
    /// The text of a round value.
    pub number: &'a dyn Fn(f64) -> String,
}

/// Pixels, each the mean of a rectangle of values.
struct Raster {
    columns: usize,
    values: Vec<f64>,
}

impl Raster {
    fn of(columns: usize, values: &[f64]) -> Raster {
        let rows = values.len() / columns;
        let each = columns.max(rows).div_ceil(MOST);
        let of = |pixel: usize, end: usize| pixel * each..((pixel + 1) * each).min(end);
        let mut means = Vec::new();
        for y in 0..rows.div_ceil(each) {
            for x in 0..columns.div_ceil(each) {
                let (of_rows, of_columns) = (of(y, rows), of(x, columns));
                let count = (of_rows.len() * of_columns.len()) as f64;
                let row = |row: usize| &values[row * columns..][of_columns.clone()];
                means.push(of_rows.map(|at| row(at).iter().sum::<f64>()).sum::<f64>() / count);
            }
        }
        Raster { columns: columns.div_ceil(each), values: means }
    }
}

/// Returns the least and the largest of the values that are numbers.
fn range(values: &[f64]) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    let finite = values.iter().filter(|value| value.is_finite());
    let (low, high) = finite.fold(start, |(l, h), v| (l.min(*v), h.max(*v)));
    if low <= high {
        (low, high)
    } else {
        (0.0, 1.0)
    }
}

impl HeatMap<'_> {
    /// Draws the matrix. `None` if it has no value, or its last row is not whole.
    pub fn picture(&self) -> Option<Picture> {
        let HeatMap { columns, values, .. } = *self;
        if columns == 0 || values.is_empty() || values.len() % columns != 0 {
            return None;
        }
        let rows = values.len() / columns;
        let unit = SIDE / columns.max(rows) as f64;
        let side = |count: usize| (count as f64 * unit).max(LEAST);
        let (width, height) = (side(columns), side(rows));
        let (low, high) = self.range.unwrap_or_else(|| range(values));
        let span = if high > low { high - low } else { 1.0 };
        let raster = Raster::of(columns, values);
        let pixels: Vec<Colour> =
            raster.values.iter().map(|value| heat((value - low) / span)).collect();
        let mut shapes = vec![
            title((LEFT, 26.0), self.title.as_str(), BLACK),
            text((LEFT, 46.0), self.unit.as_str(), Anchor::Start, GREY),
            Shape::Image {
                at: (LEFT, TOP),
                size: (width, height),
                columns: raster.columns,
                pixels,
            },
        ];
        self.axes((width, height), &mut shapes);
        let bar = (LEFT + width + ASIDE, height.max(TALL));
        let right = self.scale(bar, (low, low + span), &mut shapes);
        let heading = LEFT + length(&self.title) * 1.45;
        let width = right.max(heading).max(LEFT + length(&self.unit)) + 16.0;
        Some(Picture { width, height: TOP + bar.1 + BELOW, shapes })
    }

    /// Draws the names of the directions and of their ends.
    fn axes(&self, (width, height): (f64, f64), shapes: &mut Vec<Shape>) {
        let (across, down) = &self.ends;
        let below = TOP + height + 18.0;
        let mut word = |at, words: &str, anchor| shapes.push(text(at, words, anchor, GREY));
        word((LEFT, below), &across[0], Anchor::Start);
        word((LEFT + width, below), &across[1], Anchor::End);
        word((LEFT + width / 2.0, below + 20.0), self.axes.0, Anchor::Middle);
        word((LEFT - 8.0, TOP + 10.0), &down[0], Anchor::End);
        word((LEFT - 8.0, TOP + height), &down[1], Anchor::End);
        word((LEFT - 8.0, TOP + height / 2.0 + 4.0), self.axes.1, Anchor::End);
    }

    /// Draws the scale at a place, with numbers at round values; returns its right end.
    fn scale(
        &self,
        (x, tall): (f64, f64),
        (low, high): (f64, f64),
        shapes: &mut Vec<Shape>,
    ) -> f64 {
        let share = |step: usize| 1.0 - step as f64 / (STEPS - 1) as f64;
        let pixels = (0..STEPS).map(|step| heat(share(step))).collect();
        shapes.push(Shape::Image { at: (x, TOP), size: (BAR, tall), columns: 1, pixels });
        let mut right = x + BAR;
        let Some(scale) = Scale::linear((low, high), (TOP + tall, TOP)) else { return right };
        for (value, _) in scale.marks() {
            let (y, number) = (scale.at(value), (self.number)(value));
            shapes.push(line(vec![(x + BAR, y), (x + BAR + 5.0, y)], GREY));
            right = right.max(x + BAR + 9.0 + length(&number));
            shapes.push(text((x + BAR + 9.0, y + 4.0), number, Anchor::Start, GREY));
        }
        right
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::chart::plain;

    fn map(columns: usize, values: &[f64]) -> HeatMap<'_> {
        HeatMap {
            title: "a plate".into(),
            unit: "degrees".into(),
            axes: ("column", "row"),
            ends: (["1".into(), "8".into()], ["1".into(), "4".into()]),
            columns,
            values,
            range: None,
            number: &plain,
        }
    }

    fn images(picture: &Picture) -> Vec<(usize, &[Colour])> {
        let image = |shape| match shape {
            &Shape::Image { columns, ref pixels, .. } => Some((columns, &pixels[..])),
            _ => None,
        };
        picture.shapes.iter().filter_map(image).collect()
    }

    #[test]
    fn picture__has_a_pixel_for_each_value_and_a_scale() {
        let values: Vec<f64> = (0..32).map(f64::from).collect();
        let picture = map(8, &values).picture().unwrap();
        let images = images(&picture);
        assert_eq!((images[0].0, images[0].1.len()), (8, 32));
        assert_eq!((images[0].1[0], images[0].1[31]), (heat(0.0), heat(1.0)));
        assert_eq!(images[1].1[0], heat(1.0), "the scale is light at the top");
        let svg = picture.svg("");
        assert!([">a plate<", ">degrees<", ">row<", ">20<"].iter().all(|w| svg.contains(w)));
        assert!(picture.png().is_ok());
    }

    #[test]
    fn picture__of_a_large_matrix_has_means_and_takes_any_shape() {
        for (rows, columns) in [(1, 1), (1, 4000), (4000, 1), (1537, 3)] {
            let values = vec![1.0; rows * columns];
            let picture = map(columns, &values).picture().unwrap();
            assert!(images(&picture)[0].1.len() <= MOST * MOST);
            assert!(picture.width < 1000.0 && picture.height < 800.0);
        }
        let raster = Raster::of(2, &(0..2 * 3000).map(f64::from).collect::<Vec<f64>>());
        assert_eq!((raster.columns, raster.values.len()), (1, 1000));
        assert_eq!(raster.values[0], 2.5);
    }

    #[test]
    fn picture__of_no_number_is_one_and_of_no_value_none() {
        for value in [0.0, f64::NAN, f64::INFINITY] {
            assert!(map(2, &[value; 4]).picture().is_some());
        }
        assert!(map(0, &[]).picture().is_none() && map(3, &[1.0; 4]).picture().is_none());
    }
}

//! A figure for each of several ranges side by side.

use crate::chart::{rise, Scale};
use crate::palette::{BLACK, COLOURS, GREY};
use crate::{length, line, text, title, Anchor, Picture, Shape};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 462.0;
/// Share of its range's width that a bar takes.
const FILLED: f64 = 0.86;

/// A range.
#[derive(Clone, Debug)]
pub struct Bin {
    /// Its name below its bar.
    pub name: String,
    /// Its figure.
    pub value: f64,
    /// Its kind: the place of its colour, and of its name in [`Histogram::kinds`].
    pub kind: usize,
}

/// Bars side by side on one scale.
pub struct Histogram<'a> {
    /// The title.
    pub title: String,
    /// The words below it, such as the unit.
    pub unit: String,
    /// The words below the names of ranges.
    pub ranges: &'a str,
    /// The names of kinds; none: all ranges are of one kind.
    pub kinds: &'a [&'a str],
    /// The ranges, from the left.
    pub bins: Vec<Bin>,
    /// True if figures have a logarithmic scale; else it begins at 0.
    pub by_powers: bool,
    /// The text of a round figure.
    pub number: &'a dyn Fn(f64) -> String,
}

impl Histogram<'_> {
    fn scale(&self) -> Option<Scale> {
        let values = || self.bins.iter().map(|bin| bin.value).filter(|value| value.is_finite());
        let (high, ends) = (values().reduce(f64::max)?, (BOTTOM, TOP));
        match self.by_powers {
            true => {
                let low = values().filter(|&value| value > 0.0).reduce(f64::min)?;
                Scale::by_powers((low / 2.0, high * 1.4), ends)
            }
            false => Scale::from_zero(high * 1.05, ends),
        }
    }

    /// Draws the bars. `None` if there is none above 0.
    pub fn picture(&self) -> Option<Picture> {
        let scale = self.scale()?;
        let mut shapes = vec![
            title((LEFT, 26.0), self.title.as_str(), BLACK),
            text((LEFT, 46.0), self.unit.as_str(), Anchor::Start, GREY),
            text(((LEFT + RIGHT) / 2.0, BOTTOM + 44.0), self.ranges, Anchor::Middle, GREY),
        ];
        self.legend(&mut shapes);
        shapes.extend(scale.grid((LEFT, RIGHT), self.number));
        let width = (RIGHT - LEFT) / self.bins.len() as f64;
        // Each range has its name, or each second one, and so on, so that no two of them touch.
        let longest = self.bins.iter().map(|bin| length(&bin.name)).fold(0.0, f64::max);
        let each = ((longest + 8.0) / width).ceil().max(1.0) as usize;
        for (at, bin) in self.bins.iter().enumerate() {
            let middle = LEFT + (at as f64 + 0.5) * width;
            if bin.value > 0.0 {
                let colour = COLOURS[bin.kind % COLOURS.len()];
                let half = width * FILLED / 2.0;
                shapes.push(rise((middle, half), (BOTTOM, scale.at(bin.value)), colour));
            }
            if at % each == 0 {
                let at = (middle, BOTTOM + 20.0);
                shapes.push(text(at, bin.name.as_str(), Anchor::Middle, GREY));
            }
        }
        shapes.push(line(vec![(LEFT, BOTTOM), (RIGHT, BOTTOM)], GREY));
        Some(Picture { width: WIDTH, height: HEIGHT, shapes })
    }

    /// Draws the name of each kind beside its colour.
    fn legend(&self, shapes: &mut Vec<Shape>) {
        let mut x = LEFT;
        for (at, name) in self.kinds.iter().enumerate() {
            shapes.push(rise((x + 6.0, 6.0), (70.0, 60.0), COLOURS[at % COLOURS.len()]));
            shapes.push(text((x + 17.0, 69.0), *name, Anchor::Start, GREY));
            x += 36.0 + length(name);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::chart::plain;

    fn histogram(values: &[f64], by_powers: bool) -> Histogram<'static> {
        let bin = |(at, &value): (usize, &f64)| Bin { name: format!("b{at}"), value, kind: at % 2 };
        Histogram {
            title: "keys".into(),
            unit: "keys in each range".into(),
            ranges: "first key",
            kinds: &["even", "odd"],
            bins: values.iter().enumerate().map(bin).collect(),
            by_powers,
            number: &plain,
        }
    }

    #[test]
    fn picture__has_a_bar_for_each_figure_above_0() {
        for by_powers in [false, true] {
            let picture = histogram(&[3.0, 0.0, 50.0], by_powers).picture().unwrap();
            let bars = picture.shapes.iter().filter(|s| matches!(s, Shape::Area { .. })).count();
            assert_eq!(bars, 2 + 2, "two bars, two kinds");
            let svg = picture.svg("");
            assert!([">keys<", ">odd<", ">b2<", ">first key<"].iter().all(|w| svg.contains(w)));
        }
    }

    #[test]
    fn picture__names_that_would_touch_are_left_out() {
        let picture = histogram(&[1.0; 200], false).picture().unwrap();
        let is_name =
            |shape: &&Shape| matches!(shape, Shape::Text { text, .. } if text.starts_with('b'));
        let names = picture.shapes.iter().filter(is_name).count();
        assert!((10..60).contains(&names), "{names}");
    }

    #[test]
    fn picture__of_nothing_is_none() {
        for by_powers in [false, true] {
            assert!(histogram(&[], by_powers).picture().is_none());
            assert!(histogram(&[0.0, f64::NAN], by_powers).picture().is_none());
        }
    }
}

//! Bars in groups: panels below each other, whose scale of figures begins at 0.

use crate::chart::{plain, rise, Scale};
use crate::palette::{BLACK, COLOURS, GREY, GRID};
use crate::{length, line, text, title, Anchor, Picture, Shape};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 880.0;
/// Heights: the heading, a panel's bars, and the words around them.
const HEAD: f64 = 76.0;
const TALL: f64 = 150.0;
const WORDS: f64 = 64.0;
/// Share of its group's width that the bars take.
const FILLED: f64 = 0.8;
/// Least length of a line that is drawn.
const LEAST: f64 = 0.1;

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// The figure.
    pub value: f64,
    /// The least and the largest one of its repetitions.
    pub spread: (f64, f64),
}

/// Groups of bars with a scale of their own.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The words above.
    pub title: String,
    /// The name of each group and its bars, in the order of their names; `None` leaves a gap.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

/// Panels of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The words below it, such as the unit.
    pub unit: String,
    /// The names of the bars of a group; each has its colour.
    pub names: Vec<String>,
    /// A figure that has a line.
    pub mark: Option<f64>,
    /// The panels, from above.
    pub panels: Vec<Panel>,
}

impl Bars {
    /// Draws the bars. `None` if there is none above 0.
    pub fn picture(&self) -> Option<Picture> {
        let bars = |panel: &Panel| {
            let all = panel.groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
            let ends = all.flat_map(|bar| [bar.value, bar.spread.1]);
            ends.filter(|value| value.is_finite()).reduce(f64::max)
        };
        let panels: Vec<(&Panel, f64)> = self
            .panels
            .iter()
            .filter_map(|panel| Some((panel, bars(panel).filter(|&high| high > 0.0)?)))
            .collect();
        if panels.is_empty() {
            return None;
        }
        let mut shapes = vec![
            title((LEFT, 26.0), self.title.as_str(), BLACK),
            text((LEFT, 46.0), self.unit.as_str(), Anchor::Start, GREY),
        ];
        let width = self.legend(&mut shapes).max(WIDTH);
        let mut top = HEAD;
        for (panel, high) in &panels {
            self.panel(panel, *high, top + WORDS / 2.0, &mut shapes);
            top += TALL + WORDS;
        }
        Some(Picture { width, height: top, shapes })
    }

    /// Draws the name of each bar beside its colour; returns the end of the last one.
    fn legend(&self, shapes: &mut Vec<Shape>) -> f64 {
        let mut x = LEFT;
        for (at, name) in self.names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let colour = COLOURS[at % COLOURS.len()];
            shapes.push(rise((x + 6.0, 6.0), (67.0, 57.0), colour));
            shapes.push(text((x + 17.0, 66.0), name.as_str(), Anchor::Start, GREY));
            x += 36.0 + length(name);
        }
        x
    }

    fn panel(&self, panel: &Panel, high: f64, top: f64, shapes: &mut Vec<Shape>) {
        let bottom = top + TALL;
        let Some(scale) = Scale::from_zero(high * 1.08, (bottom, top)) else { return };
        shapes.push(text((LEFT, top - 8.0), panel.title.as_str(), Anchor::Start, BLACK));
        shapes.extend(scale.grid((LEFT, RIGHT), &plain));
        let width = (RIGHT - LEFT) / panel.groups.len().max(1) as f64;
        let each = width * FILLED / self.names.len().max(1) as f64;
        for (group, (name, bars)) in panel.groups.iter().enumerate() {
            let from = LEFT + group as f64 * width;
            let middle = (from + width / 2.0, bottom + 18.0);
            shapes.push(text(middle, name.as_str(), Anchor::Middle, GREY));
            for (at, bar) in bars.iter().enumerate() {
                let Some(bar) = bar.filter(|bar| bottom - scale.at(bar.value) >= LEAST) else {
                    continue;
                };
                let x = from + width * (1.0 - FILLED) / 2.0 + (at as f64 + 0.5) * each;
                let colour = COLOURS[at % COLOURS.len()];
                let y = |value| scale.at(value);
                shapes.push(rise((x, each * 0.45), (bottom, y(bar.value)), colour));
                let (least, most) = bar.spread;
                if y(least) - y(most) >= LEAST {
                    // A light border keeps the line visible on dark bars.
                    let points = vec![(x, y(least)), (x, y(most))];
                    let (colour, width) = ([255; 3], 3.0);
                    let border =
                        Shape::Line { points: points.clone(), colour, width, dashed: false };
                    shapes.extend([border, line(points, BLACK)]);
                }
            }
        }
        shapes.push(line(vec![(LEFT, bottom), (RIGHT, bottom)], GRID));
        if let Some(mark) = self.mark.filter(|&mark| mark <= high * 1.08) {
            let y = scale.at(mark);
            let points = vec![(LEFT, y), (RIGHT, y)];
            shapes.push(Shape::Line { points, colour: BLACK, width: 1.0, dashed: true });
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn bars(values: &[f64]) -> Bars {
        let group = |&value: &f64| {
            let bar = Bar { value, spread: (value * 0.9, value * 1.1) };
            let none = Bar { value: 0.0, spread: (0.0, 0.0) };
            (format!("g{value}"), vec![Some(bar), None, Some(none)])
        };
        let panel = Panel { title: "a panel".into(), groups: values.iter().map(group).collect() };
        Bars {
            title: "a title".into(),
            unit: "us".into(),
            names: ["one", "two", "three"].map(String::from).into(),
            mark: Some(1.0),
            panels: vec![panel.clone(), panel],
        }
    }

    #[test]
    fn picture__has_a_bar_with_its_spread_for_each_figure() {
        let picture = bars(&[1.0, 2.0]).picture().unwrap();
        let svg = picture.svg("");
        for word in [">a title<", ">a panel<", ">one<", ">two<", ">g2<"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let area = |shape: &&Shape| matches!(shape, Shape::Area { .. });
        // Two panels of two bars, and three names; a figure of 0 has no bar.
        assert_eq!(picture.shapes.iter().filter(area).count(), 7);
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
        assert!(picture.height > HEAD + 2.0 * TALL);
    }

    #[test]
    fn picture__the_longest_spread_is_whole() {
        let mut bars = bars(&[1.0]);
        bars.panels.truncate(1);
        bars.panels[0].groups[0].1[0] = Some(Bar { value: 1.0, spread: (0.5, 4.0) });
        let (top, bottom) = (HEAD + WORDS / 2.0, HEAD + WORDS / 2.0 + TALL);
        let picture = bars.picture().unwrap();
        let ends = picture.shapes.iter().find_map(|shape| match shape {
            Shape::Line { points, .. } if points[0].0 == points[1].0 => {
                Some((points[0].1, points[1].1))
            }
            _ => None,
        });
        let (least, most) = ends.unwrap();
        assert!(most > top + 1.0, "{most}");
        assert!(((bottom - most) / (bottom - least) - 8.0).abs() < 1e-6, "{least} to {most}");
    }

    #[test]
    fn picture__of_nothing_is_none() {
        assert!(bars(&[]).picture().is_none());
        assert!(bars(&[0.0, f64::NAN]).picture().is_none());
    }
}

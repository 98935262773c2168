//! Pictures of weft's tools: shapes that become an SVG and, with the feature `raster`, a PNG that
//! is made from the SVG.
//!
//! A [`Picture`] has a size in units of its shapes; `y` grows downwards. A [`Chart`] draws curves
//! over sizes, [`Bars`] draw figures in groups, a [`Histogram`] draws a figure for each range, and
//! a [`HeatMap`] draws a matrix. All have a title, the unit below it, names on their axes, and
//! colours that people with any sight tell apart.
//!
//! ```
//! use weft_plot::{line, text, Anchor, Picture};
//!
//! let shapes = vec![
//!     line(vec![(10.0, 90.0), (190.0, 10.0)], [214, 39, 40]),
//!     text((100.0, 95.0), "bytes", Anchor::Middle, [30, 30, 30]),
//! ];
//! let picture = Picture { width: 200.0, height: 100.0, shapes };
//! assert!(picture.svg("a line").contains("<polyline"));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bars;
mod chart;
mod heatmap;
mod histogram;
mod palette;
mod pixels;
#[cfg(feature = "raster")]
mod raster;
mod svg;

pub use bars::{Bar, Bars, Panel};
pub use chart::{plain, Chart, Curve, Point, Scale, Spacing};
pub use heatmap::HeatMap;
pub use histogram::{Bin, Histogram};
pub use palette::{heat, Mark, BLACK, COLOURS, GREY, GRID};
#[cfg(feature = "raster")]
pub use raster::PngError;
pub use svg::{css, escape};

/// Red, green, blue.
pub type Colour = [u8; 3];

/// The side of its point on which a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The point is in the middle of the text.
    Middle,
    /// The text ends at the point.
    End,
}

/// A thing to draw.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A line through points.
    Line {
        /// The points.
        points: Vec<(f64, f64)>,
        /// Its colour.
        colour: Colour,
        /// Its width.
        width: f64,
        /// True if it has gaps.
        dashed: bool,
    },
    /// A filled circle.
    Dot {
        /// Its centre.
        at: (f64, f64),
        /// Its radius.
        radius: f64,
        /// Its colour.
        colour: Colour,
    },
    /// A filled polygon.
    Area {
        /// Its corners.
        points: Vec<(f64, f64)>,
        /// Its colour.
        colour: Colour,
    },
    /// Pixels, each magnified to a rectangle. They cover the shapes below and above them.
    Image {
        /// The upper left corner.
        at: (f64, f64),
        /// Width and height.
        size: (f64, f64),
        /// Pixels in a row.
        columns: usize,
        /// The pixels, row by row from the top.
        pixels: Vec<Colour>,
    },
    /// A text on its base line.
    Text {
        /// A point of the base line.
        at: (f64, f64),
        /// The text.
        text: String,
        /// The side of the point on which the text stands.
        anchor: Anchor,
        /// True for a title.
        large: bool,
        /// Its colour.
        colour: Colour,
    },
}

/// Makes a text of the usual size.
pub fn text(at: (f64, f64), text: impl Into<String>, anchor: Anchor, colour: Colour) -> Shape {
    Shape::Text { at, text: text.into(), anchor, large: false, colour }
}

/// Makes a title, which begins at its point.
pub fn title(at: (f64, f64), text: impl Into<String>, colour: Colour) -> Shape {
    Shape::Text { at, text: text.into(), anchor: Anchor::Start, large: true, colour }
}

/// Makes a mark of a figure.
pub fn mark(mark: Mark, at: (f64, f64), radius: f64, colour: Colour) -> Shape {
    match mark.corners() {
        [] => Shape::Dot { at, radius, colour },
        corners => {
            let place = |&(x, y): &(f64, f64)| (at.0 + x * radius, at.1 + y * radius);
            Shape::Area { points: corners.iter().map(place).collect(), colour }
        }
    }
}

/// Length of a text of the usual size, about.
pub(crate) fn length(text: &str) -> f64 {
    const LETTER: f64 = 7.4;
    text.chars().count() as f64 * LETTER
}

/// Makes a thin line without gaps.
pub fn line(points: Vec<(f64, f64)>, colour: Colour) -> Shape {
    Shape::Line { points, colour, width: 1.0, dashed: false }
}

/// Shapes on white ground.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width in units of the shapes.
    pub width: f64,
    /// Height in units of the shapes.
    pub height: f64,
    /// The shapes, the lowest first.
    pub shapes: Vec<Shape>,
}

impl Picture {
    /// Returns an SVG element, for a file of its own or inside HTML. `label` describes the picture
    /// to people who do not see it.
    pub fn svg(&self, label: &str) -> String {
        svg::draw(self, label)
    }

    /// Returns a PNG file, two pixels for each unit.
    ///
    /// # Errors
    /// The picture has no area, or memory for it is missing.
    #[cfg(feature = "raster")]
    pub fn png(&self) -> Result<Vec<u8>, PngError> {
        raster::render(self)
    }
}

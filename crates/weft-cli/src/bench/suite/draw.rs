//! The shapes of a plot as SVG and as PNG.

use super::plot::{Anchor, Colour, Shape, HEIGHT, WIDTH};
use anyhow::{Context, Result};
use noto_sans_mono_bitmap::{get_raster, get_raster_width, FontWeight, RasterHeight};
use std::fmt::Write;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Stroke,
    StrokeDash, Transform,
};

/// Text that means itself in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A colour as CSS writes it.
pub fn css([r, g, b]: Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// An SVG element, to stand inside HTML.
pub fn svg(shapes: &[Shape], label: &str) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" \
         font-family=\"system-ui, sans-serif\">",
        escape(label)
    );
    for shape in shapes {
        // Writing to a string does not fail.
        let _ = svg_shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn svg_shape(out: &mut String, shape: &Shape) -> std::fmt::Result {
    match shape {
        Shape::Line { points, colour, width, dashed } => {
            let points: Vec<String> =
                points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let dash = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            write!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"{dash}/>",
                points.join(" "),
                css(*colour)
            )
        }
        Shape::Dot { at, radius, colour } => write!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\"/>",
            at.0,
            at.1,
            css(*colour)
        ),
        Shape::Text { at, text, anchor, large, colour } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let font = if *large { "18\" font-weight=\"600" } else { "13" };
            write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{font}\" \
                 fill=\"{}\">{}</text>",
                at.0,
                at.1,
                css(*colour),
                escape(text)
            )
        }
    }
}

/// Pixels for each unit of a plot.
const SCALE: f64 = 2.0;

/// A PNG file of the usual size.
///
/// # Errors
/// It does not fit in memory.
pub fn png(shapes: &[Shape]) -> Result<Vec<u8>> {
    png_of(shapes, (WIDTH, HEIGHT))
}

/// A PNG file of this width and height, in units of the shapes.
///
/// # Errors
/// It does not fit in memory.
pub fn png_of(shapes: &[Shape], (width, height): (f64, f64)) -> Result<Vec<u8>> {
    let (width, height) = ((width * SCALE) as u32, (height * SCALE) as u32);
    let mut map = Pixmap::new(width, height).context("no memory for a plot")?;
    map.fill(Color::WHITE);
    for shape in shapes {
        match shape {
            Shape::Line { points, colour, width, dashed } => {
                png_line(&mut map, points, *colour, *width, *dashed);
            }
            Shape::Dot { at, radius, colour } => {
                let circle = PathBuilder::from_circle(at.0 as f32, at.1 as f32, *radius as f32);
                let Some(circle) = circle else { continue };
                map.fill_path(&circle, &paint(*colour), FillRule::Winding, scale(), None);
            }
            Shape::Text { at, text, anchor, large, colour } => {
                png_text(&mut map, *at, text, *anchor, *large, *colour);
            }
        }
    }
    map.encode_png().context("encoding a plot")
}

fn scale() -> Transform {
    Transform::from_scale(SCALE as f32, SCALE as f32)
}

fn paint([r, g, b]: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, 255);
    paint
}

fn png_line(map: &mut Pixmap, points: &[(f64, f64)], colour: Colour, width: f64, dashed: bool) {
    let mut path = PathBuilder::new();
    for (at, &(x, y)) in points.iter().enumerate() {
        match at {
            0 => path.move_to(x as f32, y as f32),
            _ => path.line_to(x as f32, y as f32),
        }
    }
    // A line of one point has nothing to draw.
    let Some(path) = path.finish() else { return };
    let stroke = Stroke {
        width: width as f32,
        line_cap: LineCap::Butt,
        line_join: LineJoin::Round,
        dash: if dashed { StrokeDash::new(vec![5.0, 4.0], 0.0) } else { None },
        ..Stroke::default()
    };
    map.stroke_path(&path, &paint(colour), &stroke, scale(), None);
}

fn png_text(
    map: &mut Pixmap,
    at: (f64, f64),
    text: &str,
    anchor: Anchor,
    large: bool,
    colour: Colour,
) {
    let size = if large { RasterHeight::Size32 } else { RasterHeight::Size24 };
    let step = get_raster_width(FontWeight::Regular, size);
    // The font has the letters of ASCII.
    let text = text.replace('µ', "u");
    let length = (text.chars().count() * step) as f64;
    let left = at.0 * SCALE
        - match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => length / 2.0,
            Anchor::End => length,
        };
    // A character's box reaches below its base line by about a fifth.
    let top = at.1 * SCALE - size.val() as f64 * 0.8;
    for (number, letter) in text.chars().enumerate() {
        let Some(raster) = get_raster(letter, FontWeight::Regular, size) else { continue };
        for (dy, row) in raster.rows().enumerate() {
            for (dx, &strength) in row.iter().enumerate() {
                let x = left as i64 + (number * step + dx) as i64;
                blend(map, x, top as i64 + dy as i64, strength, colour);
            }
        }
    }
}

fn blend(map: &mut Pixmap, x: i64, y: i64, strength: u8, colour: Colour) {
    let (width, height) = (i64::from(map.width()), i64::from(map.height()));
    if strength == 0 || x < 0 || y < 0 || x >= width || y >= height {
        return;
    }
    let at = (y * width + x) as usize;
    let under = map.pixels()[at];
    let mix = |new: u8, old: u8| {
        let (new, old, part) = (u32::from(new), u32::from(old), u32::from(strength));
        ((new * part + old * (255 - part)) / 255) as u8
    };
    let mixed = PremultipliedColorU8::from_rgba(
        mix(colour[0], under.red()),
        mix(colour[1], under.green()),
        mix(colour[2], under.blue()),
        255,
    );
    map.pixels_mut()[at] = mixed.unwrap_or(under);
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn shapes() -> Vec<Shape> {
        let colour = [200, 0, 0];
        let points = vec![(10.0, 10.0), (100.0, 50.0)];
        vec![
            Shape::Line { points, colour, width: 2.0, dashed: true },
            Shape::Dot { at: (50.0, 50.0), radius: 4.0, colour },
            Shape::Text {
                at: (899.0, 1.0),
                text: "a < b µs".into(),
                anchor: Anchor::Start,
                large: true,
                colour,
            },
        ]
    }

    #[test]
    fn png__is_one_also_with_text_beyond_the_edge() {
        let bytes = png(&shapes()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 1000);
    }

    #[test]
    fn svg__escapes_text() {
        let text = svg(&shapes(), "\"x\"");
        assert!(text.contains("a &lt; b") && text.contains("&quot;x&quot;"), "{text}");
    }
}

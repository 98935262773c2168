//! Shapes as SVG 1.1.

use crate::{pixels, Anchor, Colour, Picture, Shape};
use base64::prelude::{Engine, BASE64_STANDARD};
use std::fmt::Write;

/// Escapes the characters that have a meaning in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a colour in the notation of CSS.
pub fn css([r, g, b]: Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Draws the picture as an element.
pub fn draw(picture: &Picture, label: &str) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{}\" font-family=\"'DejaVu Sans', system-ui, sans-serif\">",
        escape(label)
    );
    for shape in &picture.shapes {
        // Writing to a string does not fail.
        let _ = draw_shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn corners(points: &[(f64, f64)]) -> String {
    let all: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    all.join(" ")
}

fn draw_shape(out: &mut String, shape: &Shape) -> std::fmt::Result {
    match shape {
        Shape::Area { points, colour } => {
            write!(out, "<polygon points=\"{}\" fill=\"{}\"/>", corners(points), css(*colour))
        }
        Shape::Image { at, size, columns, pixels: all } => {
            let png = pixels::png(*columns, all).unwrap_or_default();
            write!(
                out,
                "<image x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" \
                 href=\"data:image/png;base64,{}\"/>",
                at.0,
                at.1,
                size.0,
                size.1,
                BASE64_STANDARD.encode(png)
            )
        }
        // A curve of one point is its dot; readers of SVG warn of a line without a second point.
        Shape::Line { points, .. } if points.len() < 2 => Ok(()),
        Shape::Line { points, colour, width, dashed } => {
            let dash = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            write!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"{dash}/>",
                corners(points),
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
            let font = if *large { "17\" font-weight=\"600" } else { "12" };
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn draw__escapes_text() {
        let shapes = vec![text((9.0, 1.0), "a < b µs", Anchor::Start, [200, 0, 0])];
        let svg = draw(&Picture { width: 10.0, height: 10.0, shapes }, "\"x\"");
        assert!(svg.contains("a &lt; b µs") && svg.contains("&quot;x&quot;"), "{svg}");
    }

    #[test]
    fn draw__no_line_of_one_point() {
        let line = |points| Shape::Line { points, colour: [0; 3], width: 1.0, dashed: false };
        let shapes = vec![line(vec![(1.0, 1.0)]), line(vec![(1.0, 1.0), (2.0, 2.0)])];
        let svg = draw(&Picture { width: 10.0, height: 10.0, shapes }, "lines");
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
    }
}

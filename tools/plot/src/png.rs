//! An SVG as a PNG, with a font of the program's own: a machine may have none.

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::fmt;
use std::sync::Arc;

/// Pixels for each unit.
const SCALE: f32 = 2.0;

/// The reason why there is no PNG.
#[derive(Debug)]
pub struct PngError(String);

impl fmt::Display for PngError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the picture cannot be drawn: {}", self.0)
    }
}

impl std::error::Error for PngError {}

/// Returns the PNG of an SVG of this width and height.
pub fn render(svg: &str, (width, height): (f64, f64)) -> Result<Vec<u8>, PngError> {
    let failed = |e: &dyn fmt::Display| PngError(e.to_string());
    let mut options = Options { font_family: "DejaVu Sans".into(), ..Options::default() };
    let fonts = Arc::make_mut(&mut options.fontdb);
    for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_data(font.to_vec());
    }
    let tree = Tree::from_str(svg, &options).map_err(|e| failed(&e))?;
    let (width, height) = (width as f32 * SCALE, height as f32 * SCALE);
    let map = Pixmap::new(width as u32, height as u32);
    let mut map = map.ok_or_else(|| failed(&"its size is zero or too large"))?;
    map.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut map.as_mut());
    map.encode_png().map_err(|e| failed(&e))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use crate::{text, title, Anchor, Picture, Shape};

    fn png(shapes: Vec<Shape>) -> Vec<u8> {
        Picture { width: 200.0, height: 50.0, shapes }.png().unwrap()
    }

    #[test]
    fn render__letters_leave_marks_also_beyond_the_edge() {
        let empty = png(Vec::new());
        let written = png(vec![
            text((195.0, 20.0), "µs and much more", Anchor::Start, [0, 0, 0]),
            title((5.0, 30.0), "title", [0, 0, 0]),
        ]);
        assert!(empty.starts_with(b"\x89PNG"));
        assert!(written.len() > empty.len() + 200, "{} and {}", written.len(), empty.len());
    }

    #[test]
    fn render__a_picture_without_area_is_an_error() {
        assert!(Picture { width: 0.0, height: 50.0, shapes: Vec::new() }.png().is_err());
    }
}

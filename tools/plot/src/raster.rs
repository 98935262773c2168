//! An SVG as a PNG, with a font of the program's own: a machine may have none.

use crate::{Colour, Picture, Shape};
use resvg::tiny_skia::{Color, FilterQuality, Pixmap, PixmapPaint, Transform};
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

/// Returns pixels as a map of pixels.
fn pixmap(columns: usize, pixels: &[Colour]) -> Option<Pixmap> {
    let rows = pixels.len().checked_div(columns)?;
    let mut map = Pixmap::new(columns.try_into().ok()?, rows.try_into().ok()?)?;
    for (to, [r, g, b]) in map.data_mut().chunks_exact_mut(4).zip(pixels) {
        to.copy_from_slice(&[*r, *g, *b, 255]);
    }
    Some(map)
}

/// Draws the images of a picture. The library that draws the rest has no decoder for them here.
fn images(picture: &Picture, onto: &mut Pixmap) {
    for shape in &picture.shapes {
        let Shape::Image { at, size, columns, pixels } = shape else { continue };
        let Some(map) = pixmap(*columns, pixels) else { continue };
        let scale = |length: f64, count: u32| SCALE * length as f32 / count as f32;
        let (x, y) = (scale(size.0, map.width()), scale(size.1, map.height()));
        let place = Transform::from_row(x, 0.0, 0.0, y, SCALE * at.0 as f32, SCALE * at.1 as f32);
        let paint = PixmapPaint { quality: FilterQuality::Nearest, ..PixmapPaint::default() };
        onto.draw_pixmap(0, 0, map.as_ref(), &paint, place, None);
    }
}

/// Returns the PNG of a picture.
pub fn render(picture: &Picture) -> Result<Vec<u8>, PngError> {
    let failed = |e: &dyn fmt::Display| PngError(e.to_string());
    // The library warns of each image, since it has no decoder.
    let drawn = picture.shapes.iter().filter(|shape| !matches!(shape, Shape::Image { .. }));
    let drawn = Picture { shapes: drawn.cloned().collect(), ..*picture };
    let (svg, (width, height)) = (drawn.svg(""), (picture.width, picture.height));
    let mut options = Options { font_family: "DejaVu Sans".into(), ..Options::default() };
    let fonts = Arc::make_mut(&mut options.fontdb);
    for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_data(font.to_vec());
    }
    let tree = Tree::from_str(&svg, &options).map_err(|e| failed(&e))?;
    let (width, height) = (width as f32 * SCALE, height as f32 * SCALE);
    let map = Pixmap::new(width as u32, height as u32);
    let mut map = map.ok_or_else(|| failed(&"its size is zero or too large"))?;
    map.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut map.as_mut());
    images(picture, &mut map);
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
    fn render__images_stand_in_their_place() {
        let image = |colour| Shape::Image {
            at: (50.0, 10.0),
            size: (100.0, 30.0),
            columns: 2,
            pixels: vec![colour; 4],
        };
        let decode = |bytes: Vec<u8>| resvg::tiny_skia::Pixmap::decode_png(&bytes).unwrap();
        let map = decode(png(vec![image([200, 10, 20])]));
        let at = |x: u32, y: u32| map.pixel(2 * x, 2 * y).map(|p| [p.red(), p.green(), p.blue()]);
        assert_eq!(at(51, 11), Some([200, 10, 20]));
        assert_eq!((at(149, 39), at(49, 11)), (Some([200, 10, 20]), Some([255; 3])));
    }

    #[test]
    fn render__a_picture_without_area_is_an_error() {
        assert!(Picture { width: 0.0, height: 50.0, shapes: Vec::new() }.png().is_err());
    }
}

//! Pixels as a PNG, for the images in an SVG.

use crate::Colour;
use png::{BitDepth, ColorType, Encoder};

/// Returns the PNG of pixels; `None` if they are no rectangle.
pub fn png(columns: usize, pixels: &[Colour]) -> Option<Vec<u8>> {
    let rows = pixels.len().checked_div(columns)?;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, columns.try_into().ok()?, rows.try_into().ok()?);
    encoder.set_color(ColorType::Rgba);
    encoder.set_depth(BitDepth::Eight);
    let bytes: Vec<u8> = pixels.iter().flat_map(|[r, g, b]| [*r, *g, *b, 255]).collect();
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&bytes).ok()?;
    drop(writer);
    Some(file)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn png__of_a_rectangle_only() {
        assert!(png(2, &[[1, 2, 3]; 4]).is_some_and(|file| file.starts_with(b"\x89PNG")));
        assert!(png(0, &[]).is_none() && png(3, &[[1, 2, 3]; 4]).is_none());
    }
}

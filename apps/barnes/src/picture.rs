//! Frames of a film.

use crate::Body;
use std::io::{self, Write};

/// The square that frames show, seen along the third axis. All frames of a film have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The middle.
    pub middle: [f64; 2],
    /// The side.
    pub side: f64,
}

impl View {
    /// Returns the view of some bodies: all but the outermost in forty, with a margin.
    pub fn of(bodies: &[Body]) -> View {
        let ends = |axis: usize| {
            let mut places: Vec<f64> = bodies.iter().map(|body| body.position[axis]).collect();
            places.sort_unstable_by(f64::total_cmp);
            let outside = places.len() / 40;
            let low = places.get(outside).copied().unwrap_or(0.0);
            (low, places.iter().rev().nth(outside).copied().unwrap_or(low))
        };
        let (x, y) = (ends(0), ends(1));
        let side = 1.4 * (x.1 - x.0).max(y.1 - y.0);
        let middle = [(x.0 + x.1) / 2.0, (y.0 + y.1) / 2.0];
        View { middle, side: if side > 0.0 { side } else { 1.0 } }
    }
}

/// Draws bodies as light on black, brighter where they are many: rows of pixels from the top, three
/// bytes each (red, green, blue), `pixels` a side.
pub fn draw(bodies: &[Body], view: &View, pixels: usize) -> Vec<u8> {
    let mut counts = vec![0u32; pixels * pixels];
    for body in bodies {
        let part = |axis: usize| (body.position[axis] - view.middle[axis]) / view.side + 0.5;
        let (x, y) = (part(0) * pixels as f64, (1.0 - part(1)) * pixels as f64);
        let inside = 0.0..pixels as f64;
        if inside.contains(&x) && inside.contains(&y) {
            counts[y as usize * pixels + x as usize] += 1;
        }
    }
    // One body is well visible, and ten are not yet white.
    let light = |count: &u32, keep: f64| (255.0 * (1.0 - keep.powi((*count).min(99) as i32))) as u8;
    counts.iter().flat_map(|n| [light(n, 0.62), light(n, 0.55), light(n, 0.4)]).collect()
}

/// Writes pixels of [`draw`] as a picture in the format PPM, which most programs open, and from
/// which others make films.
///
/// # Errors
/// The writer failed.
///
/// # Panics
/// There are not as many bytes as the pixels need.
pub fn write_ppm(to: &mut dyn Write, pixels: usize, rgb: &[u8]) -> io::Result<()> {
    assert_eq!(rgb.len(), 3 * pixels * pixels, "three bytes a pixel");
    write!(to, "P6\n{pixels} {pixels}\n255\n")?;
    to.write_all(rgb)
}

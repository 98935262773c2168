//! Frames of a film.

use crate::Body;

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

/// Counts the bodies in each of `cells` x `cells` squares of a view, row by row from the top.
pub fn count(bodies: &[Body], view: &View, cells: usize) -> Vec<u32> {
    let mut counts = vec![0u32; cells * cells];
    for body in bodies {
        let part = |axis: usize| (body.position[axis] - view.middle[axis]) / view.side + 0.5;
        let (x, y) = (part(0) * cells as f64, (1.0 - part(1)) * cells as f64);
        let inside = 0.0..cells as f64;
        if inside.contains(&x) && inside.contains(&y) {
            counts[y as usize * cells + x as usize] += 1;
        }
    }
    counts
}

//! Colours that people with any sight tell apart, and the marks that go with them.

use crate::Colour;

/// The colour of titles.
pub const BLACK: Colour = [30, 30, 30];
/// The colour of axes, and of words and numbers beside them.
pub const GREY: Colour = [100, 100, 100];
/// The colour of lines at round numbers.
pub const GRID: Colour = [228, 228, 228];
/// Colours of curves, in order. They are dark enough for words on white.
pub const COLOURS: [Colour; 8] = [
    [155, 25, 3],
    [23, 50, 215],
    [255, 118, 0],
    [13, 132, 119],
    [115, 150, 255],
    [81, 0, 105],
    [219, 155, 174],
    [102, 68, 155],
];

/// The form of the dots of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A circle.
    Circle,
    /// A square on a side.
    Square,
    /// A triangle on a side.
    Triangle,
    /// A square on a corner.
    Diamond,
    /// A triangle on a corner.
    Wedge,
}

/// Corners of the marks, in radii around their centre.
const SQUARE: [(f64, f64); 4] = [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)];
const TRIANGLE: [(f64, f64); 3] = [(0.0, -1.3), (1.15, 0.8), (-1.15, 0.8)];
const DIAMOND: [(f64, f64); 4] = [(0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)];
const WEDGE: [(f64, f64); 3] = [(0.0, 1.3), (1.15, -0.8), (-1.15, -0.8)];

impl Mark {
    /// The marks, in the order of curves. Their number has no factor in common with that of
    /// [`COLOURS`], so that forty curves differ in one of both.
    pub const ALL: [Mark; 5] =
        [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Wedge];

    /// Returns the corners; none of a circle.
    pub(crate) fn corners(self) -> &'static [(f64, f64)] {
        match self {
            Mark::Circle => &[],
            Mark::Square => &SQUARE,
            Mark::Triangle => &TRIANGLE,
            Mark::Diamond => &DIAMOND,
            Mark::Wedge => &WEDGE,
        }
    }
}

/// Eleven samples of the colour map "inferno" (matplotlib, CC0), whose lightness rises steadily, so
/// that equal steps look equal and survive printing in grey.
const INFERNO: [Colour; 11] = [
    [0x00, 0x00, 0x04],
    [0x16, 0x0b, 0x39],
    [0x42, 0x0a, 0x68],
    [0x6a, 0x17, 0x6e],
    [0x93, 0x26, 0x67],
    [0xbc, 0x37, 0x54],
    [0xdd, 0x51, 0x3a],
    [0xf3, 0x78, 0x19],
    [0xfc, 0xa5, 0x0a],
    [0xf6, 0xd7, 0x46],
    [0xfc, 0xff, 0xa4],
];

/// Returns the colour of a share from 0 (dark) to 1 (light). A share outside takes the nearest end,
/// one that is no number the dark end.
pub fn heat(share: f64) -> Colour {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let place = share * (INFERNO.len() - 1) as f64;
    let index = (place as usize).min(INFERNO.len() - 2);
    let part = place - index as f64;
    let mix = |i: usize| {
        let (a, b) = (f64::from(INFERNO[index][i]), f64::from(INFERNO[index + 1][i]));
        (a + (b - a) * part).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Linear light of a colour.
    fn linear(colour: Colour) -> [f64; 3] {
        colour.map(|value| {
            let value = f64::from(value) / 255.0;
            match value <= 0.04045 {
                true => value / 12.92,
                false => ((value + 0.055) / 1.055).powf(2.4),
            }
        })
    }

    fn times(matrix: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
    }

    /// Colours as people without one kind of cones see them (Machado, Oliveira and Fernandes 2009,
    /// severity 1), and as all others do.
    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    /// Place of a colour in the space Oklab (Ottosson 2020), where distances are differences that
    /// people see.
    fn oklab(light: [f64; 3]) -> [f64; 3] {
        let to_cones = [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ];
        let cones = times(to_cones, light).map(|value| value.max(0.0).cbrt());
        let to_lab = [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ];
        times(to_lab, cones)
    }

    #[test]
    fn colours__differ_for_everybody() {
        for sight in SIGHTS {
            let all = COLOURS.map(|colour| oklab(times(sight, linear(colour))));
            for (i, a) in all.iter().enumerate() {
                for (j, b) in all.iter().enumerate().take(i) {
                    let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 0.12, "colours {j} and {i}: {apart:.3}");
                }
            }
        }
    }

    #[test]
    fn heat__lightness_rises_from_end_to_end() {
        let light = |c: Colour| oklab(linear(c))[0];
        let lights: Vec<f64> = (0..=100).map(|i| light(heat(f64::from(i) / 100.0))).collect();
        assert!(lights.windows(2).all(|w| w[1] >= w[0] - 0.004), "{lights:?}");
        assert_eq!(heat(-3.0), INFERNO[0]);
        assert_eq!(heat(7.0), INFERNO[10]);
        assert_eq!(heat(f64::NAN), INFERNO[0]);
    }
}

//! The matrix as a picture: a heat map with a legend, written as PNG.

use crate::Grid;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Larger matrices are averaged down to at most this many pixels a side, smaller ones magnified.
const MAX_SIDE: usize = 1536;
/// Sides below this are magnified by a whole factor.
const MIN_SIDE: usize = 256;
const MARGIN: usize = 16;
const BAR: usize = 24;
/// Room for the legend's labels, right of the bar.
const LABELS: usize = 108;
/// Ticks of the legend, its ends included.
const TICKS: usize = 5;
/// Pixels for one dot of the 3 x 5 digits.
const DOT: usize = 3;

const WHITE: [u8; 3] = [255, 255, 255];
const BLACK: [u8; 3] = [0, 0, 0];

/// Eleven samples of the colour map "inferno" (matplotlib, CC0), whose lightness rises steadily, so
/// that equal steps in temperature look equal and survive printing in grey.
const INFERNO: [[u8; 3]; 11] = [
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

/// Rows of dots of the digits 0 to 9, the point, the minus and `e`; three bits a row.
const GLYPHS: [(u8, [u8; 5]); 13] = [
    (b'0', [0b111, 0b101, 0b101, 0b101, 0b111]),
    (b'1', [0b010, 0b110, 0b010, 0b010, 0b111]),
    (b'2', [0b111, 0b001, 0b111, 0b100, 0b111]),
    (b'3', [0b111, 0b001, 0b111, 0b001, 0b111]),
    (b'4', [0b101, 0b101, 0b111, 0b001, 0b001]),
    (b'5', [0b111, 0b100, 0b111, 0b001, 0b111]),
    (b'6', [0b111, 0b100, 0b111, 0b101, 0b111]),
    (b'7', [0b111, 0b001, 0b010, 0b010, 0b010]),
    (b'8', [0b111, 0b101, 0b111, 0b101, 0b111]),
    (b'9', [0b111, 0b101, 0b111, 0b001, 0b111]),
    (b'.', [0b000, 0b000, 0b000, 0b000, 0b010]),
    (b'-', [0b000, 0b000, 0b111, 0b000, 0b000]),
    (b'e', [0b000, 0b111, 0b110, 0b100, 0b111]),
];

/// Returns the colour of a fraction from 0 (cold) to 1 (hot), as red, green and blue; values
/// outside take the nearest end, values that are no number the cold one.
pub fn colour(fraction: f64) -> [u8; 3] {
    let fraction = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
    let place = fraction * (INFERNO.len() - 1) as f64;
    let index = (place as usize).min(INFERNO.len() - 2);
    let part = place - index as f64;
    let mix = |i: usize| {
        let (a, b) = (f64::from(INFERNO[index][i]), f64::from(INFERNO[index + 1][i]));
        (a + (b - a) * part).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// Writes the heat map of `grid` with its legend to a new file.
///
/// # Errors
/// The file cannot be written.
pub fn write_png(path: &Path, grid: &Grid) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    encode_png(&mut file, grid)?;
    file.flush()
}

/// Encodes the heat map of `grid` with its legend as an 8-bit RGB PNG.
///
/// # Errors
/// When the writer fails, or the matrix is empty.
pub fn encode_png(to: impl Write, grid: &Grid) -> io::Result<()> {
    if grid.values.is_empty() || grid.values.len() != grid.rows * grid.cols {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a matrix without cells"));
    }
    let (low, high) = range(&grid.values);
    let plot = Plot::new(grid);
    let mut canvas = Canvas::new(
        plot.width + 3 * MARGIN + BAR + LABELS,
        // A matrix of few rows still needs room for the labels.
        plot.height.max(TICKS * 8 * DOT) + 2 * MARGIN,
    );
    let span = if high > low { high - low } else { 1.0 };
    for y in 0..plot.height {
        for x in 0..plot.width {
            let fraction = (plot.value(grid, x, y) - low) / span;
            canvas.set(MARGIN + x, MARGIN + y, colour(fraction));
        }
    }
    legend(&mut canvas, 2 * MARGIN + plot.width, low, high);
    let width = u32::try_from(canvas.width).map_err(io::Error::other)?;
    let height = u32::try_from(canvas.height()).map_err(io::Error::other)?;
    let mut encoder = png::Encoder::new(to, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(canvas.pixels.as_flattened())?;
    writer.finish()?;
    Ok(())
}

fn range(values: &[f64]) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.iter().fold(start, |(l, h), v| (l.min(*v), h.max(*v)));
    if low.is_finite() && high.is_finite() {
        (low, high)
    } else {
        (0.0, 1.0)
    }
}

/// The mapping of cells to pixels: one of the factors is 1.
struct Plot {
    width: usize,
    height: usize,
    /// Cells averaged into a pixel, in each direction.
    shrink: usize,
    /// Pixels a side for each cell.
    grow: usize,
}

impl Plot {
    fn new(grid: &Grid) -> Plot {
        let longest = grid.rows.max(grid.cols);
        let shrink = longest.div_ceil(MAX_SIDE);
        let grow = (MIN_SIDE / longest).max(1);
        let pixels = |cells: usize| cells.div_ceil(shrink) * grow;
        Plot { width: pixels(grid.cols), height: pixels(grid.rows), shrink, grow }
    }

    fn value(&self, grid: &Grid, x: usize, y: usize) -> f64 {
        let cells = |pixel: usize, end: usize| {
            let start = pixel / self.grow * self.shrink;
            start..(start + self.shrink).min(end)
        };
        let columns = cells(x, grid.cols);
        let rows = cells(y, grid.rows);
        let count = (rows.len() * columns.len()) as f64;
        let row = |r: usize| &grid.values[r * grid.cols..][columns.clone()];
        rows.map(|r| row(r).iter().sum::<f64>()).sum::<f64>() / count
    }
}

struct Canvas {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, pixels: vec![WHITE; width * height] }
    }

    fn height(&self) -> usize {
        self.pixels.len() / self.width
    }

    fn set(&mut self, x: usize, y: usize, colour: [u8; 3]) {
        if x < self.width && y < self.height() {
            self.pixels[y * self.width + x] = colour;
        }
    }

    /// Writes `text` with its upper left corner at `x`, `y`; characters without a glyph stay blank.
    fn text(&mut self, x: usize, y: usize, text: &str) {
        for (place, byte) in text.bytes().enumerate() {
            let Some((_, rows)) = GLYPHS.iter().find(|(known, _)| *known == byte) else {
                continue;
            };
            for (dy, dx) in (0..5 * DOT).flat_map(|dy| (0..3 * DOT).map(move |dx| (dy, dx))) {
                if rows[dy / DOT] >> (2 - dx / DOT) & 1 == 1 {
                    self.set(x + place * 4 * DOT + dx, y + dy, BLACK);
                }
            }
        }
    }
}

/// Draws the bar from hot (top) to cold with a label at each tick.
fn legend(canvas: &mut Canvas, x: usize, low: f64, high: f64) {
    let length = canvas.height() - 2 * MARGIN;
    for y in 0..length {
        let fraction = 1.0 - y as f64 / (length - 1) as f64;
        for dx in 0..BAR {
            canvas.set(x + dx, MARGIN + y, colour(fraction));
        }
    }
    for tick in 0..TICKS {
        let part = tick as f64 / (TICKS - 1) as f64;
        let y = MARGIN + (part * (length - 1) as f64).round() as usize;
        for dx in 0..MARGIN / 4 {
            canvas.set(x + BAR + dx, y, BLACK);
        }
        let text = label(high + (low - high) * part);
        canvas.text(x + BAR + MARGIN / 2, y - 5 * DOT / 2, &text);
    }
}

/// Formats a value in at most eight characters.
fn label(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(0.01..1e5).contains(&size) {
        format!("{value:.1e}")
    } else if size < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn grid(rows: usize, cols: usize) -> Grid {
        let values = (0..rows * cols).map(|i| i as f64).collect();
        Grid { rows, cols, values }
    }

    fn decode(bytes: &[u8]) -> (usize, usize, Vec<u8>) {
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        (info.width as usize, info.height as usize, pixels)
    }

    #[test]
    fn colour__lightness_rises_from_end_to_end() {
        let luma = |c: [u8; 3]| {
            0.2126 * f64::from(c[0]) + 0.7152 * f64::from(c[1]) + 0.0722 * f64::from(c[2])
        };
        let lights: Vec<f64> = (0..=100).map(|i| luma(colour(f64::from(i) / 100.0))).collect();
        assert!(lights.windows(2).all(|w| w[1] >= w[0] - 1.0), "{lights:?}");
        assert_eq!(colour(-3.0), INFERNO[0]);
        assert_eq!(colour(7.0), INFERNO[10]);
        assert_eq!(colour(f64::NAN), INFERNO[0]);
    }

    #[test]
    fn encode_png__decodes_to_the_plot_inside_its_margins() {
        let mut bytes = Vec::new();
        encode_png(&mut bytes, &grid(64, 32)).unwrap();
        let (width, height, pixels) = decode(&bytes);
        assert_eq!((width, height), (32 * 4 + 3 * MARGIN + BAR + LABELS, 256 + 2 * MARGIN));
        let at = |x: usize, y: usize| &pixels[(y * width + x) * 3..][..3];
        assert_eq!(at(0, 0), WHITE);
        assert_eq!(at(MARGIN, MARGIN), INFERNO[0]);
        assert_eq!(at(MARGIN + 127, MARGIN + 255), INFERNO[10]);
        assert_eq!(at(2 * MARGIN + 128, MARGIN), INFERNO[10], "the legend is hot at the top");
    }

    #[test]
    fn encode_png__shrinks_what_is_large_and_takes_any_shape() {
        for (rows, cols) in [(1, 1), (1, 4000), (4000, 1), (1537, 3)] {
            let mut bytes = Vec::new();
            encode_png(&mut bytes, &grid(rows, cols)).unwrap();
            let (width, height, _) = decode(&bytes);
            assert!(width <= MAX_SIDE + 200 && height <= MAX_SIDE + 200, "{width} x {height}");
        }
    }

    #[test]
    fn encode_png__flat_or_hostile_values_do_not_panic() {
        for value in [0.0, f64::NAN, f64::INFINITY] {
            let flat = Grid { rows: 4, cols: 4, values: vec![value; 16] };
            encode_png(&mut Vec::new(), &flat).unwrap();
        }
        let empty = Grid { rows: 0, cols: 0, values: Vec::new() };
        assert!(encode_png(&mut Vec::new(), &empty).is_err());
    }

    #[test]
    fn label__fits_the_legend() {
        for value in [0.0, 1.5, 100.0, 99999.9, -123456.0, 1e-7, -1e300] {
            assert!(label(value).len() * 4 * DOT <= LABELS - MARGIN / 2, "{}", label(value));
        }
        assert_eq!(label(100.0), "100.0");
    }
}

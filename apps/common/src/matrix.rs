//! Dense matrices, and files in the Matrix Market format.

use crate::lines::shortened;
use crate::{Lines, ReadError, SplitMix};
use std::io::{self, BufRead, Write};

/// Most values of a matrix: as many as an address space holds.
const MOST: usize = isize::MAX as usize / size_of::<f64>();

/// A dense matrix of doubles.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// The values, column after column: `rows * cols` of them.
    pub values: Vec<f64>,
}

impl Matrix {
    /// Makes a matrix of zeros.
    pub fn zero(rows: usize, cols: usize) -> Matrix {
        Matrix { rows, cols, values: vec![0.0; rows * cols] }
    }

    /// Makes a matrix of values uniform between -1 and 1. Column `j` comes from stream `j` of the
    /// seed.
    pub fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
        let mut matrix = Matrix::zero(rows, cols);
        for j in 0..cols {
            let mut random = SplitMix::stream(seed, j as u64);
            matrix.col_mut(j).fill_with(|| 2.0 * random.unit() - 1.0);
        }
        matrix
    }

    /// Returns the value in row `i`, column `j`.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.values[j * self.rows + i]
    }

    /// Sets the value in row `i`, column `j`.
    pub fn set(&mut self, i: usize, j: usize, value: f64) {
        self.values[j * self.rows + i] = value;
    }

    /// Returns column `j`.
    pub fn col(&self, j: usize) -> &[f64] {
        &self.values[j * self.rows..][..self.rows]
    }

    /// Returns column `j` to be written.
    pub fn col_mut(&mut self, j: usize) -> &mut [f64] {
        &mut self.values[j * self.rows..][..self.rows]
    }

    /// Returns the square root of the sum of squares of all values, scaled so that it does not
    /// overflow before it must.
    pub fn frobenius(&self) -> f64 {
        let largest = self.values.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        if largest == 0.0 || !largest.is_finite() {
            return largest;
        }
        let squares = self.values.iter().map(|v| (v / largest) * (v / largest));
        largest * squares.sum::<f64>().sqrt()
    }

    /// Reads a file in the Matrix Market format: `coordinate` or `array`; `real`, `integer` or
    /// `pattern` (values 1); `general`, `symmetric` or `skew-symmetric`. Values listed twice add
    /// up.
    ///
    /// # Errors
    /// The first line that is invalid, with its number and the reason. A matrix with more than
    /// `most` values is refused.
    pub fn read_market(input: &mut dyn BufRead, most: usize) -> Result<Matrix, ReadError> {
        Matrix::read_market_if(input, &|rows, cols| match rows.saturating_mul(cols) > most {
            true => Err(format!("{rows} x {cols} values are more than the limit of {most}")),
            false => Ok(()),
        })
    }

    /// Does what [`read_market`](Matrix::read_market) does. `accept` gets the numbers of rows and
    /// columns before the values are read, and gives the reason to refuse them, which becomes a
    /// fault of the line with the size.
    ///
    /// # Errors
    /// The first line that is invalid, with its number and the reason.
    pub fn read_market_if(
        input: &mut dyn BufRead,
        accept: &dyn Fn(usize, usize) -> Result<(), String>,
    ) -> Result<Matrix, ReadError> {
        let mut lines = Lines::new(input);
        let header = match lines.next_line()? {
            Some((_, text)) => {
                Header::parse(text).map_err(|reason| ReadError { line: 1, reason })?
            }
            None => return Err(lines.fault("the input is empty")),
        };
        let (line, size) = lines.next_content('%')?.ok_or_else(|| lines.fault("no size line"))?;
        let (rows, cols, entries) = header.size(line, &size, accept)?;
        let mut matrix = Matrix::zero(rows, cols);
        let mut array = header.places(rows, cols);
        for found in 0..entries {
            let Some((line, text)) = lines.next_content('%')? else {
                return Err(lines.fault(format!("{found} values, but the size says {entries}")));
            };
            let (i, j, value) = match header.coordinate {
                true => header.entry(line, &text, rows, cols)?,
                false => {
                    let (i, j) = array.next().expect("as many places as entries");
                    (i, j, number(line, &text)?)
                }
            };
            header.store(&mut matrix, i, j, value);
        }
        match lines.next_content('%')? {
            None => Ok(matrix),
            Some((line, _)) => {
                let reason = format!("more than the {entries} values that the size says");
                Err(ReadError { line, reason })
            }
        }
    }

    /// Writes a file in the Matrix Market format, `array real general`. Reading it gives the same
    /// bits.
    ///
    /// # Errors
    /// The writer failed. It is not buffered here.
    pub fn write_market(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "%%MatrixMarket matrix array real general")?;
        writeln!(to, "{} {}", self.rows, self.cols)?;
        self.values.iter().try_for_each(|value| writeln!(to, "{value:e}"))
    }
}

/// The kinds of symmetry.
#[derive(Clone, Copy, PartialEq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

/// The first line of a file.
struct Header {
    coordinate: bool,
    pattern: bool,
    symmetry: Symmetry,
}

impl Header {
    fn parse(text: &str) -> Result<Header, String> {
        let lower = text.to_ascii_lowercase();
        let fields: Vec<&str> = lower.split_ascii_whitespace().collect();
        let ["%%matrixmarket", "matrix", format, kind, symmetry] = fields[..] else {
            return Err("expected `%%MatrixMarket matrix FORMAT KIND SYMMETRY`".to_string());
        };
        let coordinate = match format {
            "coordinate" => true,
            "array" => false,
            other => return Err(format!("`{}` is not coordinate or array", shortened(other))),
        };
        let pattern = match kind {
            "real" | "integer" | "double" => false,
            "pattern" if coordinate => true,
            "complex" => return Err("complex matrices are not taken".to_string()),
            other => return Err(format!("`{}` is not real, integer or pattern", shortened(other))),
        };
        let symmetry = match symmetry {
            "general" => Symmetry::General,
            "symmetric" => Symmetry::Symmetric,
            "skew-symmetric" => Symmetry::Skew,
            other => {
                let other = shortened(other);
                return Err(format!("`{other}` is not general, symmetric or skew-symmetric"));
            }
        };
        Ok(Header { coordinate, pattern, symmetry })
    }

    /// Returns rows, columns and the number of values that follow.
    fn size(
        &self,
        line: u64,
        text: &str,
        accept: &dyn Fn(usize, usize) -> Result<(), String>,
    ) -> Result<(usize, usize, usize), ReadError> {
        let fault = |reason: String| ReadError { line, reason };
        let expected = if self.coordinate { "ROWS COLUMNS ENTRIES" } else { "ROWS COLUMNS" };
        let fields: Result<Vec<usize>, _> = text.split_ascii_whitespace().map(str::parse).collect();
        let fields = fields.map_err(|_| fault(format!("expected `{expected}`")))?;
        let (rows, cols, entries) = match fields[..] {
            [rows, cols, entries] if self.coordinate => (rows, cols, Some(entries)),
            [rows, cols] if !self.coordinate => (rows, cols, None),
            _ => return Err(fault(format!("expected `{expected}`"))),
        };
        if self.symmetry != Symmetry::General && rows != cols {
            return Err(fault(format!("a symmetric matrix is square, not {rows} x {cols}")));
        }
        accept(rows, cols).map_err(fault)?;
        if rows.checked_mul(cols).is_none_or(|values| values > MOST) {
            return Err(fault(format!("{rows} x {cols} values are more than the limit of {MOST}")));
        }
        let in_array = match self.symmetry {
            Symmetry::General => rows * cols,
            // The matrix is square, and the limit is an eighth of the largest number.
            Symmetry::Symmetric => rows * (rows + 1) / 2,
            Symmetry::Skew => rows * rows.saturating_sub(1) / 2,
        };
        Ok((rows, cols, entries.unwrap_or(in_array)))
    }

    /// Returns the places of an array's values, in the file's order.
    fn places(&self, rows: usize, cols: usize) -> impl Iterator<Item = (usize, usize)> {
        let symmetry = self.symmetry;
        (0..cols).flat_map(move |j| {
            let first = match symmetry {
                Symmetry::General => 0,
                Symmetry::Symmetric => j,
                Symmetry::Skew => j + 1,
            };
            (first..rows).map(move |i| (i, j))
        })
    }

    fn entry(
        &self,
        line: u64,
        text: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(usize, usize, f64), ReadError> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (i, j, value) = match fields[..] {
            [i, j] if self.pattern => (i, j, 1.0),
            [i, j, value] if !self.pattern => (i, j, number(line, value)?),
            _ => {
                let expected = if self.pattern { "ROW COLUMN" } else { "ROW COLUMN VALUE" };
                return Err(ReadError { line, reason: format!("expected `{expected}`") });
            }
        };
        let place = |field: &str, count: usize, name: &str| {
            let inside = field.parse::<usize>().ok().filter(|at| (1..=count).contains(at));
            let expected = format!("a {name} from 1 to {count}");
            inside.map(|at| at - 1).ok_or_else(|| ReadError::field(line, field, &expected))
        };
        let (i, j) = (place(i, rows, "row")?, place(j, cols, "column")?);
        if self.symmetry == Symmetry::Skew && i == j {
            let reason = "a skew-symmetric matrix has no value on its diagonal".to_string();
            return Err(ReadError { line, reason });
        }
        Ok((i, j, value))
    }

    fn store(&self, matrix: &mut Matrix, i: usize, j: usize, value: f64) {
        matrix.set(i, j, matrix.at(i, j) + value);
        match self.symmetry {
            Symmetry::Symmetric if i != j => matrix.set(j, i, matrix.at(j, i) + value),
            Symmetry::Skew => matrix.set(j, i, matrix.at(j, i) - value),
            _ => {}
        }
    }
}

/// Parses a finite number.
fn number(line: u64, text: &str) -> Result<f64, ReadError> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| ReadError::field(line, text, "a finite number"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Matrix, String> {
        Matrix::read_market(&mut text.as_bytes(), 100).map_err(|e| e.to_string())
    }

    #[test]
    fn read_market__every_form() {
        let general = "%%MatrixMarket matrix coordinate real general\n% note\n\n2 3 3\n\
                       1 1 5\n2 3 -1e2\n2 3 1\n";
        assert_eq!(read(general).unwrap().values, [5.0, 0.0, 0.0, 0.0, 0.0, -99.0]);
        let pattern = "%%matrixmarket MATRIX coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n";
        assert_eq!(read(pattern).unwrap().values, [1.0, 1.0, 1.0, 0.0]);
        let array = "%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n";
        assert_eq!(read(array).unwrap().values, [1.0, 2.0, 2.0, 3.0]);
        let skew = "%%MatrixMarket matrix array real skew-symmetric\n2 2\n4\n";
        assert_eq!(read(skew).unwrap().values, [0.0, 4.0, -4.0, 0.0]);
    }

    #[test]
    fn read_market__faults_have_line_and_reason() {
        let head = "%%MatrixMarket matrix coordinate real general\n";
        let cases = [
            (String::new(), "line 1: the input is empty"),
            ("1 2".into(), "line 1: expected `%%MatrixMarket matrix FORMAT KIND SYMMETRY`"),
            (head.replace("real", "complex"), "line 1: complex matrices are not taken"),
            (head.into(), "line 2: no size line"),
            (format!("{head}2 2\n"), "line 2: expected `ROWS COLUMNS ENTRIES`"),
            (format!("{head}99 99 1\n"), "line 2: 99 x 99 values are more than the limit of 100"),
            (format!("{head}2 2 1\n3 1 5\n"), "line 3: `3` is not a row from 1 to 2"),
            (format!("{head}2 2 1\n1 0 5\n"), "line 3: `0` is not a column from 1 to 2"),
            (format!("{head}2 2 1\n1 1\n"), "line 3: expected `ROW COLUMN VALUE`"),
            (format!("{head}2 2 1\n1 1 nan\n"), "line 3: `nan` is not a finite number"),
            (format!("{head}2 2 2\n1 1 5\n"), "line 4: 1 values, but the size says 2"),
            (format!("{head}2 2 0\n1 1 5\n"), "line 3: more than the 0 values that the size says"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&text).unwrap_err(), expected);
        }
    }

    #[test]
    fn read_market__mutated_files_are_read_or_refused() {
        let texts = [
            "%%MatrixMarket matrix coordinate real general\n2 3 3\n1 1 5\n2 3 -1e2\n2 3 1\n",
            "%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n",
            "%%MatrixMarket matrix array real skew-symmetric\n3 3\n4\n5\n6\n",
        ];
        let mut random = SplitMix::new(1);
        for round in 0..3000 {
            let mut bytes = texts[round % 3].as_bytes().to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u32) as usize;
                match random.below(3) {
                    0 => bytes[at] = b"0123456789- \n%e"[random.below(15) as usize],
                    1 => bytes.insert(at, b'0' + random.below(10) as u8),
                    _ => bytes.truncate(at + 1),
                }
            }
            if let Err(error) = Matrix::read_market(&mut &bytes[..], 100) {
                let lines = bytes.split(|byte| *byte == b'\n').count() as u64 + 1;
                assert!((1..=lines).contains(&error.line), "{error}");
            }
        }
        let wide = "%%MatrixMarket matrix array real general\n9223372036854775807 0\n";
        assert_eq!(read(wide).unwrap().values, []);
    }

    #[test]
    fn write_market__reads_back_to_the_same_bits() {
        let matrix = Matrix::random(5, 3, 4);
        let mut text = Vec::new();
        matrix.write_market(&mut text).unwrap();
        assert_eq!(Matrix::read_market(&mut &text[..], 15).unwrap(), matrix);
        let norm = matrix.values.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((matrix.frobenius() - norm).abs() < 1e-12);
    }
}

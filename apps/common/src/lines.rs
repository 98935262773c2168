//! Lines of input, with faults that name them.

use std::fmt;
use std::io::{BufRead, Read};

/// Longest line accepted, in bytes, so that a file without line ends is not read into memory whole.
pub const MAX_LINE: u64 = 64 << 10;

/// The place and reason of a failed reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The line, from 1.
    pub line: u64,
    /// The fault in it.
    pub reason: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ReadError {}

/// A reader of lines that counts them.
pub struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: u64,
    bytes: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Makes a reader of an input's lines.
    pub fn new(input: &'a mut dyn BufRead) -> Lines<'a> {
        Lines { input, line: 0, bytes: Vec::new() }
    }

    /// Returns the number of the line read last, from 1, and its text without the line end; `None`
    /// at the end.
    ///
    /// # Errors
    /// The input fails, a line is longer than [`MAX_LINE`], or it is not UTF-8.
    pub fn next_line(&mut self) -> Result<Option<(u64, &str)>, ReadError> {
        self.line += 1;
        self.bytes.clear();
        let mut limited = Read::take(&mut *self.input, MAX_LINE + 1);
        let read = limited.read_until(b'\n', &mut self.bytes);
        if read.map_err(|e| self.fault(e.to_string()))? == 0 {
            return Ok(None);
        }
        if self.bytes.len() as u64 > MAX_LINE {
            return Err(self.fault(format!("longer than {MAX_LINE} bytes")));
        }
        let line = self.line;
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some((line, text.trim_end_matches(['\n', '\r'])))),
            Err(_) => Err(ReadError { line, reason: "not UTF-8 text".to_string() }),
        }
    }

    /// Returns a fault at the line read last, or behind the last line.
    pub fn fault(&self, reason: impl Into<String>) -> ReadError {
        ReadError { line: self.line, reason: reason.into() }
    }

    /// Returns the next line with something on it, without blanks around it and without what a
    /// `comment` sign begins.
    ///
    /// # Errors
    /// Returns the errors of [`Lines::next_line`].
    pub fn next_content(&mut self, comment: char) -> Result<Option<(u64, String)>, ReadError> {
        while let Some((line, text)) = self.next_line()? {
            let content = text.split(comment).next().unwrap_or_default().trim();
            if !content.is_empty() {
                return Ok(Some((line, content.to_string())));
            }
        }
        Ok(None)
    }
}

/// Returns at most 40 characters of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

impl ReadError {
    /// Makes the fault of a field that is not what it should be.
    pub fn field(line: u64, field: &str, expected: &str) -> ReadError {
        ReadError { line, reason: format!("`{}` is not {expected}", shortened(field)) }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn next_content__skips_comments_and_counts_every_line() {
        let mut input = "# head\r\n\n a b # tail\r\nlast".as_bytes();
        let mut lines = Lines::new(&mut input);
        assert_eq!(lines.next_content('#').unwrap(), Some((3, "a b".to_string())));
        assert_eq!(lines.next_content('#').unwrap(), Some((4, "last".to_string())));
        assert_eq!(lines.next_content('#').unwrap(), None);
        assert_eq!(lines.fault("short").to_string(), "line 5: short");
    }

    #[test]
    fn next_line__refuses_long_lines_and_bytes_that_are_no_text() {
        let mut long = vec![b'1'; MAX_LINE as usize + 2];
        long[1] = b'\n';
        let mut input = &long[..];
        let mut lines = Lines::new(&mut input);
        assert!(lines.next_line().unwrap().is_some());
        assert_eq!(lines.next_line().unwrap().map(|(line, _)| line), Some(2));
        let whole = vec![b'1'; MAX_LINE as usize + 1];
        let error = Lines::new(&mut &whole[..]).next_line().unwrap_err();
        assert_eq!(error.to_string(), format!("line 1: longer than {MAX_LINE} bytes"));
        let error = Lines::new(&mut &[0xff, b'\n'][..]).next_line().unwrap_err();
        assert_eq!(error.to_string(), "line 1: not UTF-8 text");
    }
}

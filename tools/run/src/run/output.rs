//! Output of the ranks: cut into whole lines at the proxy, written out by the launcher.

use std::io::{self, Write};

/// Longest line kept whole, in bytes.
const MAX_LINE: usize = 64 * 1024;

/// Holds back the unfinished last line of a stream.
#[derive(Default)]
pub struct Lines {
    held: Vec<u8>,
}

impl Lines {
    /// Takes bytes and returns those up to the last newline. A line longer than the bound comes out
    /// in pieces.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.held);
        out.extend_from_slice(bytes);
        let whole = out.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        if out.len() - whole <= MAX_LINE {
            self.held = out.split_off(whole);
        }
        out
    }

    /// Returns the remaining bytes at the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// One of the launcher's own outputs.
pub struct Sink<W> {
    to: W,
    tag: bool,
    /// The rank whose last line is unfinished.
    open: Option<usize>,
}

impl<W: Write> Sink<W> {
    /// Writes to `to`, with `[rank] ` before each line if `tag`.
    pub fn new(to: W, tag: bool) -> Self {
        Sink { to, tag, open: None }
    }

    /// Writes bytes of a rank. A line that another rank left unfinished is ended first.
    pub fn write(&mut self, rank: usize, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut out = Vec::with_capacity(bytes.len() + 16);
        if self.open.is_some_and(|open| open != rank) {
            out.push(b'\n');
            self.open = None;
        }
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            if self.tag && self.open.is_none() {
                write!(out, "[{rank}] ")?;
            }
            out.extend_from_slice(line);
            self.open = if line.ends_with(b"\n") { None } else { Some(rank) };
        }
        self.to.write_all(&out)?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn take__holds_back_the_unfinished_line() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"ab"), b"");
        assert_eq!(lines.take(b"c\nd\ne"), b"abc\nd\n");
        assert_eq!(lines.rest(), b"e");
        let long = vec![b'x'; MAX_LINE + 1];
        assert_eq!(lines.take(&long), long);
        assert_eq!(lines.rest(), b"");
    }

    #[test]
    fn write__never_mixes_two_ranks_in_a_line() {
        let mut out = Vec::new();
        let mut sink = Sink::new(&mut out, true);
        sink.write(1, b"a\nb").unwrap();
        sink.write(1, b"c\n").unwrap();
        sink.write(0, b"open").unwrap();
        sink.write(2, b"x\n").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "[1] a\n[1] bc\n[0] open\n[2] x\n");
    }
}

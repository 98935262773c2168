//! The lines of the PMI-1 simple wire protocol, as MPICH's Hydra and `weft run` speak it.
//!
//! A line is `cmd=NAME key=value ...` and a newline. A value ends at the next space that no
//! backslash precedes. Backslashes stay in the value: clients of some PMI libraries put any
//! character and get it as it was, others write `\ ` and read that back. Both sides of a connection
//! use this module.

use std::fmt;

/// Longest line either side accepts, in bytes, newline excluded.
pub const MAX_LINE: usize = 64 * 1024;

/// Most `key=value` pairs of a line.
const MAX_PAIRS: usize = 64;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    cmd: String,
    pairs: Vec<(String, String)>,
}

/// The reason why a line was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// Longer than [`MAX_LINE`].
    TooLong,
    /// Not UTF-8.
    NotText,
    /// The line does not start with `cmd=` and a name.
    NoCommand,
    /// Something between two spaces is not a name or `name=value`.
    BadPair,
    /// More pairs than any command has.
    TooManyPairs,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LineError::TooLong => "line too long",
            LineError::NotText => "line is not UTF-8",
            LineError::NoCommand => "line does not start with cmd=",
            LineError::BadPair => "malformed key=value pair",
            LineError::TooManyPairs => "too many pairs in a line",
        })
    }
}

weft_core::readable!(LineError);

impl std::error::Error for LineError {}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/')
}

/// Splits `text` at the first space that no backslash precedes.
fn take_value(text: &str) -> (String, &str) {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ' ' => return (text[..at].to_owned(), &text[at..]),
            '\\' => _ = chars.next(),
            _ => {}
        }
    }
    (text.to_owned(), "")
}

impl Line {
    /// Makes a line with this command and no pairs.
    pub fn new(cmd: &str) -> Self {
        Line { cmd: cmd.to_owned(), pairs: Vec::new() }
    }

    /// Adds a pair to the line. A space or newline in `value` becomes a space behind a backslash.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.pairs.push((key.to_owned(), value.to_string()));
        self
    }

    /// Parses the bytes of one line, newline excluded.
    ///
    /// # Errors
    /// [`LineError`] says what is wrong; no part of the line is used then.
    pub fn parse(bytes: &[u8]) -> Result<Self, LineError> {
        if bytes.len() > MAX_LINE {
            return Err(LineError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| LineError::NotText)?;
        // A space at the end may belong to a backslash before it.
        let mut rest = text.trim_end_matches(['\r', '\0']);
        let mut line = Line { cmd: String::new(), pairs: Vec::new() };
        let mut first = true;
        loop {
            rest = rest.trim_start_matches(' ');
            if rest.is_empty() {
                break;
            }
            let end = rest.bytes().position(|b| !is_name(b)).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            if key.is_empty() {
                return Err(if first { LineError::NoCommand } else { LineError::BadPair });
            }
            let (value, after) = match after.strip_prefix('=') {
                Some(after) => take_value(after),
                None if after.is_empty() || after.starts_with(' ') => (String::new(), after),
                None => return Err(LineError::BadPair),
            };
            rest = after;
            if first {
                if key != "cmd" || value.is_empty() {
                    return Err(LineError::NoCommand);
                }
                line.cmd = value;
                first = false;
            } else if line.pairs.len() == MAX_PAIRS {
                return Err(LineError::TooManyPairs);
            } else {
                line.pairs.push((key.to_owned(), value));
            }
        }
        if first {
            return Err(LineError::NoCommand);
        }
        Ok(line)
    }

    /// Returns the command.
    pub fn cmd(&self) -> &str {
        &self.cmd
    }

    /// Returns the value of the first pair of this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns the value of the first pair of this key, if it is a number.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }
}

/// Writes the line in its wire form, newline excluded.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs.iter().map(|(key, value)| (key.as_str(), value));
        for (i, (key, value)) in std::iter::once(("cmd", &self.cmd)).chain(pairs).enumerate() {
            write!(f, "{}{key}=", if i == 0 { "" } else { " " })?;
            let mut chars = value.chars();
            while let Some(c) = chars.next() {
                match c {
                    ' ' | '\n' => f.write_str("\\ ")?,
                    '\\' => write!(f, "\\{}", chars.next().map_or(String::new(), String::from))?,
                    _ => write!(f, "{c}")?,
                }
            }
        }
        Ok(())
    }
}

/// Collects bytes of a stream and hands out whole lines; holds at most [`MAX_LINE`] bytes of an
/// unfinished one.
#[derive(Default, Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
}

impl LineBuffer {
    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes that are no whole line yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the next whole line, newline excluded. `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`LineError::TooLong`] when the unfinished line exceeds [`MAX_LINE`].
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        match self.bytes.iter().position(|&b| b == b'\n') {
            Some(at) => {
                let mut line: Vec<u8> = self.bytes.drain(..=at).collect();
                line.pop();
                Ok(Some(line))
            }
            None if self.bytes.len() > MAX_LINE => Err(LineError::TooLong),
            None => Ok(None),
        }
    }
}

/// Parses bytes as lines from the other side: no call may panic, and a parsed line must stay the
/// same when it is written and parsed again. For fuzzing.
///
/// # Panics
/// A line changes when it is written and parsed again.
pub fn check(bytes: &[u8]) {
    let mut buffer = LineBuffer::default();
    for part in bytes.chunks(7) {
        buffer.extend(part);
        while let Ok(Some(raw)) = buffer.next_line() {
            assert!(!raw.contains(&b'\n'));
            check_line(&raw);
        }
    }
    check_line(&buffer.bytes);
}

fn check_line(raw: &[u8]) {
    if let Some(bytes) = std::str::from_utf8(raw).ok().and_then(from_hex) {
        assert!(to_hex(&bytes).as_bytes().eq_ignore_ascii_case(raw));
    }
    let Ok(line) = Line::parse(raw) else { return };
    assert!(!line.cmd.is_empty() && line.pairs.len() <= MAX_PAIRS);
    let text = line.to_string();
    // Line ends of other dialects are not part of the last value.
    if text.len() <= MAX_LINE && !text.ends_with(['\r', '\0']) {
        assert_eq!(Line::parse(text.as_bytes()), Ok(line), "{text:?}");
    }
}

/// Returns the lower-case hexadecimal digits of `bytes`.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Returns the bytes of hexadecimal digits. `None` if `text` holds anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn parse__reads_command_and_pairs() {
        let line = Line::parse(b"cmd=init pmi_version=1 pmi_subversion=1").unwrap();
        assert_eq!(line.cmd(), "init");
        assert_eq!(line.number::<u32>("pmi_version"), Some(1));
        assert_eq!(line.get("absent"), None);
    }

    #[test]
    fn parse__tolerates_spaces_flags_and_trailing_nul() {
        let line = Line::parse(b"cmd=put   flag  key=a  value=(vector,(0,1,4)) \0").unwrap();
        assert_eq!(line.get("flag"), Some(""));
        assert_eq!(line.get("value"), Some("(vector,(0,1,4))"));
    }

    #[test]
    fn display__gives_a_value_back_as_a_client_has_put_it() {
        let all: String = ('!'..='u').collect();
        for value in [&all, "a\\ b", "\\\\", "c\\"] {
            let said = format!("cmd=put key=a value={value}");
            let line = Line::parse(said.as_bytes()).unwrap();
            assert_eq!((line.get("value"), line.to_string()), (Some(value), said.clone()));
        }
    }

    #[test]
    fn parse__refuses_hostile_lines() {
        for (bytes, want) in [
            (&b""[..], LineError::NoCommand),
            (b"   ", LineError::NoCommand),
            (b"=", LineError::NoCommand),
            (b"cmd", LineError::NoCommand),
            (b"cmd=", LineError::NoCommand),
            (b"mcmd=spawn", LineError::NoCommand),
            (b"rc=0 cmd=init", LineError::NoCommand),
            (b"cmd=put =x", LineError::BadPair),
            (b"cmd=put a;b=x", LineError::BadPair),
            (b"cmd=put \xff=x", LineError::NotText),
        ] {
            assert_eq!(Line::parse(bytes), Err(want), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn parse__bounds_length_and_pairs() {
        let long = [b"cmd=put value=".to_vec(), vec![b'x'; MAX_LINE]].concat();
        assert_eq!(Line::parse(&long), Err(LineError::TooLong));
        let many = format!("cmd=put{}", " a=b".repeat(MAX_PAIRS + 1));
        assert_eq!(Line::parse(many.as_bytes()), Err(LineError::TooManyPairs));
    }

    #[test]
    fn parse__survives_every_short_byte_string() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let _ = Line::parse(&[b'c', b'm', b'd', b'=', a, b]);
                let _ = Line::parse(&[a, b]);
            }
        }
    }

    #[test]
    fn display__keeps_a_value_with_spaces_together() {
        for line in [
            Line::new("abort").with("exitcode", 3).with("message", r"a \ b=c d"),
            Line::new("a command").with("message", "ends in a space "),
        ] {
            let said = line.to_string();
            let read = Line::parse(said.as_bytes()).unwrap();
            assert_eq!((read.to_string(), read.pairs.len()), (said, line.pairs.len()));
        }
        let text = Line::new("x").with("m", "two\nlines").to_string();
        assert!(!text.contains('\n'));
    }

    #[test]
    fn next_line__joins_fragments_and_bounds_them() {
        let mut buffer = LineBuffer::default();
        buffer.extend(b"cmd=a\ncmd");
        assert_eq!(buffer.next_line(), Ok(Some(b"cmd=a".to_vec())));
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.extend(b"=b\n");
        assert_eq!(buffer.next_line(), Ok(Some(b"cmd=b".to_vec())));
        buffer.extend(&vec![b'x'; MAX_LINE + 1]);
        assert_eq!(buffer.next_line(), Err(LineError::TooLong));
    }

    #[test]
    fn hex__round_trips_and_refuses_junk() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        for bad in ["a", "zz", "+1", "a "] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}

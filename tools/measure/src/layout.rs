//! Text in columns and paragraphs: as wide as it is, or within the width of a terminal.

use console::Term;

/// Spaces between two columns.
const GAP: usize = 2;
/// Least width of the last column of text beside others, in which its words are broken into lines.
const LEAST: usize = 24;
/// Least width of a text, whatever the width of the terminal.
const NARROW: usize = 8;

/// Returns the width of the terminal that standard output goes to; `None` if it is none.
pub fn width() -> Option<usize> {
    let term = Term::stdout();
    term.is_term().then(|| usize::from(term.size().1))
}

/// Breaks a text into lines of at most `width` characters, between words where that is possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + rest.len() > width {
            lines.push(String::new());
        }
        while !rest.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            let room = width.saturating_sub(used + gap).max(usize::from(used == 0));
            if gap == 1 && room > 0 {
                line.push(' ');
            }
            line.extend(rest.drain(..room.min(rest.len())));
            if !rest.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines
}

/// Returns `text` behind `head`. The words that do not fit within the width stand in further lines
/// below the text.
pub fn hanging(head: &str, text: &str, width: Option<usize>) -> String {
    let indent = head.chars().count();
    let lines = match width {
        Some(width) => wrap(text, width.saturating_sub(indent).max(NARROW)),
        None => vec![text.to_string()],
    };
    format!("{head}{}", lines.join(&format!("\n{:indent$}", "")))
}

/// Rows of cells, the first one with the names of the columns.
#[derive(Clone, Debug)]
pub struct Columns {
    /// True for a column whose cells stand at its right side.
    right: Vec<bool>,
    /// Number of columns that name the row.
    keys: usize,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Columns without a row: for each one a sign, `<` if its cells stand at the left side, `>` at
    /// the right. Where a terminal is too narrow for all columns, the first `keys` are repeated
    /// before the others, and a last one at the left side is broken into lines.
    pub fn new(sides: &str, keys: usize) -> Columns {
        Columns { right: sides.chars().map(|c| c == '>').collect(), keys, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.right.len(), String::new());
        self.rows.push(row);
    }

    /// Returns the lines, each behind `indent`, within a width if there is one.
    pub fn text(&self, indent: &str, width: Option<usize>) -> String {
        let widest = |at: usize| self.rows.iter().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..self.right.len()).map(|at| widest(at).unwrap_or(0)).collect();
        let room = width.map(|width| width.saturating_sub(indent.len()));
        let mut out = String::new();
        for block in self.blocks(&widths, room) {
            for row in &self.rows {
                let line = self.line(row, &block, (&widths, room));
                for line in line.lines() {
                    out += format!("{indent}{line}").trim_end();
                    out.push('\n');
                }
            }
        }
        out
    }

    /// True for a column whose text may be broken into lines.
    fn breaks(&self, at: usize) -> bool {
        at + 1 == self.right.len() && !self.right[at]
    }

    /// Returns the columns of each block of rows, of which one stands below the other.
    fn blocks(&self, widths: &[usize], room: Option<usize>) -> Vec<Vec<usize>> {
        let keys = || (0..self.keys).collect::<Vec<_>>();
        let mut blocks = Vec::new();
        let mut block = keys();
        for at in self.keys..widths.len() {
            let needed = if self.breaks(at) { widths[at].min(LEAST) } else { widths[at] };
            let used: usize = block.iter().map(|&at| widths[at] + GAP).sum();
            if room.is_some_and(|room| used + needed > room) && block.len() > self.keys {
                blocks.push(std::mem::replace(&mut block, keys()));
            }
            block.push(at);
        }
        blocks.push(block);
        blocks
    }

    /// Returns the cells of a block: a line, or several where the last column is broken.
    fn line(
        &self,
        row: &[String],
        block: &[usize],
        (widths, room): (&[usize], Option<usize>),
    ) -> String {
        let mut line = String::new();
        for &at in block {
            let (cell, width) = (&row[at], widths[at]);
            match self.right[at] {
                true => line += &format!("{cell:>width$}"),
                false if self.breaks(at) => return hanging(&line, cell, room),
                false => line += &format!("{cell:<width$}"),
            }
            line.push_str(&" ".repeat(GAP));
        }
        line
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        let mut columns = Columns::new("<>>><", 1);
        columns.row(["name", "first", "second", "third", "what it is about"]);
        columns.row(["one", "1", "2", "3", "a text of several words, more than fit beside"]);
        columns.row(["another", "100", "200"]);
        columns
    }

    #[test]
    fn text__lines_are_as_long_as_they_are_without_a_terminal() {
        let text = columns().text("  ", None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  name     first  second  third  what it is about");
        assert_eq!(lines[2], "  another    100     200");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn text__no_line_is_wider_than_the_terminal_and_no_word_is_lost() {
        let whole = columns().text("", None);
        for width in [32, 40, 60, 80] {
            let text = columns().text("", Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for word in whole.split_whitespace() {
                assert!(text.contains(word), "{width}: {word} is not in\n{text}");
            }
        }
        assert_eq!(columns().text("", Some(200)), whole);
        let narrow = columns().text("", Some(32));
        assert_eq!(narrow.matches("another").count(), 2, "each block names the row:\n{narrow}");
    }

    #[test]
    fn hanging__further_lines_stand_below_the_text() {
        assert_eq!(hanging("- ", "a b", None), "- a b");
        let text = "some words that are longer than a line";
        assert_eq!(hanging("- ", text, Some(30)), "- some words that are longer\n  than a line");
    }

    #[test]
    fn wrap__a_word_that_is_longer_than_a_line_is_broken() {
        assert_eq!(wrap("ab cdefgh", 4), ["ab", "cdef", "gh"]);
        assert_eq!(wrap("", 4), [""]);
    }
}

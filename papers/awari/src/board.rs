//! Positions and the rules.

use std::fmt;
use std::io::BufRead;
use std::str::FromStr;
use weft_apps::{Lines, ReadError};

/// A position: the stones in the twelve pits in the order of sowing, the six of the player to move
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Board(pub [u8; 12]);

/// A move and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// The pit it emptied, from 0 to 5.
    pub pit: u8,
    /// The stones it captured.
    pub captured: u8,
    /// The position after it, as the opponent sees it.
    pub board: Board,
    /// True if it leaves the opponent without stones.
    pub starves: bool,
}

/// The moves of a position.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    list: [Played; 6],
    count: usize,
}

impl Moves {
    /// Returns the moves that the rules allow, by pit. All starve the opponent, or none does.
    pub fn list(&self) -> &[Played] {
        &self.list[..self.count]
    }
}

impl Board {
    /// Returns the number of stones, at most 255.
    pub fn stones(&self) -> u8 {
        self.0.iter().fold(0u8, |sum, pit| sum.saturating_add(*pit))
    }

    /// Returns the moves that the rules allow; none if the player to move has no stones.
    pub fn moves(&self) -> Moves {
        let none = Played { pit: 0, captured: 0, board: *self, starves: false };
        let mut moves = Moves { list: [none; 6], count: 0 };
        let mut starves = true;
        for pit in (0..6).filter(|pit| self.0[*pit] > 0) {
            let played = self.play(pit);
            if played.starves && !starves {
                continue;
            }
            if !played.starves && starves {
                (starves, moves.count) = (false, 0);
            }
            moves.list[moves.count] = played;
            moves.count += 1;
        }
        moves
    }

    /// Sows the stones of a pit and captures.
    fn play(&self, pit: usize) -> Played {
        let mut pits = self.0;
        let mut last = pit;
        for _ in 0..std::mem::take(&mut pits[pit]) {
            last = following(last);
            if last == pit {
                last = following(last);
            }
            pits[last] += 1;
        }
        let mut captured = 0;
        while last >= 6 && matches!(pits[last], 2 | 3) {
            captured += std::mem::take(&mut pits[last]);
            last -= 1;
        }
        let starves = pits[6..].iter().all(|stones| *stones == 0);
        Played { pit: pit as u8, captured, board: Board(turned(&pits)), starves }
    }

    /// Calls `found` with each position from which an allowed move without captures leads to this
    /// one.
    pub(crate) fn predecessors(&self, mut found: impl FnMut(&Board)) {
        // The player who moved is the opponent here; the move must have left this player stones.
        if self.0[..6].iter().all(|stones| *stones == 0) {
            return;
        }
        let after = turned(&self.0);
        for pit in (0..6).filter(|pit| after[*pit] == 0) {
            let mut before = after;
            let mut last = pit;
            loop {
                last = following(last);
                if last == pit {
                    last = following(last);
                }
                if before[last] == 0 {
                    break;
                }
                before[last] -= 1;
                before[pit] += 1;
                // With its last stone here the move would have captured.
                let captures = last >= 6 && matches!(after[last], 2 | 3);
                if !captures {
                    found(&Board(before));
                }
            }
        }
    }
}

fn following(pit: usize) -> usize {
    if pit == 11 {
        0
    } else {
        pit + 1
    }
}

/// Returns the pits as the other player sees them.
fn turned(pits: &[u8; 12]) -> [u8; 12] {
    let mut turned = *pits;
    turned.rotate_left(6);
    turned
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0[0])?;
        self.0[1..].iter().try_for_each(|stones| write!(f, " {stones}"))
    }
}

impl FromStr for Board {
    type Err = String;

    /// Reads the stones of twelve pits, separated by blanks or commas.
    fn from_str(text: &str) -> Result<Board, String> {
        let separators = |c: char| c.is_ascii_whitespace() || c == ',';
        let fields: Vec<&str> = text.split(separators).filter(|f| !f.is_empty()).collect();
        let mut pits = [0u8; 12];
        if fields.len() != pits.len() {
            return Err(format!("{} pits, but a position has 12", fields.len()));
        }
        for (pit, field) in pits.iter_mut().zip(fields) {
            let field: String = field.chars().take(20).collect();
            let stones = field.parse().ok().filter(|stones| *stones <= 48);
            *pit = stones.ok_or_else(|| format!("`{field}` is not a number from 0 to 48"))?;
        }
        match pits.iter().map(|stones| u32::from(*stones)).sum::<u32>() {
            0..=48 => Ok(Board(pits)),
            sum => Err(format!("{sum} stones, but the game has 48")),
        }
    }
}

/// Reads positions, one a line; `#` begins a comment.
///
/// # Errors
/// The first line that is no position, with the reason; or an input without any.
pub fn read_positions(input: &mut dyn BufRead) -> Result<Vec<Board>, ReadError> {
    let mut lines = Lines::new(input);
    let mut boards = Vec::new();
    while let Some((line, text)) = lines.next_content('#')? {
        boards.push(text.parse().map_err(|reason| ReadError { line, reason })?);
    }
    match boards.is_empty() {
        true => Err(lines.fault("no position")),
        false => Ok(boards),
    }
}

//! Positions and moves.

use std::fmt;
use std::io::BufRead;
use std::str::FromStr;
use weft_apps::{Lines, ReadError};

/// A move of the blank, in the order in which the search tries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// To the row above.
    Up,
    /// To the column before.
    Left,
    /// To the column behind.
    Right,
    /// To the row below.
    Down,
}

impl Move {
    /// All moves, in order.
    pub const ALL: [Move; 4] = [Move::Up, Move::Left, Move::Right, Move::Down];

    /// Returns the move that undoes this one.
    pub const fn reverse(self) -> Move {
        Move::ALL[3 - self as usize]
    }

    /// Returns the cell that the blank reaches from a cell; `None` at the edge.
    pub const fn from_cell(self, cell: usize) -> Option<usize> {
        match self {
            Move::Up if cell >= 4 => Some(cell - 4),
            Move::Left if !cell.is_multiple_of(4) => Some(cell - 1),
            Move::Right if cell % 4 < 3 => Some(cell + 1),
            Move::Down if cell < 12 => Some(cell + 4),
            _ => None,
        }
    }
}

/// A position: the tiles of the 16 cells row by row, four bits each, the first cell lowest; 0 is
/// the blank.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Board(u64);

impl Board {
    /// The solved position: the blank top left, then 1 to 15.
    pub const GOAL: Board = Board(0xfedc_ba98_7654_3210);

    /// Makes a position of its tiles.
    ///
    /// # Errors
    /// A tile is above 15 or occurs twice, or the position cannot be solved; the reason in words.
    pub fn new(tiles: [u8; 16]) -> Result<Board, String> {
        let mut seen = 0u16;
        for tile in tiles {
            if tile > 15 {
                return Err(format!("tile {tile} is above 15"));
            }
            if seen & 1 << tile != 0 {
                return Err(format!("tile {tile} occurs twice"));
            }
            seen |= 1 << tile;
        }
        let board = Board::of_tiles(&tiles);
        match board.is_solvable() {
            true => Ok(board),
            false => Err("the position cannot be solved: two tiles are exchanged".to_string()),
        }
    }

    fn of_tiles(tiles: &[u8; 16]) -> Board {
        Board(tiles.iter().rev().fold(0, |cells, tile| cells << 4 | u64::from(*tile)))
    }

    /// Makes a position of its bits, which [`Board::bits`] returned; any other bits make a position
    /// that no search ends on.
    pub(crate) const fn of_bits(bits: u64) -> Board {
        Board(bits)
    }

    /// Returns the tiles in four bits each, the first cell lowest.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the tile in a cell, below 16.
    pub const fn tile(self, cell: usize) -> usize {
        (self.0 >> (4 * cell) & 15) as usize
    }

    /// Returns the blank's cell.
    pub fn blank(self) -> usize {
        (0..16).find(|cell| self.tile(*cell) == 0).unwrap_or(0)
    }

    /// Returns the sum of the tiles' distances to their places: no solution is shorter.
    pub fn distance(self) -> u8 {
        (0..16).map(|cell| apart(self.tile(cell), cell)).sum()
    }

    /// Returns the position after a move; `None` at the edge.
    pub fn after(self, step: Move) -> Option<Board> {
        let blank = self.blank();
        let to = step.from_cell(blank)?;
        Some(self.slid(to, blank))
    }

    /// Returns the position after the tile in cell `from` slid to the blank in cell `blank`.
    pub(crate) const fn slid(self, from: usize, blank: usize) -> Board {
        let tile = self.0 >> (4 * from) & 15;
        Board(self.0 ^ tile << (4 * from) ^ tile << (4 * blank))
    }

    /// A move exchanges two cells and moves the blank by one: both are odd, or none is.
    fn is_solvable(self) -> bool {
        let pairs = (0..16).flat_map(|a| (a + 1..16).map(move |b| (a, b)));
        let inversions = pairs.filter(|(a, b)| self.tile(*a) > self.tile(*b)).count();
        let blank = self.blank();
        (inversions + blank / 4 + blank % 4).is_multiple_of(2)
    }
}

/// Returns the distance between a tile's place and a cell; 0 for the blank.
pub(crate) const fn apart(tile: usize, cell: usize) -> u8 {
    if tile == 0 {
        return 0;
    }
    ((tile / 4).abs_diff(cell / 4) + (tile % 4).abs_diff(cell % 4)) as u8
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({self})")
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tile(0))?;
        (1..16).try_for_each(|cell| write!(f, " {}", self.tile(cell)))
    }
}

impl FromStr for Board {
    type Err = String;

    /// Reads 16 tiles row by row, 0 for the blank, separated by blanks or commas.
    fn from_str(text: &str) -> Result<Board, String> {
        let separators = |c: char| c.is_ascii_whitespace() || c == ',';
        let fields: Vec<&str> = text.split(separators).filter(|f| !f.is_empty()).collect();
        let mut tiles = [0; 16];
        if fields.len() != tiles.len() {
            return Err(format!("{} tiles, but a position has 16", fields.len()));
        }
        for (tile, field) in tiles.iter_mut().zip(fields) {
            let field: String = field.chars().take(20).collect();
            *tile = field.parse().map_err(|_| format!("`{field}` is not a tile from 0 to 15"))?;
        }
        Board::new(tiles)
    }
}

/// Reads positions, one a line; `#` begins a comment, and `|` what belongs to a position without
/// being part of it.
///
/// # Errors
/// The first line that is no position that can be solved, with the reason; or an input without any.
pub fn read_positions(input: &mut dyn BufRead) -> Result<Vec<Board>, ReadError> {
    let mut lines = Lines::new(input);
    let mut boards = Vec::new();
    while let Some((line, text)) = lines.next_content('#')? {
        let tiles = text.split('|').next().unwrap_or_default();
        boards.push(tiles.parse().map_err(|reason| ReadError { line, reason })?);
    }
    match boards.is_empty() {
        true => Err(lines.fault("no position")),
        false => Ok(boards),
    }
}

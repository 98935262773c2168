//! Korf's hundred positions.

use crate::Board;

const TEXT: &str = include_str!("../data/korf100.txt");

/// A position with what is published about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The position.
    pub start: Board,
    /// Its distance, [`Board::distance`].
    pub distance: u8,
    /// The length of a shortest solution.
    pub length: u8,
    /// The nodes of Korf's search, which ends at the first solution.
    pub nodes: u64,
}

/// Returns the number of known positions: 100.
pub fn korf_count() -> usize {
    lines().count()
}

/// Returns Korf's position of a number from 1 to 100; `None` for any other number.
pub fn korf(number: usize) -> Option<Known> {
    parse(lines().nth(number.checked_sub(1)?)?)
}

fn lines() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter(|line| !line.starts_with('#'))
}

fn parse(line: &str) -> Option<Known> {
    let (tiles, facts) = line.split_once('|')?;
    let mut facts = facts.split_ascii_whitespace().map(|fact| fact.parse::<u64>().ok());
    let mut next = || facts.next().flatten();
    let (distance, length, nodes) = (next()?, next()?, next()?);
    let start = tiles.parse().ok()?;
    Some(Known { start, distance: distance as u8, length: length as u8, nodes })
}

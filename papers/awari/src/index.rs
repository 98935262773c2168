//! The numbering of the positions of a level, and how many there are.

use crate::Board;

/// The most stones of a database: with one more, positions have no 32-bit numbers.
pub const MOST_STONES: u8 = 31;

/// Binomial coefficients: `CHOOSE[k][b]` ways to choose `k` of `b` things.
static CHOOSE: [[u64; 64]; 13] = binomials();

const fn binomials() -> [[u64; 64]; 13] {
    let mut table = [[0; 64]; 13];
    let mut b = 0;
    while b < 64 {
        table[0][b] = 1;
        let mut k = 1;
        while k < 13 && b > 0 {
            table[k][b] = table[k][b - 1] + table[k - 1][b - 1];
            k += 1;
        }
        b += 1;
    }
    table
}

/// Returns the number of positions with exactly `stones` stones, at most 48: C(stones + 11, 11).
pub fn positions(stones: u8) -> u64 {
    CHOOSE[11][usize::from(stones) + 11]
}

/// Returns the number of positions with at most `stones` stones, at most 48: C(stones + 12, 12).
pub fn positions_to(stones: u8) -> u64 {
    CHOOSE[12][usize::from(stones) + 12]
}

/// Returns the number of positions with exactly `stones` stones, at most 48, that a move can leave:
/// a pit of the player who moved is empty.
pub fn after_a_move(stones: u8) -> u64 {
    // Positions whose six pits hold a stone at least are as many as those with six stones less.
    positions(stones) - CHOOSE[11][usize::from(stones) + 5]
}

/// Returns the number of a position among those with as many stones, from 0.
///
/// Twelve pits are eleven bars between stones; the number is that of the bars' places in the
/// combinatorial number system.
///
/// # Panics
/// There are more than 52 stones.
pub fn rank(board: &Board) -> u64 {
    let (mut before, mut rank) = (0, 0);
    for (bar, stones) in board.0[..11].iter().enumerate() {
        before += usize::from(*stones);
        rank += CHOOSE[bar + 1][before + bar];
    }
    rank
}

/// Returns the position of a number: the inverse of [`rank`].
///
/// # Panics
/// The number is not below [`positions`] of the stones, or there are more than 48.
pub fn unrank(stones: u8, number: u64) -> Board {
    assert!(number < positions(stones), "the number is that of a position");
    let mut pits = [0; 12];
    let (mut rest, mut place, mut behind) = (number, usize::from(stones) + 11, stones);
    for bar in (0..11).rev() {
        place -= 1;
        while CHOOSE[bar + 1][place] > rest {
            place -= 1;
        }
        rest -= CHOOSE[bar + 1][place];
        let before = (place - bar) as u8;
        pits[bar + 1] = behind - before;
        behind = before;
    }
    pits[0] = behind;
    Board(pits)
}

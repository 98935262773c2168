//! Jobs: positions with the moves that led to them.

use crate::board::{apart, Board, Move};

/// Most moves of a shortest solution of any position.
pub const MOST_MOVES: usize = 80;

/// The index in tables of "no move before".
const NONE: usize = 4;

/// The moves from a cell: pairs of the blank's next cell and the move.
#[derive(Clone, Copy)]
pub(crate) struct Moves {
    count: u8,
    moves: [(u8, Move); 4],
}

impl Moves {
    pub(crate) fn list(&self) -> &[(u8, Move)] {
        &self.moves[..usize::from(self.count)]
    }
}

/// The moves from each cell after each move, which is not undone, or after none.
static MOVES: [[Moves; 5]; 16] = all_moves();

/// The change of the distance when the blank moves, by tile, its cell, and the blank's move.
static DELTA: [[[i8; 4]; 16]; 16] = all_deltas();

const fn all_moves() -> [[Moves; 5]; 16] {
    let mut all = [[Moves { count: 0, moves: [(0, Move::Up); 4] }; 5]; 16];
    let mut at = 0;
    while at < 16 * 5 * 4 {
        let (cell, last, step) = (at / 20, at / 4 % 5, Move::ALL[at % 4]);
        let undoes = last < NONE && Move::ALL[last].reverse() as usize == step as usize;
        if let (false, Some(to)) = (undoes, step.from_cell(cell)) {
            let moves = &mut all[cell][last];
            moves.moves[moves.count as usize] = (to as u8, step);
            moves.count += 1;
        }
        at += 1;
    }
    all
}

const fn all_deltas() -> [[[i8; 4]; 16]; 16] {
    let mut all = [[[0; 4]; 16]; 16];
    let mut at = 0;
    while at < 16 * 16 * 4 {
        let (tile, cell, step) = (at / 64, at / 4 % 16, Move::ALL[at % 4]);
        // The tile moves against the blank, to the cell that the blank leaves.
        if let Some(blank) = step.reverse().from_cell(cell) {
            let (after, before) = (apart(tile, blank) as i8, apart(tile, cell) as i8);
            all[tile][cell][step as usize] = after - before;
        }
        at += 1;
    }
    all
}

/// Returns the moves from a cell after a move, [`NONE`] for no move.
pub(crate) fn moves_from(blank: usize, last: usize) -> &'static [(u8, Move)] {
    MOVES[blank][last].list()
}

/// Returns the change of the distance when the blank moves to the cell of `tile`.
pub(crate) fn delta(tile: usize, cell: usize, step: Move) -> i8 {
    DELTA[tile][cell][step as usize]
}

/// A position with the moves that led to it: what one processor pushes to another, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The position.
    pub board: Board,
    /// The moves so far, two bits each.
    path: [u8; 20],
    /// Their number.
    pub moves: u8,
    /// The distance of the position, [`Board::distance`].
    pub distance: u8,
    /// The blank's cell.
    blank: u8,
    /// The last move, or [`NONE`].
    last: u8,
}

/// The result of expanding a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Positions made, those above the threshold included.
    pub nodes: u64,
    /// The least value above the threshold, if there was one.
    pub beyond: Option<u8>,
}

impl Job {
    /// The length of a job in a message.
    pub const BYTES: usize = 32;

    /// Makes the job of a start.
    pub fn start(board: Board) -> Job {
        let (blank, distance) = (board.blank() as u8, board.distance());
        Job { board, path: [0; 20], moves: 0, distance, blank, last: NONE as u8 }
    }

    /// Returns the least length of a solution over this position.
    pub fn bound(&self) -> u8 {
        self.moves + self.distance
    }

    /// Returns true if the position is the solved one.
    pub fn is_solved(&self) -> bool {
        self.distance == 0
    }

    /// Returns the blank's cell and the index of the last move.
    pub(crate) fn place(&self) -> (usize, usize) {
        (usize::from(self.blank), usize::from(self.last))
    }

    /// Returns the moves so far.
    pub fn path(&self) -> Vec<Move> {
        let bits = |at: usize| self.path[at / 4] >> (2 * (at % 4)) & 3;
        (0..usize::from(self.moves)).map(|at| Move::ALL[usize::from(bits(at))]).collect()
    }

    /// Calls `push` with the job of each successor whose bound is not above the threshold, in the
    /// order of moves; a move is never undone. A solved position has no successor.
    ///
    /// # Panics
    /// The threshold is above [`MOST_MOVES`].
    pub fn expand(&self, threshold: u8, mut push: impl FnMut(Job)) -> Expansion {
        assert!(usize::from(threshold) <= MOST_MOVES, "no position needs more moves");
        let mut expansion = Expansion::default();
        if self.is_solved() {
            return expansion;
        }
        let (blank, last) = self.place();
        for (to, step) in moves_from(blank, last) {
            let cell = usize::from(*to);
            let change = delta(self.board.tile(cell), cell, *step);
            let distance = self.distance.wrapping_add_signed(change);
            let bound = self.moves + 1 + distance;
            expansion.nodes += 1;
            if bound > threshold {
                expansion.beyond = Some(expansion.beyond.map_or(bound, |least| least.min(bound)));
                continue;
            }
            let mut job = Job {
                board: self.board.slid(cell, blank),
                moves: self.moves + 1,
                distance,
                blank: *to,
                last: *step as u8,
                ..*self
            };
            let at = usize::from(self.moves);
            job.path[at / 4] |= (*step as u8) << (2 * (at % 4));
            push(job);
        }
        expansion
    }

    /// Returns the job as it is in a message.
    pub fn to_bytes(&self) -> [u8; Job::BYTES] {
        let mut bytes = [0; Job::BYTES];
        bytes[..8].copy_from_slice(&self.board.bits().to_le_bytes());
        bytes[8..28].copy_from_slice(&self.path);
        bytes[28..].copy_from_slice(&[self.moves, self.distance, self.blank, self.last]);
        bytes
    }

    /// Reads a job of a message; `None` if its fields contradict each other, so that no search
    /// reads outside its tables.
    pub fn from_bytes(bytes: &[u8; Job::BYTES]) -> Option<Job> {
        let (bits, rest) = bytes.split_first_chunk::<8>()?;
        let (path, rest) = rest.split_first_chunk::<20>()?;
        let [moves, distance, blank, last] = *rest.first_chunk()?;
        let board = Board::of_bits(u64::from_le_bytes(*bits));
        let fits = usize::from(moves) <= MOST_MOVES
            && blank < 16
            && usize::from(last) <= NONE
            && board.tile(usize::from(blank)) == 0
            && board.distance() == distance;
        fits.then_some(Job { board, path: *path, moves, distance, blank, last })
    }
}

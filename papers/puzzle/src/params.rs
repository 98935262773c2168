//! Parameters of a run.

use crate::{korf, Board};

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The position to solve. Default: Korf's position 80, of 132,945,856 nodes.
    pub start: Board,
    /// True to search the last iteration whole, so that the numbers of nodes do not depend on the
    /// division of the work. It takes several times as long.
    pub whole: bool,
}

impl Default for Params {
    fn default() -> Params {
        let start = korf(80).map_or(Board::GOAL, |known| known.start);
        Params { start, whole: false }
    }
}

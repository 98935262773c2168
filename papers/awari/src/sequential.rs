//! The sequential program.

use crate::{Database, Level, Outcome, Params, Step};
use std::time::Instant;
use weft_apps::Stopped;

/// Positions between two calls of the progress callback: some milliseconds.
const PIECE: usize = 1 << 14;

/// Computes all databases on one processor, without messages.
///
/// `progress` is called every 16,384 positions.
///
/// # Errors
/// `progress` stopped the run.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(
    params: &Params,
    progress: &dyn Fn(Step) -> Result<(), Stopped>,
) -> Result<Outcome, Stopped> {
    params.check().expect("parameters were checked");
    let start = Instant::now();
    let mut database = Database::new();
    let mut updates = 0;
    for stones in 0..=params.stones {
        let level = solve(stones, params.stones, &database, progress)?;
        updates += level.updates();
        database.push(level.into_scores());
    }
    let elapsed = start.elapsed();
    let checksum = database.digest();
    Ok(Outcome { database, ranks: 1, updates, checksum, elapsed })
}

/// Computes the database of a number of stones.
fn solve(
    stones: u8,
    of: u8,
    smaller: &Database,
    progress: &dyn Fn(Step) -> Result<(), Stopped>,
) -> Result<Level, Stopped> {
    let mut level = Level::new(stones, 0, 1);
    let positions = level.len() as u64;
    let step = |round, done| progress(Step { stones, of, round, done, positions });
    for first in (0..level.len()).step_by(PIECE) {
        let end = level.len().min(first + PIECE);
        level.prepare(first..end, |stones, number| smaller.at(stones, number));
        step(None, end as u64)?;
    }
    let mut updates = Vec::new();
    for round in (1..=stones).rev() {
        level.start_round(round);
        let mut played = 0;
        while level.next_updates(&mut updates) {
            updates.iter().for_each(|update| level.apply(*update));
            played += 1;
            if played % PIECE == 0 {
                step(Some(round), level.known())?;
            }
        }
        step(Some(round), level.known())?;
    }
    Ok(level)
}

//! The sequential program.

use crate::{search, Iteration, Job, Limits, Outcome, Params, Step};
use std::time::Instant;
use weft_apps::Stopped;

/// Solves on one processor, without messages.
///
/// `progress` is called about every million positions.
///
/// # Errors
/// `progress` stopped the run.
pub fn sequential(
    params: &Params,
    progress: &dyn Fn(Step) -> Result<(), Stopped>,
) -> Result<Outcome, Stopped> {
    let time = Instant::now();
    let start = Job::start(params.start);
    let (mut threshold, mut before) = (start.bound(), 0);
    let mut iterations = Vec::new();
    let moves = loop {
        let limits = Limits { threshold, whole: params.whole };
        let mut tick = |nodes| progress(Step { threshold, nodes: before + nodes });
        let tally = search(&start, limits, &mut tick)?;
        before += tally.nodes;
        progress(Step { threshold, nodes: before })?;
        iterations.push(Iteration { threshold, nodes: tally.nodes, solutions: tally.solutions });
        match tally.first {
            Some(moves) => break moves,
            None => {
                threshold = tally.beyond.expect("a position that can be solved has a next bound")
            }
        }
    };
    let (start, whole) = (params.start, params.whole);
    Ok(Outcome { start, moves, iterations, whole, ranks: 1, elapsed: time.elapsed() })
}

//! A round-trip measurement between the two ranks.

use super::floor::{per, warm_up};
use super::rank::{Outcome, Rank, Task};
use anyhow::Result;
use std::time::Instant;

/// Measures the one-way time: rank 0 sends and rank 1 answers, each with `state`. `recv` returns
/// false if the message is lost; then `lost` is the reason for the missing figure.
pub fn volley<S>(
    rank: &mut Rank,
    task: &Task,
    state: &mut S,
    lost: &str,
    mut send: impl FnMut(&mut S) -> Result<()>,
    mut recv: impl FnMut(&mut S) -> Result<bool>,
) -> Result<Outcome> {
    let (me, warm) = (rank.me, warm_up(task.iters));
    let (mut start, mut whole) = (Instant::now(), true);
    rank.sync()?;
    for i in 0..warm + task.iters {
        if i == warm {
            start = Instant::now();
        }
        if me == 0 {
            send(state)?;
        }
        whole = recv(state)?;
        if !whole {
            break;
        }
        if me == 1 {
            send(state)?;
        }
    }
    let outcome = per(start, 2 * task.iters);
    Ok(match (me, whole) {
        (0, true) => outcome,
        (_, true) => Outcome::Elsewhere,
        _ => Outcome::Absent(lost.into()),
    })
}

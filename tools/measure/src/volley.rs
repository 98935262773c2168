//! The loops of measurements: a round trip between the two ranks, its times, its pauses.

use super::rank::{Outcome, Rank, Task};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Returns the number of untimed iterations before the timed ones.
pub fn warm_up(iters: u64) -> u64 {
    (iters / 10).clamp(1, 1000)
}

/// Returns the time per iteration since `start`.
pub fn per(start: Instant, iters: u64) -> Outcome {
    Outcome::Value(start.elapsed().as_secs_f64() / iters.max(1) as f64)
}

/// Does one turn of a loop that waits for the other rank; yields where both share a core.
#[inline]
pub fn pause(alone: bool) {
    if alone {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Computes for a time.
pub fn compute_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Pause before each message of a wake-up measurement; the receiver sleeps after it.
pub const DOZE: Duration = Duration::from_millis(2);

/// Returns the median of wake-up times in ns as an outcome.
pub fn median_ns(mut samples: Vec<u64>) -> Outcome {
    samples.sort_unstable();
    Outcome::Value(samples.get(samples.len() / 2).map_or(f64::NAN, |&ns| ns as f64 * 1e-9))
}

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

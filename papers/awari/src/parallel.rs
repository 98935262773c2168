//! The parallel program: updates are pushed to the owners of their positions.

use crate::{Database, Level, Outcome, Params, Step, Update};
use std::cell::RefCell;
use std::time::Duration;
use weft_models::jobs::{Item, Jobs};
use weft_models::net::{Net, RankFailure};
use weft_models::together::Together;

/// Positions whose captures are played between two rounds of progress.
const PIECE: usize = 1 << 10;
/// Most updates in a message, as in Orca's program.
const PER_MESSAGE: usize = 1000;

/// An update in a message.
#[derive(Clone, Copy)]
struct Pushed(Update);

impl Default for Pushed {
    fn default() -> Pushed {
        Pushed(Update { index: 0, score: 0 })
    }
}

impl Item for Pushed {
    const SIZE: usize = Update::BYTES;

    fn name() -> String {
        "awari update".to_string()
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_bytes());
    }

    fn get(bytes: &[u8]) -> Pushed {
        bytes.try_into().map(|bytes| Pushed(Update::from_bytes(bytes))).unwrap_or_default()
    }
}

/// The ranks' means of a run.
struct Ranks<'a, N: Net> {
    net: &'a N,
    jobs: Jobs<N, Pushed>,
    together: Together<N>,
    ns_per_update: f64,
}

/// Computes all databases on all ranks of a net; all call this with the same parameters and get the
/// same result. `ns_per_update` is the time of a position's captures, or of an update, in a
/// simulation, in nanoseconds.
///
/// Each rank has its share of the positions with the most stones, and all scores below.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    ns_per_update: f64,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RankFailure> {
    params.check().expect("parameters were checked");
    let ranks = Ranks {
        net,
        jobs: Jobs::open(net, 0, PER_MESSAGE),
        together: Together::open(net, 0),
        ns_per_update,
    };
    ranks.together.barrier().await?;
    let time = net.now();
    let (mut database, mut updates) = (Database::new(), 0);
    for stones in 0..=params.stones {
        let (scores, more) = ranks.solve(stones, params.stones, &database, progress).await?;
        updates += more;
        database.push(scores);
    }
    let elapsed = net.now().since(time);
    ranks.together.barrier().await?;
    let checksum = database.digest();
    Ok(Outcome { database, ranks: net.size(), updates, checksum, elapsed })
}

impl<N: Net> Ranks<'_, N> {
    /// Computes the database of a number of stones; returns its scores, and the updates of all.
    async fn solve(
        &self,
        stones: u8,
        of: u8,
        smaller: &Database,
        progress: &dyn Fn(Step),
    ) -> Result<(Vec<i8>, u64), RankFailure> {
        let (me, ranks) = (self.net.rank(), self.net.size());
        let mut level = Level::new(stones, me, ranks);
        let positions = level.len() as u64;
        let step = |round, done| progress(Step { stones, of, round, done, positions });
        for first in (0..level.len()).step_by(PIECE) {
            let end = level.len().min(first + PIECE);
            level.prepare(first..end, |stones, number| smaller.at(stones, number));
            self.net.compute(self.time(end - first)).await;
            self.net.yield_now().await;
            step(None, end as u64);
        }
        let level = RefCell::new(level);
        for round in (1..=stones).rev() {
            level.borrow_mut().start_round(round);
            self.play_round(&level).await?;
            step(Some(round), level.borrow().known());
        }
        let level = level.into_inner();
        let mut mine = level.updates().to_le_bytes().to_vec();
        mine.extend((me as u32).to_le_bytes());
        let scores = level.into_scores();
        mine.extend((scores.len() as u32).to_le_bytes());
        mine.extend(scores.iter().map(|score| *score as u8));
        let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
        let all = self.together.reduce(mine, join).await?;
        Ok(spread(&all, ranks))
    }

    /// Plays backwards from all positions that become known in a round.
    async fn play_round(&self, level: &RefCell<Level>) -> Result<(), RankFailure> {
        let mut updates = Vec::new();
        // Updates that this rank knows go first; the updates of others make more.
        let mut play = |level: &mut Level, push: &mut dyn FnMut(usize, Update)| -> usize {
            let mut count = 0;
            while level.next_updates(&mut updates) {
                count += updates.len();
                for update in &updates {
                    push(level.owner_of(*update), *update);
                }
            }
            count
        };
        let pushed = {
            let push = &mut |to, update| self.jobs.push(to, &Pushed(update));
            play(&mut level.borrow_mut(), push)
        };
        self.net.compute(self.time(pushed)).await;
        let done = self.jobs.run(|update, next| {
            let level = &mut *level.borrow_mut();
            if !level.has(update.0) {
                // The message is no update: a rank runs another program.
                return;
            }
            level.apply(update.0);
            let count = play(level, &mut |to, update| next.push(to, &Pushed(update)));
            next.compute(self.time(count));
        });
        done.await.map(drop)
    }

    fn time(&self, count: usize) -> Duration {
        Duration::from_nanos((count as f64 * self.ns_per_update) as u64)
    }
}

/// Puts the scores of all ranks at their places: rank `r` has positions `r`, `r + ranks` and so on.
fn spread(all: &[u8], ranks: usize) -> (Vec<i8>, u64) {
    let (mut rest, mut updates, mut shares) = (all, 0u64, vec![&[][..]; ranks]);
    while let Some((count, after)) = rest.split_first_chunk() {
        let Some((rank, after)) = after.split_first_chunk() else { break };
        let Some((len, after)) = after.split_first_chunk() else { break };
        let len = (u32::from_le_bytes(*len) as usize).min(after.len());
        updates += u64::from_le_bytes(*count);
        let (share, after) = after.split_at(len);
        if let Some(place) = shares.get_mut(u32::from_le_bytes(*rank) as usize) {
            *place = share;
        }
        rest = after;
    }
    let mut scores = vec![0; shares.iter().map(|share| share.len()).sum::<usize>()];
    for (rank, share) in shares.into_iter().enumerate() {
        let places = scores.iter_mut().skip(rank).step_by(ranks);
        places.zip(share).for_each(|(place, score)| *place = *score as i8);
    }
    (scores, updates)
}

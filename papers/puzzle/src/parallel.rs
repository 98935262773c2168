//! The parallel program: jobs that are pushed to the owners of their positions.

use crate::{search, Iteration, Job, Limits, Move, Outcome, Params, Step, Tally};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::Duration;
use weft_apps::{mix, Stopped};
use weft_models::jobs::{Item, Jobs};
use weft_models::net::{Net, RankFailure};
use weft_models::together::Together;

/// The division of the work, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// Most jobs in a message: 4 and 64 are the paper's.
    pub per_message: usize,
    /// Jobs of fewer moves are pushed to the owners of their positions; all below others is
    /// searched where they are. The paper's program pushes every job.
    pub depth: u8,
    /// Time of a position in a simulation, in nanoseconds.
    pub ns_per_node: f64,
    /// Iterations below this threshold are left out; with one above the length, the solution may
    /// not be a shortest one.
    pub first_threshold: u8,
}

impl Default for Division {
    fn default() -> Division {
        Division { per_message: 64, depth: 16, ns_per_node: 0.0, first_threshold: 0 }
    }
}

/// The reason why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// A rank has failed.
    Rank(RankFailure),
    /// A message was no job, or no sum: the ranks run different programs.
    Malformed,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Rank(failure) => failure.fmt(f),
            RunError::Malformed => f.write_str("a message is no job: the ranks' programs differ"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<RankFailure> for RunError {
    fn from(failure: RankFailure) -> RunError {
        RunError::Rank(failure)
    }
}

/// A job in a message; `None` if it was malformed.
#[derive(Clone, Copy, Default)]
struct Pushed(Option<Job>);

impl Item for Pushed {
    const SIZE: usize = Job::BYTES;

    fn name() -> String {
        "puzzle job".to_string()
    }

    fn put(&self, to: &mut Vec<u8>) {
        let bytes = self.0.map(|job| job.to_bytes());
        to.extend_from_slice(&bytes.unwrap_or_default());
    }

    fn get(bytes: &[u8]) -> Pushed {
        Pushed(bytes.try_into().ok().and_then(Job::from_bytes))
    }
}

/// The search of one rank in one iteration.
struct Search {
    limits: Limits,
    tally: RefCell<Tally>,
    /// True if a solution is known and the rest is not wanted.
    over: Cell<bool>,
    malformed: Cell<bool>,
}

/// Solves on all ranks of a net; all call this with the same arguments and get the same result.
///
/// `progress` is called at the end of each iteration.
///
/// # Errors
/// A rank has failed, or ranks run different programs.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    division: &Division,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RunError> {
    let (jobs, together) = (Jobs::open(net, 0, division.per_message), Together::open(net, 0));
    // Nobody pushes before all have opened their queues: not needed, but the time begins here.
    together.barrier().await?;
    let time = net.now();
    let start = Job::start(params.start);
    let mut threshold = start.bound().max(division.first_threshold);
    let (mut iterations, mut before) = (Vec::new(), 0);
    let moves = loop {
        let limits = Limits { threshold, whole: params.whole };
        let tally = iterate(net, &jobs, &together, &start, limits, division).await?;
        before += tally.nodes;
        progress(Step { threshold, nodes: before });
        iterations.push(Iteration { threshold, nodes: tally.nodes, solutions: tally.solutions });
        match (tally.first, tally.beyond) {
            (Some(moves), _) => break moves,
            (None, Some(beyond)) => threshold = beyond,
            (None, None) => return Err(RunError::Malformed),
        }
    };
    let elapsed = net.now().since(time);
    let (start, whole, ranks) = (params.start, params.whole, net.size());
    // A queue stays until all have noticed the end.
    together.barrier().await?;
    Ok(Outcome { start, moves, iterations, whole, ranks, elapsed })
}

/// Searches all positions up to a threshold, on all ranks; returns the sums of all.
async fn iterate<N: Net>(
    net: &N,
    jobs: &Jobs<N, Pushed>,
    together: &Together<N>,
    start: &Job,
    limits: Limits,
    division: &Division,
) -> Result<Tally, RunError> {
    let ranks = net.size();
    let owner = |job: &Job| (mix(job.board.bits()) % ranks as u64) as usize;
    let search = Search {
        limits,
        tally: RefCell::default(),
        over: Cell::new(false),
        malformed: Cell::new(false),
    };
    if owner(start) == net.rank() {
        jobs.push(net.rank(), &Pushed(Some(*start)));
    }
    let done = jobs.run(|pushed, next| {
        let before = search.tally.borrow().nodes;
        search.job(pushed, division.depth, |job| next.push(owner(&job), &Pushed(Some(job))));
        if search.solved_now() {
            // The others need not search on, either.
            let solved = Job::start(crate::Board::GOAL);
            let others = (0..ranks).filter(|rank| *rank != net.rank());
            others.for_each(|rank| next.push(rank, &Pushed(Some(solved))));
        }
        let nodes = search.tally.borrow().nodes - before;
        next.compute(Duration::from_nanos((nodes as f64 * division.ns_per_node) as u64));
    });
    done.await?;
    let mut mine = search.tally.into_inner();
    if search.malformed.get() {
        // A sum that nobody can read tells all ranks.
        mine.first = Some(vec![Move::Up; usize::from(u8::MAX)]);
    }
    let all =
        together.reduce(to_bytes(&mine), |all, other| match (of_bytes(&all), of_bytes(other)) {
            (Some(mut all), Some(other)) => {
                all.merge(other);
                to_bytes(&all)
            }
            _ => Vec::new(),
        });
    of_bytes(&all.await?).ok_or(RunError::Malformed)
}

impl Search {
    /// Does a job; `push` gets those that it makes.
    fn job(&self, pushed: Pushed, depth: u8, push: impl FnMut(Job)) {
        let Some(job) = pushed.0 else { return self.malformed.set(true) };
        if job.moves == 0 && job.is_solved() && self.limits.threshold > 0 {
            return self.over.set(true);
        }
        if self.over.get() {
            return;
        }
        if job.is_solved() {
            self.tally.borrow_mut().solve(job.path());
        } else if job.moves < depth {
            let expansion = job.expand(self.limits.threshold, push);
            self.tally.borrow_mut().add(expansion);
        } else if let Ok(tally) = search(&job, self.limits, &mut |_| Ok::<(), Stopped>(())) {
            self.tally.borrow_mut().merge(tally);
        }
    }

    /// True once, when a solution has been found here and the rest is not wanted.
    fn solved_now(&self) -> bool {
        let solved = !self.limits.whole && self.tally.borrow().solutions > 0;
        solved && !self.over.replace(true)
    }
}

/// A sum in a message: nodes, solutions, the next threshold, and the first solution's moves.
fn to_bytes(tally: &Tally) -> Vec<u8> {
    let mut bytes = tally.nodes.to_le_bytes().to_vec();
    bytes.extend_from_slice(&tally.solutions.to_le_bytes());
    bytes.push(tally.beyond.unwrap_or(u8::MAX));
    bytes.push(u8::from(tally.first.is_some()));
    bytes.extend(tally.first.iter().flatten().map(|step| *step as u8));
    bytes
}

fn of_bytes(bytes: &[u8]) -> Option<Tally> {
    let (nodes, rest) = bytes.split_first_chunk()?;
    let (solutions, rest) = rest.split_first_chunk()?;
    let (&[beyond, has_first], moves) = rest.split_first_chunk()?;
    if moves.len() > crate::MOST_MOVES {
        return None;
    }
    let moves = moves.iter().map(|step| Move::ALL.get(usize::from(*step)).copied());
    let first = moves.collect::<Option<Vec<Move>>>()?;
    Some(Tally {
        nodes: u64::from_le_bytes(*nodes),
        solutions: u64::from_le_bytes(*solutions),
        beyond: Some(beyond).filter(|beyond| *beyond < u8::MAX),
        first: (has_first == 1).then_some(first),
    })
}

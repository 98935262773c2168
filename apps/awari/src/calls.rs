//! One level by calls, as in paper 004: a rank that has gathered some updates for another one calls
//! it, and waits for the answer.

use crate::{Database, Level, Update};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use weft_models::jobs::Quiescence;
use weft_models::net::{Net, RankFailure};
use weft_models::rpc::{CallError, Cause, Rpc};
use weft_models::together::Together;

/// The method that takes updates.
const TAKE: u16 = 1;
/// Positions between two looks at what has come.
const PIECE: usize = 64;

/// The updates that have come, and the task that waits for some.
#[derive(Default)]
struct Come {
    updates: VecDeque<Update>,
    waker: Option<Waker>,
}

struct Calls<'a, N: Net> {
    net: &'a N,
    rpc: Rpc<N>,
    quiescence: Quiescence<N>,
    come: Rc<RefCell<Come>>,
    gathered: Vec<Vec<Update>>,
    per_call: usize,
    ns_per_update: f64,
}

/// Computes the scores of all positions with `stones` stones on all ranks of a simulated net, which
/// share the scores of fewer stones. A rank calls another one with `per_call` updates, or with
/// those that it has when it has nothing else to do. Returns this rank's scores and the time.
/// `ns_per_update` is the time of a position's captures, or of an update.
///
/// # Errors
/// A rank has failed.
pub async fn run_level_by_calls<N: Net>(
    net: &N,
    stones: u8,
    smaller: &Database,
    per_call: usize,
    ns_per_update: f64,
) -> Result<(Vec<i8>, Duration), RankFailure> {
    let come = Rc::<RefCell<Come>>::default();
    let rpc = Rpc::open(net);
    let into = Rc::clone(&come);
    rpc.serve(TAKE, move |request, bytes| {
        let mut come = into.borrow_mut();
        let updates = bytes.as_chunks::<{ Update::BYTES }>().0;
        come.updates.extend(updates.iter().map(|bytes| Update::from_bytes(*bytes)));
        request.answer(&[]);
        come.waker.take().into_iter().for_each(Waker::wake);
    });
    let together = Together::open(net, 0);
    let (rank, ranks) = (net.rank(), net.size());
    let mut calls = Calls {
        net,
        rpc,
        quiescence: Quiescence::open(net, 0),
        come,
        gathered: vec![Vec::new(); ranks],
        per_call: per_call.max(1),
        ns_per_update,
    };
    together.barrier().await?;
    let time = net.now();
    let mut level = Level::new(stones, rank, ranks);
    for first in (0..level.len()).step_by(PIECE) {
        let end = level.len().min(first + PIECE);
        level.prepare(first..end, |stones, number| smaller.at(stones, number));
        calls.compute(end - first).await;
    }
    together.barrier().await?;
    for round in (1..=stones).rev() {
        level.start_round(round);
        calls.play_round(&mut level).await?;
    }
    let elapsed = net.now().since(time);
    together.barrier().await?;
    Ok((level.into_scores(), elapsed))
}

impl<N: Net> Calls<'_, N> {
    async fn compute(&self, count: usize) {
        let time = count as f64 * self.ns_per_update;
        self.net.compute(Duration::from_nanos(time as u64)).await;
    }

    async fn play_round(&mut self, level: &mut Level) -> Result<(), RankFailure> {
        let quiescence = &self.quiescence;
        let mut wave: Option<Pin<Box<dyn Future<Output = _> + '_>>> = None;
        let mut made = Vec::new();
        loop {
            let came: Vec<Update> = self.come.borrow_mut().updates.drain(..).collect();
            quiescence.received(came.len() as u64);
            for update in came {
                // One of another position comes from a rank that runs another program.
                if level.has(update) {
                    level.apply(update);
                }
            }
            let mut count = 0;
            while count < PIECE && level.next_updates(&mut made) {
                count += made.len();
                for update in &made {
                    match level.owner_of(*update) {
                        owner if owner == self.net.rank() => level.apply(*update),
                        owner => {
                            quiescence.sent(1);
                            self.gathered[owner].push(*update);
                        }
                    }
                }
            }
            let time = count as f64 * self.ns_per_update;
            self.net.compute(Duration::from_nanos(time as u64)).await;
            let idle = count == 0;
            let least = if idle { 1 } else { self.per_call };
            for (to, updates) in self.gathered.iter_mut().enumerate() {
                if updates.len() >= least {
                    let bytes = updates.drain(..).flat_map(Update::to_bytes).collect::<Vec<u8>>();
                    let answer = self.rpc.call(to, TAKE, &bytes).await;
                    answer.map_err(|error| failure_of(to, error))?;
                }
            }
            if !idle || !self.come.borrow().updates.is_empty() {
                continue;
            }
            let under_way = wave.get_or_insert_with(|| Box::pin(quiescence.wave()));
            let ended = poll_fn(|cx| {
                let mut come = self.come.borrow_mut();
                if !come.updates.is_empty() {
                    return Poll::Ready(None);
                }
                come.waker = Some(cx.waker().clone());
                drop(come);
                under_way.as_mut().poll(cx).map(Some)
            });
            if let Some(ended) = ended.await {
                wave = None;
                if ended? {
                    return Ok(());
                }
                self.net.yield_now().await;
            }
        }
    }
}

fn failure_of(rank: usize, error: CallError) -> RankFailure {
    match error.cause {
        Cause::Failed(failure) => failure,
        _ => RankFailure { rank, certain: false, why: error.to_string() },
    }
}

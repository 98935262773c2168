//! The parallel program by calls, as in paper 004: a rank that has gathered some updates for
//! another one calls it, and waits for the answer.

use crate::game::{Game, Op, Reply};
use crate::{Database, Level, Outcome, Params, Step, Update};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{poll_fn, Future};
use std::mem::take;
use std::ops::Range;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weft_apps::Failure;
use weft_models::net::{Net, RankFailure};
use weft_models::objects::{ObjectError, Objects, Placement, Shared};
use weft_models::order::Options;
use weft_models::rpc::{Request, Rpc};
use weft_models::together::Together;

/// The method that takes updates. Its answer has the number of the waking, if it wakes the rank.
const TAKE: u16 = 1;
/// Updates, or positions whose captures are played, between two looks at the calls of others.
const PIECE: usize = 64;
/// Positions whose captures are played between two rounds of progress.
const STEP: usize = 1 << 10;
/// Most scores in an operation.
const PER_OP: usize = 1 << 20;

/// The least updates in a call while a rank has other work, as in paper 004.
pub const PER_CALL: usize = 20;

/// Computes all databases on all ranks of a net, by calls with updates; all ranks call this with
/// the same parameters and get the same result, that of [`run`](crate::run()). The shared state of
/// the game is a replicated object.
///
/// A rank calls another one with `per_call` updates or more ([`PER_CALL`] in paper 004), or with
/// those that it has when it has nothing else to do, and waits for the answer. `ns_per_update` is
/// the time of a position's captures, or of an update, in a simulation, in nanoseconds.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run_by_calls<N: Net>(
    net: &N,
    params: &Params,
    per_call: usize,
    ns_per_update: f64,
    progress: &dyn Fn(Step),
) -> Result<Outcome, Failure> {
    params.check().expect("parameters were checked");
    let together = Together::open(net, 0);
    let mut calls = Calls::open(net, per_call, ns_per_update).await?;
    together.barrier().await?;
    let time = net.now();
    let (mut database, mut updates) = (Database::new(), 0);
    for stones in 0..=params.stones {
        let step = |round, done, positions| {
            progress(Step { stones, of: params.stones, round, done, positions });
        };
        let level = calls.solve(stones, &database, &step).await?;
        let (scores, more) = calls.share(stones, level).await?;
        updates += more;
        database.push(scores);
    }
    let elapsed = net.now().since(time);
    // A rank stays until all have the last scores. It has all it needs, even if one fails now.
    _ = together.barrier().await;
    let checksum = database.digest();
    Ok(Outcome { database, ranks: net.size(), updates, checksum, elapsed })
}

/// Computes the scores of all positions with `stones` stones as [`run_by_calls`] does, on all ranks
/// of a simulated net, which have the scores of fewer stones. Returns this rank's scores and the
/// time, without that of telling the scores to others.
///
/// # Errors
/// A rank has failed.
pub async fn run_level_by_calls<N: Net>(
    net: &N,
    stones: u8,
    smaller: &Database,
    per_call: usize,
    ns_per_update: f64,
) -> Result<(Vec<i8>, Duration), Failure> {
    let together = Together::open(net, 0);
    let mut calls = Calls::open(net, per_call, ns_per_update).await?;
    together.barrier().await?;
    let time = net.now();
    let level = calls.solve(stones, smaller, &|_, _, _| {}).await?;
    let elapsed = net.now().since(time);
    together.barrier().await?;
    Ok((level.into_scores(), elapsed))
}

/// This rank's part of the level, which the calls of others change.
struct Mine<N: Net> {
    /// The level while rounds are played.
    level: Option<Level>,
    /// True if this rank was counted as idle and has not been woken since.
    rests: bool,
    /// Wakings of this rank.
    wakings: u64,
    /// Calls that have come before the level was there: at most one of each rank, as callers wait.
    held: Vec<(Request<N>, Vec<u8>)>,
    failed: Option<RankFailure>,
    /// The task of this rank, while it waits.
    waker: Option<Waker>,
}

impl<N: Net> Mine<N> {
    fn take(&mut self, request: Request<N>, bytes: &[u8]) {
        let Some(level) = &mut self.level else {
            return self.held.push((request, bytes.to_vec()));
        };
        for bytes in bytes.as_chunks().0 {
            let update = Update::from_bytes(*bytes);
            // One of another position comes from a rank that runs another program.
            if level.has(update) {
                level.apply(update);
            }
        }
        if !level.has_fresh() {
            return request.answer(&[]);
        }
        match take(&mut self.rests) {
            true => {
                self.wakings += 1;
                request.answer(&self.wakings.to_le_bytes());
            }
            false => request.answer(&[]),
        }
        self.wake();
    }

    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Keeps the waker of this rank's task; an error if a rank has failed.
    fn watch(&mut self, cx: &Context<'_>) -> Result<(), RankFailure> {
        self.waker = Some(cx.waker().clone());
        self.failed.clone().map_or(Ok(()), Err)
    }
}

type News<'a> = Pin<Box<dyn Future<Output = Result<Reply, ObjectError>> + 'a>>;

/// A rank's means of a run.
struct Calls<'a, N: Net> {
    net: &'a N,
    rpc: Rpc<N>,
    game: Shared<N, Game>,
    mine: Rc<RefCell<Mine<N>>>,
    gathered: Vec<Vec<Update>>,
    /// The wakings that answers had since this rank was counted, by rank.
    claims: BTreeMap<u32, u64>,
    /// Rounds that are over.
    rounds: u32,
    per_call: usize,
    ns_per_update: f64,
}

impl<'a, N: Net> Calls<'a, N> {
    async fn open(
        net: &'a N,
        per_call: usize,
        ns_per_update: f64,
    ) -> Result<Calls<'a, N>, Failure> {
        let mine = Rc::new(RefCell::new(Mine {
            level: None,
            rests: false,
            wakings: 0,
            held: Vec::new(),
            failed: None,
            waker: None,
        }));
        let rpc = Rpc::open(net);
        let into = Rc::clone(&mine);
        rpc.serve(TAKE, move |request, bytes| into.borrow_mut().take(request, bytes));
        let weak = Rc::downgrade(&mine);
        net.on_failure(move |failure| {
            if let Some(mine) = weak.upgrade() {
                let mut mine = mine.borrow_mut();
                mine.failed.get_or_insert(failure);
                mine.wake();
            }
        });
        let class = Objects::with_options(net, Options::at_once()).class::<Game>(1);
        let game = class.open(0, Placement::Replicated, || Game::new(net.size())).await?;
        Ok(Calls {
            net,
            rpc,
            game,
            mine,
            gathered: vec![Vec::new(); net.size()],
            claims: BTreeMap::new(),
            rounds: 0,
            per_call: per_call.max(1),
            ns_per_update,
        })
    }

    /// Lets the time of computations pass, and takes the calls of others.
    async fn pass(&self, count: usize) {
        if self.ns_per_update > 0.0 {
            let time = count as f64 * self.ns_per_update;
            self.net.compute(Duration::from_nanos(time as u64)).await;
        } else {
            self.net.yield_now().await;
        }
    }

    /// Computes this rank's share of a level. `step` gets the round, positions done, and all.
    async fn solve(
        &mut self,
        stones: u8,
        smaller: &Database,
        step: &dyn Fn(Option<u8>, u64, u64),
    ) -> Result<Level, Failure> {
        let mut level = Level::new(stones, self.net.rank(), self.net.size());
        let positions = level.len() as u64;
        let pieces = |range: Range<usize>, piece| {
            range.clone().step_by(piece).map(move |first| first..range.end.min(first + piece))
        };
        for part in pieces(0..level.len(), STEP) {
            for piece in pieces(part.clone(), PIECE) {
                let count = piece.len();
                level.prepare(piece, |stones, number| smaller.at(stones, number));
                self.pass(count).await;
            }
            step(None, part.end as u64, positions);
        }
        for round in (1..=stones).rev() {
            level.start_round(round);
            level = self.play_round(level).await?;
            step(Some(round), level.known(), positions);
        }
        Ok(level)
    }

    /// Plays backwards from all positions that become known in a round.
    async fn play_round(&mut self, level: Level) -> Result<Level, Failure> {
        let held = {
            let mut mine = self.mine.borrow_mut();
            (mine.level, mine.rests) = (Some(level), false);
            take(&mut mine.held)
        };
        for (request, bytes) in held {
            self.mine.borrow_mut().take(request, &bytes);
        }
        let game = self.game.clone();
        let (round, rank) = (self.rounds, self.net.rank() as u32);
        let (mut news, mut to_be_counted): (Option<News<'_>>, _) = (None, true);
        loop {
            let count = self.play_piece();
            self.pass(count).await;
            self.send(if count == 0 { 1 } else { self.per_call }).await?;
            if count > 0 || self.has_work() {
                continue;
            }
            if take(&mut to_be_counted) {
                self.rest().await?;
            }
            let waits = news.get_or_insert_with(|| Box::pin(game.call(Op::News { round, rank })));
            match self.until_woken(waits).await? {
                None => continue,
                Some(Reply::Over) => break,
                Some(_) => (news, to_be_counted) = (None, true),
            }
        }
        self.rounds += 1;
        let level = self.mine.borrow_mut().level.take();
        Ok(level.expect("this rank took it there"))
    }

    fn has_work(&self) -> bool {
        self.mine.borrow().level.as_ref().is_some_and(Level::has_fresh)
    }

    /// Plays backwards from some positions; returns the updates that this makes.
    fn play_piece(&mut self) -> usize {
        let (mut made, mut count) = (Vec::new(), 0);
        let mine = &mut *self.mine.borrow_mut();
        let Some(level) = &mut mine.level else { return 0 };
        while count < PIECE && level.next_updates(&mut made) {
            count += made.len();
            for update in &made {
                match level.owner_of(*update) {
                    owner if owner == self.net.rank() => level.apply(*update),
                    owner => self.gathered[owner].push(*update),
                }
            }
        }
        count
    }

    /// Calls each rank for which at least so many updates are gathered, one after the other.
    async fn send(&mut self, least: usize) -> Result<(), Failure> {
        for to in 0..self.gathered.len() {
            if self.gathered[to].len() >= least {
                let updates = self.gathered[to].drain(..);
                let bytes = updates.flat_map(Update::to_bytes).collect::<Vec<u8>>();
                let answer = self.unless_failed(self.rpc.call(to, TAKE, &bytes)).await?;
                if let Some(waking) = answer.first_chunk() {
                    self.claims.insert(to as u32, u64::from_le_bytes(*waking));
                }
            }
        }
        Ok(())
    }

    /// Says that this rank is idle.
    async fn rest(&mut self) -> Result<(), Failure> {
        let claims = take(&mut self.claims).into_iter().collect();
        let (round, rank) = (self.rounds, self.net.rank() as u32);
        let wakings = {
            let mut mine = self.mine.borrow_mut();
            mine.rests = true;
            mine.wakings
        };
        // The operation is on its way when this returns: work that comes now goes on at once.
        Ok(self.game.post(&Op::Idle { round, rank, wakings, claims })?)
    }

    /// Waits for news of the round; `None` if there is work again.
    async fn until_woken(&self, news: &mut News<'_>) -> Result<Option<Reply>, Failure> {
        poll_fn(|cx| {
            if self.has_work() {
                return Poll::Ready(Ok(None));
            }
            if let Poll::Ready(reply) = news.as_mut().poll(cx) {
                return Poll::Ready(reply.map(Some).map_err(Failure::from));
            }
            self.mine.borrow_mut().watch(cx)?;
            Poll::Pending
        })
        .await
    }

    /// Tells all ranks the scores of this one's share; returns those of all, and their updates.
    async fn share(&self, stones: u8, level: Level) -> Result<(Vec<i8>, u64), Failure> {
        let mut updates = level.updates();
        let scores = level.into_scores();
        let rank = self.net.rank() as u32;
        for (number, piece) in scores.chunks(PER_OP).enumerate() {
            let (first, scores) = ((number * PER_OP) as u32, piece.to_vec());
            let op = Op::Scores { stones, rank, first, scores, updates: take(&mut updates) };
            self.unless_failed(self.game.call(op)).await?;
        }
        match self.unless_failed(self.game.call(Op::All { stones })).await? {
            Reply::Scores(scores, updates) => Ok((scores, updates)),
            _ => unreachable!("the operation has this result alone"),
        }
    }

    /// Waits for something, or for the failure of any rank: the others end too, and answer no more.
    async fn unless_failed<T, E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done.map_err(E::into));
            }
            self.mine.borrow_mut().watch(cx)?;
            Poll::Pending
        })
        .await
    }
}

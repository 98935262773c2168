//! Operations of all ranks together: barrier, broadcast, and reduction to the same bits.
//!
//! [`Group`](weft::Group) has these and more, faster, for live jobs. Those here run wherever a
//! [`Net`] does, in the simulator as well.

mod call;

use crate::channel::{on_failure, receiver, Channel, MESSAGE_MAX};
use crate::net::{Blocking, InUpcall, Net, RankFailure, Unsent};
use crate::park;
use call::Call;
pub(crate) use call::Function;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{poll_fn, Future};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use weft_core::group::tree::Doubling;

/// Kinds of messages: the call (8 bytes), then bytes; or a rank (4 bytes), then text.
mod kind {
    /// The contributions of the sender and its children.
    pub const UP: u8 = 1;
    /// The result.
    pub const DOWN: u8 = 2;
    /// A rank has failed.
    pub const FAILED: u8 = 3;
    /// The result, by a multicast of rank 0.
    pub const CAST: u8 = 4;
    /// A question of a rank that waits long for this one: the call, which this rank compares.
    pub const ASKED: u8 = 5;
}

/// Time for which the end of a rank is no failure for those that wait for others: it may have ended
/// because its last operation was done, and they are about to hear of it.
const GRACE: Duration = Duration::from_secs(1);
/// The words between a rank and the failure of which it has told others.
const REPORTS: &str = " reports: ";
/// Operations that a rank may be behind the others.
const AHEAD_MAX: u64 = 1 << 16;

/// Operations that are over whose calls are still compared.
const RECENT_MAX: usize = 32;

/// The messages about one operation.
#[derive(Default)]
struct Round {
    /// The first rank that is known to be in it, and its call.
    call: Option<(usize, Call)>,
    up: BTreeMap<usize, Vec<u8>>,
    down: Option<Vec<u8>>,
    /// The result, which all ranks have.
    cast: Option<Vec<u8>>,
}

struct Inner<N: Net> {
    net: N,
    channel: Channel<N>,
    handler: u16,
    /// The group of all ranks, if results go by multicast.
    group: RefCell<Option<N::Group>>,
    /// True if ranks exchange their bytes in place of sending them along a tree.
    exchanges: Cell<bool>,
    rounds: RefCell<BTreeMap<u64, Round>>,
    next: Cell<u64>,
    /// The last calls of this rank, the oldest first.
    recent: RefCell<VecDeque<Call>>,
    failure: RefCell<Option<RankFailure>>,
    /// Ranks that have failed, or ended.
    gone: RefCell<BTreeMap<usize, RankFailure>>,
    wakers: RefCell<Vec<Waker>>,
}

/// The operations of all ranks, which call the same ones in the same order, one at a time. Ranks
/// that call different ones get a [`RankFailure`] that names both. A rank that hears nothing asks
/// the rank that it waits for, after [`Net::warn_after`]. A failure that any rank notices ends the
/// operations of all ranks, also where only some of them are out of reach of each other.
pub struct Together<N: Net> {
    inner: Rc<Inner<N>>,
}

/// The logarithm, to base 2, of the ranks that exchange their bytes in a round.
const EXCHANGE_BITS: u32 = 2;
/// Number of operations that programs may have open: they have numbers below this.
pub const NUMBERS: u16 = 256;
/// The first multicast group of those whose results go by multicast.
const GROUPS: u16 = 0xef00;
/// The place of its kind in a packet's argument.
const KIND_BITS: u32 = 24;

/// Notices the silence of a rank until it is dropped.
pub(crate) struct Watched<N: Net> {
    net: N,
    rank: Option<usize>,
}

impl<N: Net> Watched<N> {
    pub fn new(net: &N, rank: usize) -> Watched<N> {
        let watches = rank != net.rank() && net.expect(rank);
        Watched { net: net.clone(), rank: watches.then_some(rank) }
    }
}

impl<N: Net> Drop for Watched<N> {
    fn drop(&mut self) {
        if let Some(rank) = self.rank {
            self.net.unexpect(rank);
        }
    }
}

/// Refuses a call that waits inside an upcall, as an error of this rank.
pub(crate) fn may_wait<N: Blocking>(net: &N) -> Result<(), RankFailure> {
    let failure =
        |why: InUpcall| RankFailure { rank: net.rank(), certain: false, why: why.to_string() };
    net.may_wait().map_err(failure)
}

/// Returns the parent of a place in a binomial tree; that of place 0 is itself.
fn parent(place: usize) -> usize {
    place & place.wrapping_sub(1)
}

/// Returns the children of a place in a binomial tree of so many.
fn children(place: usize, count: usize) -> impl Iterator<Item = usize> {
    let most = if place == 0 { usize::BITS - 1 } else { place.trailing_zeros() };
    (0..most).map(move |bit| place + (1 << bit)).take_while(move |&child| child < count)
}

impl<N: Net> Together<N> {
    /// Opens operations of all ranks. Numbers 0 to 255 tell those of different parts of a program
    /// apart. A number can be opened again once all ranks have dropped theirs.
    ///
    /// # Panics
    /// The number is too large.
    pub fn open(net: &N, number: u16) -> Together<N> {
        assert!(number < NUMBERS, "operations of all ranks have numbers below {NUMBERS}");
        Together::with_handler(net, crate::TOGETHER_HANDLERS + number)
    }

    /// Does what [`open`](Together::open) does; the results of reductions and barriers go from rank
    /// 0 to all by one multicast, if the net has groups, in place of messages along a tree. All
    /// ranks open them in this way.
    ///
    /// # Panics
    /// The number is too large.
    pub fn with_multicast(net: &N, number: u16) -> Together<N> {
        let together = Together::open(net, number);
        let all: Vec<usize> = (0..net.size()).collect();
        together.inner.group.replace(net.group(GROUPS + number, 0, &all));
        together
    }

    /// Does what [`open`](Together::open) does; in reductions and barriers four ranks exchange
    /// their bytes in a round: recursive multiplying (Ruefenacht, Bull and Booth, 2017). Four ranks
    /// are done after one message each way, where the tree has four messages after each other.
    /// There are more messages in all, so it is for short contributions. `combine` of
    /// [`reduce`](Together::reduce) must be associative. All ranks open them in this way.
    ///
    /// # Panics
    /// The number is too large.
    pub fn with_exchange(net: &N, number: u16) -> Together<N> {
        let together = Together::open(net, number);
        together.inner.exchanges.set(true);
        together
    }

    pub(crate) fn with_handler(net: &N, handler: u16) -> Together<N> {
        let inner = Rc::new_cyclic(|weak: &Weak<Inner<N>>| {
            let receive =
                receiver(weak, |inner, from, kind, bytes| inner.receive(from, kind, bytes));
            Inner {
                net: net.clone(),
                channel: Channel::open_again(
                    net,
                    (handler, &format!("operations of all ranks under packet handler {handler}")),
                    receive,
                ),
                handler,
                group: RefCell::default(),
                exchanges: Cell::new(false),
                rounds: RefCell::default(),
                next: Cell::new(0),
                recent: RefCell::default(),
                failure: RefCell::default(),
                gone: RefCell::default(),
                wakers: RefCell::default(),
            }
        });
        on_failure(net, &inner, |inner, failure| inner.lost(failure));
        Together { inner }
    }

    /// Ends the operations of all ranks with a failure, unless they have ended with another one.
    /// Returns that failure.
    pub(crate) fn end_by(&self, failure: RankFailure) -> RankFailure {
        let failure = self.inner.first_cause(failure);
        self.inner.failed(failure.clone());
        self.inner.failure.borrow().clone().unwrap_or(failure)
    }

    /// Waits until all ranks have called this as often.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn barrier(&self) -> Result<(), RankFailure> {
        self.combine(Function::Barrier, Vec::new(), |all, _| all).await.map(drop)
    }

    /// Combines the bytes of all ranks, in an order that does not depend on time; all get the
    /// result.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn reduce(
        &self,
        mine: Vec<u8>,
        combine: impl Fn(Vec<u8>, &[u8]) -> Vec<u8>,
    ) -> Result<Vec<u8>, RankFailure> {
        self.combine(Function::Reduce, mine, combine).await
    }

    pub(crate) async fn combine(
        &self,
        function: Function,
        mine: Vec<u8>,
        combine: impl Fn(Vec<u8>, &[u8]) -> Vec<u8>,
    ) -> Result<Vec<u8>, RankFailure> {
        let inner = &self.inner;
        let (me, count) = (inner.net.rank(), inner.net.size());
        let call = inner.begin(function);
        let mut all = mine;
        if inner.exchanges.get() {
            let all = inner.exchange(call, all, combine).await?;
            inner.end(call).await;
            return Ok(all);
        }
        for child in children(me, count) {
            let up = |round: &mut Round| round.up.remove(&child);
            let bytes = inner.wait(call, child, up).await?;
            all = combine(all, &bytes);
        }
        let group = inner.group.borrow().clone();
        let mut all_have = false;
        if me > 0 {
            inner.post(parent(me), kind::UP, call, &all)?;
            let result = |round: &mut Round| match round.cast.take() {
                Some(result) => Some((result, true)),
                None => round.down.take().map(|result| (result, false)),
            };
            let from = if group.is_some() { 0 } else { parent(me) };
            (all, all_have) = inner.wait(call, from, result).await?;
        } else if let Some(group) = group {
            all_have = inner.cast(&group, call, &all).await?;
        }
        let mine = children(me, count).filter(|_| !all_have);
        mine.into_iter().try_for_each(|child| inner.post(child, kind::DOWN, call, &all))?;
        inner.end(call).await;
        Ok(all)
    }

    /// Gives all ranks the bytes that rank `root` has; those of the others are not used.
    ///
    /// # Errors
    /// A rank has failed.
    ///
    /// # Panics
    /// There is no such rank.
    pub async fn broadcast(&self, root: usize, bytes: Vec<u8>) -> Result<Vec<u8>, RankFailure> {
        let inner = &self.inner;
        let count = inner.net.size();
        assert!(root < count, "there are {count} ranks");
        let place = (inner.net.rank() + count - root) % count;
        let rank_of = |place: usize| (place + root) % count;
        let call = inner.begin(Function::Broadcast(root));
        let mut bytes = bytes;
        if place > 0 {
            let from = rank_of(parent(place));
            bytes = inner.wait(call, from, |round| round.down.take()).await?;
        }
        for child in children(place, count) {
            inner.channel.room(rank_of(child)).await;
            inner.post(rank_of(child), kind::DOWN, call, &bytes)?;
        }
        inner.end(call).await;
        Ok(bytes)
    }
}

impl<N: Blocking> Together<N> {
    /// Waits until all ranks have called this as often, with progress meanwhile.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn barrier_blocking(&self) -> Result<(), RankFailure> {
        may_wait(&self.inner.net)?;
        self.inner.net.block_on(self.barrier())
    }
}

impl<N: Net> Inner<N> {
    fn begin(&self, function: Function) -> Call {
        let call = Call::new(self.next.replace(self.next.get() + 1), function);
        let mut recent = self.recent.borrow_mut();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(call);
        drop(recent);
        self.compare(self.net.rank(), call);
        call
    }

    /// Ends an operation when all that this rank has to send is on its way: the program may drop
    /// the operations then.
    async fn end(&self, call: Call) {
        self.channel.flush().await;
        self.rounds.borrow_mut().remove(&call.number);
    }

    /// Compares the call of a rank with that of the first rank that is known to be in the
    /// operation. All fail if they differ.
    fn compare(&self, rank: usize, call: Call) {
        let mut rounds = self.rounds.borrow_mut();
        let round = rounds.entry(call.number).or_default();
        let (other, first) = *round.call.get_or_insert((rank, call));
        drop(rounds);
        self.judge((rank, call), (other, first));
    }

    fn judge(&self, one: (usize, Call), other: (usize, Call)) {
        if one.1 != other.1 {
            let (rank, number) = (one.0, one.1.number + 1);
            let why = format!(
                "operation {number} of all ranks is {} at rank {}, and {} at rank {}: all ranks \
                 call the same ones in the same order",
                other.1.function, other.0, one.1.function, rank
            );
            self.failed(RankFailure { rank, certain: false, why });
        }
    }

    /// # Errors
    /// The rank has failed, or the bytes are longer than a message: all ranks are told.
    fn post(&self, to: usize, kind: u8, call: Call, bytes: &[u8]) -> Result<(), RankFailure> {
        if bytes.len() > MESSAGE_MAX {
            let len = bytes.len();
            let why = format!("{len} bytes for all ranks are longer than {MESSAGE_MAX}");
            let failure = RankFailure { rank: self.net.rank(), certain: false, why };
            self.failed(failure.clone());
            return Err(failure);
        }
        self.channel.post(to, kind, &[&call.to_bytes(), bytes])
    }

    /// Combines the bytes of all ranks in rounds, in the order of the ranks.
    async fn exchange(
        &self,
        call: Call,
        mine: Vec<u8>,
        combine: impl Fn(Vec<u8>, &[u8]) -> Vec<u8>,
    ) -> Result<Vec<u8>, RankFailure> {
        let me = self.net.rank();
        let Some(part) = Doubling::new(me, self.net.size()) else { return Ok(mine) };
        let folded = match part {
            Doubling::Folded { proxy } => {
                self.post(proxy, kind::UP, call, &mine)?;
                return self.wait(call, proxy, |round| round.down.take()).await;
            }
            Doubling::Active { folded, .. } => folded,
        };
        let from = |other| self.wait(call, other, move |round| round.up.remove(&other));
        let mut all = mine;
        if let Some(other) = folded {
            all = combine(from(other).await?, &all);
        }
        for round in 0.. {
            let ranks = part.exchange(round, EXCHANGE_BITS);
            let mut others = ranks.clone().filter(|rank| *rank != me).peekable();
            if others.peek().is_none() {
                break;
            }
            others.try_for_each(|other| self.post(other, kind::UP, call, &all))?;
            let (ours, mut lower) = (all, None);
            for rank in ranks {
                let theirs = if rank == me { ours.clone() } else { from(rank).await? };
                lower = Some(match lower {
                    None => theirs,
                    Some(lower) => combine(lower, &theirs),
                });
            }
            all = lower.unwrap_or(ours);
        }
        if let Some(other) = folded {
            self.post(other, kind::DOWN, call, &all)?;
        }
        Ok(all)
    }

    /// Sends a result to all by a multicast. False if it is too long for one.
    async fn cast(&self, group: &N::Group, call: Call, all: &[u8]) -> Result<bool, RankFailure> {
        let packet = [&call.to_bytes()[..], all].concat();
        if packet.len() > self.net.group_max(group) {
            return Ok(false);
        }
        let argument = u32::from(kind::CAST) << KIND_BITS;
        let mut watched = Vec::new();
        loop {
            match self.net.try_multicast(group, self.handler, argument, &packet) {
                Ok(()) => return Ok(true),
                Err(Unsent::Busy) => {
                    if watched.is_empty() {
                        let all = 0..self.net.size();
                        watched.extend(all.map(|rank| Watched::new(&self.net, rank)));
                    }
                    self.net.yield_now().await;
                }
                Err(Unsent::Failed(failure)) => return Err(failure),
                Err(_) => return Ok(false),
            }
        }
    }

    /// Waits for a part of an operation that comes from a rank.
    async fn wait<T>(
        &self,
        call: Call,
        from: usize,
        take: impl Fn(&mut Round) -> Option<T>,
    ) -> Result<T, RankFailure> {
        let (mut watched, mut timer) = (None, None);
        let mut asks = !self.net.warn_after().is_zero();
        poll_fn(|cx| {
            let found = self.rounds.borrow_mut().get_mut(&call.number).and_then(&take);
            if let Some(found) = found {
                return Poll::Ready(Ok(found));
            }
            // One that has left may have done so because of another, which is about to be known.
            let gone = self.gone.borrow().get(&from).cloned();
            if let Some(failure) = gone.filter(|failure| !self.net.has_left(failure.rank)) {
                self.failed(failure);
            }
            if let Some(failure) = self.failure.borrow().clone() {
                return Poll::Ready(Err(failure));
            }
            watched.get_or_insert_with(|| Watched::new(&self.net, from));
            if asks {
                let sleep = || Box::pin(self.net.sleep(self.net.warn_after()));
                if timer.get_or_insert_with(sleep).as_mut().poll(cx).is_ready() {
                    asks = false;
                    // A failure of that rank is noticed otherwise.
                    _ = self.post(from, kind::ASKED, call, &[]);
                }
            }
            park(&mut self.wakers.borrow_mut(), cx.waker());
            Poll::Pending
        })
        .await
    }

    fn receive(&self, from: usize, kind: u8, bytes: &[u8]) {
        if kind == kind::FAILED {
            let Some((rank, text)) = bytes.split_first_chunk() else { return };
            let text = String::from_utf8_lossy(text);
            // Others pass on the report of the rank that has noticed the failure.
            let why = match text.starts_with("rank ") && text.contains(REPORTS) {
                true => text.into_owned(),
                false => format!("rank {from}{REPORTS}{text}"),
            };
            let rank = u32::from_le_bytes(*rank) as usize;
            return self.failed(RankFailure { rank, certain: false, why });
        }
        let Some((call, rest)) = bytes.split_first_chunk() else { return };
        let call = Call::from_bytes(*call);
        // A part of an operation that this rank has begun is not over here.
        let oldest = self.rounds.borrow().keys().next().copied().unwrap_or(u64::MAX);
        let first = oldest.min(self.next.get());
        if call.number < first {
            let is_it = |own: &&Call| own.number == call.number;
            let own = self.recent.borrow().iter().find(is_it).copied();
            return match own {
                Some(own) if own != call => self.judge((from, call), (self.net.rank(), own)),
                Some(_) if kind == kind::ASKED => {}
                _ => weft::telling::error!(
                    "rank {from} sent a part of an operation that is over: {call:?}"
                ),
            };
        }
        if call.number > self.next.get() + AHEAD_MAX {
            return weft::telling::error!(
                "rank {from} sent a part of an operation too early: {call:?}"
            );
        }
        self.compare(from, call);
        {
            let mut rounds = self.rounds.borrow_mut();
            let round = rounds.entry(call.number).or_default();
            match kind {
                kind::UP => drop(round.up.insert(from, rest.to_vec())),
                kind::CAST => round.cast = Some(rest.to_vec()),
                kind::DOWN => round.down = Some(rest.to_vec()),
                _ => {}
            }
        }
        self.wake();
    }

    /// Notes that a rank has failed, or ended: at once for operations that wait for it.
    fn lost(self: &Rc<Self>, failure: RankFailure) {
        self.gone.borrow_mut().insert(failure.rank, failure.clone());
        self.wake();
        let (net, inner) = (self.net.clone(), Rc::downgrade(self));
        // Where this rank waits, one that has died without a word is noticed meanwhile: another one
        // may have left because of it.
        let waits = !self.rounds.borrow().is_empty();
        let all = (0..self.net.size()).filter(|_| waits);
        let watched: Vec<_> = all.map(|rank| Watched::new(&self.net, rank)).collect();
        self.net.spawn(async move {
            net.sleep(GRACE).await;
            if let Some(inner) = inner.upgrade() {
                inner.failed(inner.first_cause(failure));
            }
            drop(watched);
        });
    }

    /// Returns the failure of a rank that has died, in place of that of one which has left: the
    /// death may be the reason.
    fn first_cause(&self, failure: RankFailure) -> RankFailure {
        if !self.net.has_left(failure.rank) {
            return failure;
        }
        let gone = self.gone.borrow();
        let died = gone.values().find(|other| !self.net.has_left(other.rank));
        died.cloned().unwrap_or(failure)
    }

    /// Ends all operations with a failure that this rank has noticed, or of which another one has
    /// told it. All ranks pass it on: the rank that has noticed it may not reach all others, and a
    /// rank that it does not reach may wait for one that it does.
    fn failed(&self, failure: RankFailure) {
        if self.failure.borrow().is_some() {
            return;
        }
        self.failure.replace(Some(failure.clone()));
        let rank = (failure.rank as u32).to_le_bytes();
        for to in (0..self.net.size()).filter(|&to| to != self.net.rank()) {
            // One that has failed as well needs no notice.
            _ = self.channel.post(to, kind::FAILED, &[&rank, failure.why.as_bytes()]);
        }
        self.wake();
    }

    fn wake(&self) {
        self.wakers.take().into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn children__of_all_places_are_a_tree() {
        for count in 1..70 {
            let mut seen = vec![0; count];
            for place in 0..count {
                for child in children(place, count) {
                    assert_eq!(parent(child), place);
                    seen[child] += 1;
                }
            }
            assert!(seen[0] == 0 && seen[1..].iter().all(|&times| times == 1), "{seen:?}");
        }
    }
}

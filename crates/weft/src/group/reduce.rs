//! Reductions on memory in place: recursive doubling for short vectors, blocks in pieces for long
//! ones.

use super::call::{Call, Incoming};
use super::number::Kernel;
use super::sys::{Field, Part};
use super::{COLLECTIVE, RESULT};
use std::collections::VecDeque;
use std::ops::Range;
use weft_core::group::tree::{self, Doubling, Tree};
use weft_core::OpError;

/// Longest vector, in bytes, that is sent to three ranks in one round rather than to one rank in
/// each of two rounds: its time on the wire is less than the latency of a round.
const SHORT: usize = 2 << 10;

/// Shortest vector, in bytes, of which each rank combines one block: the blocks save more time on
/// the wire than their second round costs.
const LONG: usize = 64 << 10;

/// Shortest and longest piece of a block that is sent as one message. The longest is so short that
/// the pieces of a few ranks stay in a core's cache until they have been combined.
const PIECE: Range<usize> = 32 << 10..256 << 10;
/// Pieces of a block, unless they would be too short or too long.
const PIECES: usize = 8;

/// Pieces on their way from each rank.
const AHEAD: usize = 2;

/// The ranks that take part in a step of an operation, in order.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    /// Their numbers; `None` if they are all ranks of the group.
    ranks: Option<&'a [usize]>,
    pub size: usize,
    /// The position of this rank.
    pub me: usize,
}

impl<'a> Crew<'a> {
    /// Returns some ranks of a group, of which this one has the position `me`.
    pub fn of(ranks: &'a [usize], me: usize) -> Crew<'a> {
        Crew { ranks: Some(ranks), size: ranks.len(), me }
    }

    pub fn rank(self, position: usize) -> usize {
        self.ranks.map_or(position, |ranks| ranks[position])
    }

    /// Returns the positions of the others, first the next one: no two ranks begin with the same
    /// one.
    pub fn others(self) -> impl Iterator<Item = usize> + Clone {
        let Crew { me, size, .. } = self;
        (1..size).map(move |step| (me + step) % size)
    }
}

/// A block of a vector, in bytes, as the pieces in which it is sent.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub range: Range<usize>,
    piece: usize,
}

/// The place of the combined values, and the ranks that get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Each rank has its block at the beginning of another field.
    Apart,
    /// Each rank has its block in place.
    Block,
    /// Each rank has all blocks in place.
    All,
}

/// A combination by blocks.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub blocks: &'a [Block],
    pub kernel: &'a Kernel,
    pub keep: Keep,
    /// Number of ranks whose values the result has, unless a later step combines it with others.
    pub whole: Option<usize>,
}

impl Block {
    fn pieces(&self) -> usize {
        self.range.len().div_ceil(self.piece)
    }

    /// Returns a piece; an empty range beyond the last one.
    fn piece(&self, at: usize) -> Range<usize> {
        let start = (self.range.start + at * self.piece).min(self.range.end);
        start..(start + self.piece).min(self.range.end)
    }
}

/// Divides so many values into one block for each rank; the first ones are longer by one value if
/// they do not divide evenly.
pub(super) fn even(len: usize, ranks: usize) -> Vec<Range<usize>> {
    let start = |rank: usize| len / ranks * rank + rank.min(len % ranks);
    (0..ranks).map(|rank| start(rank)..start(rank + 1)).collect()
}

/// Returns blocks of values as blocks of bytes.
pub(super) fn in_bytes(blocks: &[Range<usize>], size: usize) -> Vec<Block> {
    let longest = blocks.iter().map(|block| block.len() * size).max().unwrap_or(0);
    let piece = (longest / PIECES).clamp(PIECE.start, PIECE.end) / size;
    let piece = piece.max(1) * size;
    let block = |block: &Range<usize>| Block { range: block.start * size..block.end * size, piece };
    blocks.iter().map(block).collect()
}

impl Call {
    pub(super) fn crew(&self) -> Crew<'static> {
        Crew { ranks: None, size: self.size(), me: self.rank() }
    }

    /// Combines the vectors of all ranks on every rank.
    pub(super) async fn do_allreduce(
        &self,
        field: &Field<'_>,
        kernel: Kernel,
    ) -> Result<(), OpError> {
        let (crew, all) = (self.crew(), 0..field.len());
        if field.len() < LONG || crew.size == 1 {
            self.doubling(crew, (field, all.clone()), &kernel).await?;
            field.write(all, |all| kernel.finish(all, crew.size));
            return Ok(());
        }
        // The state of a short one is moved for less, since it does not hold that of a long one.
        match self.group.hosts()? {
            Some(hosts) => Box::pin(self.by_hosts(&hosts, field, &kernel)).await,
            None => Box::pin(self.long(crew, (field, all), &kernel, Some(crew.size))).await,
        }
    }

    /// Combines a long part of the vectors of some ranks on all of these.
    pub(super) async fn long(
        &self,
        crew: Crew<'_>,
        (field, part): (&Field<'_>, Range<usize>),
        kernel: &Kernel,
        whole: Option<usize>,
    ) -> Result<(), OpError> {
        if part.len() < LONG {
            self.doubling(crew, (field, part.clone()), kernel).await?;
            whole.into_iter().for_each(|n| field.write(part.clone(), |all| kernel.finish(all, n)));
            return Ok(());
        }
        let mut blocks = in_bytes(&even(part.len() / kernel.size, crew.size), kernel.size);
        for block in &mut blocks {
            block.range = part.start + block.range.start..part.start + block.range.end;
        }
        let work = Work { blocks: &blocks, kernel, keep: Keep::All, whole };
        self.by_blocks(crew, (field, field), work).await
    }

    /// Combines the vectors of all ranks, of which each rank keeps its block.
    pub(super) async fn do_reduce_scatter(
        &self,
        fields: (&Field<'_>, &Field<'_>),
        blocks: &[Range<usize>],
        kernel: Kernel,
    ) -> Result<(), OpError> {
        let (blocks, whole) = (in_bytes(blocks, kernel.size), Some(self.size()));
        let work = Work { blocks: &blocks, kernel: &kernel, keep: Keep::Apart, whole };
        self.by_blocks(self.crew(), fields, work).await
    }

    /// Reduction from the leaves of the tree to its root, where the field has the result.
    pub(super) async fn do_reduce(
        &self,
        (kind, root): (Tree, usize),
        field: &Field<'_>,
        kernel: &Kernel,
    ) -> Result<(), OpError> {
        let all = 0..field.len();
        let mut slot = None;
        for child in tree::children(kind, root, self.rank(), self.size()) {
            let slot = slot.get_or_insert_with(|| self.slots(field.len()));
            self.end_vector(self.incoming(slot, child, all.clone(), COLLECTIVE)?).await?;
            field.fold(kernel, all.clone(), (slot, all.clone()));
        }
        match tree::parent(kind, root, self.rank(), self.size()) {
            Some(parent) => {
                self.end_send(self.outgoing(field, parent, all, COLLECTIVE)?).await?;
            }
            None => field.write(all, |all| kernel.finish(all, self.size())),
        }
        slot.into_iter().for_each(|slot| self.keep(slot));
        Ok(())
    }

    /// Combines by recursive doubling. For short vectors four ranks exchange in a round, which
    /// halves the number of rounds.
    async fn doubling(
        &self,
        crew: Crew<'_>,
        (field, all): (&Field<'_>, Range<usize>),
        kernel: &Kernel,
    ) -> Result<(), OpError> {
        let len = all.len();
        let Some(part) = Doubling::new(crew.me, crew.size) else { return Ok(()) };
        let folded = match part {
            Doubling::Folded { proxy } => {
                let proxy = crew.rank(proxy);
                self.end_send(self.outgoing(field, proxy, all.clone(), COLLECTIVE)?).await?;
                return self.take_vector(field, proxy, all).await;
            }
            Doubling::Active { folded, .. } => folded,
        };
        let bits = if len <= SHORT { 2 } else { 1 };
        let rounds = (0..).find(|&round| part.exchange(round, bits).count() == 0).unwrap_or(0);
        // A slot for the vector of each member of a round, and one for that of a folded rank.
        let members = 1 << bits;
        let slots = self.slots(len * (rounds as usize * members + usize::from(folded.is_some())));
        let slot = |at: usize| at * len..(at + 1) * len;
        let last = rounds as usize * members;
        if let Some(other) = folded {
            let other = crew.rank(other);
            self.take_vector(&slots, other, slot(last)).await?;
            field.fold(kernel, all.clone(), (&slots, slot(last)));
        }
        // The messages of a round are sent from the result of the round before.
        let mut sent = Vec::new();
        let mut ours: (&Field<'_>, Range<usize>) = (field, all.clone());
        for round in 0..rounds {
            let first = round as usize * members;
            ours = self
                .round((crew, &part, round, bits), kernel, ours, (&slots, &slot, first), &mut sent)
                .await?;
        }
        for part in sent {
            self.end_send(part).await?;
        }
        if rounds > 0 {
            field.copy(all.clone(), (ours.0, ours.1));
        }
        if let Some(other) = folded {
            self.end_send(self.outgoing(field, crew.rank(other), all, COLLECTIVE)?).await?;
        }
        self.keep(slots);
        Ok(())
    }

    /// Exchanges with the members of a round; returns the place of the result.
    async fn round<'f>(
        &'f self,
        (crew, part, round, bits): (Crew<'_>, &Doubling, u32, u32),
        kernel: &Kernel,
        (from, range): (&'f Field<'f>, Range<usize>),
        (slots, slot, first): (&'f Field<'f>, &dyn Fn(usize) -> Range<usize>, usize),
        sent: &mut Vec<(super::PeerId, Part<'f>)>,
    ) -> Result<(&'f Field<'f>, Range<usize>), OpError> {
        let members = || part.exchange(round, bits).enumerate();
        let others = || members().filter(|&(_, member)| member != crew.me);
        let mut incoming: [Option<Incoming<'f>>; 4] = [const { None }; 4];
        // A caller that waits for nothing else receives each message when its turn comes.
        for (at, member) in others().filter(|_| !self.is_awaited) {
            let from = crew.rank(member);
            incoming[at] = Some(self.incoming(slots, from, slot(first + at), COLLECTIVE)?);
        }
        for (_, member) in others() {
            let out = self.outgoing(from, crew.rank(member), range.clone(), COLLECTIVE)?;
            if !out.1.is_free() {
                sent.push(out);
            }
        }
        // All ranks combine in the same order, so the result has the same bits.
        let result = slot(first);
        for (at, member) in members() {
            let theirs = slot(first + at);
            match incoming[at].take() {
                Some(part) => self.end_vector(part).await?,
                None if member != crew.me => {
                    self.take_vector(slots, crew.rank(member), theirs.clone()).await?;
                }
                None => {}
            }
            match (member == crew.me, at) {
                (true, 0) => slots.copy(result.clone(), (from, range.clone())),
                (true, _) => slots.fold(kernel, result.clone(), (from, range.clone())),
                (false, 0) => {}
                (false, _) => slots.fold(kernel, result.clone(), (slots, theirs)),
            }
        }
        Ok((slots, result))
    }

    /// Combines by blocks: each rank combines its block, piece by piece, and with `Keep::All` gives
    /// the result to all others. It sends, and receives, less than two vectors, however many ranks
    /// there are. Values are combined in the order of ranks, so the result has the same bits
    /// wherever it is made.
    pub(super) async fn by_blocks(
        &self,
        crew: Crew<'_>,
        (from, into): (&Field<'_>, &Field<'_>),
        work: Work<'_>,
    ) -> Result<(), OpError> {
        let own = &work.blocks[crew.me];
        let slots = self.slots(own.piece.min(own.range.len()) * AHEAD * (crew.size - 1));
        let most = work.blocks.iter().map(Block::pieces).max().unwrap_or(0);
        let mut blocks = Blocks::new(self, crew, (from, into), work, &slots);
        for at in 0..AHEAD.min(most) {
            blocks.receive(at)?;
            blocks.send(at)?;
        }
        for at in 0..most {
            blocks.combine(at).await?;
            blocks.pass(at).await?;
            blocks.receive(at + AHEAD)?;
            blocks.send(at + AHEAD)?;
        }
        blocks.end().await?;
        drop(blocks);
        self.keep(slots);
        Ok(())
    }
}

/// The state of a combination by blocks.
struct Blocks<'f> {
    call: &'f Call,
    crew: Crew<'f>,
    from: &'f Field<'f>,
    into: &'f Field<'f>,
    work: Work<'f>,
    slots: &'f Field<'f>,
    /// Pieces of the own block on their way here, in the order in which they are combined.
    parts: VecDeque<(Incoming<'f>, Range<usize>)>,
    /// Pieces of others' blocks on their way to these, with their numbers.
    out: VecDeque<(usize, usize, super::PeerId, Part<'f>)>,
    /// Results on their way.
    results: VecDeque<Incoming<'f>>,
    given: VecDeque<(super::PeerId, Part<'f>)>,
}

impl<'f> Blocks<'f> {
    fn new(
        call: &'f Call,
        crew: Crew<'f>,
        (from, into): (&'f Field<'f>, &'f Field<'f>),
        work: Work<'f>,
        slots: &'f Field<'f>,
    ) -> Blocks<'f> {
        let (parts, out) = (VecDeque::new(), VecDeque::new());
        let (results, given) = (VecDeque::new(), VecDeque::new());
        Blocks { call, crew, from, into, work, slots, parts, out, results, given }
    }

    /// Posts the receives of a piece of the own block.
    fn receive(&mut self, at: usize) -> Result<(), OpError> {
        let own = &self.work.blocks[self.crew.me];
        let len = own.piece(at).len();
        let stride = own.piece.min(own.range.len());
        if len == 0 {
            return Ok(());
        }
        let others = (0..self.crew.size).filter(|&other| other != self.crew.me);
        for (nth, other) in others.enumerate() {
            let start = (at % AHEAD * (self.crew.size - 1) + nth) * stride;
            let slot = start..start + len;
            let rank = self.crew.rank(other);
            let part = self.call.incoming(self.slots, rank, slot.clone(), COLLECTIVE)?;
            self.parts.push_back((part, slot));
        }
        Ok(())
    }

    /// Sends a piece of each other block to its rank.
    fn send(&mut self, at: usize) -> Result<(), OpError> {
        for other in self.crew.others() {
            let piece = self.work.blocks[other].piece(at);
            if !piece.is_empty() {
                let rank = self.crew.rank(other);
                let (peer, part) = self.call.outgoing(self.from, rank, piece, COLLECTIVE)?;
                self.out.push_back((other, at, peer, part));
            }
        }
        Ok(())
    }

    /// Combines a piece of the own block, and gives it to the others.
    async fn combine(&mut self, at: usize) -> Result<(), OpError> {
        let Work { kernel, keep, whole, .. } = self.work;
        let own = &self.work.blocks[self.crew.me];
        let piece = own.piece(at);
        if piece.is_empty() {
            return Ok(());
        }
        let target = match keep {
            Keep::Apart => piece.start - own.range.start..piece.end - own.range.start,
            Keep::Block | Keep::All => piece.clone(),
        };
        if keep == Keep::Apart {
            self.into.copy(target.clone(), (self.from, piece));
        }
        // Values of lower ranks are combined first, then the own ones, then those of higher ranks.
        let mut lower: Option<Range<usize>> = None;
        for other in 1..self.crew.size {
            let Some((part, slot)) = self.parts.pop_front() else { break };
            self.call.end_vector(part).await?;
            match lower.take() {
                Some(all) => {
                    self.slots.fold(kernel, all.clone(), (self.slots, slot));
                    lower = Some(all);
                }
                None if other == 1 && self.crew.me > 0 => lower = Some(slot),
                None => self.into.fold(kernel, target.clone(), (self.slots, slot)),
            }
            if other == self.crew.me {
                let lower = lower.take().into_iter();
                lower.for_each(|all| self.into.fold(kernel, target.clone(), (self.slots, all)));
            }
        }
        let finish = |n| self.into.write(target.clone(), |all| kernel.finish(all, n));
        whole.into_iter().for_each(finish);
        for other in self.crew.others().filter(|_| keep == Keep::All) {
            let rank = self.crew.rank(other);
            self.given.push_back(self.call.outgoing(self.into, rank, target.clone(), RESULT)?);
        }
        Ok(())
    }

    /// Waits until a piece of each other block has left, and posts the receive of its result into
    /// its place.
    async fn pass(&mut self, at: usize) -> Result<(), OpError> {
        while self.out.front().is_some_and(|&(_, number, ..)| number <= at) {
            let Some((other, at, peer, part)) = self.out.pop_front() else { break };
            self.call.end_send((peer, part)).await?;
            if self.work.keep == Keep::All {
                let rank = self.crew.rank(other);
                let piece = self.work.blocks[other].piece(at);
                self.results.push_back(self.call.incoming(self.into, rank, piece, RESULT)?);
            }
        }
        let most = AHEAD * (self.crew.size - 1);
        while self.results.len() > most {
            let Some(part) = self.results.pop_front() else { break };
            self.call.end_vector(part).await?;
        }
        while self.given.len() > most {
            let Some(given) = self.given.pop_front() else { break };
            self.call.end_send(given).await?;
        }
        Ok(())
    }

    /// Waits for all that is on its way.
    async fn end(&mut self) -> Result<(), OpError> {
        while let Some(part) = self.results.pop_front() {
            self.call.end_vector(part).await?;
        }
        while let Some(given) = self.given.pop_front() {
            self.call.end_send(given).await?;
        }
        Ok(())
    }
}

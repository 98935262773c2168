//! Collective operations on memory that they keep until they have ended, with types of numbers that
//! are named at run time: for callers in other languages, which wait for several at once. Dropping
//! one of these operations ends it, so that its memory is free.

use super::agree::{hash, Kind, What};
use super::call::Call;
use super::collectives::blocks;
use super::placed::is;
use super::{Kept, Number, Op, Placed, Started};
use std::future::Future;
use std::ops::Range;
use weft_core::OpError;

impl Placed<'_> {
    /// Begins the next collective operation, which ends when it is dropped.
    fn begin<T, F>(
        &self,
        check: Result<(), OpError>,
        (what, bytes): (What, Option<usize>),
        work: impl FnOnce(Call) -> F + 'static,
    ) -> Started<T>
    where
        T: 'static,
        F: Future<Output = Result<T, OpError>> + 'static,
    {
        if let Err(error) = check {
            return Started::ended(self.group, None, error);
        }
        let call = Call::new(self.group, what, bytes.map(|bytes| bytes as u64));
        Started::task(self.group, true, call.run(work))
    }

    /// Combines the vectors of all ranks, position by position, in place on every rank, as
    /// [`Group::allreduce`](crate::Group::allreduce) does.
    pub fn keep_allreduce(&self, mut memory: Kept, of: Number, op: Op) -> Started<Kept> {
        let kernel = of.kernel(op);
        let what = What::of(Kind::Allreduce).values_of(kernel.name, op);
        let what = (what, Some(memory.len()));
        self.begin(combines(&memory, of, op), what, move |call| async move {
            call.do_allreduce(&memory.field(true), kernel).await?;
            Ok(memory)
        })
    }

    /// Combines the vectors of all ranks at the root, as [`Group::reduce`](crate::Group::reduce)
    /// does. The memory of the other ranks is undefined afterwards.
    pub fn keep_reduce(
        &self,
        root: usize,
        mut memory: Kept,
        (of, op): (Number, Op),
    ) -> Started<Kept> {
        let (kernel, tree) = (of.kernel(op), self.group.inner.tree.get());
        let what = What::of(Kind::Reduce).values_of(kernel.name, op).over(tree).root(root);
        let what = (what, Some(memory.len()));
        let check = combines(&memory, of, op).and_then(|()| self.group.has_rank(root));
        self.begin(check, what, move |call| async move {
            call.do_reduce((tree, root), &memory.field(true), &kernel).await?;
            Ok(memory)
        })
    }

    /// Combines the vectors of all ranks, and gives each rank one block of the result in `into`, as
    /// [`reduce_scatter_bytes`](Self::reduce_scatter_bytes) does.
    pub fn keep_reduce_scatter(
        &self,
        mut from: Kept,
        counts: &[usize],
        (of, op): (Number, Op),
        mut into: Kept,
    ) -> Started<Kept> {
        let kernel = of.kernel(op);
        let blocks = blocks(counts);
        let sum = blocks.last().map_or(0, |last| last.end);
        let own = counts.get(self.group.rank()).copied().unwrap_or(0);
        let check = combines(&from, of, op)
            .and(self.group.one_each(counts.len()))
            .and(is(sum, from.len() / kernel.size))
            .and(is(own * kernel.size, into.len()));
        let what = What::of(Kind::ReduceScatter).values_of(kernel.name, op).counts(counts);
        let what = (what, Some(from.len()));
        self.begin(check, what, move |call| async move {
            let fields = (&from.field(false), &into.field(true));
            call.do_reduce_scatter(fields, &blocks, kernel).await?;
            Ok(into)
        })
    }

    /// Gives every rank the root's bytes, as [`start_broadcast`](Self::start_broadcast) does.
    pub fn keep_broadcast(&self, root: usize, mut memory: Kept) -> Started<Kept> {
        let tree = self.group.inner.tree.get();
        let what = What::of(Kind::BroadcastInto).over(tree).root(root);
        let is_root = self.group.rank() == root;
        let what = (what, Some(memory.len()));
        self.begin(self.group.has_rank(root), what, move |call| async move {
            call.do_broadcast_into((tree, root), &memory.field(!is_root)).await?;
            Ok(memory)
        })
    }

    /// Gives every rank the bytes of all, as [`start_allgather`](Self::start_allgather) does.
    pub fn keep_allgather(&self, counts: &[usize], mut all: Kept) -> Started<Kept> {
        let blocks = blocks(counts);
        let sum = blocks.last().map_or(0, |last| last.end);
        let check = self.group.one_each(counts.len()).and(is(sum, all.len()));
        let what = What::of(Kind::AllgatherInto).root(hash(counts) as usize);
        let what = (what, Some(all.len()));
        self.begin(check, what, move |call| async move {
            call.do_allgather_into(&all.field(true), &blocks).await?;
            Ok(all)
        })
    }

    /// Exchanges parts between all ranks, as [`start_alltoall`](Self::start_alltoall) does; those
    /// of the other ranks come into `into`.
    pub fn keep_alltoall(
        &self,
        (gives, mut from): (&[usize], Kept),
        (takes, mut into): (&[usize], Kept),
    ) -> Started<Kept> {
        let (given, taken) = (blocks(gives), blocks(takes));
        let sum = |blocks: &[Range<usize>]| blocks.last().map_or(0, |last| last.end);
        let own = |counts: &[usize]| counts.get(self.group.rank()).copied().unwrap_or(0);
        let check = self
            .group
            .one_each(gives.len())
            .and(self.group.one_each(takes.len()))
            .and(is(sum(&given), from.len()))
            .and(is(sum(&taken), into.len()))
            .and(is(own(gives), own(takes)));
        self.begin(check, (What::of(Kind::AlltoallInto), None), move |call| async move {
            let fields = (&from.field(false), &into.field(true));
            call.do_alltoall_into(fields, (&given, &taken)).await?;
            Ok(into)
        })
    }
}

/// # Errors
/// Values of this type cannot be combined by `op`, or the memory has a part of one.
fn combines(memory: &Kept, of: Number, op: Op) -> Result<(), OpError> {
    let takes = of.takes(op).then_some(()).ok_or(OpError::NoSuchOp);
    takes.and(is(memory.len() / of.size() * of.size(), memory.len()))
}

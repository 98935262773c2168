//! Collective operations. Every rank of the group calls the same operations in the same order. Only
//! the order of the calls counts, not when each is awaited; several may be under way.

use super::agree::{Kind, What};
use super::call::Call;
use super::element::encode;
use super::number::Kernel;
use super::sys::{with_owned, Slots};
use super::{Element, Group, GroupError, Op, Started, Tree};
use std::future::Future;
use std::ops::Range;
use weft_core::OpError;

/// The message of each rank, in order of rank.
pub(super) type Messages = Vec<Vec<u8>>;

impl Group {
    /// Begins the next collective operation, of `bytes` that ranks give alike, if that is known.
    pub(super) fn begin<T, F>(
        &self,
        (what, bytes): (What, Option<usize>),
        work: impl FnOnce(Call) -> F + 'static,
    ) -> Started<T>
    where
        T: 'static,
        F: Future<Output = Result<T, OpError>> + 'static,
    {
        let call = Call::new(self, what, bytes.map(|bytes| bytes as u64));
        Started::task(self, false, call.run(work))
    }

    /// Begins it after a check.
    pub(super) fn begin_if<T, F>(
        &self,
        check: Result<(), OpError>,
        what: (What, Option<usize>),
        work: impl FnOnce(Call) -> F + 'static,
    ) -> Started<T>
    where
        T: 'static,
        F: Future<Output = Result<T, OpError>> + 'static,
    {
        match check {
            Ok(()) => self.begin(what, work),
            Err(error) => Started::ended(self, None, error),
        }
    }

    /// Ends when every rank has called it. Takes log4(size) rounds (dissemination).
    pub fn barrier(&self) -> Started<()> {
        let what = (What::of(Kind::Barrier), None);
        self.begin(what, |call| async move { call.do_barrier().await })
    }

    /// Waits at a [`barrier`](Self::barrier) until every rank has called it.
    ///
    /// # Errors
    /// A rank that is needed failed.
    pub fn barrier_blocking(&self) -> Result<(), GroupError> {
        self.barrier().wait()
    }

    /// Gives every rank the root's `data`; the other ranks may pass an empty vector.
    ///
    /// All ranks name the same `root`. Otherwise a rank that needs nothing from the others, such as
    /// each of two roots, may end without an error. The next operation of the group that takes a
    /// message of the other rank then ends with `Mismatch`.
    pub fn broadcast(&self, root: usize, data: Vec<u8>) -> Started<Vec<u8>> {
        self.over(self.inner.tree.get()).broadcast(root, data)
    }

    /// Gives every rank the root's `data` by [`broadcast`](Self::broadcast), and returns at the end
    /// of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or there is no such root.
    pub fn broadcast_blocking(&self, root: usize, data: Vec<u8>) -> Result<Vec<u8>, GroupError> {
        self.broadcast(root, data).wait()
    }

    /// Combines the vectors of all ranks, position by position, at the root; `None` on other ranks.
    /// All vectors have the same length; otherwise it fails with `Uneven`. An `Op` of bits on
    /// floating-point numbers fails with
    /// `NoSuchOp`.
    pub fn reduce<T: Element>(
        &self,
        root: usize,
        values: Vec<T>,
        op: Op,
    ) -> Started<Option<Vec<T>>> {
        self.over(self.inner.tree.get()).reduce(root, values, op)
    }

    /// Combines the vectors of all ranks at the root by [`reduce`](Self::reduce), and returns at
    /// the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or there is no such root.
    pub fn reduce_blocking<T: Element>(
        &self,
        root: usize,
        values: Vec<T>,
        op: Op,
    ) -> Result<Option<Vec<T>>, GroupError> {
        self.reduce(root, values, op).wait()
    }

    /// Combines the vectors of all ranks, position by position, on every rank. The result has the
    /// same bits everywhere, but for those of values that are no numbers. `values` are combined in
    /// their own memory, which comes back as the result.
    /// Short vectors are combined by recursive doubling; of a long one each rank combines a block.
    pub fn allreduce<T: Element>(&self, values: Vec<T>, op: Op) -> Started<Vec<T>> {
        let what = What::of(Kind::Allreduce).values::<T>(op);
        let what = (what, Some(values.len() * T::SIZE));
        self.begin_if(takes::<T>(op), what, move |call| async move {
            let kernel = Kernel::of::<T>(op);
            with_owned(values, async |field| call.do_allreduce(field, kernel).await).await
        })
    }

    /// Combines the vectors of all ranks on every rank by [`allreduce`](Self::allreduce), and
    /// returns at the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed.
    pub fn allreduce_blocking<T: Element>(
        &self,
        values: Vec<T>,
        op: Op,
    ) -> Result<Vec<T>, GroupError> {
        self.allreduce(values, op).wait()
    }

    /// Combines the vectors of all ranks, position by position, and gives each rank one block of
    /// the result: the first `counts[0]` values to rank 0, the next `counts[1]` to rank 1, and so
    /// on.
    /// All ranks give the same counts; otherwise it fails with `Mismatch`. The values are combined
    /// in the order of ranks.
    ///
    /// # Errors
    /// `Count` if there is not one count for each rank, or if their sum is not the length of
    /// `values`: nothing was sent, and the other ranks wait. Otherwise as
    /// [`reduce`](Self::reduce).
    pub fn reduce_scatter<T: Element>(
        &self,
        values: Vec<T>,
        counts: &[usize],
        op: Op,
    ) -> Started<Vec<T>> {
        let blocks = blocks(counts);
        let sum = blocks.last().map_or(0, |last| last.end);
        let fits = match sum == values.len() {
            true => Ok(()),
            false => Err(OpError::Count { wanted: sum as u32, given: values.len() as u32 }),
        };
        let check = takes::<T>(op).and_then(|()| self.one_each(counts.len())).and(fits);
        let what = What::of(Kind::ReduceScatter).values::<T>(op).counts(counts);
        let what = (what, Some(values.len() * T::SIZE));
        let own = blocks.get(self.rank()).cloned().unwrap_or_default();
        self.begin_if(check, what, move |call| async move {
            let (kernel, from) = (Kernel::of::<T>(op), Slots::new(encode(&values)));
            let into = values[own].to_vec();
            with_owned(into, async |into| {
                call.do_reduce_scatter((&from, into), &blocks, kernel).await
            })
            .await
        })
    }

    /// Combines the vectors of all ranks by [`reduce_scatter`](Self::reduce_scatter), and returns
    /// this rank's block at the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or the counts do not fit.
    pub fn reduce_scatter_blocking<T: Element>(
        &self,
        values: Vec<T>,
        counts: &[usize],
        op: Op,
    ) -> Result<Vec<T>, GroupError> {
        self.reduce_scatter(values, counts, op).wait()
    }

    /// Collects one message of every rank at the root, in order of rank; `None` on other ranks.
    /// Each rank sends straight to the root, so no byte crosses a network twice.
    pub fn gather(&self, root: usize, data: Vec<u8>) -> Started<Option<Messages>> {
        self.over(Tree::Flat).gather(root, data)
    }

    /// Collects one message of every rank at the root by [`gather`](Self::gather), and returns at
    /// the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or there is no such root.
    pub fn gather_blocking(
        &self,
        root: usize,
        data: Vec<u8>,
    ) -> Result<Option<Messages>, GroupError> {
        self.gather(root, data).wait()
    }

    /// Gives each rank `r` the root's `data[r]`; the other ranks may pass an empty vector. The root
    /// sends straight to each rank, so no byte crosses a network twice.
    ///
    /// # Errors
    /// `Count` at the root if `data` does not have one message for each rank: nothing was sent, and
    /// the other ranks wait. As for every operation, `Peer` if a needed rank has failed.
    pub fn scatter(&self, root: usize, data: Messages) -> Started<Vec<u8>> {
        let given = if self.rank() == root { data.len() } else { self.size() };
        let check = self.has_rank(root).and_then(|()| self.one_each(given));
        let what = (What::of(Kind::Scatter).root(root), None);
        self.begin_if(check, what, move |call| async move { call.do_scatter(root, data).await })
    }

    /// Gives each rank its message of the root by [`scatter`](Self::scatter), and returns at the
    /// end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, there is no such root, or its `data` has not one message a
    /// rank.
    pub fn scatter_blocking(&self, root: usize, data: Messages) -> Result<Vec<u8>, GroupError> {
        self.scatter(root, data).wait()
    }

    /// Gives every rank the messages of all, in order of rank. Takes size - 1 steps (ring).
    pub fn allgather(&self, data: Vec<u8>) -> Started<Messages> {
        let what = (What::of(Kind::Allgather), None);
        self.begin(what, move |call| async move { call.do_allgather(data).await })
    }

    /// Gives every rank the messages of all by [`allgather`](Self::allgather), and returns at the
    /// end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed.
    pub fn allgather_blocking(&self, data: Vec<u8>) -> Result<Messages, GroupError> {
        self.allgather(data).wait()
    }

    /// Sends `data[r]` to each rank `r`, and gives the messages of all ranks to this one, in order
    /// of rank. `data` has one message for each rank.
    ///
    /// # Errors
    /// `Count` if `data` does not: nothing was sent, and the other ranks wait. As for every
    /// operation, `Peer` if a needed rank has failed.
    pub fn alltoall(&self, data: Messages) -> Started<Messages> {
        let what = (What::of(Kind::Alltoall), None);
        self.begin_if(self.one_each(data.len()), what, move |call| async move {
            call.do_alltoall(data).await
        })
    }

    /// Exchanges messages between all ranks by [`alltoall`](Self::alltoall), and returns at the end
    /// of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or `data` has not one message a rank.
    pub fn alltoall_blocking(&self, data: Messages) -> Result<Messages, GroupError> {
        self.alltoall(data).wait()
    }

    /// # Errors
    /// `given` is not one message for each rank.
    pub(super) fn one_each(&self, given: usize) -> Result<(), OpError> {
        match given == self.size() {
            true => Ok(()),
            false => Err(OpError::Count { wanted: self.size() as u32, given: given as u32 }),
        }
    }

    pub(super) fn has_rank(&self, rank: usize) -> Result<(), OpError> {
        (rank < self.size()).then_some(()).ok_or_else(|| self.no_rank(rank))
    }
}

/// Returns the blocks of so many values each, one behind the other.
pub(super) fn blocks(counts: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0_usize;
    let block = |&count: &usize| {
        let start = end;
        end = end.saturating_add(count);
        start..end
    };
    counts.iter().map(block).collect()
}

/// # Errors
/// Fails if values of type `T` cannot be combined by `op`.
pub(super) fn takes<T: Element>(op: Op) -> Result<(), OpError> {
    T::takes(op).then_some(()).ok_or(OpError::NoSuchOp)
}

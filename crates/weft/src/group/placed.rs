//! Collective operations on memory of known length: vectors are combined and gathered where they
//! are, and nothing is encoded or allocated for them. Forms that own the memory give it back with
//! the result; blocking forms borrow it.

use super::agree::{hash, Kind, What};
use super::call::Call;
use super::collectives::blocks;
use super::number::Kernel;
use super::sys::{with_borrowed, with_owned, with_two, Field, Slots};
use super::{Element, Group, GroupError, Number, Op, Started, Tree};
use std::ops::Range;
use weft_core::OpError;

/// The lengths in messages to people.
const BYTES: &str = "the length in bytes";
const BLOCK: &str = "the length of this rank's block";

/// The collective operations of a group on memory of known length, as [`Group::placed`] gives them.
pub struct Placed<'a> {
    pub(super) group: &'a Group,
}

impl Group {
    /// Returns the operations on memory of known length: vectors are combined and gathered where
    /// they are, and nothing is encoded or allocated for them.
    pub fn placed(&self) -> Placed<'_> {
        Placed { group: self }
    }
}

impl Placed<'_> {
    /// # Errors
    /// A length is not the one that the other arguments give.
    fn fits(&self, what: &str, wanted: usize, given: usize) -> Result<(), GroupError> {
        is(wanted, given).map_err(|error| {
            let text = format!("{what} is {given}, and must be {wanted}; nothing was sent");
            self.group.error(error, None).with_text(text)
        })
    }

    /// # Errors
    /// The arguments cannot be used: nothing was sent.
    fn checked(&self, check: Result<(), OpError>) -> Result<(), GroupError> {
        check.map_err(|error| self.group.error(error, None))
    }

    /// Combines the vectors of all ranks, position by position, in place on every rank: see
    /// [`Group::allreduce`].
    ///
    /// ```no_run
    /// let job = weft::Job::init()?;
    /// let mut gradient = vec![0.5_f32; 1 << 20];
    /// job.world().placed().allreduce(&mut gradient, weft::Op::Average)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is needed failed; the values are then undefined. `NoSuchOp` if values of this
    /// type cannot be combined by `op`.
    pub fn allreduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<(), GroupError> {
        let kernel = Kernel::of::<T>(op);
        self.checked(T::takes(op).then_some(()).ok_or(OpError::NoSuchOp))?;
        match T::bytes_mut(values) {
            Some(bytes) => self.allreduce_kernel(bytes, kernel),
            None => {
                values.copy_from_slice(&self.group.allreduce_blocking(values.to_vec(), op)?);
                Ok(())
            }
        }
    }

    /// Combines the vectors of all ranks in place by
    /// [`allreduce`](Self::allreduce); the type of their values, in
    /// little-endian order, is named at run time. Memory of any alignment will do.
    ///
    /// # Errors
    /// The errors of that function; `Count` if the bytes are not a whole number of values.
    pub fn allreduce_bytes(&self, bytes: &mut [u8], of: Number, op: Op) -> Result<(), GroupError> {
        self.checked(of.takes(op).then_some(()).ok_or(OpError::NoSuchOp))?;
        self.fits(BYTES, bytes.len() / of.size() * of.size(), bytes.len())?;
        self.allreduce_kernel(bytes, of.kernel(op))
    }

    /// Combines the vectors of all ranks by [`allreduce_bytes`](Self::allreduce_bytes); the result
    /// comes back in the same memory.
    pub fn start_allreduce(&self, bytes: Vec<u8>, of: Number, op: Op) -> Started<Vec<u8>> {
        let kernel = of.kernel(op);
        let values = bytes.len() / kernel.size;
        let check = of.takes(op).then_some(()).ok_or(OpError::NoSuchOp);
        let check = check.and(is(values * kernel.size, bytes.len()));
        let what = What::of(Kind::Allreduce).values_of(kernel.name, op);
        self.group.begin_if(check, (what, Some(bytes.len())), move |call| async move {
            with_owned(bytes, async |field| call.do_allreduce(field, kernel).await).await
        })
    }

    /// Combines the vectors of all ranks by [`reduce_scatter_bytes`](Self::reduce_scatter_bytes),
    /// and returns this rank's block.
    pub fn start_reduce_scatter(
        &self,
        bytes: Vec<u8>,
        counts: &[usize],
        (of, op): (Number, Op),
    ) -> Started<Vec<u8>> {
        let (kernel, blocks) = (of.kernel(op), blocks(counts));
        let sum = blocks.last().map_or(0, |last| last.end);
        let check = of.takes(op).then_some(()).ok_or(OpError::NoSuchOp);
        let check = check.and(self.group.one_each(counts.len()));
        let check = check.and(is(sum.saturating_mul(kernel.size), bytes.len()));
        let what = What::of(Kind::ReduceScatter).values_of(kernel.name, op).counts(counts);
        let own = counts.get(self.group.rank()).copied().unwrap_or(0);
        self.group.begin_if(check, (what, Some(bytes.len())), move |call| async move {
            let (from, into) = (Slots::new(bytes), vec![0; own * kernel.size]);
            let fields = async |into: &Field<'_>| {
                call.do_reduce_scatter((&from, into), &blocks, kernel).await
            };
            with_owned(into, fields).await
        })
    }

    fn allreduce_kernel(&self, bytes: &mut [u8], kernel: Kernel) -> Result<(), GroupError> {
        let what = What::of(Kind::Allreduce).values_of(kernel.name, kernel.op);
        let call = Call::new(self.group, what, Some(bytes.len() as u64)).awaited();
        let work = async |field: &Field<'_>| {
            call.run(|call| async move { call.do_allreduce(field, kernel).await }).await
        };
        with_borrowed(&self.group.inner.endpoint, bytes, work)
    }

    /// Combines the vectors of all ranks, position by position, and gives each rank one block of
    /// the result in `into`: see [`Group::reduce_scatter`].
    ///
    /// # Errors
    /// The errors of `Group::reduce_scatter`; `Count` also if `into` is not as long as this rank's
    /// block. After an error `into` is undefined.
    pub fn reduce_scatter<T: Element>(
        &self,
        values: &[T],
        counts: &[usize],
        op: Op,
        into: &mut [T],
    ) -> Result<(), GroupError> {
        let kernel = Kernel::of::<T>(op);
        self.checked(T::takes(op).then_some(()).ok_or(OpError::NoSuchOp))?;
        match (T::bytes(values), T::bytes_mut(into)) {
            (Some(bytes), Some(into)) => self.reduce_scatter_kernel(bytes, counts, kernel, into),
            _ => {
                let own = self.group.reduce_scatter_blocking(values.to_vec(), counts, op)?;
                self.fits(BLOCK, own.len(), into.len())?;
                into.copy_from_slice(&own);
                Ok(())
            }
        }
    }

    /// Combines the vectors of all ranks by
    /// [`reduce_scatter`](Self::reduce_scatter); the type of their
    /// values, in little-endian order, is named at run time. `counts` are numbers of values.
    ///
    /// # Errors
    /// The errors of that function.
    pub fn reduce_scatter_bytes(
        &self,
        bytes: &[u8],
        counts: &[usize],
        (of, op): (Number, Op),
        into: &mut [u8],
    ) -> Result<(), GroupError> {
        self.checked(of.takes(op).then_some(()).ok_or(OpError::NoSuchOp))?;
        self.fits(BYTES, bytes.len() / of.size() * of.size(), bytes.len())?;
        self.reduce_scatter_kernel(bytes, counts, of.kernel(op), into)
    }

    fn reduce_scatter_kernel(
        &self,
        bytes: &[u8],
        counts: &[usize],
        kernel: Kernel,
        into: &mut [u8],
    ) -> Result<(), GroupError> {
        self.checked(self.group.one_each(counts.len()))?;
        let blocks = blocks(counts);
        let sum = blocks.last().map_or(0, |last| last.end);
        self.fits("the number of values", sum, bytes.len() / kernel.size)?;
        self.fits(BLOCK, counts[self.group.rank()] * kernel.size, into.len())?;
        let what = What::of(Kind::ReduceScatter).values_of(kernel.name, kernel.op).counts(counts);
        let call = Call::new(self.group, what, Some(bytes.len() as u64));
        let blocks = &blocks[..];
        let work = async |from: &Field<'_>, into: &Field<'_>| {
            let work = |call: Call| async move {
                call.do_reduce_scatter((from, into), blocks, kernel).await
            };
            call.run(work).await
        };
        with_two(&self.group.inner.endpoint, (bytes, into), work)
    }

    /// Gives every rank the root's bytes in `bytes`, which is as long on all ranks.
    pub fn start_broadcast(&self, root: usize, bytes: Vec<u8>) -> Started<Vec<u8>> {
        let tree: Tree = self.group.inner.tree.get();
        let what = What::of(Kind::BroadcastInto).over(tree).root(root);
        let what = (what, Some(bytes.len()));
        self.group.begin_if(self.group.has_rank(root), what, move |call| async move {
            with_owned(bytes, async |field| call.do_broadcast_into((tree, root), field).await).await
        })
    }

    /// Gives every rank the root's bytes by [`start_broadcast`](Self::start_broadcast), and returns
    /// at the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or there is no such root. After an error the bytes are
    /// undefined.
    pub fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), GroupError> {
        self.checked(self.group.has_rank(root))?;
        let tree: Tree = self.group.inner.tree.get();
        let what = What::of(Kind::BroadcastInto).over(tree).root(root);
        let call = Call::new(self.group, what, Some(bytes.len() as u64));
        let work = async |field: &Field<'_>| {
            let work =
                |call: Call| async move { call.do_broadcast_into((tree, root), field).await };
            call.run(work).await
        };
        with_borrowed(&self.group.inner.endpoint, bytes, work)
    }

    /// Gives every rank the bytes of all: `counts[r]` bytes of rank `r`, one behind the other in
    /// `all`. This rank's bytes stand at their place there when this is called. All ranks give the
    /// same counts; otherwise it fails with `Mismatch`.
    ///
    /// # Errors
    /// `Count` if there is not one count for each rank, or if their sum is not the length of `all`.
    pub fn start_allgather(&self, counts: &[usize], all: Vec<u8>) -> Started<Vec<u8>> {
        let blocks = blocks(counts);
        let sum = blocks.last().map_or(0, |last| last.end);
        let check = self.group.one_each(counts.len()).and(is(sum, all.len()));
        let what = What::of(Kind::AllgatherInto).root(hash(counts) as usize);
        let what = (what, Some(all.len()));
        self.group.begin_if(check, what, move |call| async move {
            with_owned(all, async |field| call.do_allgather_into(field, &blocks).await).await
        })
    }

    /// Gives every rank the bytes of all by [`start_allgather`](Self::start_allgather), and returns
    /// at the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed. `Count` if there is not one count for each rank, or if their
    /// sum is not the length of `all`. After an error the bytes are undefined.
    pub fn allgather(&self, counts: &[usize], all: &mut [u8]) -> Result<(), GroupError> {
        self.checked(self.group.one_each(counts.len()))?;
        let blocks = blocks(counts);
        self.fits(BYTES, blocks.last().map_or(0, |last| last.end), all.len())?;
        let what = What::of(Kind::AllgatherInto).root(hash(counts) as usize);
        let call = Call::new(self.group, what, Some(all.len() as u64));
        let blocks = &blocks[..];
        let work = async |field: &Field<'_>| {
            call.run(|call| async move { call.do_allgather_into(field, blocks).await }).await
        };
        with_borrowed(&self.group.inner.endpoint, all, work)
    }

    /// Sends `gives[r]` bytes of `from` to each rank `r`, one part behind the other, and gives
    /// `takes[r]` bytes of each rank `r` to this one.
    ///
    /// # Errors
    /// `Count` if there is not one number for each rank, or if the sum of `gives` is not the length
    /// of `from`; `Uneven` if a rank sends another number of bytes.
    pub fn start_alltoall(
        &self,
        gives: &[usize],
        from: Vec<u8>,
        takes: &[usize],
    ) -> Started<Vec<u8>> {
        let (given, taken) = (blocks(gives), blocks(takes));
        let sum = |blocks: &[Range<usize>]| blocks.last().map_or(0, |last| last.end);
        let check = self.group.one_each(gives.len()).and(self.group.one_each(takes.len()));
        let own = |counts: &[usize]| counts.get(self.group.rank()).copied().unwrap_or(0);
        let check = check.and(is(sum(&given), from.len())).and(is(own(gives), own(takes)));
        let what = (What::of(Kind::AlltoallInto), None);
        self.group.begin_if(check, what, move |call| async move {
            let (from, into) = (Slots::new(from), vec![0; sum(&taken)]);
            let parts = (&given[..], &taken[..]);
            with_owned(into, async |into| call.do_alltoall_into((&from, into), parts).await).await
        })
    }

    /// Exchanges parts by [`start_alltoall`](Self::start_alltoall): those of the others come
    /// into `into`. Returns at the end of the operation.
    ///
    /// # Errors
    /// A rank that is needed failed, or sends another number of bytes (`Uneven`). `Count` if there
    /// is not one number for each rank, or if their sums are not the lengths of `from` and `into`.
    /// After an error `into` is undefined.
    pub fn alltoall(
        &self,
        (gives, from): (&[usize], &[u8]),
        (takes, into): (&[usize], &mut [u8]),
    ) -> Result<(), GroupError> {
        self.checked(self.group.one_each(gives.len()).and(self.group.one_each(takes.len())))?;
        let (given, taken) = (blocks(gives), blocks(takes));
        self.fits(
            "the length of what is given",
            given.last().map_or(0, |last| last.end),
            from.len(),
        )?;
        self.fits(
            "the length of what is taken",
            taken.last().map_or(0, |last| last.end),
            into.len(),
        )?;
        let own = self.group.rank();
        self.fits("the length of the own part that is taken", gives[own], takes[own])?;
        let call = Call::new(self.group, What::of(Kind::AlltoallInto), None);
        let parts = (&given[..], &taken[..]);
        let work = async |from: &Field<'_>, into: &Field<'_>| {
            let work = |call: Call| async move { call.do_alltoall_into((from, into), parts).await };
            call.run(work).await
        };
        with_two(&self.group.inner.endpoint, (from, into), work)
    }
}

/// # Errors
/// The numbers differ.
pub(super) fn is(wanted: usize, given: usize) -> Result<(), OpError> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    match wanted == given {
        true => Ok(()),
        false => Err(OpError::Count { wanted: number(wanted), given: number(given) }),
    }
}

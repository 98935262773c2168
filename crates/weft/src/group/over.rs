//! Collective operations over a tree that all ranks name.

use super::agree::{Kind, What};
use super::collectives::{takes, Messages};
use super::element::{decode, encode};
use super::number::Kernel;
use super::sys::{with_owned, Field, Slots};
use super::{Element, Group, Op, Started, Tree};

/// The collective operations of a group over one tree.
pub struct Over<'a>(&'a Group, Tree);

impl Group {
    /// Returns the operations over a tree; all ranks name the same one.
    pub fn over(&self, tree: Tree) -> Over<'_> {
        Over(self, tree)
    }
}

impl Over<'_> {
    /// Ends when every rank has called this barrier: messages go up to rank 0, and down again. A
    /// [barrier](Group::barrier) without a tree sends more messages in all, but fewer of them in
    /// sequence, unless the tree is flat, which suits few ranks.
    pub fn barrier(self) -> Started<()> {
        let Over(group, tree) = self;
        let what = (What::of(Kind::Barrier).over(tree), None);
        group.begin(what, move |call| async move {
            let (kernel, nothing) = (Kernel::of::<u64>(Op::Sum), Slots::new(Vec::new()));
            call.do_reduce((tree, 0), &nothing, &kernel).await?;
            call.do_broadcast((tree, 0), Vec::new()).await.map(drop)
        })
    }

    /// Gives every rank the root's `data`; see [`Group::broadcast`].
    pub fn broadcast(self, root: usize, data: Vec<u8>) -> Started<Vec<u8>> {
        let Over(group, tree) = self;
        let len = (root == group.rank()).then_some(data.len());
        let what = (What::of(Kind::Broadcast).over(tree).root(root), len);
        group.begin_if(group.has_rank(root), what, move |call| async move {
            call.do_broadcast((tree, root), data).await
        })
    }

    /// Combines the vectors of all ranks at the root; see [`Group::reduce`].
    pub fn reduce<T: Element>(
        self,
        root: usize,
        values: Vec<T>,
        op: Op,
    ) -> Started<Option<Vec<T>>> {
        let Over(group, tree) = self;
        let what = What::of(Kind::Reduce).values::<T>(op).over(tree).root(root);
        let what = (what, Some(values.len() * T::SIZE));
        let check = takes::<T>(op).and_then(|()| group.has_rank(root));
        group.begin_if(check, what, move |call| async move {
            let kernel = Kernel::of::<T>(op);
            let work = async |field: &Field<'_>| call.do_reduce((tree, root), field, &kernel).await;
            let values = with_owned(values, work).await?;
            Ok((call.rank() == root).then_some(values))
        })
    }

    /// Combines the vectors of all ranks on every rank: the vectors are reduced to rank 0, which
    /// broadcasts the result. This sends fewer messages in all than [`Group::allreduce`].
    pub fn allreduce<T: Element>(self, values: Vec<T>, op: Op) -> Started<Vec<T>> {
        let Over(group, tree) = self;
        let what = What::of(Kind::Allreduce).values::<T>(op).over(tree);
        let what = (what, Some(values.len() * T::SIZE));
        group.begin_if(takes::<T>(op), what, move |call| async move {
            let kernel = Kernel::of::<T>(op);
            let work = async |field: &Field<'_>| call.do_reduce((tree, 0), field, &kernel).await;
            let all = encode(&with_owned(values, work).await?);
            Ok(decode(&call.do_broadcast((tree, 0), all).await?))
        })
    }

    /// Collects one message of every rank at the root: inner ranks add their message to those from
    /// below, so the root receives fewer messages than by [`Group::gather`], which pays for short
    /// ones.
    pub fn gather(self, root: usize, data: Vec<u8>) -> Started<Option<Messages>> {
        let Over(group, tree) = self;
        let what = (What::of(Kind::Gather).over(tree).root(root), None);
        group.begin_if(group.has_rank(root), what, move |call| async move {
            call.do_gather((tree, root), data).await
        })
    }
}

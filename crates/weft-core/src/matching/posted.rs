//! Posted receives.

use super::slab::{hash, Bins, List, Slab, ALL, ANY, NIL};
use super::RecvSpec;
use crate::PeerId;

/// Link of a node in its bin, or in the list of receives that ignore tag bits.
const CHAIN: usize = 1;

#[derive(Clone, Copy)]
struct Entry<R> {
    spec: RecvSpec,
    id: R,
}

/// Receives waiting for messages, each named by an `R` of the caller.
///
/// [`Posted::post`] and [`Posted::arrive`] take constant time for receives that compare all match
/// bits, with or without a source; those with an ignore mask are walked in order. Cancelling walks
/// all. Bounded by the receives the caller posts.
pub struct Posted<R: Copy + Eq> {
    slab: Slab<Entry<R>, 2>,
    bins: Bins,
    /// Receives with an ignore mask; kept only while the bins are in use.
    masked: List,
}

impl<R: Copy + Eq> Default for Posted<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Copy + Eq> Posted<R> {
    /// Makes an empty table without memory.
    pub const fn new() -> Self {
        Posted { slab: Slab::new(), bins: Bins::new(), masked: List::EMPTY }
    }

    /// Returns the number of receives waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns true if no receive waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Returns all waiting receives, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RecvSpec, R)> + '_ {
        let some = |at: u32| (at != NIL).then_some(at);
        let next = move |at: &u32| some(self.slab.next(ALL, *at));
        core::iter::successors(some(self.slab.oldest()), next).map(|at| {
            let entry = self.slab.entry(at);
            (entry.spec, entry.id)
        })
    }

    /// Adds a receive as the youngest.
    #[inline]
    pub fn post(&mut self, spec: RecvSpec, id: R) {
        if self.bins.too_small(self.slab.len()) {
            self.rebuild();
        }
        let at = self.slab.insert(Entry { spec, id });
        if self.bins.live() {
            self.chain(at);
        }
    }

    /// Removes and returns the oldest receive that accepts a message that arrived.
    #[inline]
    pub fn arrive(&mut self, source: PeerId, tag: u64) -> Option<R> {
        let at = if self.bins.live() {
            self.find_binned(source, tag)
        } else {
            self.slab.find(ALL, self.slab.oldest(), |e| e.spec.accepts(source, tag))
        };
        (at != NIL).then(|| self.remove(at))
    }

    /// Removes the receive `id`; false if it is not waiting.
    pub fn cancel(&mut self, id: R) -> bool {
        let at = self.slab.find(ALL, self.slab.oldest(), |e| e.id == id);
        if at != NIL {
            self.remove(at);
        }
        at != NIL
    }

    /// Removes every receive that names `peer` as its source, oldest first.
    pub fn fail_peer(&mut self, peer: PeerId, each: &mut dyn FnMut(R)) {
        let mut at = self.slab.oldest();
        while at != NIL {
            let next = self.slab.next(ALL, at);
            if self.slab.entry(at).spec.source == Some(peer) {
                each(self.remove(at));
            }
            at = next;
        }
    }

    /// Returns true if a receive waits that accepts messages of `peer`.
    pub fn any_for(&self, peer: PeerId) -> bool {
        let takes = |e: &Entry<R>| e.spec.source.is_none_or(|source| source == peer);
        self.slab.find(ALL, self.slab.oldest(), takes) != NIL
    }

    /// Frees the memory if no receive waits.
    pub fn shrink(&mut self) {
        self.slab.shrink();
        self.bins.shrink();
    }

    fn find_binned(&self, source: PeerId, tag: u64) -> u32 {
        let accepts = |e: &Entry<R>| e.spec.accepts(source, tag);
        let exact = self.bins.head(hash(source.0.into(), tag));
        let any = self.bins.head(hash(ANY, tag));
        [exact, any, self.masked.head]
            .map(|head| self.slab.find(CHAIN, head, accepts))
            .into_iter()
            .filter(|&at| at != NIL)
            .min_by_key(|&at| self.slab.age(at))
            .unwrap_or(NIL)
    }

    #[inline]
    fn remove(&mut self, at: u32) -> R {
        if self.bins.live() {
            let spec = self.slab.entry(at).spec;
            let ends = self.ends(&spec);
            let mut list = *ends;
            self.slab.unlink(CHAIN, &mut list, at);
            *self.ends(&spec) = list;
        }
        let id = self.slab.remove(at).id;
        self.bins.retire(self.slab.len());
        id
    }

    /// Returns the list in which a receive is chained while the bins are in use.
    fn ends(&mut self, spec: &RecvSpec) -> &mut List {
        if spec.ignore != 0 {
            return &mut self.masked;
        }
        self.bins.bin(hash(spec.source.map_or(ANY, |peer| peer.0.into()), spec.tag))
    }

    fn chain(&mut self, at: u32) {
        let spec = self.slab.entry(at).spec;
        let mut list = *self.ends(&spec);
        self.slab.append(CHAIN, &mut list, at);
        *self.ends(&spec) = list;
    }

    #[cold]
    fn rebuild(&mut self) {
        self.bins.rebuild(self.slab.len());
        self.masked = List::EMPTY;
        let mut at = self.slab.oldest();
        while at != NIL {
            self.chain(at);
            at = self.slab.next(ALL, at);
        }
    }
}

#[cfg(test)]
impl<R: Copy + Eq> Posted<R> {
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity() + self.bins.capacity()
    }
}

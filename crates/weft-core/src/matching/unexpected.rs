//! Unexpected messages.

use super::slab::{hash, Bins, Slab, ALL, ANY, NIL};
use super::RecvSpec;
use crate::PeerId;

/// Link of a node in the bin of its source and tag.
const EXACT: usize = 1;
/// Link of a node in the bin of its tag.
const TAG: usize = 2;

#[derive(Clone, Copy)]
struct Entry<U> {
    source: PeerId,
    tag: u64,
    id: U,
}

/// Messages waiting for a receive, each named by a `U` of the caller.
///
/// Adding takes constant time, and so does taking with a receive that compares all match bits, with
/// or without a source; an ignore mask makes it a walk over all. The caller bounds it (by credit).
pub struct Unexpected<U: Copy + Eq> {
    slab: Slab<Entry<U>, 3>,
    exact: Bins,
    tags: Bins,
}

impl<U: Copy + Eq> Default for Unexpected<U> {
    fn default() -> Self {
        Self::new()
    }
}

impl<U: Copy + Eq> Unexpected<U> {
    /// Makes an empty table without memory.
    pub const fn new() -> Self {
        Unexpected { slab: Slab::new(), exact: Bins::new(), tags: Bins::new() }
    }

    /// Returns the number of messages waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns true if no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Adds a message as the youngest.
    #[inline]
    pub fn add(&mut self, source: PeerId, tag: u64, id: U) {
        if self.exact.too_small(self.slab.len()) {
            self.rebuild();
        }
        let at = self.slab.insert(Entry { source, tag, id });
        if self.exact.live() {
            self.chain(at);
        }
    }

    /// Removes and returns the oldest message a receive accepts.
    #[inline]
    pub fn take(&mut self, spec: &RecvSpec) -> Option<U> {
        let at = self.find(spec);
        (at != NIL).then(|| self.remove_at(at))
    }

    /// Returns the oldest message a receive would accept.
    #[inline]
    pub fn peek(&self, spec: &RecvSpec) -> Option<U> {
        let at = self.find(spec);
        (at != NIL).then(|| self.slab.entry(at).id)
    }

    /// Removes the message `id`; false if it is not waiting.
    pub fn remove(&mut self, id: U) -> bool {
        let at = self.slab.find(ALL, self.slab.oldest(), |e| e.id == id);
        if at != NIL {
            self.remove_at(at);
        }
        at != NIL
    }

    /// Removes those messages of `peer` for which `keep` is false, oldest first.
    pub fn retain_of(&mut self, peer: PeerId, keep: &mut dyn FnMut(U) -> bool) {
        let mut at = self.slab.oldest();
        while at != NIL {
            let next = self.slab.next(ALL, at);
            let &Entry { source, id, .. } = self.slab.entry(at);
            if source == peer && !keep(id) {
                self.remove_at(at);
            }
            at = next;
        }
    }

    /// Frees the memory if no message waits.
    pub fn shrink(&mut self) {
        self.slab.shrink();
        self.exact.shrink();
        self.tags.shrink();
    }

    #[inline]
    fn find(&self, spec: &RecvSpec) -> u32 {
        let (list, head) = if !self.exact.live() || spec.ignore != 0 {
            (ALL, self.slab.oldest())
        } else if let Some(source) = spec.source {
            (EXACT, self.exact.head(hash(source.0.into(), spec.tag)))
        } else {
            (TAG, self.tags.head(hash(ANY, spec.tag)))
        };
        self.slab.find(list, head, |e| spec.accepts(e.source, e.tag))
    }

    #[inline]
    fn remove_at(&mut self, at: u32) -> U {
        if self.exact.live() {
            let &Entry { source, tag, .. } = self.slab.entry(at);
            let exact = self.exact.bin(hash(source.0.into(), tag));
            self.slab.unlink(EXACT, exact, at);
            self.slab.unlink(TAG, self.tags.bin(hash(ANY, tag)), at);
        }
        let id = self.slab.remove(at).id;
        self.exact.retire(self.slab.len());
        self.tags.retire(self.slab.len());
        id
    }

    fn chain(&mut self, at: u32) {
        let &Entry { source, tag, .. } = self.slab.entry(at);
        let exact = self.exact.bin(hash(source.0.into(), tag));
        self.slab.append(EXACT, exact, at);
        self.slab.append(TAG, self.tags.bin(hash(ANY, tag)), at);
    }

    #[cold]
    fn rebuild(&mut self) {
        self.exact.rebuild(self.slab.len());
        self.tags.rebuild(self.slab.len());
        let mut at = self.slab.oldest();
        while at != NIL {
            self.chain(at);
            at = self.slab.next(ALL, at);
        }
    }
}

#[cfg(test)]
impl<U: Copy + Eq> Unexpected<U> {
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity() + self.exact.capacity() + self.tags.capacity()
    }
}

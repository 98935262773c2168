//! Entries in a slab with several intrusive lists, and hash bins over one of those lists.

use alloc::vec::Vec;

/// No entry.
pub(super) const NIL: u32 = u32::MAX;
/// The list of all entries, oldest first.
pub(super) const ALL: usize = 0;
/// Above this number entries are also chained in bins; walking fewer is faster than hashing.
const BIN_ABOVE: usize = 12;
/// Bins are abandoned when no more entries than this are left; below [`BIN_ABOVE`] so that a number
/// that varies around one of them does not rebuild each time.
const UNBIN_BELOW: usize = 3;

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

const UNLINKED: Link = Link { prev: NIL, next: NIL };

/// Ends of a list.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub head: u32,
    tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NIL, tail: NIL };
}

struct Node<E, const LINKS: usize> {
    entry: E,
    /// Age: entries put in later have larger numbers.
    age: u64,
    links: [Link; LINKS],
}

/// Entries with `LINKS` lists through each.
pub(super) struct Slab<E, const LINKS: usize> {
    nodes: Vec<Node<E, LINKS>>,
    all: List,
    /// First vacant node; chained through `links[ALL].next`.
    vacant: u32,
    len: u32,
    age: u64,
}

impl<E: Copy, const LINKS: usize> Slab<E, LINKS> {
    pub const fn new() -> Self {
        Slab { nodes: Vec::new(), all: List::EMPTY, vacant: NIL, len: 0, age: 0 }
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the oldest entry, or [`NIL`].
    #[inline]
    pub fn oldest(&self) -> u32 {
        self.all.head
    }

    #[inline]
    pub fn entry(&self, at: u32) -> &E {
        &self.nodes[at as usize].entry
    }

    #[inline]
    pub fn age(&self, at: u32) -> u64 {
        self.nodes[at as usize].age
    }

    #[inline]
    pub fn next(&self, list: usize, at: u32) -> u32 {
        self.nodes[at as usize].links[list].next
    }

    /// Inserts an entry as the youngest.
    #[inline]
    pub fn insert(&mut self, entry: E) -> u32 {
        let node = Node { entry, age: self.age, links: [UNLINKED; LINKS] };
        self.age += 1;
        self.len += 1;
        let at = self.vacant;
        let at = if at == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            self.vacant = self.next(ALL, at);
            self.nodes[at as usize] = node;
            at
        };
        let mut all = self.all;
        self.append(ALL, &mut all, at);
        self.all = all;
        at
    }

    /// Removes an entry that is in no list but [`ALL`].
    #[inline]
    pub fn remove(&mut self, at: u32) -> E {
        let mut all = self.all;
        self.unlink(ALL, &mut all, at);
        self.all = all;
        self.len -= 1;
        let node = &mut self.nodes[at as usize];
        node.links[ALL].next = self.vacant;
        self.vacant = at;
        node.entry
    }

    /// Appends to a list.
    #[inline]
    pub fn append(&mut self, list: usize, ends: &mut List, at: u32) {
        self.nodes[at as usize].links[list] = Link { prev: ends.tail, next: NIL };
        match ends.tail {
            NIL => ends.head = at,
            tail => self.nodes[tail as usize].links[list].next = at,
        }
        ends.tail = at;
    }

    /// Removes from a list.
    #[inline]
    pub fn unlink(&mut self, list: usize, ends: &mut List, at: u32) {
        let Link { prev, next } = self.nodes[at as usize].links[list];
        match prev {
            NIL => ends.head = next,
            prev => self.nodes[prev as usize].links[list].next = next,
        }
        match next {
            NIL => ends.tail = prev,
            next => self.nodes[next as usize].links[list].prev = prev,
        }
    }

    /// Returns the first entry of a list, from `at` on, that `accept` accepts, or [`NIL`].
    #[inline]
    pub fn find(&self, list: usize, mut at: u32, mut accept: impl FnMut(&E) -> bool) -> u32 {
        while at != NIL {
            let node = &self.nodes[at as usize];
            if accept(&node.entry) {
                break;
            }
            at = node.links[list].next;
        }
        at
    }

    /// Frees the memory if there are no entries.
    pub fn shrink(&mut self) {
        if self.len == 0 {
            self.nodes = Vec::new();
            self.vacant = NIL;
        }
    }
}

/// Hash bins: lists through link `list` of a slab. Empty while few entries wait.
pub(super) struct Bins {
    lists: Vec<List>,
    live: bool,
}

impl Bins {
    pub const fn new() -> Bins {
        Bins { lists: Vec::new(), live: false }
    }

    /// Returns true if the bins are in use.
    #[inline]
    pub fn live(&self) -> bool {
        self.live
    }

    /// Returns true if the bins must be emptied and filled again before one more than `len`
    /// entries.
    #[inline]
    pub fn too_small(&self, len: usize) -> bool {
        len >= BIN_ABOVE && (!self.live || len >= 2 * self.lists.len())
    }

    /// Starts use of bins for twice `len` entries; the bins are empty afterwards.
    pub fn rebuild(&mut self, len: usize) {
        let size = (len.max(1) * 2).next_power_of_two().max(self.lists.len());
        self.lists.clear();
        self.lists.resize(size, List::EMPTY);
        self.live = true;
    }

    /// Ends use of the bins if so few entries are left that walking is faster; the memory stays.
    #[inline]
    pub fn retire(&mut self, len: usize) {
        if len <= UNBIN_BELOW {
            self.live = false;
        }
    }

    /// Returns the bin of a hash. Only while [`Bins::live`].
    #[inline]
    pub fn bin(&mut self, hash: u64) -> &mut List {
        let mask = self.lists.len() - 1;
        &mut self.lists[(hash >> 32) as usize & mask]
    }

    /// Returns the first entry of the bin of a hash.
    #[inline]
    pub fn head(&self, hash: u64) -> u32 {
        let mask = self.lists.len() - 1;
        self.lists[(hash >> 32) as usize & mask].head
    }

    /// Frees the memory if not in use.
    pub fn shrink(&mut self) {
        if !self.live {
            self.lists = Vec::new();
        }
    }
}

/// Hashes match bits and a source (or a number that is no source).
#[inline]
pub(super) fn hash(source: u64, tag: u64) -> u64 {
    // Fibonacci hashing; the fold lets high tag bits (communicators, handlers) reach the middle.
    let x = (tag ^ source.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// In place of a source: any.
pub(super) const ANY: u64 = 1 << 32;

#[cfg(test)]
impl<E: Copy, const LINKS: usize> Slab<E, LINKS> {
    pub fn capacity(&self) -> usize {
        self.nodes.capacity()
    }
}

#[cfg(test)]
impl Bins {
    pub fn capacity(&self) -> usize {
        self.lists.capacity()
    }
}

//! Messages about objects of classes that this rank has not registered: they wait for it, so many
//! of them.

use crate::net::Net;
use crate::order::Delivered;
use crate::rpc::Request;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of messages that wait; each counts some more, so that empty ones are bounded too.
const BYTES: usize = 16 << 20;
const EACH: usize = 64;

/// Something that waits for a class.
pub(super) enum Kept<N: Net> {
    /// A message of the order.
    Message(Delivered),
    /// A call to this rank.
    Call(Request<N>, Vec<u8>),
}

impl<N: Net> Kept<N> {
    fn len(&self) -> usize {
        let bytes = match self {
            Kept::Message(message) => &message.bytes,
            Kept::Call(_, args) => args,
        };
        bytes.len() + EACH
    }
}

/// The objects whose classes are not registered here, and what waits for them.
pub(super) struct Strange<N: Net> {
    classes: BTreeMap<u64, u32>,
    kept: Vec<(u32, Kept<N>)>,
    bytes: usize,
    /// Classes of which too much came.
    dropped: BTreeSet<u32>,
}

impl<N: Net> Default for Strange<N> {
    fn default() -> Strange<N> {
        let (classes, dropped) = (BTreeMap::new(), BTreeSet::new());
        Strange { classes, kept: Vec::new(), bytes: 0, dropped }
    }
}

impl<N: Net> Strange<N> {
    /// Notes the class of a new object.
    pub fn add(&mut self, object: u64, class: u32) {
        if !self.dropped.contains(&class) {
            self.classes.insert(object, class);
        }
    }

    /// Forgets an object whose class is registered by now.
    pub fn remove(&mut self, object: u64) {
        self.classes.remove(&object);
    }

    /// Returns the class of an object that waits for it.
    pub fn class_of(&self, object: u64) -> Option<u32> {
        self.classes.get(&object).copied()
    }

    /// True if too much came of a class: its objects are not known here.
    pub fn is_dropped(&self, class: u32) -> bool {
        self.dropped.contains(&class)
    }

    /// True if objects that others know may be unknown here.
    pub fn lacks_some(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Keeps something for a class. Returns the class that was dropped for it, and its calls, which
    /// nobody will answer.
    #[must_use]
    pub fn keep(&mut self, class: u32, kept: Kept<N>) -> Option<(u32, Vec<Request<N>>)> {
        if !self.dropped.contains(&class) {
            self.bytes += kept.len();
            self.kept.push((class, kept));
        } else if let Kept::Call(request, _) = kept {
            return Some((class, vec![request]));
        }
        if self.bytes <= BYTES {
            return None;
        }
        let mut sizes = BTreeMap::<u32, usize>::new();
        self.kept.iter().for_each(|(class, kept)| *sizes.entry(*class).or_default() += kept.len());
        let largest = sizes.into_iter().max_by_key(|(_, bytes)| *bytes)?.0;
        let all = self.take(largest);
        self.classes.retain(|_, class| *class != largest);
        self.dropped.insert(largest);
        let calls = all.into_iter().filter_map(|kept| match kept {
            Kept::Call(request, _) => Some(request),
            Kept::Message(_) => None,
        });
        Some((largest, calls.collect()))
    }

    /// Takes what waits for a class, in the order in which it came.
    pub fn take(&mut self, class: u32) -> Vec<Kept<N>> {
        let all = std::mem::take(&mut self.kept);
        let (mine, others) = all.into_iter().partition(|(of, _)| *of == class);
        self.kept = others;
        let mine: Vec<(u32, Kept<N>)> = mine;
        self.bytes -= mine.iter().map(|(_, kept)| kept.len()).sum::<usize>();
        mine.into_iter().map(|(_, kept)| kept).collect()
    }
}

//! A checker of sequential consistency.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A done operation. Values are written once, and 0 is the first.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The object.
    pub object: u64,
    /// The value that it read.
    pub read: Option<u64>,
    /// The value that it wrote.
    pub wrote: Option<u64>,
    /// True if nobody waited for it: it is lost with the rank of its object.
    pub posted: bool,
}

/// The operations of each rank in the order of its program.
pub type History = Rc<RefCell<BTreeMap<usize, Vec<Event>>>>;

/// Facts about the objects of a history.
pub struct Past {
    /// The values that each object had, in order.
    pub writes: BTreeMap<u64, Vec<u64>>,
    /// Objects that live at the end.
    pub live: Vec<u64>,
    /// Ranks that died or were cut off. Such a rank may have done or seen writes of which the
    /// others do not know. They know nothing of what it did afterwards, either.
    pub lost: Vec<usize>,
    /// The seed, for messages.
    pub seed: u64,
}

/// Operations, and which of them come before which others.
#[derive(Default)]
struct Graph {
    after: Vec<Vec<usize>>,
    /// Reads, each with the write that came after it.
    overtaken: Vec<(usize, usize)>,
    /// Values of objects that only ranks which are lost may know.
    hidden: BTreeSet<(u64, u64)>,
}

impl Graph {
    fn node(&mut self) -> usize {
        self.after.push(Vec::new());
        self.after.len() - 1
    }

    /// True if some order explains all operations; reads come before the writes that they do not
    /// know.
    fn is_acyclic(&self) -> bool {
        let mut all = self.after.clone();
        self.overtaken.iter().for_each(|&(read, write)| all[read].push(write));
        let mut missing = vec![0; all.len()];
        all.iter().flatten().for_each(|&at| missing[at] += 1);
        let mut free: Vec<usize> = (0..missing.len()).filter(|&at| missing[at] == 0).collect();
        let mut done = 0;
        while let Some(at) = free.pop() {
            done += 1;
            for &next in &all[at] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    free.push(next);
                }
            }
        }
        done == missing.len()
    }
}

impl Past {
    /// Checks that some order of all operations explains a history. The order of the writes of each
    /// object is known, so there is one if the order that each read and each program asks for has
    /// no cycle.
    pub fn explains(&self, history: &History) {
        let (graph, seed) = (self.graph(history), self.seed);
        let is_ordered = graph.is_acyclic();
        assert!(is_ordered, "seed {seed}: no order of all operations explains the history");
    }

    fn graph(&self, history: &History) -> Graph {
        let (mut graph, mut written) = (Graph::default(), BTreeMap::new());
        for (&object, values) in &self.writes {
            for (at, &value) in values.iter().enumerate() {
                let node = graph.node();
                let before = written.insert((object, value), node);
                assert_eq!(before, None, "seed {}: {value} was written twice", self.seed);
                if at > 0 {
                    graph.after[node - 1].push(node);
                }
            }
        }
        let history = history.borrow();
        let is_lost = |rank: &usize| self.lost.contains(rank);
        let (lost, whole): (Vec<_>, Vec<_>) = history.iter().partition(|(rank, _)| is_lost(rank));
        for (&rank, events) in lost.into_iter().chain(whole) {
            self.add(&mut graph, &written, rank, events);
        }
        graph
    }

    fn add(
        &self,
        graph: &mut Graph,
        written: &BTreeMap<(u64, u64), usize>,
        rank: usize,
        events: &[Event],
    ) {
        let seed = self.seed;
        let (mut last, mut lost) = (None, false);
        let is_lost = self.lost.contains(&rank);
        for event in events {
            let of = |value: u64| written.get(&(event.object, value)).copied();
            let is_unknown = |value: Option<u64>| value.is_some_and(|v| v > 0 && of(v).is_none());
            // One that failed, of which nobody was told, may be done later or never.
            let may_fail = !self.lost.is_empty() && !self.live.contains(&event.object);
            if event.posted && (may_fail || event.wrote.is_none_or(|value| of(value).is_none())) {
                continue;
            }
            if is_unknown(event.wrote) || is_unknown(event.read) {
                assert!(is_lost, "seed {seed}: {event:?} of rank {rank} is lost");
                lost = true;
            }
            if lost {
                // Its writes are lost too, or known to nobody else.
                let known = event.wrote.filter(|&value| of(value).is_some());
                let is_live = known.is_some() && self.live.contains(&event.object);
                assert!(!is_live, "seed {seed}: {event:?} of rank {rank} is not lost");
                graph.hidden.extend(known.map(|value| (event.object, value)));
                continue;
            }
            let hidden =
                event.read.is_some_and(|value| graph.hidden.contains(&(event.object, value)));
            assert!(is_lost || !hidden, "seed {seed}: {event:?} of rank {rank} should be hidden");
            let at = match event.wrote.and_then(of) {
                Some(node) => node,
                None => graph.node(),
            };
            if let Some(last) = last.replace(at) {
                graph.after[last].push(at);
            }
            let Some(read) = event.read else { continue };
            let all = self.writes.get(&event.object).map(Vec::as_slice).unwrap_or_default();
            let place = all.iter().position(|&value| value == read);
            let next = all.get(place.map_or(0, |place| place + 1)).copied();
            if let Some(wrote) = event.wrote {
                assert_eq!(next, Some(wrote), "seed {seed}: {event:?} of rank {rank}");
                continue;
            }
            if let Some(write) = of(read) {
                graph.after[write].push(at);
            }
            graph.overtaken.extend(next.and_then(of).map(|next| (at, next)));
        }
    }
}

//! The event queue: yields the earliest first, events of one instant in the order they were
//! scheduled.

use super::hardware::Ps;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Entry<T> {
    at: Ps,
    order: u64,
    what: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[derive(Debug)]
pub(super) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    scheduled: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), scheduled: 0 }
    }

    pub fn push(&mut self, at: Ps, what: T) {
        self.scheduled += 1;
        self.heap.push(Reverse(Entry { at, order: self.scheduled, what }));
    }

    pub fn pop(&mut self) -> Option<(Ps, T)> {
        self.heap.pop().map(|Reverse(e)| (e.at, e.what))
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn pop__by_time_then_by_order_of_scheduling() {
        let mut queue = Queue::new();
        for (at, what) in [(5, 'a'), (1, 'b'), (5, 'c'), (1, 'd')] {
            queue.push(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "bdac");
    }
}

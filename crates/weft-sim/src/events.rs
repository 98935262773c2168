//! The event queue: yields events in an order that depends on nothing but the inputs.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A packet reaches the first switch.
    Switch { packet: u32 },
    /// A packet asks for an output port.
    Port { packet: u32, port: u32 },
    /// A packet reaches its host's NIC.
    Arrive { packet: u32 },
    /// A host may run.
    Wake { host: u32 },
    /// A scripted fault begins: index into the list.
    Fault { index: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub at: u64,
    order: u64,
    pub what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Yields the earliest first; events of one instant in the order they were scheduled.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Event>>,
    scheduled: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: u64, what: What) {
        self.scheduled += 1;
        self.heap.push(Reverse(Event { at, order: self.scheduled, what }));
    }

    pub fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse(e)| e)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn pop__by_time_then_by_order_of_scheduling() {
        let mut q = EventQueue::default();
        for (at, host) in [(5, 0), (1, 1), (5, 2), (1, 3)] {
            q.push(at, What::Wake { host });
        }
        let order: Vec<_> = std::iter::from_fn(|| q.pop()).map(|e| (e.at, e.what)).collect();
        let want = [(1, 1), (1, 3), (5, 0), (5, 2)].map(|(t, host)| (t, What::Wake { host }));
        assert_eq!(order, want);
    }
}

//! Messages of objects at this rank that are not done: the more urgent first, others in their
//! order.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Work for an object.
pub(super) enum Work {
    /// A message from this rank.
    Own(Box<dyn Any>),
    /// The bytes of a message.
    Bytes(Vec<u8>),
    /// The bytes of a message that several objects get.
    Shared(Rc<[u8]>),
    /// The result of a reduction of the section of this number.
    Reduced(u16, Rc<[u8]>),
}

/// A message for an object, and its urgency.
pub(super) struct Item {
    pub array: u16,
    pub element: u32,
    pub priority: i32,
    /// The rank that has sent a message by another one.
    pub origin: Option<u32>,
    pub work: Work,
}

#[derive(Default)]
pub(super) struct Queue {
    plain: VecDeque<Item>,
    /// Items of other priorities than 0, and the number of items before.
    others: BTreeMap<(i32, u64), Item>,
    serial: u64,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.others.is_empty()
    }

    pub fn push(&mut self, item: Item) {
        if item.priority == 0 {
            return self.plain.push_back(item);
        }
        self.serial += 1;
        self.others.insert((item.priority, self.serial), item);
    }

    /// Takes the item with the least number as its priority; of several the oldest one.
    pub fn pop(&mut self) -> Option<Item> {
        let urgent = self.others.first_key_value().is_some_and(|((priority, _), _)| *priority < 0);
        if !urgent {
            if let Some(item) = self.plain.pop_front() {
                return Some(item);
            }
        }
        self.others.pop_first().map(|(_, item)| item)
    }

    pub fn clear(&mut self) {
        self.plain.clear();
        self.others.clear();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pop__the_most_urgent_first_and_equals_in_order() {
        let mut queue = Queue::default();
        for (element, priority) in [(0, 5), (1, 0), (2, -3), (3, 0), (4, -3), (5, 5), (6, -9)] {
            let work = Work::Bytes(Vec::new());
            queue.push(Item { array: 0, element, priority, origin: None, work });
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|item| item.element).collect();
        assert_eq!(order, [6, 2, 4, 1, 3, 0, 5]);
        assert!(queue.is_empty());
    }
}

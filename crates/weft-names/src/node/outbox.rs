//! The messages and events that a node has for its driver.

use super::{Event, Transmit};
use alloc::collections::VecDeque;

/// Messages and events that wait for the driver, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl Outbox {
    /// Adds a message. Returns the number of older ones that gave their place, of `max`.
    pub fn send(&mut self, message: Transmit, max: usize) -> u64 {
        add(&mut self.messages, message, max)
    }

    /// Adds an event. Returns the number of older ones that gave their place, of `max`.
    pub fn tell(&mut self, event: Event, max: usize) -> u64 {
        add(&mut self.events, event, max)
    }

    /// Returns the event that was added last, if it waits.
    pub fn last_event(&self) -> Option<&Event> {
        self.events.back()
    }

    pub fn next_message(&mut self) -> Option<Transmit> {
        self.messages.pop_front()
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn add<T>(queue: &mut VecDeque<T>, one: T, max: usize) -> u64 {
    let is_full = queue.len() >= max;
    if is_full {
        queue.pop_front();
    }
    queue.push_back(one);
    is_full.into()
}
